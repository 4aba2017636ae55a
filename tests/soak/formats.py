"""Every format that is read, with a small file of it and what reads it."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

import fairnepv
import row_files
from fairnepv.cli.recipe import read_recipe
from fairnepv.cli.select import select as select_command
from fairnepv.concave import read_proof
from fairnepv.io.numpy_files import read_archive
from fairnepv.io.read import read_ids, read_numbers, read_picks
from fairnepv.io.some_rows import read_pictures, read_texts

N = 11
ROWS = np.random.default_rng(4).standard_normal((N, 3)).astype(np.float32)
DATA = {"a": ROWS, "b": np.random.default_rng(5).standard_normal((N, 4))}
ASKED: dict[str, Any] = {"effort": "fast", "certify": False}
IDS = [f"i{i}" for i in range(N)]


@dataclass(frozen=True)
class Format:
    """Files as they are written, and a function that reads them, of the name that it is given."""

    name: str
    files: dict[str, bytes]
    given: str
    read: Callable[[str], Any]


def rows_of(given: str) -> None:
    """As a selection would: in blocks and some of them, then the selection itself."""
    rows = fairnepv.open_rows(given)
    if isinstance(rows, sp.csr_array):
        fairnepv.select({"a": rows}, 2, calibration="none", **ASKED)
        return
    np.asarray(rows[:])
    rows[list({0, len(rows) - 1} & set(range(len(rows))))]
    if rows.shape[0] < 1000 and rows.shape[1] < 1000:
        fairnepv.select({"a": rows}, 2, **ASKED)


def _sparse(folder: Path) -> str:
    sp.save_npz(folder / "s.npz", sp.csr_array(np.where(ROWS > 0, ROWS, 0)))
    return "s.npz"


def _bound(folder: Path) -> str:
    from fairnepv.concave import proof_arrays
    from fairnepv.io.write import Output, write_arrays

    proof = fairnepv.certify(DATA, 3).proof
    write_arrays(Output.at(str(folder / "bound.npz"), (".npz",), force=True), proof_arrays(proof))
    return "bound.npz"


def _saved(folder: Path) -> str:
    fairnepv.select(DATA, 3, effort="fast", include=[2]).save(folder / "saved.npz")
    return "saved.npz"


def _checkpoint(folder: Path) -> str:
    fairnepv.select(DATA, 3, checkpoint=folder / "state", **ASKED)
    return "state"


def _picks(ending: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        from fairnepv.io.write import TABLES, Output, write_table

        found = fairnepv.select(DATA, 3, ids=IDS, **ASKED)
        write_table(Output.at(str(folder / f"picks{ending}"), TABLES, force=True), found.table)
        return f"picks{ending}"

    return write


def _text(name: str, content: str) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / name).write_text(content)
        return name

    return write


def _array(name: str, values: Any) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        np.save(folder / name, values)
        return name

    return write


def _converted(folder: Path) -> str:
    from fairnepv.io.conversion import convert

    np.save(folder / "in.npy", ROWS)
    convert(["in.npy"], "converted", rows_per_shard=5)
    (folder / "in.npy").unlink()
    return "converted"


def _page(folder: Path) -> str:
    from PIL import Image

    Image.new("RGB", (4, 3), (9, 9, 200)).save(folder / "x.png")
    pictures = pa.array([(folder / "x.png").read_bytes()] * N, pa.binary())
    (folder / "x.png").unlink()
    pq.write_table(pa.table({"image": pictures, "text": IDS}), folder / "page.parquet")
    return "page.parquet"


def read_saved(given: str) -> None:
    found = fairnepv.load(given)
    repr(found)
    found.table  # noqa: B018  # made when it is asked for


def read_bound(given: str) -> None:
    fairnepv.verify_bound(DATA, read_proof(read_archive(given)))


def read_page(given: str) -> None:
    from fairnepv.report.page.pictures import thumbnails

    some = np.arange(3)
    read_texts(f"{given}:text", some, N)
    pictures = read_pictures(f"{given}:image", some, N, IDS)
    thumbnails(enumerate(pictures), 1 << 20)


RECIPE = """view = { a = "a.npy", b = "b.npz:rows" }
k = 3
tau = 0.05
calibration = "unit-diagonal"
quota = { red = [1, 2], blue = 1 }
effort = "fast"
certify = false
"""
OTHERS: dict[str, tuple[Callable[[Path], str], Callable[[str], Any]]] = {
    "sparse": (_sparse, rows_of),
    "bound": (_bound, read_bound),
    "saved": (_saved, read_saved),
    "checkpoint": (_checkpoint, lambda f: fairnepv.select(DATA, 3, checkpoint=f, **ASKED)),
    "picks, csv": (_picks(".csv"), partial(read_picks, column="row")),
    "picks, json": (_picks(".json"), partial(read_picks, column="row")),
    "picks, parquet": (_picks(".parquet"), partial(read_picks, column="row")),
    "picks, txt": (_picks(".txt"), partial(read_picks, column="id")),
    "groups, csv": (_text("g.csv", "id,group\n" + "".join(f"{i},red\n" for i in IDS)),
                    partial(read_picks, column="group")),
    "ids, npy": (_array("ids.npy", np.array(IDS)), read_ids),
    "ids, json": (_text("ids.json", json.dumps(IDS)), read_ids),
    "weights": (_array("w.npy", np.linspace(0.5, 2, N)), read_numbers),
    "weights, csv": (_text("w.csv", "id,quality\n" + "".join(f"{i},1.5\n" for i in IDS)),
                     read_numbers),
    "recipe": (_text("r.toml", RECIPE), lambda f: read_recipe(f, select_command)),
    "converted": (_converted, rows_of),
    "page": (_page, read_page),
}  # fmt: skip
NAMES = (*row_files.FORMATS, *OTHERS)


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def format_of(name: str) -> Format:
    """Written once in a process, as they are written in tests."""
    with tempfile.TemporaryDirectory() as text, within(Path(text)):
        if name in OTHERS:
            make, read = OTHERS[name]
            given = make(Path(text))
        else:
            given, read = row_files.FORMATS[name](ROWS), rows_of
        files = {
            str(path.relative_to(text)): path.read_bytes()
            for path in sorted(Path(text).rglob("*"))
            if path.is_file()
        }
    return Format(name, files, given, read)
