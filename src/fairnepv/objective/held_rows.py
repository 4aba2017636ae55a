"""Few rows of one view, held densely: what a concave majorant is evaluated on."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

_CHUNK = 2048  # rows that are worth a thread of the host

Each = Callable[[Sequence[Callable[[], Any]]], Iterable[Any]]  # does independent calls, in order


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@dataclass(frozen=True)
class HeldRows:
    """Few rows of one view: as features (m, p), or as a kernel (m, m) where that is smaller.

    Held in float32, they give a value to about six digits in half of the time. They are at `place`,
    and so is what is as large as they are; x and prices are on the host.
    """

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    features: Any = None
    kernel: Any = None
    place: Any = HOST

    @classmethod
    def of(
        cls, view: View, rows: Indices, shift: float = 0.0, dtype: DTypeLike = np.float64
    ) -> HeldRows:
        """As the smaller of the two, without `shift` I of the kernel, which its ridge gets."""
        eps, place = view.ridge + max(shift, 0.0), view.place
        if view.p < len(rows) and not shift:
            features = view.dense_rows(rows)
            norms = place.get(place.square_sums(features))
            kind = getattr(place.xp, np.dtype(dtype).name)
            return cls(eps, norms, place.xp.astype(features, kind, copy=False), place=place)
        K = view.inner(rows, rows)
        K.flat[:: len(K) + 1] -= shift
        kernel = place.put(K.astype(dtype, copy=False))
        return cls(eps, np.diagonal(K).copy(), kernel=kernel, place=place)

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the rows are held in float64."""
        held = self.kernel if self.features is None else self.features
        return bool(held.dtype == self.place.xp.float64)

    @property
    def kind(self) -> type[np.floating[Any]]:
        return np.float64 if self.exact else np.float32

    def gram(self, root: Any, each: Each) -> Any:
        """X^T X or X X^T for X = diag(root) Phi, whichever is smaller."""
        if self.features is None:
            return root[:, None] * self.kernel * root
        parts = each([partial(_gram, self.features[c], root[c]) for c in self._chunks])
        return functools.reduce(operator.add, parts)

    def images(self, Y: Any, root: Any, lam: Floats, each: Each) -> tuple[Any, Any]:
        """Phi U, (m, r), where Y has multiples of eigenvectors of that matrix, with eigenvalues
        lam, and U the same of X^T X; for a kernel also B with Phi^T B = U."""
        if self.features is not None:
            chunks = list(
                each([partial(operator.matmul, self.features[c], Y) for c in self._chunks])
            )
            return chunks[0] if len(chunks) == 1 else self.place.xp.concat(chunks), None
        B = root[:, None] * (Y / self.place.put(np.sqrt(lam).astype(self.kind)))
        return self.kernel @ B, B

    @property
    def _chunks(self) -> list[slice]:
        """A fixed partition, so that sums do not depend on the number of threads; a device has
        its threads inside of one."""
        m = len(self.norms)
        size = _CHUNK if self.place is HOST else max(m, 1)
        return [slice(start, start + size) for start in range(0, m, size)]


def _gram(features: Any, root: Any) -> Any:
    weighted = root[:, None] * features
    return weighted.T @ weighted
