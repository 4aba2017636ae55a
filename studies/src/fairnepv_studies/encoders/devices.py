"""Where PyTorch computes, so that a row depends on its content alone.

On a CPU contents go through the network one by one: kernels are chosen by shape, and a batch of 32
differs from 32 batches of one in the last bits. On one thread that is also the fastest way for
pictures (EfficientNet-Lite0: 29 ms each, 82 in batches of 32); short texts take half as long again.
A GPU needs batches; they always have the same shape there, filled up with zeros, so that the
kernels are the same whatever a batch holds.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv_studies.encoders.base import need

AT_ONCE = 64  # contents of a batch on a GPU


@dataclass(frozen=True)
class Device:
    name: str  # cpu or cuda
    threads: int
    torch: Any

    @classmethod
    def open(cls, encoder: str, name: str, threads: int) -> Device:
        torch = need(encoder, "torch", "PyTorch")
        if name == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: PyTorch sees no GPU here; use --device cpu")
        return cls(name, threads, torch)

    @property
    def runtime(self) -> dict[str, Any]:
        """The instructions that PyTorch finds on a CPU decide on its kernels, as a GPU does."""
        device = (
            self.torch.cuda.get_device_name()
            if self.name == "cuda"
            else f"cpu {platform.machine()} {self.torch.backends.cpu.get_cpu_capability()}"
        )
        return {"torch": str(self.torch.__version__), "device": device, "threads": self.threads}

    @property
    def at_once(self) -> int:
        return AT_ONCE if self.same_shapes else 1

    @property
    def same_shapes(self) -> bool:
        """Whether contents have to be of one shape."""
        return self.name == "cuda"

    def rows(
        self, forward: Callable[..., Any], contents: Sequence[tuple[Any, ...]]
    ) -> NDArray[np.float32]:
        """What `forward` makes of the tensors of every content, laid end to end."""
        with self._settings():
            if self.same_shapes:
                found = [
                    self._filled(forward, contents[i : i + AT_ONCE])
                    for i in range(0, len(contents), AT_ONCE)
                ]
            else:
                found = [forward(*(part[None] for part in content)) for content in contents]
        rows: NDArray[np.float32] = np.concatenate([row.float().cpu().numpy() for row in found])
        return rows

    def _filled(self, forward: Callable[..., Any], contents: Sequence[tuple[Any, ...]]) -> Any:
        missing = AT_ONCE - len(contents)
        stacks = [
            self.torch.stack([*parts, *[self.torch.zeros_like(parts[0])] * missing]).to(self.name)
            for parts in zip(*contents, strict=True)
        ]
        return forward(*stacks)[: len(contents)]

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        torch, before = self.torch, self.torch.get_num_threads()
        torch.set_num_threads(self.threads)
        exact = (
            torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
            if self.name == "cuda"
            else contextlib.nullcontext()
        )
        try:
            with torch.inference_mode(), exact:
                yield
        finally:
            torch.set_num_threads(before)
