"""What a store of pictures is, whatever they lie in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fairnepv_studies.pictures import ENDINGS, MOST_BYTES

_TOO_LARGE = f"it has more than {MOST_BYTES >> 20} MiB"


@dataclass(frozen=True)
class Pictures:
    ids: Sequence[str]  # paths without their endings, or the ids of a table
    label: Callable[[int], str]  # what a person calls the one at this place
    fetch: Callable[[int], bytes | str]  # the bytes of the one at this place, or why there are none
    describe: Callable[[], dict[str, Any]]

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """Name, size and checksum, for the sources of a corpus."""
        return self.describe()


def without_ending(name: str) -> str:
    """What pictures are called by: a path within their folder, without .png and the like."""
    return str(PurePosixPath(name).with_suffix("")) if is_picture(name) else name


def is_picture(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


class _Ids(Sequence[str]):
    """Names without their endings, made when they are asked for: there may be millions."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: Any) -> Any:
        return without_ending(self._names[place])


def named_pictures(
    names: Sequence[str],
    fetch: Callable[[int], bytes | str],
    describe: Callable[[], dict[str, Any]],
) -> Pictures:
    return Pictures(_Ids(names), names.__getitem__, fetch, describe)


def bounded(stream: Any, size: int | None = None) -> bytes | str:
    """No further than is allowed, whatever is said of its size, and no further than `size`."""
    allowed = MOST_BYTES + 1
    return if_allowed(stream.read(allowed if size is None else min(size, allowed)))


def if_allowed(content: bytes) -> bytes | str:
    """A picture, or the word that it is too large."""
    return content if len(content) <= MOST_BYTES else _TOO_LARGE
