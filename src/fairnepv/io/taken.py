"""A few rows of table files with all their columns, in the order asked for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from fairnepv.io import arrow_files, folders
from fairnepv.io.arrow_files import Column
from fairnepv.io.capsules import column_rows, taken
from fairnepv.io.read import FEATURE_ENDINGS, read_features, table_source
from fairnepv.io.rows import Indices
from fairnepv.io.source import TABLE_ENDINGS, Source, parse_source


def take_rows(path: Any, indices: Indices) -> Any:
    """These rows of a Parquet or Arrow file, or of a folder of them, as a table of PyArrow; only
    the chunks that hold some of them are decoded."""
    source, _ = table_source(path)
    files, order = _files_of(source)
    wanted = indices if order is None else order[indices]
    types = arrow_files.column_types(files[0])
    columns = [
        _taken([Column(file.with_part(name), name, at, None) for file in files], wanted, kind)
        for at, (name, kind) in enumerate(types)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(types))


def _files_of(source: Source) -> tuple[list[Source], Indices | None]:
    """The files of a table in their order, and the rows that are taken of them, if not all are."""
    if not source.path.is_dir():
        return [source], None
    names, order = folders.table_files(source)
    return [source.inside(name) for name in names], order


def _taken(parts: list[Column], wanted: Indices, kind: Any) -> Any:
    """These values of a column that is cut into files, and each of them into chunks."""
    by_row = np.argsort(wanted, kind="stable")
    found, first = [], 0
    for part in parts:
        with arrow_files.reading_table(part.source):
            chunks = arrow_files.open_chunks(part)
            starts = first + np.array([0, *itertools.accumulate(chunks.lengths)])
            cuts = np.searchsorted(wanted[by_row], starts)
            for s, (begin, end) in enumerate(itertools.pairwise(cuts.tolist())):
                if begin < end:
                    rows = wanted[by_row[begin:end]] - starts[s]
                    found.append(taken(pa.chunked_array(chunks.arrays(s, 0)), rows))
            first = int(starts[-1])
    held = pa.chunked_array([c for column in found for c in column.chunks], type=kind)
    return taken(held, np.argsort(by_row))


def read_with_gaps(given: str | Source) -> Any:
    """The same as `read_features`, but of a column of tables rows may have no value: it is in
    memory then, and these rows are NaN."""
    source = parse_source(given, FEATURE_ENDINGS, folders=True)
    tables = source.ending in TABLE_ENDINGS
    if source.path.is_dir():
        tables = bool(folders.table_columns(source))
    column = _whole_column(source) if tables else None
    if column is None or not column.null_count:
        return read_features(source)
    return column_rows(column, str(source))


def _whole_column(source: Source) -> Any:
    """A column of a table file, or of a folder of them, in memory."""
    files, order = _files_of(source)
    found: list[Any] = []
    for file in files:
        column = arrow_files.choose_column(file)
        with arrow_files.reading_table(file):
            found += list(arrow_files.counted_chunks(column))
    whole = pa.chunked_array(found)
    return whole if order is None else taken(whole, order)


def count_rows(path: Any) -> int:
    """How many rows a table has, as its files say."""
    source, _ = table_source(path)
    files, order = _files_of(source)
    return sum(map(_count, files)) if order is None else len(order)


def _count(source: Source) -> int:
    (name, _), *_ = arrow_files.column_types(source)
    with arrow_files.reading_table(source):
        return sum(arrow_files.open_chunks(Column(source, name, 0, None)).lengths)
