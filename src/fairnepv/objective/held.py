"""Few rows of one view, held for the concave relaxation of log-determinants."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fairnepv.compute import HOST
from fairnepv.objective.ritz import CRUDE
from fairnepv.views import View
from fairnepv.views.base import Floats, Indices

_CHUNK = 2048  # rows that are worth a thread of the host
_SPARSE = 16.0  # times as long as one of BLAS takes a multiply-add per non-zero, there and back
LEAST_WEIGHT = 1e-3  # of a view: all that weigh less are looked at alike

Each = Callable[[Sequence[Callable[[], Any]]], Iterable[Any]]  # does independent calls, in order


def one_by_one(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


@dataclass(frozen=True)
class HeldRows:
    """Few rows of one view: as features (m, p), or as a kernel (m, m) where that is smaller, which
    need not be made of rows that are sparse.

    Held in float32, they give a value to about six digits in half of the time. They are at `place`,
    and so is what is as large as they are; x and prices are on the host. A value that may be
    `rough` is quicker still where they are many.
    """

    eps: float
    norms: Floats  # (m,) diagonal of the kernel
    features: Any = None
    kernel: Any = None
    place: Any = HOST
    rough: float = 0.0  # nats per item that a value may be too large by
    sparse: Any = None  # CSR rows (m, p), in place of their kernel

    @classmethod
    def of(
        cls,
        view: View,
        rows: Indices,
        shift: float = 0.0,
        dtype: DTypeLike = np.float64,
        rough: float = 0.0,
    ) -> HeldRows:
        """As the smaller of the two, without `shift` I of the kernel, which its ridge gets."""
        eps, place, m = view.ridge + max(shift, 0.0), view.place, len(rows)
        kind, held = getattr(place.xp, np.dtype(dtype).name), None
        lean = not view.array_anchors and _SPARSE * view.stored < view.n * min(m, view.p)
        if rough and not shift and place is HOST and lean:
            norms, held = view.squared_norms_at(rows), view.rows(rows).astype(dtype)
            return cls(eps, norms, sparse=held, rough=rough)
        if not shift and (view.p < m or view.array_anchors):
            features = view.dense_rows(rows)
            norms = place.get(place.square_sums(features))
            held = place.xp.astype(features, kind, copy=False)
            if view.p < m:
                return cls(eps, norms, held, place=place, rough=rough)
            return cls(eps, norms, kernel=held @ held.T, place=place, rough=rough)
        K = view.inner(rows, rows)
        K.flat[:: len(K) + 1] -= shift
        kernel = place.put(K.astype(dtype, copy=False))
        return cls(eps, np.diagonal(K).copy(), kernel=kernel, place=place, rough=rough)

    def take(self, some: Indices) -> HeldRows:
        """Some of them, of a kernel."""
        if self.kernel is None:
            return replace(self, norms=self.norms[some], sparse=self.sparse[some])
        there = self.place.put(some)
        return replace(self, norms=self.norms[some], kernel=self.kernel[there[:, None], there])

    def weighing(self, weight: float) -> HeldRows:
        """The same where a value counts for so much of another one, which may be rough: a view that
        hardly matters is asked for little."""
        return replace(self, rough=self.rough / max(weight, LEAST_WEIGHT)) if self.rough else self

    @functools.cached_property
    def exact(self) -> bool:
        """Whether the rows are held in float64."""
        held = next(x for x in (self.features, self.kernel, self.sparse) if x is not None)
        return bool(held.dtype == self.place.xp.float64)

    @property
    def crude(self) -> bool:
        """Whether a value may be so rough that any vectors will do in the end."""
        return self.rough >= CRUDE

    @property
    def side(self) -> int:
        """Of the matrix whose eigenvectors are wanted."""
        return len(self.norms) if self.features is None else int(self.features.shape[1])

    @property
    def kind(self) -> type[np.floating[Any]]:
        return np.float64 if self.exact else np.float32

    def gram(self, root: Any, each: Each) -> Any:
        """X^T X or X X^T for X = diag(root) Phi, whichever is smaller."""
        if self.features is None:
            if self.kernel is None:
                weighted = self.sparse.multiply(root[:, None]).tocsr()
                return HOST.dense(weighted @ weighted.T)
            product = root[:, None] * self.kernel
            product *= root
            return product
        parts = each([partial(_gram, self.features[c], root[c]) for c in self._chunks])
        return functools.reduce(operator.add, parts)

    def images(self, Y: Any, root: Any, each: Each) -> Any:
        """Phi Y, (m, r), for vectors Y of the first kind; for a kernel K diag(root) Y."""
        if self.features is None:
            weighted = root[:, None] * Y
            if self.kernel is None:
                return self.sparse @ (self.sparse.T @ weighted)
            return self.kernel @ weighted
        products = [partial(operator.matmul, self.features[c], Y) for c in self._chunks]
        chunks = list(each(products))
        return chunks[0] if len(chunks) == 1 else self.place.xp.concat(chunks)

    def product(self, V: Any, root: Any) -> tuple[Any, Any]:
        """The images of V, and that matrix times V, which is never made."""
        images = self.images(V, root, one_by_one)
        if self.features is None:
            return images, root[:, None] * images
        return images, self.features.T @ (root[:, None] ** 2 * images)

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
