"""What a bulk file says, in a Parquet file of its own: a part.

A part is named after the content that it was read from, so that a run that was interrupted finds
its parts again and one over other files does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairnepv_studies.files import kept
from fairnepv_studies.making import ROWS
from fairnepv_studies.uspto.documents import Documents
from fairnepv_studies.uspto.records import Malformed, Record

VERSION = 1  # of what is read from a record
_SCHEMA = pa.schema(
    [
        ("serial", pa.string()),
        ("transaction_date", pa.int32()),
        ("filing_date", pa.string()),
        ("mark", pa.string()),
        ("drawing_code", pa.string()),
        ("design_codes", pa.list_(pa.string())),
        ("description", pa.string()),
        ("malformed", pa.string()),
    ]
)
_SIMULATED = b"simulated"


@dataclass(frozen=True)
class Part:
    source: str  # the name of the bulk file
    path: Path

    @property
    def simulated(self) -> bool:
        metadata = pq.read_metadata(self.path).metadata or {}
        return bool(metadata.get(_SIMULATED) == b"yes")

    def order(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Serial number and transaction date of every row as one integer, and which rows are
        well-formed."""
        keys, sound = [], []
        with pq.ParquetFile(self.path) as file:
            columns = ["serial", "transaction_date", "malformed"]
            for batch in file.iter_batches(ROWS, columns=columns):
                good = batch.column("malformed").is_null().to_numpy(zero_copy_only=False)
                serials = np.zeros(len(good), np.int64)
                texts = batch.column("serial").filter(pa.array(good))
                serials[good] = texts.cast(pa.int64()).to_numpy()
                dates = batch.column("transaction_date").to_numpy()
                keys.append(serials * 100_000_000 + dates)
                sound.append(good)
        if not keys:
            return np.zeros(0, np.int64), np.zeros(0, bool)
        return np.concatenate(keys), np.concatenate(sound)

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(ROWS):
                yield batch.to_pylist()


def read_part(
    path: Path, sha256: str, folder: Path, progress: Callable[[int], None] = lambda _: None
) -> Part:
    """The part of a bulk file: the one that is there, or a new one."""
    made = kept(folder, f"{sha256}-{VERSION}", lambda to: _write(Documents(path), to, progress))
    return Part(path.name, made)


def _write(documents: Documents, target: Path, progress: Callable[[int], None]) -> None:
    with pq.ParquetWriter(target, _SCHEMA, compression="zstd") as writer:
        rows: list[tuple[Any, ...]] = []
        for record in documents.records():
            rows.append(_row(record))
            if len(rows) == ROWS:
                writer.write_table(_table(rows))
                rows.clear()
                progress(documents.done)
        if rows:
            writer.write_table(_table(rows))
        writer.add_key_value_metadata({_SIMULATED: b"yes" if documents.simulated else b"no"})


def _row(record: Record | Malformed) -> tuple[Any, ...]:
    if isinstance(record, Malformed):
        return (record.serial, 0, None, None, None, [], None, record.why)
    return (
        record.serial,
        record.transaction_date,
        record.filing_date,
        record.mark,
        record.drawing_code,
        record.design_codes,
        record.description,
        None,
    )


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def latest_rows(parts: list[Part]) -> list[NDArray[np.bool_]]:
    """Which rows of every part hold the latest transaction of their serial number: the highest
    date, and of equal dates the last in the order of files."""
    orders = [part.order() for part in parts]
    keys = np.concatenate([key for key, _ in orders])
    sound = np.concatenate([good for _, good in orders])
    places = np.flatnonzero(sound)
    places = places[np.argsort(keys[places], kind="stable")]
    serials = keys[places] // 100_000_000
    last = np.ones(len(places), bool)
    last[:-1] = serials[1:] != serials[:-1]
    latest = np.zeros(len(keys), bool)
    latest[places[last]] = True
    ends = np.cumsum([len(key) for key, _ in orders])[:-1]
    return np.split(latest, ends)
