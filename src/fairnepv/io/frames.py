"""Records as tables: a record names its table once, and every form of it is made from that.

pandas, Polars and PyArrow are imported when they are asked for, so that a record costs nothing.
"""

from __future__ import annotations

import html
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.display import shown
from fairnepv.errors import FairnepvError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_SHOWN = 10  # rows of a table that stand in a repr
_DIGITS = 5
METADATA = b"fairnepv"  # the key of what holds for a table of Arrow as a whole


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and what holds for the table as a whole."""

    columns: Mapping[str, NDArray[Any]]  # objects are texts, or None where there is none
    about: Mapping[str, Any]
    rows_are: str  # what a row is called in JSON, such as "picks"
    listed: str | None = None  # the column that stands alone in a list of text, if there is one

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


class Tabular:
    """A record that is a table: a subclass says what stands in it, and what it is in a line.

    The forms below show the table and compute nothing.
    """

    @property
    def table(self) -> Table:
        """Columns by name, and what holds for the record as a whole."""
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """What this is, in one line or a few."""
        raise NotImplementedError

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary of plain values for each row of the table."""
        return by_row({name: _plain(values) for name, values in self.table.columns.items()})

    def to_arrow(self) -> pyarrow.Table:
        """The table for Arrow; its metadata has what holds for the record, as JSON."""
        return arrow_table(self.table)

    def to_pandas(self) -> pandas.DataFrame:
        """The table for pandas; `attrs` has what holds for the record."""
        table = self.table
        frame: pandas.DataFrame = _library("pandas", self).DataFrame(_by_name(table))
        frame.attrs["fairnepv"] = dict(table.about)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The table for Polars."""
        frame: polars.DataFrame = _library("polars", self).DataFrame(_by_name(self.table))
        return frame

    def __repr__(self) -> str:
        return "\n".join([self.headline, *(f"  {line}" for line in _lines(self.table))])

    def _repr_html_(self) -> str:
        return f"{as_html(self.headline)}{_html_table(self.table)}"


def by_row(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """A dictionary for each row of these columns."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def arrow_table(table: Table) -> pyarrow.Table:
    """The table for Arrow; texts go through Python, as Arrow cuts those of NumPy at a NUL."""
    import pyarrow as pa

    columns = {}
    for name, values in table.columns.items():
        texts = values.dtype.kind in "OUT"
        columns[name] = pa.array(values.tolist(), pa.string()) if texts else pa.array(values)
    about = to_json(table.about, indent=None)
    return pa.table(columns).replace_schema_metadata({METADATA: about})


def to_json(document: Any, indent: int | None = 1) -> str:
    """JSON in letters of ASCII, none of which a terminal obeys; a number that is not finite, for
    which JSON has no word, is null."""
    text = json.dumps(_finite(document), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _finite(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def _plain(values: NDArray[Any]) -> list[Any]:
    return values.tolist()  # type: ignore[no-any-return]  # a column is not a number


def _by_name(table: Table) -> dict[str, Any]:
    """Columns as data frames take them: their own texts are not those of NumPy."""
    texts = "OUT"
    return {n: _plain(v) if v.dtype.kind in texts else v for n, v in table.columns.items()}


def _library(name: str, record: object) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        kind = type(record).__name__
        raise FairnepvError(
            f"{kind}.to_{name} needs {name}, which cannot be imported ({error}); "
            f"`pip install {name}`, or take to_arrow() or to_rows()"
        ) from error


# --- as text and as HTML --------------------------------------------------------------------------


def as_html(text: str) -> str:
    """A few lines as they stand, whatever is in them."""
    return f'<pre style="white-space:pre-wrap;margin:0">{escaped(text)}</pre>'


def escaped(text: str) -> str:
    """Text for HTML; a line break stays one, other controls are made visible."""
    return "\n".join(html.escape(shown(line)) for line in text.split("\n"))


def _cells(table: Table) -> list[list[str]]:
    """The heading and the first rows, as people read them."""
    first = [values[:_SHOWN].tolist() for values in table.columns.values()]
    rows = [[_cell(value) for value in row] for row in zip(*first, strict=True)]
    return [list(map(shown, table.columns)), *rows]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{_DIGITS}g}"
    return "" if value is None else shown(value)


def _rest(table: Table) -> list[str]:
    left = len(table) - _SHOWN
    return [f"... and {left:,} more"] if left > 0 else []


def _lines(table: Table) -> list[str]:
    """Columns of text, numbers to the right."""
    cells = _cells(table)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [np.asarray(values).dtype.kind in "biuf" for values in table.columns.values()]
    lines = [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return [*lines, *_rest(table)]


def _html_table(table: Table) -> str:
    heading, *rows = [[html.escape(cell) for cell in row] for row in _cells(table)]
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heading)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    rest = "".join(f"<div>{line}</div>" for line in _rest(table))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
