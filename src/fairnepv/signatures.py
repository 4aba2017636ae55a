"""Options as typed dictionaries of annotated types, and what is made from them.

A field is `Annotated[type, Option(...)]`: a type checker reads the type, and the defaults, checks,
signatures and docstrings of the functions that take them are read from the `Option`.
"""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_type_hints

from fairnepv.checks import Check

Taken = TypeVar("Taken")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Option:
    """A knob: `help` is one line for the command line and for Python, `more` is for Python."""

    default: Any
    check: Check | None = None
    help: str = ""
    more: str = ""


def options_of(kind: Any) -> dict[str, Option]:
    """The options of a function by name, as its typed dictionary lists them."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def completed(function: str, kind: type[Taken], given: Mapping[str, Any]) -> Taken:
    """All options of a function, with the defaults of those that were not given."""
    known = options_of(kind)
    for name in given:
        if name not in known:  # in the words of Python
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return cast(Taken, {name: given.get(name, known[name].default) for name in known})


def checked(function: str, kind: type[Taken], given: Mapping[str, Any]) -> Taken:
    """The same with every value checked as far as it can be by itself; numbers are plain ones."""
    whole: Any = completed(function, kind, given)
    known = options_of(kind)
    for name in given:
        check = known[name].check
        whole[name] = check(name, whole[name]) if check else whole[name]
    return cast(Taken, whole)


def part(kind: type[Taken], options: Mapping[str, Any]) -> Taken:
    """Those of the options that a function of this kind takes."""
    return cast(Taken, {name: options[name] for name in options_of(kind) if name in options})


def takes(kind: Any) -> Callable[[Function], Function]:
    """Show all options of a function, in its signature and its docstring."""

    def shown(function: Function) -> Function:
        plain = inspect.signature(function)
        parameters = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
        texts = []
        hints = get_type_hints(kind)
        for name, option in options_of(kind).items():
            shape: Any = {"default": option.default, "annotation": hints[name]}
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **shape))
            text = f"{name}: {option.help} {option.more}".strip()
            texts.append(
                textwrap.fill(text, 100, initial_indent=" " * 4, subsequent_indent=" " * 8)
            )
        function.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
        if function.__doc__:
            function.__doc__ = "\n".join([function.__doc__.rstrip(), "", *texts, "    "])
        return function

    return shown
