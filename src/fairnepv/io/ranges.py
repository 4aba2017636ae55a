"""Numbers in a file that is not on a local disk: only the ranges that hold the rows are fetched."""

from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.io.places import filesystem_error, map_each
from fairnepv.io.rows import FileVersion, Indices, MappedRows, NumberRows, Rows, row_range

_LARGEST = 1 << 24  # bytes of one request: one that fails is repeated as a whole
_HOLE = 1 << 18  # bytes between two rows that are quicker to fetch and drop than to leave out

Span = tuple[int, int]  # rows or numbers, from the first up to the last


def number_rows(file: FileVersion, *layout: Any, **about: Any) -> NumberRows:
    """Rows of numbers of a known layout, mapped into memory where the file is local."""
    kind = MappedRows if isinstance(file.path, Path) else RangedRows
    return kind(file, *layout, **about)


class RangedRows(NumberRows):
    """Rows of a remote file, by ranges; those that lie close together come in one request."""

    waits = True

    @property
    def random_access(self) -> bool:  # type: ignore[override]
        return not self.fortran

    @cached_property
    def _opened(self) -> Any:
        assert not isinstance(self.file.path, Path)
        return self.file.path.opened()

    def read(self, start: int, stop: int) -> Rows:
        self.file.check(start, stop)
        return self._fetched([(start, stop)])

    def gather(self, indices: Indices) -> Rows:
        if not len(indices):
            return np.empty((0, self.shape[1]), self.dtype)
        wanted = np.unique(indices)
        self.file.check(int(wanted[0]), int(wanted[-1]) + 1)
        stride = self.stored.itemsize * (1 if self.fortran else max(1, self.shape[1]))
        cuts = np.flatnonzero(np.diff(wanted) > max(1, _HOLE // stride)) + 1
        spans = [(int(run[0]), int(run[-1]) + 1) for run in np.split(wanted, cuts)]
        fetched = np.concatenate([np.arange(start, stop) for start, stop in spans])
        return np.take(self._fetched(spans), np.searchsorted(fetched, indices), axis=0)

    def _fetched(self, spans: list[Span]) -> Rows:
        """The rows of all spans, end to end."""
        n, p = self.shape
        if not self.fortran:
            rows = self._numbers([(a * p, b * p) for a, b in spans], spans)
            return self._widened(rows.reshape(sum(b - a for a, b in spans), p))
        numbers = self._numbers([(j * n + a, j * n + b) for j in range(p) for a, b in spans], spans)
        return self._widened(numbers.reshape(p, sum(b - a for a, b in spans)).T)

    def _numbers(self, ranges: list[Span], spans: list[Span]) -> Rows:
        """These numbers, end to end; `spans` are their rows, for messages."""
        numbers = np.empty(sum(b - a for a, b in ranges), self.stored)
        content, size = numbers.view(np.uint8).data, self.stored.itemsize
        pieces: list[tuple[int, memoryview]] = []
        at, most = 0, max(1, _LARGEST // size)
        for a, b in ranges:
            for first, last in pairwise([*range(a, b, most), b]):
                length = (last - first) * size
                pieces.append((self.offset + first * size, content[at : at + length]))
                at += length
        where = row_range(spans[0][0], spans[-1][1])
        map_each(lambda piece: self._fill(piece[0], piece[1], where), pieces, waits=True)
        return numbers

    def _fill(self, offset: int, content: memoryview, where: str) -> None:
        try:
            found = self._opened.read_at(len(content), offset)
        except Exception as error:
            raise filesystem_error(f"{self.origin} at {where}", error) from error
        if len(found) != len(content):
            raise InputError(f"{self.origin} ends before {where}; write or copy it again")
        content[:] = found
