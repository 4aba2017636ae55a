"""Docstrings on the site. Those of functions with options are made when the function is defined, so
they are taken from the function itself; options, lines `name: what it is`, become a list; and the
comment behind a field of a record is what is said of it."""

import importlib
import inspect
import itertools
import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Function, Object

_OPTION = re.compile(r"^(\w+): (.+(?:\n {4}\S.*)*)", re.M)
_PAGE = re.compile(r"(?<![`\w/])docs/([\w-]+)\.md(#[\w-]+)?")  # they lie beside the page of the API


class OptionsAsList(Extension):
    def on_function(self, *, func: Function, **_: Any) -> None:
        if "options" in func.parameters and func.parent is not None and func.parent.is_module:
            function = getattr(importlib.import_module(func.parent.path), func.name)
            func.docstring = Docstring(inspect.getdoc(function) or "", parent=func)
        _as_list(func)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class:
            comment = _comment_behind(attr)
            if comment:
                attr.docstring = Docstring(comment[0].upper() + comment[1:] + ".", parent=attr)

    def on_class(self, *, cls: Object, **_: Any) -> None:
        _as_list(cls)


def _comment_behind(field: Attribute) -> str:
    """What stands behind a field, and goes on in the lines below it."""
    lines = field.lines_collection[field.filepath][field.endlineno - 1 :]
    first = re.search(r"  # (.+)$", lines[0])
    if first is None:
        return ""
    below = itertools.takewhile(bool, (re.match(r"    # (.+)$", line) for line in lines[1:]))
    return " ".join(match[1] for match in (first, *below) if match)


def _as_list(documented: Object) -> None:
    if documented.docstring is None:
        return
    text = _OPTION.sub(_item, documented.docstring.value)
    text = re.sub(r"^(?!- )(.+)\n(?=- )", r"\1\n\n", text, flags=re.M)  # a list needs a gap
    documented.docstring.value = _PAGE.sub(r"[\1](\1.html\2)", text)


def _item(match: re.Match[str]) -> str:
    text = re.sub(r"(?<=\w)-\n +", "-", match[2])  # a word with a hyphen at the end of a line
    return f"- **{match[1]}**: {' '.join(text.split())}"
