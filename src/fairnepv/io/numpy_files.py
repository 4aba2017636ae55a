"""`.npy`, mapped into memory, and `.npz`: NumPy archives and SciPy sparse matrices.

Whatever NumPy, zlib or SciPy make of bytes that are not what their name says, the caller gets one
sentence: the formats have many ways to be broken, hence the wide nets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.source import Source, choose_part, parse_source

_NPY, _ZIP = b"\x93NUMPY", b"PK"
_SPARSE = {"format", "shape", "data"}


def read_npy(source: Source) -> Any:
    _check_magic(source, _NPY, "a .npy file")
    try:
        return np.load(source.path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise _unreadable(source, "a .npy file", error) from error


def read_npz(source: Source) -> Any:
    _check_magic(source, _ZIP, "an .npz archive")
    try:
        with source.path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if source.part is None and set(archive.files) >= _SPARSE:
                file.seek(0)
                return sp.load_npz(file)
            return archive[choose_part(source, list(archive.files), "key")]
    except InputError:
        raise
    except Exception as error:
        raise _unreadable(source, "an .npz archive", error) from error


def read_archive(text: str) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz archive by name."""
    source = parse_source(text, (".npz",))
    _check_magic(source, _ZIP, "an .npz archive")
    try:
        with np.load(source.path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:
        raise _unreadable(source, "an .npz archive", error) from error


def _check_magic(source: Source, magic: bytes, kind: str) -> None:
    """By its first bytes: NumPy would take a stranger for a pickle."""
    try:
        with source.path.open("rb") as file:
            found = file.read(len(magic))
    except OSError as error:
        raise InputError(f"{source} cannot be opened ({error.strerror})") from error
    if found == magic:
        return
    hint = "it holds a single array, so call it .npy" if found == _NPY[:2] else "write it again"
    raise InputError(f"{source} is not {kind}; {hint}")


def _unreadable(source: Source, kind: str, error: Exception) -> InputError:
    if "allow_pickle" in str(error) or "Python objects" in str(error):
        return InputError(
            f"{source} holds Python objects, which are never loaded from a file; save it as an "
            "array of numbers (or of fixed-width strings)"
        )
    return InputError(f"{source} cannot be read as {kind} ({error}); write the file again")
