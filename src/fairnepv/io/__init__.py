"""Files -> rows and columns, and picks -> files. Nothing here knows what a view or a selection is.

`rows` is the seam: a `RowFile` stands for rows that stay in their files. One module per format
family reads; `read` dispatches on the ending; `write` puts a table or a picture, and `convert` a
folder of shards, into place whole or not at all. Import from the modules: `rows` needs no Arrow.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairnepv.io.read import open_rows as open_rows


def __getattr__(name: str) -> Any:
    """`open_rows`, which users may import from here; it is loaded when it is asked for."""
    if name != "open_rows":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fairnepv.io.read import open_rows

    return open_rows
