"""Words of a command line as values of the library: sizes, shards, NAME=VALUE, quotas."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from fairnepv.display import shown_uri
from fairnepv.errors import InputError
from fairnepv.options import default

SHARDS_OF_THE_POOL = "auto"  # what --hierarchical without a number says
# Options that are called otherwise than what they become.
_FLAGS = {"priorities": "priority", "quotas": "quota", "floors": "floor"}


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
        if isinstance(value, bool) or value == SHARDS_OF_THE_POOL:
            return bool(value)
        try:
            return int(value)
        except ValueError:
            return self.fail(f"{value!r} is not a number of shards", parameter, context)


def views_of(texts: Sequence[str]) -> dict[str, str]:
    """Where each view lies, by its name."""
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


def files_by_view(option: str, texts: Sequence[str], views: Sequence[str]) -> dict[str, str]:
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


def quotas_of(texts: Sequence[str]) -> Any:
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


def _whole(text: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InputError(f"--quota {text}: {value!r} is not a whole number") from error


def eps_of(texts: Sequence[str], views: Sequence[str]) -> Any:
    """One ridge, or those by view; None where none is named."""
    if len(texts) == 1 and "=" not in texts[0]:
        return _number("--eps", texts[0], texts[0])
    wanted = "one value, or NAME=VALUE for each view"
    return numbers("--eps", texts, views, wanted) or None


def calibration_of(texts: Sequence[str], views: Sequence[str]) -> Any:
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    wanted = "one rule, or NAME=FACTOR for each view"
    return numbers("--calibration", texts, views, wanted) or default("calibration")


def numbers(
    option: str, texts: Sequence[str], views: Sequence[str], wanted: str
) -> dict[str, float]:
    """Numbers by view name."""
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
            f"{option} {text}: {value!r} is not a number; give one like {default('eps')}"
        ) from error


def arguments_of(values: Mapping[str, Any]) -> list[str]:
    """Values as the words that these functions read."""
    words: list[str] = []
    for name, value in values.items():
        each = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, one in each:
            ends = one if isinstance(one, tuple) else (one,)
            text = "..".join("" if end is None else str(end) for end in ends)
            words += [f"--{_FLAGS.get(name, name)}", f"{key}={text}" if key else text]
    return words
