"""Choose k items out of n so that no view of the data is left behind, and prove how good it is.

Names are loaded when they are first used: `import fairnepv` costs next to nothing. The public names
and their homes are the imports of `__init__.pyi`, which type checkers read as well.
"""

import importlib
import pkgutil
from typing import Any

__version__ = "0.1.0"

_LINES = (pkgutil.get_data("fairnepv", "__init__.pyi") or b"").decode().splitlines()
_HOMES = {  # of lines "from HOME import NAME as NAME"
    line.split()[3]: line.split()[1] for line in _LINES if line.startswith("from ")
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairnepv' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
