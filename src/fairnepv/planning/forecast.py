"""The record of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairnepv.io.frames import Table, Tabular
from fairnepv.io.memory import size_in_words
from fairnepv.problem import Means

PROGRAM = 42 << 20  # bytes of Python and the libraries that every run has loaded


@dataclass(frozen=True)
class DeviceNeeds:
    """Bytes on a device: rows that stay there, what is known of them, and blocks."""

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


@dataclass(frozen=True)
class Stage:
    """What one part of a run takes; `memory` is what it adds to what is there already."""

    name: str
    passes: float
    operations: float  # multiply-adds
    bytes_read: float  # of rows, from memory or from files
    memory: float
    seconds: float | None  # None where it is not known
    note: str = ""
    optional: bool = False  # only made when asked for


@dataclass(frozen=True, repr=False)
class Forecast(Tabular):
    """What a run will take: expected on this machine when it is quiet, not promised.

    `str()` gives it as text; `peak_memory` is what a limit is held against.
    """

    n: int
    k: int
    stages: tuple[Stage, ...]
    data_memory: float  # arrays that were handed in, which are there whatever we do
    loaded: float  # rows of files that will be decoded and kept
    kept: float  # from the first stage to the last
    means: Means
    block_numbers: int
    notes: tuple[str, ...] = ()
    device: DeviceNeeds | None = None  # of an engine that has one

    @property
    def peak_memory(self) -> float:
        """Bytes of anonymous memory that are added to the data; mapped files do not count."""
        return PROGRAM + self.loaded + self.kept + self.largest.memory

    @property
    def memory(self) -> float:
        """The same with the arrays that were handed in: all of the process."""
        return self.data_memory + self.peak_memory

    @property
    def largest(self) -> Stage:
        """The stage that takes the most memory."""
        return max(self._certain, key=lambda stage: stage.memory)

    @property
    def passes(self) -> float:
        return sum(stage.passes for stage in self._certain)

    @property
    def operations(self) -> float:
        return sum(stage.operations for stage in self._certain)

    @property
    def bytes_read(self) -> float:
        return sum(stage.bytes_read for stage in self._certain)

    @property
    def seconds(self) -> float | None:
        """None where it is not known, as for a cluster, or for sparse rows on a GPU."""
        each = [stage.seconds for stage in self._certain]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) if len(known) == len(each) else None

    @property
    def _certain(self) -> Iterator[Stage]:
        return (stage for stage in self.stages if not stage.optional)

    @property
    def headline(self) -> str:
        return self.summary()

    @property
    def table(self) -> Table:
        """One row per stage."""
        unknown = float("nan")
        columns = {
            "stage": np.array([stage.name for stage in self.stages], dtype=object),
            "passes": np.array([stage.passes for stage in self.stages]),
            "operations": np.array([stage.operations for stage in self.stages]),
            "bytes_read": np.array([stage.bytes_read for stage in self.stages]),
            "memory": np.array([stage.memory for stage in self.stages]),
            "seconds": np.array(
                [unknown if stage.seconds is None else stage.seconds for stage in self.stages]
            ),
            "note": np.array([stage.note for stage in self.stages], dtype=object),
            "optional": np.array([stage.optional for stage in self.stages]),
        }
        about = {"n": self.n, "k": self.k, "peak_memory": self.peak_memory, "notes": [*self.notes]}
        return Table(columns, about, "stages")

    def with_optional(self) -> Forecast:
        """The same where everything is asked for, as the command line does."""
        return replace(self, stages=tuple(replace(s, optional=False) for s in self.stages))

    def untimed(self) -> Forecast:
        """The same for an engine whose speed is not known."""
        return replace(self, stages=tuple(replace(s, seconds=None) for s in self.stages))

    def summary(self) -> str:
        """The totals in two sentences, and a third where there is a device."""
        expected = (
            "a time that is not known for this engine"
            if self.seconds is None
            else f"{self.seconds:.2g} s expected on this machine when it is quiet"
        )
        return (
            f"Choosing {self.k:,} of {self.n:,}: about {self.passes:.0f} passes over the rows, "
            f"{self.operations:.2g} multiply-adds, {size_in_words(int(self.bytes_read))} read, "
            f"{expected}.\n"
            f"Memory: at most {size_in_words(int(self.peak_memory))}, in {self.largest.name}, "
            f"besides {size_in_words(int(self.data_memory))} of data that is in memory already."
            + (f"\n{self.device}" if self.device else "")
        )

    def __str__(self) -> str:
        lines = [
            f"  {stage.name}: {stage.passes:.0f} passes, {stage.operations:.2g} multiply-adds, "
            f"{size_in_words(int(stage.memory))}"
            + (f", {stage.seconds:.2g} s" if stage.seconds is not None else "")
            + (f" ({stage.note})" if stage.note else "")
            for stage in self.stages
        ]
        return "\n".join([self.summary(), *lines, *(f"Note: {note}." for note in self.notes)])
