"""What the commands share: options that pose a problem, and words that become library values."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from fairnepv.display import shown_uri
from fairnepv.errors import InputError

Command = Callable[..., None]
# Options that are called otherwise than what they become.
_OPTIONS = {"priorities": "priority", "quotas": "quota", "floors": "floor"}


@dataclass(frozen=True)
class ProblemOptions:
    """What the options of `posing` say of the problem; files are read when asked for."""

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
        flags = ["--k-more"] if values.pop("include_counts", True) is False else []
        for name, value in values.items():
            option = f"--{_OPTIONS.get(name, name)}"
            each = value.items() if isinstance(value, Mapping) else [("", value)]
            for key, one in each:
                text = _range(one) if isinstance(one, tuple) else str(one)
                flags += [option, f"{key}={text}" if key else text]
        return flags

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
        from fairnepv.cli.alignment import own_ids
        from fairnepv.compute import engine_of
        from fairnepv.io import read_features, read_ids, read_numbers, read_picks

        data = {
            name: reading(read_features, "--view", f"{name}=", text)
            for name, text in self.views.items()
        }
        ids = {name: reading(read_ids, "--ids", "", text) for name, text in self.ids.items()}
        ids = ids or own_ids(self.views)
        quality = {
            name: reading(read_numbers, "--quality", "", text)
            for name, text in self.quality.items()
        }
        named: Any = self.engine
        if engine and (self.engine, self.workers, self.device) != (None, None, None):
            named = engine_of(self.engine, self.workers, self.device)
        column = {"include": "id" if ids else "row", "exclude": "id" if ids else "row"}
        rules = {
            name: reading(
                functools.partial(read_picks, column=column.get(name, "group")),
                f"--{name}",
                "",
                text,
            )
            for name, text in self.rules.items()
        }
        return {
            "data": data,
            "ids": ids.get("", ids or None),
            **({"quality": quality.get("", quality)} if quality else {}),
            **rules,
            **self.knobs,
            **({"engine": named} if named else {}),
        }


def posing(command: Command) -> Command:
    """--view, --ids, --tau, --eps, --calibration, --quality, --priority, --engine, --workers and
    --device, handed on as one `ProblemOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        view: tuple[str, ...],
        ids: tuple[str, ...],
        tau: float,
        eps: tuple[str, ...],
        calibration: tuple[str, ...],
        quality: tuple[str, ...],
        priority: tuple[str, ...],
        engine: str | None,
        workers: int | None,
        device: str | None,
        **options: Any,
    ) -> None:
        named = _assignments(view)
        names = list(named)
        knobs = {
            "tau": tau,
            "eps": _eps(eps, names),
            "calibration": _calibration(calibration, names),
        }
        if priority:
            wanted = "NAME=WEIGHT for each view"
            knobs["priorities"] = _numbers("--priority", priority, names, wanted)
        problem = ProblemOptions(
            named,
            _files_by_view("--ids", ids, names),
            knobs,
            _files_by_view("--quality", quality, names),
            engine=engine,
            workers=workers,
            device=device,
        )
        command(problem=problem, **options)

    decorators = [
        click.option(
            "--view",
            multiple=True,
            required=True,
            metavar="NAME=FILE",
            help="A view: .npy, .npz[:key] (SciPy sparse too), .parquet[:column], .arrow[:column], "
            ".safetensors[:tensor], or a folder of shards, a Hugging Face data set or one that "
            "`convert` wrote. Repeat it.",
        ),
        click.option(
            "--ids",
            multiple=True,
            metavar="FILE[:COLUMN]",
            help="Row ids; NAME=FILE for each view aligns the views by them. A folder that "
            "`convert` wrote brings its own.",
        ),
        click.option("--tau", default=0.05, show_default=True, help="Soft-min temperature."),
        click.option(
            "--eps",
            multiple=True,
            metavar="VALUE|NAME=VALUE",
            help="Ridge, common or by view.  [default: 0.1]",
        ),
        click.option(
            "--calibration",
            multiple=True,
            metavar="RULE|NAME=FACTOR",
            help="unit-diagonal, trace, none, efficiency, or a factor for each view.  "
            "[default: unit-diagonal]",
        ),
        click.option(
            "--quality",
            multiple=True,
            metavar="FILE[:COLUMN]",
            help="Weights of the rows; NAME=FILE for one view alone.",
        ),
        click.option(
            "--priority",
            multiple=True,
            metavar="NAME=WEIGHT",
            help="Weight of a view in the soft-min; they sum to 1.",
        ),
        click.option(
            "--engine",
            metavar="NAME",
            help="Who computes: local, torch, torch:cuda, ray (the cluster of this machine), "
            "ray://HOST:PORT or local-ray.  [default: local]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="How many processes --engine local-ray starts.  [default: one for each core]",
        ),
        click.option(
            "--device",
            type=click.Choice(["cuda", "cpu"]),
            help="Workers of Ray compute with PyTorch, on a GPU each or on their core.  [default: "
            "with NumPy]",
        ),
    ]
    return _decorate(wrapped, decorators)


def constraining(command: Command) -> Command:
    """--include, --exclude, --groups, --quota and --floor, added to the `ProblemOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        problem: ProblemOptions,
        include: str | None,
        k_more: bool,
        exclude: str | None,
        groups: str | None,
        quota: tuple[str, ...],
        floor: tuple[str, ...],
        **options: Any,
    ) -> None:
        files = {"include": include, "exclude": exclude, "groups": groups}
        knobs = dict(problem.knobs)
        if k_more:
            knobs["include_counts"] = False
        if quota:
            knobs["quotas"] = _quotas(quota)
        if floor:
            wanted = "NAME=VALUE for each view that has one"
            knobs["floors"] = _numbers("--floor", floor, list(problem.views), wanted)
        rules = {name: text for name, text in files.items() if text is not None}
        command(problem=replace(problem, rules=rules, knobs=knobs), **options)

    decorators = [
        click.option(
            "--include",
            metavar="FILE[:COLUMN]",
            help="Items that must be chosen and come first: ids if there are any, else rows.",
        ),
        click.option("--k-more", is_flag=True, help="Choose k items besides those of --include."),
        click.option("--exclude", metavar="FILE[:COLUMN]", help="Items that must not be chosen."),
        click.option("--groups", metavar="FILE[:COLUMN]", help="A group label for every row."),
        click.option(
            "--quota",
            multiple=True,
            metavar="LABEL=N|LABEL=L..M",
            help="How many of a group: 5, 2..5, 2.. or ..5.  [default: proportional]",
        ),
        click.option(
            "--floor",
            multiple=True,
            metavar="NAME=VALUE",
            help="The least d that a view must keep.",
        ),
    ]
    return _decorate(wrapped, decorators)


