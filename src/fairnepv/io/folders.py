"""Folders that stand for one set of rows: numbered shards of arrays or tables, in the order of
their numbers; Hugging Face data sets; and what `fairnepv convert` wrote.

A shard that is missing from the middle shifts every row behind it, so numbers must have no gaps.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io import manifest, table_rows
from fairnepv.io.arrow_files import column_names
from fairnepv.io.documents import read_document
from fairnepv.io.numpy_files import read_npy
from fairnepv.io.places import AnyPath, map_each, regular_file
from fairnepv.io.rows import Reordered, RowFile, Shards
from fairnepv.io.source import TABLE_ENDINGS, Source, choose_part

_STATE, _DICT = "state.json", "dataset_dict.json"
_REMEDY = "save the data set again"
_METADATA = "metadata"  # where clip-retrieval puts what it knows of the rows
_NUMBERED = re.compile(r"(?P<prefix>.*?)[-_.]?(?P<number>\d+)(-of-(?P<of>\d+))?")

_Order = NDArray[np.int64] | None
T = TypeVar("T")


def open_folder(source: Source) -> RowFile:
    """The rows of a folder; PART is a column of tables, or which shards where there are several."""
    if manifest.is_at(source):
        return manifest.open_rows(_without_part(source))
    arrays = [] if _is_data_set(source) else _files(source, (".npy",))
    if arrays:
        return _open_arrays(source, arrays)
    names, order = table_files(source)
    return _open_tables(source, names, order) if names else open_folder(_subfolder(source))


def read_folder_ids(source: Source, default: str) -> NDArray[Any]:
    """One value per row: ids of a converted folder, or a column of tables."""
    if manifest.is_at(source):
        ids = manifest.read_ids(_without_part(source))
        if ids is None:
            raise InputError(
                f"{source.path} was converted without ids; convert it again with --ids"
            )
        return ids
    names, order = table_files(source)
    if not names and source.inside(_METADATA).path.is_dir():
        return read_folder_ids(source.inside(_METADATA), default)
    if not names:
        raise InputError(f"{source.path} holds no tables with ids; name a file of ids")
    columns = _read_each(source, names, lambda file: table_rows.read_column(file, default))
    values = np.concatenate(columns)
    return values if order is None else values[_check_order(source.path, order, len(values))]


def table_columns(source: Source) -> list[str]:
    """The columns of the tables in a folder; none where its rows are in something else."""
    if not _is_data_set(source) and _files(source, (".npy",)):
        return []  # tables beside arrays may be about anything
    names, _ = table_files(source)
    return column_names(source.inside(names[0])) if names else []


def _read_each(source: Source, names: Sequence[str], read: Callable[[Source], T]) -> list[T]:
    """What is read of each of these files."""
    return map_each(read, [source.inside(name) for name in names], waits=source.is_remote)


def _open_arrays(source: Source, names: Sequence[str]) -> RowFile:
    groups = _numbered(names)
    if not groups:
        raise InputError(
            f"{source.path} has no numbered .npy files; name them like part_0.npy, or name one "
            "file of the folder"
        )
    others = sorted(set(names) - {name for group in groups.values() for _, name in group})
    if others and source.part is None:
        named = "".join(f", or name those to read, as in {source.path}:{g}" for g in groups if g)
        raise InputError(
            f"{source.path} has {others[0]} beside numbered .npy files, which may or may not be "
            f"one of them; move it elsewhere{named}"
        )
    prefix = choose_part(source, list(groups), "shard name")
    files = _in_order(source.path, groups[prefix])
    return Shards(_read_each(source, files, _matrix), str(source))


def _matrix(source: Source) -> RowFile:
    rows = read_npy(source.with_part(None))
    if not isinstance(rows, RowFile):
        raise InputError(
            f"{source.path} must hold a matrix of numbers, not {rows.dtype} of shape {rows.shape}"
        )
    return rows


def _open_tables(source: Source, names: Sequence[str], order: _Order) -> RowFile:
    cache = table_rows.ChunkCache()

    def open_table(file: Source) -> RowFile:
        rows = table_rows.TableRows(file, cache)
        rows.close()  # there may be more files than may be open at once
        return rows

    rows = Shards(_read_each(source, names, open_table), str(source))
    return rows if order is None else Reordered(rows, _check_order(source.path, order, len(rows)))


def _is_data_set(source: Source) -> bool:
    folder = source.path
    if source.holds(_DICT):
        splits = read_document(folder / _DICT, _REMEDY).get("splits")
        listed = splits if isinstance(splits, list) else []
        raise InputError(
            f"{folder} holds several splits ({', '.join(map(str, listed))}); name one of its "
            f"folders, as in {folder}/{listed[0] if listed else 'train'}"
        )
    return source.holds(_STATE)


def table_files(source: Source) -> tuple[list[str], _Order]:
    """The tables of a folder in their order, and the rows that a Hugging Face data set takes of
    them."""
    if not _is_data_set(source):
        return _tables(source), None
    folder = source.path
    state = read_document(folder / _STATE, _REMEDY)
    files = _named_files(folder, state, "_data_files")
    if not files:
        raise _broken(f"{folder / _STATE} names no data files")
    indices = _named_files(folder, state, "_indices_data_files")
    return files, np.concatenate([_row_numbers(folder / f) for f in indices]) if indices else None


def _row_numbers(path: AnyPath) -> NDArray[np.int64]:
    numbers = table_rows.read_column(Source(path), "indices")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise _broken(f"{path} must hold row numbers, not {numbers.dtype} of shape {numbers.shape}")
    rows: NDArray[np.int64] = np.minimum(numbers, np.iinfo(np.int64).max).astype(np.int64)
    return rows


def _check_order(folder: AnyPath, order: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    if len(order) and not 0 <= order.min() <= order.max() < n:
        worst = order.max() if order.max() >= n else order.min()
        raise _broken(f"{folder} takes row {worst:,} of its files, which have {n:,} rows")
    return order


def _broken(what: str) -> InputError:
    """The refusal of a Hugging Face data set."""
    return InputError(f"{what}; {_REMEDY}")


def _named_files(folder: AnyPath, state: dict[str, Any], key: str) -> list[str]:
    """The files that a state names under a key."""
    entries = state.get(key)
    if entries is not None and not isinstance(entries, list):
        raise _broken(f"{folder / _STATE} has a broken {key!r}")
    names: list[str] = []
    for entry in entries or []:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name:
            raise _broken(f"{folder / _STATE} names a broken file {name!r}")
        if not (folder / name).exists():
            raise InputError(f"{folder / name} is missing, though {_STATE} names it; copy it again")
        names.append(regular_file(folder / name).name)
    if len(set(names)) < len(names):
        raise InputError(f"{folder / _STATE} names a file twice in {key!r}; save it again")
    return names


def _subfolder(source: Source) -> Source:
    """A folder of folders of shards, as clip-retrieval writes them."""
    folders = sorted(
        name
        for name, path in source.entries.items()
        if path.is_dir() and _files(source.inside(name), (".npy",))
    )
    if folders:
        return source.inside(choose_part(source, folders, "folder")).with_part(None)
    raise InputError(
        f"{source.path} is a folder without rows; expected numbered .npy files, tables "
        f"({', '.join(TABLE_ENDINGS)}), a Hugging Face data set or what `fairnepv convert` writes"
    )


def _tables(source: Source) -> list[str]:
    """Table files in the order of the numbers in their names."""
    folder = source.path
    names = _files(source, TABLE_ENDINGS)
    endings = [x for x in TABLE_ENDINGS if any(name.lower().endswith(x) for name in names)]
    if len(endings) > 1:
        raise InputError(f"{folder} has {' and '.join(endings)} files; keep one kind to a folder")
    groups = _numbered(names)
    if sum(map(len, groups.values())) < len(names):  # numbers elsewhere in names, such as Spark's
        _refuse_odd_digits(folder, names)
        return sorted(names, key=_natural_key)
    if len(groups) > 1:
        raise InputError(
            f"{folder} has several sets of tables ({', '.join(groups)}); give each its own folder"
        )
    return [name for group in groups.values() for name in _in_order(folder, group)]


def _refuse_odd_digits(folder: AnyPath, names: Sequence[str]) -> None:
    """A superscript looks like a number and sorts like none: 1 comes after 2 and 3."""
    for name in names if len(names) > 1 else ():
        if any(letter.isdigit() and not letter.isdecimal() for letter in name):
            raise InputError(
                f"{folder / name} has a digit in its name that gives no order; write 0 to 9"
            )


def _files(source: Source, endings: tuple[str, ...]) -> list[str]:
    """Names of files with one of these endings. One among them that is no file is refused, since it
    would leave a gap; folders alone may have whatever names they like."""
    found = [
        path
        for path in source.entries.values()
        if path.suffix.lower() in endings and path.name[0] not in "._"
    ]
    if all(path.is_dir() for path in found):
        return []
    return sorted(regular_file(path).name for path in found)


def _numbered(names: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Names that end in a number, by what stands before it."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(Path(name).stem)
        if found:
            groups.setdefault(found["prefix"], []).append((int(found["number"]), name))
    return groups


def _in_order(folder: AnyPath, numbered: list[tuple[int, str]]) -> list[str]:
    """Names by number, without gaps or repeats; all of them where the names say how many."""
    numbered = sorted(numbered)
    for (number, name), (following, other) in itertools.pairwise(numbered):
        if following == number:
            raise InputError(f"{folder} has {name} and {other}, the same number; remove one")
        if following > number + 1:
            missing = _renumbered(name, number + 1)
            raise InputError(
                f"{folder / missing} is missing between {name} and {other}; all rows behind it "
                "would be shifted, so put it back"
            )
    found = _NUMBERED.fullmatch(Path(numbered[-1][1]).stem)
    if found and found["of"] and len(numbered) != int(found["of"]):
        first, last = numbered[0], numbered[-1]
        number = last[0] + 1 if first[0] == 0 else 0
        raise InputError(
            f"{folder / _renumbered(last[1], number)} is missing: there are {len(numbered)} of "
            f"{int(found['of'])} files"
        )
    return [name for _, name in numbered]


def _renumbered(name: str, number: int) -> str:
    found = _NUMBERED.fullmatch(Path(name).stem)
    assert found is not None
    begin, end = found.span("number")
    return f"{name[:begin]}{number:0{end - begin}d}{name[end:]}"


def _natural_key(name: str) -> list[Any]:
    """The texts and numbers of a name in turn, so that 2 comes before 10."""
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", name)]


def _without_part(source: Source) -> Source:
    if source.part is not None:
        raise InputError(f"{source.path} is one set of rows and has no part {source.part!r}")
    return source
