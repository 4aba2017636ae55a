"""`.npy`, mapped into memory, and `.npz`: NumPy archives and SciPy sparse matrices."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairnepv.errors import InputError
from fairnepv.io.source import Source, choose_part

_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError)


def read_npy(source: Source) -> Any:
    try:
        return np.load(source.path, mmap_mode="r", allow_pickle=False)
    except _UNREADABLE as error:
        raise _unreadable(source, "a .npy file", error) from error


def read_npz(source: Source) -> Any:
    try:
        with np.load(source.path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array, as .npy files do")
            keys = list(archive.files)
            if "format" in keys and source.part is None:
                return sp.load_npz(source.path)
            key = choose_part(source, keys, "key")
            return archive[key]
    except InputError:
        raise
    except _UNREADABLE as error:
        raise _unreadable(source, "an .npz archive", error) from error


def _unreadable(source: Source, kind: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return InputError(
            f"{source} holds Python objects, which are never loaded from a file; save it as an "
            "array of numbers (or of fixed-width strings)"
        )
    return InputError(f"{source} cannot be read as {kind} ({error}); write the file again")
