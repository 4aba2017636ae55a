"""Where an array lies: a file or a folder, and within it the key, column or kind of shard.

A text that a user gave is taken apart once; every reader takes the text or the `Source` that it
stands for, and whoever asks several readers asks them with the same `Source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from fairnepv.display import listed
from fairnepv.errors import InputError
from fairnepv.io.places import AnyPath, check_slashes, is_uri, local_text, regular_file, split_uri

TABLE_ENDINGS = (".parquet", ".arrow", ".ipc", ".feather")
_WITH_PARTS = (".npz", *TABLE_ENDINGS, ".safetensors", ".csv", ".json")

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """PATH[:PART]; what was learned of a remote file is kept with it."""

    path: AnyPath
    part: str | None = None  # the key of an archive or the column of a table
    given: str | None = field(default=None, compare=False, repr=False)  # as a user wrote it
    _known: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.path) if self.part is None else f"{self.path}:{self.part}"

    def __getstate__(self) -> dict[str, Any]:
        """The path is absolute, since a worker may run in another folder; what is known stays."""
        return {**vars(self), "path": self.path.absolute(), "_known": {}}

    @property
    def text(self) -> str:
        return str(self) if self.given is None else self.given

    @property
    def ending(self) -> str:
        return self.path.suffix.lower()

    @property
    def is_remote(self) -> bool:
        return not isinstance(self.path, Path)

    def with_part(self, part: str | None) -> Source:
        return replace(self, part=part)

    @property
    def entries(self) -> dict[str, AnyPath]:
        """What is in this folder, by name."""
        return self.once("entries", lambda: {path.name: path for path in self.path.iterdir()})

    def holds(self, name: str) -> bool:
        """Whether this folder has a file of that name."""
        found = self.entries.get(name) if self.is_remote else self.path / name
        return found is not None and found.is_file()

    def inside(self, name: str) -> Source:
        """The source of that name in this folder, with the same part."""
        path = self.entries.get(name, self.path / name) if self.is_remote else self.path / name
        return self.once(f"/{name}", lambda: Source(path)).with_part(self.part)

    def once(self, what: str, find: Callable[[], T]) -> T:
        """The result of `find`, which is kept for remote files; local ones are asked again, as they
        answer at once and may have changed."""
        if not self.is_remote:
            return find()
        if what not in self._known:
            self._known[what] = find()
        found: T = self._known[what]
        return found


def parse_source(given: str | Source, endings: tuple[str, ...], *, folders: bool = False) -> Source:
    """FILE or FILE:PART, of a file that exists and has one of these endings, or of a folder."""
    source = split_source(given)
    text = source.text
    if not text.strip():
        raise InputError("the name of a file is empty; name a file, or '.' for this folder")
    check_slashes(text)
    folder = folders and source.path.is_dir()
    if not folder:
        if isinstance(source.path, Path) and source.path.exists() and not source.path.is_dir():
            regular_file(source.path)  # first, since pipes have names without an ending
        check_ending(source.path, endings, " and is no folder that exists" if folders else "")
        if source.part is not None and source.ending not in _WITH_PARTS:
            raise InputError(f"{text}: a {source.ending} file has no parts to name after a colon")
    if source.part == "":
        raise InputError(f"{text}: name the part after the colon, or leave the colon out")
    if not folder:
        refuse_folder(source.path)
        if not source.path.exists():
            raise InputError(f"{source.path} does not exist; check the path")
    return source


@contextmanager
def reading(what: object, kind: str, where: str = "") -> Iterator[None]:
    """Whatever a parser makes of broken bytes becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        made_up = type(error).__module__.startswith("pyarrow")  # a size that Arrow believed
        if isinstance(error, MemoryError) and not made_up:
            raise
        raise unreadable(str(what), kind, error, where) from error


def unreadable(what: str, kind: str, error: Exception, where: str = "") -> InputError:
    """Whatever a parser makes of broken bytes as one sentence."""
    at, reason = where and f" at {where}", " ".join(str(error).split())
    hint = "check the connection, or " if is_uri(what) else ""
    return InputError(f"{what} cannot be read as {kind}{at} ({reason}); {hint}write the file again")


def check_ending(path: AnyPath, endings: tuple[str, ...], besides: str = "") -> None:
    ending = path.suffix.lower()
    if ending not in endings:
        found = f"ends in {ending!r}" if ending else f"has no ending{besides}"
        raise InputError(f"{path} {found}; give one of {', '.join(endings)}")


def refuse_folder(path: AnyPath) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")


def split_source(given: str | Source) -> Source:
    """The source that a text names; one that was taken apart already is given back."""
    if isinstance(given, Source):
        return given
    text = local_text(given)
    path, part = split_uri(text) if is_uri(text) else _split_local(text)
    return Source(path, part, given)


def _split_local(text: str) -> tuple[Path, str | None]:
    """Cut at the colon behind a folder or an ending; colons elsewhere belong to names."""
    colons = [at for at, letter in enumerate(text) if letter == ":"]
    folder = next((at for at in colons if at and Path(text[:at]).is_dir()), None)
    if folder is not None and not Path(text).exists():
        return Path(text[:folder]), text[folder + 1 :]
    lowered = text.lower()
    found = {lowered.find(ending + ":"): ending for ending in _WITH_PARTS}
    found.pop(-1, None)
    if found:
        first = min(found)
        cut = first + len(found[first])
        return Path(text[:cut]), text[cut + 1 :]
    head, colon, tail = text.rpartition(":")
    if colon and Path(head).suffix and not Path(tail).suffix:
        return Path(head), tail
    return Path(text), None


def choose_part(source: Source, parts: list[str], kind: str, default: str | None = None) -> str:
    """The part that was asked for, the default, or the only one there is."""
    wanted = default if source.part is None and default in parts else source.part
    if not parts:
        raise InputError(f"{source.path} has no {kind}s")
    if wanted is None:
        if len(parts) == 1:
            return parts[0]
        raise InputError(
            f"{source.path} has {len(parts)} {kind}s ({listed(parts)}); name one, as in "
            f"{source.path.name}:{parts[0]}"
        )
    if wanted not in parts:
        raise InputError(f"{source.path} has no {kind} {wanted!r}; it has {listed(parts)}")
    if parts.count(wanted) > 1:
        raise InputError(f"{source.path} has {kind} {wanted!r} more than once; rename one")
    return wanted
