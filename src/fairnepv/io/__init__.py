"""Files -> rows and columns, and picks -> files. Nothing here knows what a view or a selection is.

`rows` is the seam: a `RowFile` stands for rows that stay in their files. One module per format
family reads; `read` dispatches on the ending; `write` puts a table or a picture, and `convert` a
folder of shards, into place whole or not at all.

Names are loaded when they are first used: rows need no Arrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_MODULES = {  # a test holds this and the imports for type checkers equal
    "conversion": "convert",
    "manifest": "verify",
    "numpy_files": "read_archive",
    "read": "converted_ids id_column open_rows read_features read_ids read_numbers read_picks",
    "rows": "RowFile",
    "write": "Output Table write_array write_arrays write_table",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [*_HOMES]

if TYPE_CHECKING:
    from fairnepv.io.conversion import convert as convert
    from fairnepv.io.manifest import verify as verify
    from fairnepv.io.numpy_files import read_archive as read_archive
    from fairnepv.io.read import converted_ids as converted_ids
    from fairnepv.io.read import id_column as id_column
    from fairnepv.io.read import open_rows as open_rows
    from fairnepv.io.read import read_features as read_features
    from fairnepv.io.read import read_ids as read_ids
    from fairnepv.io.read import read_numbers as read_numbers
    from fairnepv.io.read import read_picks as read_picks
    from fairnepv.io.rows import RowFile as RowFile
    from fairnepv.io.write import Output as Output
    from fairnepv.io.write import Table as Table
    from fairnepv.io.write import write_array as write_array
    from fairnepv.io.write import write_arrays as write_arrays
    from fairnepv.io.write import write_table as write_table


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairnepv.io' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fairnepv.io.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