# `main` looks for it among the arguments, since it matters even where these cannot be parsed.
debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Random state."
)
force_option = click.option("--force", is_flag=True, help="Replace files that exist.")
strict_option = click.option(
    "--strict", is_flag=True, help="Exit with 1 unless the run ended well."
)
effort_option = click.option(
    "--effort",
    default="balanced",
    show_default=True,
    type=click.Choice(["fast", "balanced", "thorough"]),
    help="How hard to search.",
)
time_limit_option = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Return the best found until then.",
)
memory_limit_option = click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Keep to so much memory besides the data, such as 2GiB, by keeping less.",
)
plan_option = click.option(
    "--plan", is_flag=True, help="Print what this would take, and run nothing."
)


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in stubs, not at run time
    """k: a whole number, or a fraction of n below one."""

    name = "k"

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(value)
        return self.fail(
            f"{value!r} is neither a number of items nor a fraction", parameter, context
        )


class Sizes(Size):
    """One size, or several with commas between them."""

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        parts = str(value).split(",")
        sizes = [super(Sizes, self).convert(part, parameter, context) for part in parts]
        return sizes[0] if len(sizes) == 1 else sizes


class Shards(click.ParamType):  # type: ignore[type-arg]  # as above
    """A number of shards, or True where none was named."""

    name = "shards"

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        if isinstance(value, bool) or value == _SHARDS_OF_THE_POOL:
            return bool(value)
        try:
            return int(value)
        except ValueError:
            return self.fail(f"{value!r} is not a number of shards", parameter, context)


