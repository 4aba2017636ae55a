"""Work that is told to a device many times over, at fixed addresses: on CUDA a graph of kernels,
captured once, which is replayed sooner than its kernels are told one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replayable(work: Callable[[], None], restart: Callable[[], None], device: Any) -> Any:
    """What does `work` when called. `restart` sets numbers back that the work counts up; the work
    is tried out some times, and no result of that may matter."""
    if "cuda" not in str(device):
        return work
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):  # streams and graphs are those of the current
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries allocate what they need when first called
            for _ in range(2):
                restart()
                work()
        torch.cuda.current_stream().wait_stream(aside)
        restart()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    return graph.replay
