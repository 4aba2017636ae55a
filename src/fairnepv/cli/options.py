"""What the commands share: options that pose a problem, and words that become library values."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fairnepv.errors import InputError

Command = Callable[..., None]


@dataclass(frozen=True)
class ProblemOptions:
    """What the options of `posing` say of the problem; files are read when asked for."""

    views: Mapping[str, str]  # where each view lies
    ids: Mapping[str, str]  # where the ids lie, by view; "" for ids common to all
    knobs: Mapping[str, Any]

    @property
    def files(self) -> list[Path]:
        """What will be read, so that no output replaces it."""
        from fairnepv.io.source import split_source

        return [split_source(text).path for text in (*self.views.values(), *self.ids.values())]

    @property
    def settings(self) -> dict[str, Any]:
        """What the problem was, for records that should be reproducible."""
        return {"views": dict(self.views), "ids": dict(self.ids), **self.knobs}

    def read(self) -> dict[str, Any]:
        """The keyword arguments that every library call takes, `data` among them."""
        from fairnepv.io import read_features, read_ids

        data = {
            name: reading(read_features, "--view", f"{name}=", text)
            for name, text in self.views.items()
        }
        ids = {name: reading(read_ids, "--ids", "", text) for name, text in self.ids.items()}
        return {"data": data, "ids": ids.get("", ids or None), **self.knobs}


def posing(command: Command) -> Command:
    """--view, --ids, --tau, --eps and --calibration, handed on as one `ProblemOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        view: tuple[str, ...],
        ids: tuple[str, ...],
        tau: float,
        eps: tuple[str, ...],
        calibration: tuple[str, ...],
        **options: Any,
    ) -> None:
        named = _assignments(view)
        knobs = {
            "tau": tau,
            "eps": _eps(eps, list(named)),
            "calibration": _calibration(calibration, list(named)),
        }
        command(problem=ProblemOptions(named, _id_files(ids, list(named)), knobs), **options)

    decorators = [
        click.option(
            "--view",
            multiple=True,
            required=True,
            metavar="NAME=FILE",
            help="A view: .npy, .npz[:key] (SciPy sparse too) or .parquet[:column]. Repeat it.",
        ),
        click.option(
            "--ids",
            multiple=True,
            metavar="FILE[:COLUMN]",
            help="Row ids; NAME=FILE for each view aligns the views by them.",
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


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in stubs, not at run time
    """k: a whole number, or a fraction of n below one."""

    name = "k"

    def convert(self, value: Any, parameter: Any, context: Any) -> int | float:
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(value)
        return self.fail(
            f"{value!r} is neither a number of items nor a fraction", parameter, context
        )


size_option = click.option(
    "-k", "k", type=Size(), required=True, help="How many items, or a fraction of them."
)


def reading(read: Callable[[str], Any], option: str, prefix: str, text: str) -> Any:
    """A file as a library value; a complaint names the option that brought it."""
    try:
        return read(text)
    except InputError as error:
        raise InputError(f"{option} {prefix}{text}: {error}") from error


def _decorate(command: Command, decorators: Sequence[Callable[[Any], Any]]) -> Command:
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _assignments(texts: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--view {text}: write NAME=FILE, as in text=embeddings.npy")
        if name in named:
            raise InputError(f"--view {text}: the view {name!r} was given before; rename one")
        named[name] = value
    return named


def _id_files(texts: Sequence[str], views: list[str]) -> dict[str, str]:
    """Files of ids by view name, or one for all under the empty name."""
    by_view: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        name, file = (name, file) if equals and name in views else ("", text)
        if name in by_view:
            raise InputError(f"--ids {text}: ids were given before; give one file, or one per view")
        by_view[name] = file
    if "" in by_view and len(by_view) > 1:
        raise InputError(f"--ids: give one file for all views, or NAME=FILE for each of {views}")
    return by_view


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
