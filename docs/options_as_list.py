"""Docstrings on the site: those of functions with options are made when the function is defined, so
they are taken from the function itself; and options, lines `name: what it is`, become a list."""

import importlib
import inspect
import re
from typing import Any

from griffe import Docstring, Extension, Function, Object

_OPTION = re.compile(r"^(\w+): (.+(?:\n {4}\S.*)*)", re.M)


class OptionsAsList(Extension):
    def on_function(self, *, func: Function, **_: Any) -> None:
        if "options" in func.parameters and func.parent is not None and func.parent.is_module:
            function = getattr(importlib.import_module(func.parent.path), func.name)
            func.docstring = Docstring(inspect.getdoc(function) or "", parent=func)
        _as_list(func)

    def on_class(self, *, cls: Object, **_: Any) -> None:
        _as_list(cls)


def _as_list(documented: Object) -> None:
    if documented.docstring is None:
        return
    text = _OPTION.sub(_item, documented.docstring.value)
    text = re.sub(r"^(?!- )(.+)\n(?=- )", r"\1\n\n", text, flags=re.M)  # a list needs a gap
    documented.docstring.value = text


def _item(match: re.Match[str]) -> str:
    return f"- **{match[1]}**: {' '.join(match[2].split())}"
