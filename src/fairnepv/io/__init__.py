"""Files -> arrays, and picks -> files. Nothing here knows what a view or a selection is.

One file per format family reads; `read` dispatches on the ending; `write` puts a table or a picture
into place whole or not at all.
"""

from fairnepv.io.numpy_files import read_archive
from fairnepv.io.read import read_features, read_ids, read_numbers, read_picks
from fairnepv.io.write import Output, Table, write_array, write_arrays, write_table

__all__ = [
    "Output",
    "Table",
    "read_archive",
    "read_features",
    "read_ids",
    "read_numbers",
    "read_picks",
    "write_array",
    "write_arrays",
    "write_table",
]
