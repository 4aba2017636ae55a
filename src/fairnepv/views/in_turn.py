"""Variances of rows, each given the ones before it, where there are many more rows than columns."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Place
from fairnepv.compute.clock import check_time
from fairnepv.compute.place import Floats

MANY = 4  # times the columns: for fewer rows a factor of their kernel takes no longer
_AT_ONCE = 64  # rows at least, as fewer of them take no less time
_UNSTRAINED = 1e12  # trace K / eps up to which R below costs a logarithm no more than 1e-11


class Block(NamedTuple):
    """Some rows after the ones before them."""

    root: Any  # (b, b) upper triangular; its squared diagonal has the variances, with the ridge
    rest: Any  # (b, p) what the rows before leave of these

    def directions(self, place: Place) -> Any:
        """(b, p) what all before it leaves of each row, over the root of its variance."""
        return place.triangular_inverse(self.root).T @ self.rest


def suits(rows: int, columns: int, trace: float, eps: float) -> bool:
    """Whether `in_turn` is quicker than a factor of the kernel, and loses no digits."""
    return rows > MANY * columns and trace <= _UNSTRAINED * eps


def rows_at_once(columns: int) -> int:
    """In a block: as many as there are columns, and more of narrow rows."""
    return max(columns, _AT_ONCE)


def in_turn(place: Place, rows: Any, eps: float) -> Iterator[Block]:
    """Blocks of `rows_at_once` one after the other.

    Those before have B = eps I + Phi^T Phi = R^T R. They leave eps B^-1 x of a row x and
    eps (I + X B^-1 X^T) of the kernel of some rows X, of which W = X R^-1 squares nothing.
    """
    p, sigma = rows.shape[1], np.sqrt(eps)
    step = rows_at_once(p)
    R = place.put(sigma * np.eye(p))
    for start in range(0, len(rows), step):
        check_time()
        X = rows[start : start + step]
        inverse = place.triangular_inverse(R)
        W = sigma * (X @ inverse)
        yield Block(place.square_root(W.T, eps), sigma * (W @ inverse.T))
        R = place.xp.linalg.qr(place.xp.vstack([R, X]))[1]


def roots(place: Place, rows: Any, eps: float, many: bool) -> Floats:
    """(k,) roots of the variances of rows (k, p), up to signs: `in_turn` if they are many."""
    # Rows of a sparse view come without the columns that none of them has, perhaps with none.
    once = [] if many and rows.shape[1] else [place.square_root(rows.T, eps)]
    found = once or (block.root for block in in_turn(place, rows, eps))
    return np.concatenate([place.get(root.diagonal()) for root in found])
