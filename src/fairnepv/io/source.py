"""Where an array lies: a file or a folder, and within it the key, column or kind of shard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import Place, check_slashes, is_uri, local_text, regular_file, split_uri

_WITH_PARTS = (".npz", ".parquet", ".arrow", ".ipc", ".feather", ".safetensors", ".csv", ".json")


@dataclass(frozen=True)
class Source:
    path: Place
    part: str | None = None  # the key of an archive or the column of a table

    def __str__(self) -> str:
        return str(self.path) if self.part is None else f"{self.path}:{self.part}"

    def __getstate__(self) -> dict[str, Any]:
        """Whoever unpickles this may stand in another folder."""
        return {**vars(self), "path": self.path.absolute()}

    @property
    def ending(self) -> str:
        return self.path.suffix.lower()


def parse_source(text: str, endings: tuple[str, ...], *, folders: bool = False) -> Source:
    """FILE or FILE:PART, of a file that exists and has one of these endings, or of a folder."""
    if not text.strip():
        raise InputError("the name of a file is empty; name a file, or '.' for this folder")
    check_slashes(text)
    source = split_source(text)
    if folders and source.path.is_dir():
        return _named_part(source, text)
    if isinstance(source.path, Path) and source.path.exists() and not source.path.is_dir():
        regular_file(source.path)  # first, since pipes have names without an ending
    check_ending(source.path, endings, " and is no folder that exists" if folders else "")
    if source.part is not None and source.ending not in _WITH_PARTS:
        raise InputError(f"{text}: a {source.ending} file has no parts to name after a colon")
    _named_part(source, text)
    refuse_folder(source.path)
    if not source.path.exists():
        raise InputError(f"{source.path} does not exist; check the path")
    return source


def _named_part(source: Source, text: str) -> Source:
    if source.part == "":
        raise InputError(f"{text}: name the part after the colon, or leave the colon out")
    return source


def unreadable(what: str, kind: str, error: Exception, where: str = "") -> InputError:
    """Whatever a parser makes of broken bytes as one sentence."""
    at, reason = where and f" at {where}", " ".join(str(error).split())
    hint = "check the connection, or " if is_uri(what) else ""
    return InputError(f"{what} cannot be read as {kind}{at} ({reason}); {hint}write the file again")


def check_ending(path: Place, endings: tuple[str, ...], besides: str = "") -> None:
    ending = path.suffix.lower()
    if ending not in endings:
        found = f"ends in {ending!r}" if ending else f"has no ending{besides}"
        raise InputError(f"{path} {found}; give one of {', '.join(endings)}")


def refuse_folder(path: Place) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")


def split_source(text: str) -> Source:
    """At the colon behind a folder or an ending, so that colons elsewhere belong to names."""
    text = local_text(text)
    if is_uri(text):
        return Source(*split_uri(text))
    colons = [at for at, letter in enumerate(text) if letter == ":"]
    folder = next((at for at in colons if at and Path(text[:at]).is_dir()), None)
    if folder is not None and not Path(text).exists():
        return Source(Path(text[:folder]), text[folder + 1 :])
    lowered = text.lower()
    found = {lowered.find(ending + ":"): ending for ending in _WITH_PARTS}
    found.pop(-1, None)
    if found:
        first = min(found)
        cut = first + len(found[first])
        return Source(Path(text[:cut]), text[cut + 1 :])
    head, colon, tail = text.rpartition(":")
    if colon and Path(head).suffix and not Path(tail).suffix:
        return Source(Path(head), tail)
    return Source(Path(text))


def choose_part(source: Source, parts: list[str], kind: str) -> str:
    """The part that was asked for, or the only one there is."""
    listed = ", ".join(parts[:12]) + (", ..." if len(parts) > 12 else "")
    if not parts:
        raise InputError(f"{source.path} has no {kind}s")
    if source.part is None:
        if len(parts) == 1:
            return parts[0]
        raise InputError(
            f"{source.path} has {len(parts)} {kind}s ({listed}); name one, as in "
            f"{source.path.name}:{parts[0]}"
        )
    if source.part not in parts:
        raise InputError(f"{source.path} has no {kind} {source.part!r}; it has {listed}")
    if parts.count(source.part) > 1:
        raise InputError(f"{source.path} has {kind} {source.part!r} more than once; rename one")
    return source.part