_SHARDS_OF_THE_POOL = "auto"
hierarchical_option = click.option(
    "--hierarchical",
    type=Shards(),
    is_flag=False,
    flag_value=_SHARDS_OF_THE_POOL,
    default=False,
    metavar="[SHARDS]",
    help="Choose within shards first, then among those chosen: for pools that are too large to "
    "search at once. Shards are files of the first view, else runs of rows, as many as are named.",
)
size_option = click.option(
    "-k", "k", type=Size(), required=True, help="How many items, or a fraction of them."
)
sizes_option = click.option(
    "-k",
    "k",
    type=Sizes(),
    required=True,
    help="How many items, or a fraction of them; several sizes as 100,500,1000.",
)
gap_option = click.option(
    "--gap",
    default=2e-3,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Duality gap of the bound, in nats per item.",
)


def reading(read: Callable[[str], Any], option: str, prefix: str, text: str) -> Any:
    """A file as a library value; a complaint names the option that brought it."""
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"{option} {prefix}{shown_uri(text)}: {error}") from error


def _decorate(command: Command, decorators: Sequence[Callable[[Any], Any]]) -> Command:
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(
                f"--view {shown_uri(text)}: write NAME=FILE, as in text=embeddings.npy"
            )
        if name in named:
            raise InputError(
                f"--view {shown_uri(text)}: the view {name!r} was given before; rename one"
            )
        named[name] = value
    return named


def _files_by_view(option: str, texts: Sequence[str], views: list[str]) -> dict[str, str]:
    """Files by view name, or one for all under the empty name."""
    by_view: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        name, file = (name, file) if equals and name in views else ("", text)
        if name in by_view:
            raise InputError(
                f"{option} {shown_uri(text)}: this was given before; give one file, or one per view"
            )
        by_view[name] = file
    if "" in by_view and len(by_view) > 1:
        raise InputError(f"{option}: give one file for all views, or NAME=FILE for each of {views}")
    return by_view


def _quotas(texts: Sequence[str]) -> Any:
    """LABEL=5 exactly, LABEL=2..5 between, LABEL=2.. at least, LABEL=..5 at most."""
    if list(texts) == ["proportional"]:
        return "proportional"
    quotas: dict[str, Any] = {}
    for text in texts:
        label, equals, limits = text.rpartition("=")
        if not equals or not label or label in quotas:
            raise InputError(
                f"--quota {text}: write LABEL=5 or LABEL=2..5, each label once, or 'proportional'"
            )
        low, dots, high = limits.partition("..")
        bounds = [_whole(text, end) if end else None for end in (low, high if dots else low)]
        quotas[label] = tuple(bounds)
    return quotas


def _range(limits: tuple[int | None, int | None]) -> str:
    """Limits as `_quotas` reads them."""
    return "..".join("" if end is None else str(end) for end in limits)


def _whole(text: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InputError(f"--quota {text}: {value!r} is not a whole number") from error


def _eps(texts: Sequence[str], views: list[str]) -> Any:
    if not texts:
        return 0.1
    if len(texts) == 1 and "=" not in texts[0]:
        return _number("--eps", texts[0], texts[0])
    return _numbers("--eps", texts, views, "one value, or NAME=VALUE for each view")


def _calibration(texts: Sequence[str], views: list[str]) -> Any:
    if not texts:
        return "unit-diagonal"
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    return _numbers("--calibration", texts, views, "one rule, or NAME=FACTOR for each view")


def _numbers(option: str, texts: Sequence[str], views: list[str], wanted: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if len(texts) == 1 and not equals:
            raise InputError(f"{option} {text}: give {wanted}")
        if not equals or name in values:
            raise InputError(f"{option} {' '.join(texts)}: these contradict; give {wanted}")
        if name not in views:
            raise InputError(f"{option} {text}: no view is called {name!r}; there are {views}")
        values[name] = _number(option, value, text)
    return values


def _number(option: str, value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise InputError(
            f"{option} {text}: {value!r} is not a number; give one like 0.1"
        ) from error
