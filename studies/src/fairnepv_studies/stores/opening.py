"""Which store a user means."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

from fairnepv.errors import InputError
from fairnepv.io.source import split_source
from fairnepv_studies.files import local
from fairnepv_studies.pictures import ENDINGS
from fairnepv_studies.stores.base import Pictures
from fairnepv_studies.stores.columns import pictures_in_column
from fairnepv_studies.stores.folders import pictures_in_folder
from fairnepv_studies.stores.tar_files import pictures_in_tar
from fairnepv_studies.stores.zip_files import pictures_in_zip


@contextlib.contextmanager
def open_pictures(text: str, id_columns: Sequence[str] | None = None) -> Iterator[Pictures]:
    """DIR, ZIP, TAR or PARQUET[:COLUMN]; an `InputError` where there are none.

    A Parquet file must have one of `id_columns`; without them it may have an `id`, or rows count.
    """
    source = split_source(text)
    path = local(str(source.path))
    openers: dict[str, Callable[..., Pictures]]
    openers = {
        ".zip": pictures_in_zip,
        ".tar": pictures_in_tar,
        ".parquet": functools.partial(pictures_in_column, id_columns, source),
    }
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            found = pictures_in_folder(path)
        elif not path.is_file():
            came = "is no file" if path.exists() else "does not exist"
            raise InputError(f"--images {text}: {path} {came}; check the path")
        elif path.suffix.lower() not in openers:
            raise InputError(
                f"--images {text}: give a folder, a .zip, .tar or .parquet of pictures; a "
                "compressed .tar has to be unpacked first"
            )
        else:
            found = openers[path.suffix.lower()](path, stack)
        if not found.ids:
            raise InputError(f"--images {text} has no pictures ({', '.join(ENDINGS)})")
        yield found
