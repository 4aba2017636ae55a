"""Files -> rows and columns, and picks -> files. Nothing here knows what a view or a selection is.

`rows` is the seam: a `RowFile` stands for rows that stay in their files. One module per format
family reads; `read` dispatches on the ending; `write` puts a table or a picture, and `convert` a
folder of shards, into place whole or not at all.
"""

from fairnepv.io.convert import convert
from fairnepv.io.manifest import verify
from fairnepv.io.numpy_files import read_archive
from fairnepv.io.read import (
    converted_ids,
    id_column,
    open_rows,
    read_features,
    read_ids,
    read_numbers,
    read_picks,
)
from fairnepv.io.rows import RowFile
from fairnepv.io.write import Output, Table, write_array, write_arrays, write_table

__all__ = [
    "Output",
    "RowFile",
    "Table",
    "convert",
    "converted_ids",
    "id_column",
    "open_rows",
    "read_archive",
    "read_features",
    "read_ids",
    "read_numbers",
    "read_picks",
    "verify",
    "write_array",
    "write_arrays",
    "write_table",
]
