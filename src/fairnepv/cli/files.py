"""The problem that a command line poses: its files, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fairnepv.cli.words import arguments_of
from fairnepv.display import shown_uri
from fairnepv.errors import InputError


@dataclass(frozen=True)
class ProblemFiles:
    """What a command line says of the problem: values, and where everything else lies."""

    views: Mapping[str, str]  # where each view lies
    ids: Mapping[str, str]  # where the ids lie, by view; "" for ids common to all
    knobs: Mapping[str, Any]
    quality: Mapping[str, str] = field(default_factory=dict)  # likewise
    rules: Mapping[str, str] = field(default_factory=dict)  # files of include, exclude, groups
    engine: str | None = None
    workers: int | None = None  # that it starts
    device: str | None = None  # of these

    @property
    def files(self) -> list[Path]:
        """What will be read of local disks, so that no output replaces it."""
        from fairnepv.io.source import split_source

        sources = (self.views, self.ids, self.quality, self.rules)
        read = [split_source(text).path for source in sources for text in source.values()]
        return [path for path in read if isinstance(path, Path)]

    @property
    def arguments(self) -> list[str]:
        """The options that pose this problem again, as a command line has them."""
        files = {"view": self.views, "ids": self.ids, "quality": self.quality}
        values = {**files, **self.rules, **self.knobs}
        more = ["--k-more"] if values.pop("include_counts", True) is False else []
        return [*more, *arguments_of(values)]

    def checksums(self) -> dict[str, str]:
        """SHA-256 of what every view is read from, as `sha256sum` prints it."""
        from fairnepv.io.checksums import sha256_of
        from fairnepv.io.source import split_source

        return {name: sha256_of(split_source(text).path) for name, text in self.views.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """What the problem was, for records that should be reproducible and tell no secrets."""
        files = {"views": self.views, "ids": self.ids, "quality": self.quality}
        shown = {
            **{kind: {n: shown_uri(f) for n, f in named.items()} for kind, named in files.items()},
            **{name: shown_uri(file) for name, file in self.rules.items()},
        }
        return {**{name: value for name, value in shown.items() if value}, **self.knobs}

    def read(self, *, engine: bool = True) -> dict[str, Any]:
        """The keyword arguments that every library call takes, `data` among them.

        Plans need but the name of an `engine`: one may take seconds to start.
        """
        from fairnepv.io import read_features, read_ids, read_numbers, read_picks

        data = _each(read_features, "--view", self.views, named=True)
        ids = _each(read_ids, "--ids", self.ids) or _own_ids(self.views)
        quality = _each(read_numbers, "--quality", self.quality)
        item = "id" if ids else "row"
        columns = {"include": item, "exclude": item, "groups": "group"}
        rules = {
            name: reading(partial(read_picks, column=columns[name]), f"--{name}", "", text)
            for name, text in self.rules.items()
        }
        named = self._engine() if engine else self.engine
        return {
            "data": data,
            "ids": ids.get("", ids or None),
            **({"quality": quality.get("", quality)} if quality else {}),
            **rules,
            **self.knobs,
            **({"engine": named} if named else {}),
        }

    def _engine(self) -> Any:
        from fairnepv.compute import engine_of

        if (self.engine, self.workers, self.device) == (None, None, None):
            return None
        return engine_of(self.engine, self.workers, self.device)


def reading(read: Callable[[str], Any], option: str, prefix: str, text: str) -> Any:
    """A file as a library value; a complaint names the option that brought it."""
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"{option} {prefix}{shown_uri(text)}: {error}") from error


def _each(
    read: Callable[[str], Any], option: str, files: Mapping[str, str], *, named: bool = False
) -> dict[str, Any]:
    """Files by view as values by view; `named`: a complaint names the view, too."""
    return {
        name: reading(read, option, f"{name}=" if named else "", text)
        for name, text in files.items()
    }


# --- ids that files bring along -------------------------------------------------------------------


def _own_ids(views: Mapping[str, str]) -> dict[str, Any]:
    """Ids by view where every view is a converted folder with ids; nothing otherwise.

    A column `id` of a table does not rename the rows, but where two views differ in it they are
    not aligned, and nobody has said how they should be.
    """
    from fairnepv.io import converted_ids

    brought = _each(converted_ids, "--view", views, named=True)
    if all(ids is not None for ids in brought.values()):
        return brought
    known = {name: _column(views[name]) if ids is None else ids for name, ids in brought.items()}
    told = [(name, ids) for name, ids in known.items() if ids is not None]
    for other in told[1:]:
        _refuse_other_order(told[0], other)
    return {}


def _column(text: str) -> Any:
    """A column `id`, if it can be read as such: other columns of that name prove nothing."""
    from fairnepv.io import id_column

    try:
        return id_column(text)
    except InputError:
        return None


def _refuse_other_order(first: tuple[str, Any], other: tuple[str, Any]) -> None:
    from fairnepv.io.texts import same_kind

    (name, ids), (other_name, others) = first, other
    if len(ids) != len(others) or not same_kind(ids, others):
        return  # a pool refuses different lengths; names of different kinds prove nothing
    differ = (ids != others).nonzero()[0]
    if len(differ):
        row = int(differ[0])
        raise InputError(
            f"views {name!r} and {other_name!r} are not in the same order: row {row:,} has the id "
            f"{ids.tolist()[row]!r} in one and {others.tolist()[row]!r} in the other; give "
            "--ids NAME=FILE:id for each view to align them"
        )
