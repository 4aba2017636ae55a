"""One process, or several that `accelerate launch` started on the same disk, and the settings under
which a result repeats.

Each process works on a share of every step; sums over processes make the step the same, up to
rounding, for any number of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fairnepv_studies.downstream.models import need

Part = TypeVar("Part")


@dataclass(frozen=True)
class Processes:
    rank: int
    count: int
    device: Any

    @classmethod
    def join(cls) -> Processes:
        # Without this cuBLAS may sum in another order from run to run.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch = need("torch")
        if "LOCAL_RANK" not in os.environ:
            return cls(0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        state = need("accelerate").PartialState()
        return cls(state.process_index, state.num_processes, state.device)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, parts: Sequence[Part]) -> list[Part]:
        """Of this process, in order; together they are all."""
        cuts = np.linspace(0, len(parts), self.count + 1).round().astype(int)
        return list(parts[cuts[self.rank] : cuts[self.rank + 1]])

    def sum(self, tensors: Sequence[Any]) -> None:
        """In place, over all processes."""
        if self.count == 1:
            return
        torch, distributed = need("torch"), need("torch.distributed")
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            need("accelerate").PartialState().wait_for_everyone()


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Kernels whose result does not change from run to run, where there are such; the rest of them
    say so in a warning of PyTorch."""
    torch = need("torch")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    benchmark = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.backends.cudnn.benchmark = benchmark
