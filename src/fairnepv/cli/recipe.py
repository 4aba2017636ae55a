"""Recipes: the options of a command in a TOML file, by their own names.

What a key may be and what it means are asked of the command itself, so that there is no second list
of options: a value becomes what somebody would have typed, and options that are typed win.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from fairnepv.cli.words import SHARDS_OF_THE_POOL, Shards, Sizes
from fairnepv.display import shown
from fairnepv.errors import InputError
from fairnepv.io.places import open_regular

_LARGEST = 1 << 20  # bytes of a recipe
_NOT_IN_RECIPES = {"help", "debug", "recipe"}


def with_recipe(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take a recipe, as its first word or by --recipe."""
    eager: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _use}
    argument = click.argument("recipe_file", required=False, metavar="[RECIPE.toml]", **eager)
    option = click.option(
        "--recipe",
        metavar="FILE",
        help="Options of this command in TOML; those typed win.",
        **eager,
    )
    return argument(option(command))


def options_by_key(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by the keys that a recipe has for them."""
    named = {
        max(option.opts, key=len).lstrip("-"): option
        for option in command.params
        if isinstance(option, click.Option)
    }
    return {key: option for key, option in named.items() if key not in _NOT_IN_RECIPES}


def _use(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """Read a recipe as the defaults of this call."""
    if path is None:
        return
    if context.default_map:
        raise InputError(f"{path}: there is a recipe already; give one")
    context.default_map = read_recipe(path, context.command)


def read_recipe(path: str, command: click.Command) -> dict[str, Any]:
    """The words of a command line by the parameters that would take them."""
    known = options_by_key(command)
    words: dict[str, Any] = {}
    for key, value in _document(path).items():
        option = known.get(key.replace("_", "-"))
        if option is None:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            meant = f"did you mean {near[0]!r}?" if near else "`fairnepv select --help` has all"
            raise InputError(f"{path}: {shown(key)!r} is no option of {command.name}; {meant}")
        assert option.name is not None
        if option.name in words:
            raise InputError(f"{path}: {key!r} stands there twice, also with an underscore")
        words[option.name] = _words_of(f"{path}: {key}", option, value)
    return words


def _document(path: str) -> dict[str, Any]:
    if not path.endswith(".toml"):
        raise InputError(f"{path} is no recipe: its name must end in .toml")
    try:
        with open_regular(Path(path)) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InputError(f"{path} has more than 1 MiB, which no recipe has")
        return tomllib.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read as a recipe in TOML ({reason})") from error


def _words_of(where: str, option: click.Option, value: Any) -> Any:
    """The value as it would have been typed, for Click."""
    if option.is_flag:
        if isinstance(value, bool):
            return value
        raise InputError(f"{where} must be true or false, not {value!r}")
    if isinstance(option.type, Shards) and isinstance(value, bool):
        return SHARDS_OF_THE_POOL if value else False
    if option.multiple:
        if isinstance(value, Mapping):
            return [f"{name}={_word(where, one, pair=True)}" for name, one in value.items()]
        return [_word(where, one) for one in (value if isinstance(value, list) else [value])]
    if isinstance(option.type, Sizes) and isinstance(value, list):
        return ",".join(_word(where, one) for one in value)
    return _word(where, value)


def _word(where: str, value: Any, *, pair: bool = False) -> str:
    """A text or a number; a pair of limits as LEAST..MOST."""
    if pair and isinstance(value, list) and len(value) == 2:
        return "..".join(_word(where, one) for one in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = {bool: "true or false", dict: "a table", list: "a list"}.get(type(value), "a date")
        raise InputError(f"{where} must be a text or a number, not {kind}")
    return str(value)
