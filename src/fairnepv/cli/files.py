"""The problem that a command line poses: its files, read when they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairnepv.cli import words
from fairnepv.display import shown_uri
from fairnepv.errors import InputError
from fairnepv.io.touched import READ, listening
from fairnepv.options import default

if TYPE_CHECKING:
    from fairnepv.io.rows import FileVersion
    from fairnepv.io.source import Source


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
    _sources: dict[str, Source] = field(default_factory=dict, init=False, repr=False)
    _versions: dict[Path, FileVersion] = field(default_factory=dict, init=False, repr=False)

    def source(self, text: str) -> Source:
        """Where a text points to, taken apart once: that may take round trips, and a source keeps
        what a remote file has said of itself."""
        from fairnepv.io.source import split_source

        if text not in self._sources:
            self._sources[text] = split_source(text)
        return self._sources[text]

    @property
    def files(self) -> list[Path]:
        """What will be read of local disks, so that no output replaces it."""
        named = (self.views, self.ids, self.quality, self.rules)
        paths = [self.source(text).path for files in named for text in files.values()]
        return [path for path in paths if isinstance(path, Path)]

    @property
    def objective(self) -> str:
        return str(self.knobs["objective"])

    @property
    def arguments(self) -> list[str]:
        """The options that pose this problem again, as a command line has them."""
        files = {"view": self.views, "ids": self.ids, "quality": self.quality}
        values = {**files, **self.rules, **self.knobs}
        more = ["--k-more"] if values.pop("include_counts", True) is False else []
        more += ["--center" if values.pop("center") else "--no-center"]
        return [*more, *words.arguments_of(values)]

    def checksums(self) -> dict[str, str]:
        """SHA-256 of what every view is read from, as `sha256sum` prints it."""
        from fairnepv.io.places import sha256_of

        return {name: sha256_of(self.source(text).path) for name, text in self.views.items()}

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
        from fairnepv.compute import engine_of
        from fairnepv.io.read import read_features, read_ids, read_numbers, read_picks

        read_view = read_features
        if "missing" in self.knobs:
            from fairnepv.io.taken import read_with_gaps as read_view
        with listening(self._remember):
            data = self._read_each(read_view, "--view", self.views)
        ids = self._read_each(read_ids, "--ids", self.ids) or self._own_ids()
        quality = self._read_each(read_numbers, "--quality", self.quality)
        item = "id" if ids else "row"
        columns = {"include": item, "exclude": item, "groups": "group"}
        rules = {
            name: self._read(partial(read_picks, column=columns[name]), f"--{name}", text)
            for name, text in self.rules.items()
        }
        chosen = (self.engine, self.workers, self.device)
        started = engine and chosen != (None, None, None)
        named: Any = engine_of(*chosen) if started else self.engine
        return {
            "data": data,
            "ids": ids.get("", ids or None),
            **({"quality": quality.get("", quality)} if quality else {}),
            **rules,
            **self.knobs,
            **({"engine": named} if named else {}),
        }

    def _remember(self, how: str, path: Any) -> None:
        from fairnepv.io.rows import FileVersion

        if how == READ and isinstance(path, Path) and path not in self._versions:
            # What cannot be asked about is refused by its reader.
            with contextlib.suppress(OSError):
                self._versions[path] = FileVersion.seen(path)

    def check(self) -> None:
        """Refuse what was computed if the file of a view is not what it was when it was opened;
        those on other machines are asked when they are read."""
        for version in self._versions.values():
            version.check()

    def _read_each(
        self, read: Callable[[Source], Any], option: str, files: Mapping[str, str]
    ) -> dict[str, Any]:
        """Files by view as values by view; of several views a complaint names which."""
        prefix = "{}=" if option == "--view" else ""
        return {
            name: self._read(read, option, text, prefix.format(name))
            for name, text in files.items()
        }

    def _read(self, read: Callable[[Source], Any], option: str, text: str, prefix: str = "") -> Any:
        return reading(lambda given: read(self.source(given)), option, prefix, text)

    def _own_ids(self) -> dict[str, Any]:
        """Ids by view where every view is a converted folder with ids; nothing otherwise.

        A column `id` of a table does not rename the rows, but where two views differ in it they
        are not aligned, and no ids say how they should be.
        """
        from fairnepv.io.read import converted_ids, id_column

        brought = self._read_each(converted_ids, "--view", self.views)
        if all(ids is not None for ids in brought.values()):
            return brought
        for name in [name for name, ids in brought.items() if ids is None]:
            with contextlib.suppress(InputError):  # other columns of that name prove nothing
                brought[name] = id_column(self.source(self.views[name]))
        told = [(name, ids) for name, ids in brought.items() if ids is not None]
        for other in told[1:]:
            _refuse_other_order(told[0], other)
        return {}


def problem_of(given: Mapping[str, Any]) -> ProblemFiles:
    """The problem that the options of a command pose; those of rules may be missing, and where
    there is no objective, nothing is asked but the rows."""
    views = words.views_of(given["view"])
    names = list(views)
    knobs = _scale_of(given, names) if "objective" in given else {}
    if given.get("priority"):
        wanted = "NAME=WEIGHT for each view"
        knobs["priorities"] = words.numbers("--priority", given["priority"], names, wanted)
    for name in ("missing", "align", "deduplicate"):
        if given.get(name) not in (None, default(name)):
            knobs[name] = given[name]
    if given.get("k_more"):
        knobs["include_counts"] = False
    if given.get("quota"):
        knobs["quotas"] = words.quotas_of(given["quota"])
    if given.get("floor"):
        wanted = "NAME=VALUE for each view that has one"
        knobs["floors"] = words.numbers("--floor", given["floor"], names, wanted)
    rules = {name: given.get(name) for name in ("include", "exclude", "groups")}
    return ProblemFiles(
        views,
        words.files_by_view("--ids", given["ids"], names),
        knobs,
        words.files_by_view("--quality", given.get("quality", ()), names),
        {name: text for name, text in rules.items() if text is not None},
        engine=given["engine"],
        workers=given["workers"],
        device=given["device"],
    )


def _scale_of(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    objective, eps = given["objective"], words.eps_of(given["eps"], names)
    return {
        "objective": objective,
        "tau": default("tau", objective) if given["tau"] is None else given["tau"],
        "eps": default("eps", objective) if eps is None else eps,
        "center": default("center", objective) if given["center"] is None else given["center"],
        "calibration": words.calibration_of(given["calibration"], names),
    }


def reading(read: Callable[[str], Any], option: str, prefix: str, text: str) -> Any:
    """A file as a library value; a complaint names the option that brought it."""
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"{option} {prefix}{shown_uri(text)}: {error}") from error


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
