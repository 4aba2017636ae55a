"""What a run takes on a device: rows that stay there, what is known of them, and blocks."""

from __future__ import annotations

from dataclasses import dataclass

from fairnepv.compute.device import TorchEngine
from fairnepv.io.memory import size_in_words
from fairnepv.planning.facts import ViewFacts
from fairnepv.problem import Problem

_KNOWN = 8 + 4 + 8 + 8  # bytes by row and view that greedy keeps, and makes in a pass over all
_SWAP_WIDTH = 4  # times (M + 2) k numbers by row of the widest pass
_ON_THEIR_WAY = 3  # blocks: filled, copied and computed with


@dataclass(frozen=True)
class DeviceNeeds:
    """In bytes."""

    device: str
    resident: float  # rows that stay there, with those that were there before
    streamed: float  # rows that every pass sends
    known: float  # what is kept there of all rows: variances, or a swap table
    block: float  # rows in float64, and what is made of them

    @property
    def memory(self) -> float:
        return self.resident + self.known + self.block

    def __str__(self) -> str:
        resident, streamed, known, block, memory = (
            size_in_words(int(x))
            for x in (self.resident, self.streamed, self.known, self.block, self.memory)
        )
        sent = f", {streamed} sent with every pass" if self.streamed else ""
        return (
            f"On {self.device}: about {memory}, of which {resident} are rows that stay there{sent}"
            f", {known} what is kept of all rows and {block} a block with what is made of it."
        )


def device_needs(problem: Problem) -> DeviceNeeds | None:
    """None for an engine that computes where the rows are."""
    pool, engine = problem.pool, problem.pool.engine
    if not isinstance(engine, TorchEngine):
        return None
    n, M, k = problem.n, len(pool.views), problem.k
    room, resident, streamed = float(engine.room), 0.0, 0.0
    for view in map(ViewFacts, pool.views):
        size, there = view.size_there, view.is_on(engine.device)
        if there or (size <= room and view.moves_to(engine.device)):
            resident, room = resident + size, room - (0.0 if there else size)
        else:
            streamed += size
    table = 4.0 * n * M * (k + 1) if n * M * k <= problem.means.table else 0.0
    width = _SWAP_WIDTH * (M + 2) * k
    rows = min(n, engine.rows_of_block(pool, width))
    sent = streamed / n * rows * (_ON_THEIR_WAY - 1)
    block = 8.0 * rows * (pool.row_width + width) + sent
    return DeviceNeeds(str(engine.device), resident, streamed, _KNOWN * n * M + table, block)
