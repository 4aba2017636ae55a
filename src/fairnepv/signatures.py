"""Options as typed dictionaries of annotated types, and what is made from them.

A field is `Annotated[type, Option(...)]`: a type checker reads the type, and the defaults, checks,
signatures and docstrings of the functions that take them are read from the `Option`.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args, get_type_hints

from fairnepv.checks import Check

Taken = TypeVar("Taken")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """A knob: `help` is one line for the command line and for Python, `more` is for Python."""

    default: Any
    help: str
    more: str = ""
    check: Check | None = None


def options_of(kind: Any) -> dict[str, Option]:
    """The options of a function by name, as its typed dictionary lists them."""
    return {name: hint.__metadata__[0] for name, hint in _hints(kind).items()}


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def completed(function: str, kind: type[Taken], given: Mapping[str, Any]) -> Taken:
    """All options of a function, with the defaults of those that were not given."""
    known = options_of(kind)
    for name in given:
        if name not in known:  # in the words of Python
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    whole = {name: given.get(name, option.default) for name, option in known.items()}
    return cast(Taken, whole)


def checked(function: str, kind: type[Taken], given: Mapping[str, Any]) -> Taken:
    """The same with every value checked as far as it can be by itself; numbers are plain ones."""
    known = options_of(kind)
    whole: Any = completed(function, kind, given)
    for name in given:
        check = known[name].check
        if check is not None:
            whole[name] = check(name, whole[name])
    return cast(Taken, whole)


def part(kind: type[Taken], options: Mapping[str, Any]) -> Taken:
    """Those of the options that a function of this kind takes."""
    return cast(Taken, {name: options[name] for name in options_of(kind) if name in options})


def takes(kind: Any) -> Callable[[Function], Function]:
    """Show all options of a function, in its signature and its docstring."""

    def shown(function: Function) -> Function:
        plain = inspect.signature(function)
        own = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=hint.__metadata__[0].default,
                annotation=get_args(hint)[0],
            )
            for name, hint in _hints(kind).items()
        ]
        function.__signature__ = plain.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        if function.__doc__:
            function.__doc__ = f"{function.__doc__.rstrip()}\n\n{_described(kind)}\n    "
        return function

    return shown


def _described(kind: Any) -> str:
    """A paragraph per option, indented as a docstring is."""
    texts = (
        f"{name}: {option.help} {option.more}".strip() for name, option in options_of(kind).items()
    )
    return "\n".join(
        textwrap.fill(text, 100, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for text in texts
    )
