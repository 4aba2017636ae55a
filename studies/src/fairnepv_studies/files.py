"""Files of a corpus: known by their content, and written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from fairnepv.errors import InputError
from fairnepv.io.atomic import whole_file, write_errors
from fairnepv.io.documents import read_document
from fairnepv.io.places import check_slashes, is_uri, local_text, sha256_of

LARGEST = 1 << 28  # bytes of a document: ten million items take 20 MB
_REMEDY = "; make room, or check the rights of its folder, and start again"
Record = TypeVar("Record")  # a dataclass


def local(given: str | Path) -> Path:
    """Where a corpus lies, or what it is made of; `Path` would take a URI for a folder."""
    text = local_text(str(given))
    if is_uri(text):
        raise InputError(
            f"{text.partition('://')[0]}://... is not on a local disk, where corpora and what they "
            "are made of have to be; name a local file or folder"
        )
    check_slashes(text)
    return Path(text)


@contextlib.contextmanager
def appearing(file: Path) -> Iterator[Path]:
    """A name beside it under which the file is written, and has its own once it is whole. It is
    always the same name, so that a run that is started again after a kill leaves nothing behind."""
    with write_errors(file, _REMEDY), whole_file(file, same_name=True) as part:
        yield part


def write_whole(file: Path, content: bytes) -> None:
    with appearing(file) as part:
        part.write_bytes(content)


def kept(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The file NAME.CHECKSUM.parquet of an unfinished step, made unless it is there: one that does
    not have its checksum, after a power cut perhaps, is not believed but made anew."""
    for found in folder.glob(f"{name}.*.parquet"):
        if found.is_file() and found == _sealed(found, folder, name):
            return found
        found.unlink()
    with appearing(folder / name) as whole:
        make(whole)
    file = _sealed(folder / name, folder, name)
    os.replace(folder / name, file)
    return file


def _sealed(content: Path, folder: Path, name: str) -> Path:
    return folder / f"{name}.{sha256_of(content)}.parquet"


def write_record(file: Path, record: Any) -> None:
    """A dataclass as JSON."""
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False, sort_keys=True)
    write_whole(file, (text + "\n").encode("utf-8"))


def read_record(file: Path, kind: type[Record], remedy: str) -> Record:
    """A dataclass as `write_record` wrote it; every field has the type that it should have."""
    said = read_document(file, remedy)
    try:
        hints = get_type_hints(kind)
        return kind(**{name: _as(hints.get(name), value, name) for name, value in said.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged_file(file, error, remedy) from error


def _as(hint: Any, value: Any, name: str) -> Any:
    """JSON has no tuples; a number that stands for a name would be found out much later."""
    wanted, inner = get_origin(hint) or hint, get_args(hint)
    if wanted is UnionType:  # such as int | None
        wanted, inner = next((kind for kind in inner if type(value) is kind), inner[0]), ()
    found = tuple(value) if wanted is tuple and isinstance(value, list) else value
    if wanted is Any or wanted is None:
        return found
    if type(found) is not wanted:
        raise TypeError(f"{name} is no {wanted.__name__}")
    if wanted is list:
        return [_as(inner[0], value, f"one of {name}") for value in found]
    if wanted is tuple:
        pairs = zip(inner, found, strict=True)
        return tuple(_as(kind, value, f"one of {name}") for kind, value in pairs)
    return found


def damaged_file(file: Path, error: object, remedy: str) -> InputError:
    """Whatever a reader makes of a damaged file, as one sentence."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"{file} cannot be read ({reason}); {remedy}")


def csv_content(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Names of files may hold what UTF-8 does not know."""
    from fairnepv.io.write import csv_line  # needs PyArrow, which a machine that trains may lack

    return "".join(map(csv_line, [header, *rows])).encode("utf-8", "backslashreplace")
