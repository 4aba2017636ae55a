"""Whether arrays that were handed in still hold what they held when a result was made.

A pool does not copy the user's rows, and some questions about a result are answered by another pass
over them. An imprint remembers a checksum of some rows, so that what was overwritten in between is
found out; the others are compared with their norms (`cosines`).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError
from fairnepv.views.base import Indices, View
from fairnepv.views.pool import Pool

_ROWS = 256  # that are looked at besides the ones that are named


class Imprint(NamedTuple):
    pool: Pool
    rows: Indices
    checksums: tuple[bytes, ...]  # by view

    @classmethod
    def of(cls, pool: Pool, rows: Indices) -> Imprint:
        """Of these rows and of some others, evenly spread."""
        spread = np.linspace(0, pool.n - 1, min(_ROWS, pool.n)).astype(np.int64)
        rows = np.union1d(rows, spread)
        return cls(pool, rows, tuple(_checksum(view, rows) for view in pool.views))

    def check(self) -> None:
        """Refuse rows that are others by now."""
        for (name, view), before in zip(self.pool.items(), self.checksums, strict=True):
            if _checksum(view, self.rows) != before:
                raise changed(f"view {name!r}")


def changed(what: str) -> InputError:
    return InputError(
        f"{what} has been overwritten since the result was made, so that this would be answered "
        "from other rows; ask before it is overwritten, or hand in a copy"
    )


def _checksum(view: View, rows: Indices) -> bytes:
    if view.in_file:
        return b""  # a file is held against what it was whenever rows are read
    found = view.numbers_at(rows)
    parts = (found.indptr, found.indices, found.data) if sp.issparse(found) else (found,)
    checksum = hashlib.blake2b(digest_size=16)
    for part in parts:
        checksum.update(part.tobytes())
    return checksum.digest()
