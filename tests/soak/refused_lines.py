"""What the command line is refused: a row per refusal, with the issue that names it, the line, and
the words that it is answered in; and the files that the lines and calls name."""

import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from PIL import Image

N = 20
VIEWS = "--view text=text.npy --view vision=pool.parquet:v"


class Line(NamedTuple):
    """One refusal."""

    issue: int
    line: str
    words: tuple[str, ...]

    @property
    def words_of_line(self) -> list[str]:
        return shlex.split(self.line.format(views=VIEWS))


def write_files() -> None:
    """Good ones and bad ones, into the current folder."""
    rng = np.random.default_rng([23, 10])
    rows = rng.standard_normal((N, 5))
    np.save("text.npy", rows)
    np.save("other.npy", rows[:-1])
    np.save("objects.npy", rows.astype(object), allow_pickle=True)
    np.savez("pool.npz", text=rows, vision=rows[:, :3])
    sp.save_npz("sparse.npz", sp.csr_array(np.where(rows > 0, rows, 0)))
    ids = [f"i{i}" for i in range(N)]
    pq.write_table(pa.table({"id": ids, "v": rows.tolist()}), "pool.parquet")
    pq.write_table(pa.table({"v": [rows[0].tolist(), [1.0], *rows[2:].tolist()]}), "ragged.parquet")
    pq.write_table(pa.table({"v": [*rows[:2].tolist(), None, *rows[3:].tolist()]}), "null.parquet")
    whole = Path("text.npy").read_bytes()
    Path("short.npy").write_bytes(whole[:-40])
    Path("magic.npy").write_bytes(b"PK" + whole[2:])
    Path("negative.npy").write_bytes(whole.replace(b"(20, 5)", b"(-2, 5)"))
    Path("version.npy").write_bytes(whole[:6] + b"\x09" + whole[7:])
    shards: dict[str, dict[int, np.ndarray]] = {
        "gap": {0: rows[:5], 2: rows[5:]},
        "widths": {0: rows[:5, :4], 1: rows[5:]},
        "dtypes": {0: rows[:5].astype(np.float32), 1: rows[5:]},
    }
    for folder, parts in shards.items():
        Path(folder).mkdir()
        for shard, part in parts.items():
            np.save(f"{folder}/{shard:03}.npy", part)
    Path("ids.txt").write_text("\n".join(ids) + "\n")
    Path("3.txt").write_text("3\n")
    Path("few.txt").write_text("\n".join(ids[:-1]) + "\n")
    Path("there.csv").write_text("mine\n")
    Path("recipe.toml").write_text('k = 3\ncolour = "red"\n[view]\ntext = "text.npy"\n')
    Path("torn.toml").write_text("k = \n")
    Path("study.toml").write_text('colour = "red"\n')
    Path("logos").mkdir()
    Image.new("RGB", (40, 30), (9, 90, 200)).save("logos/1.png")
    Path("plain.xml").write_text("<html/>")
    Path("torn.zip").write_bytes(b"PK\x03\x04" + b"\0" * 30)


LINES = (
    Line(3, "select --view text=text.doc -k 3", ("text.doc", ".npy")),
    Line(3, "select --view text=no.npy -k 3", ("no.npy", "does not exist")),
    Line(
        3,
        "select --view text=pool.parquet:w -k 3",
        ("pool.parquet has no column 'w'", "it has id, v"),
    ),
    Line(
        3, "select --view text=pool.npz:w -k 3", ("pool.npz has no key 'w'", "it has text, vision")
    ),
    Line(3, "select --view text=objects.npy -k 3", ("objects.npy", "object")),
    Line(3, "select {views} -k 3 --out there.csv", ("there.csv", "--force")),
    Line(
        3,
        "select {views} -k 3 --out no/picks.csv",
        ("--out: the folder no does not exist", "make it first"),
    ),
    Line(3, "select {views} -k 3 --out picks.doc", ("picks.doc", ".csv")),
    Line(
        3, "select {views} -k 3 --ids few.txt", ("--ids must be one id per row, 20 in all", "(19,)")
    ),
    Line(3, "select {views} -k 3 --ids no.txt", ("no.txt", "does not exist")),
    Line(3, "select {views} -k 0", ("-k must be from 1 to n - 1 = 19", "not 0")),
    Line(3, "select {views} -k three", ("-k", "three")),
    Line(3, "select {views}", ("-k",)),
    Line(3, "select -k 3", ("--view",)),
    Line(3, "select {views} -k 3 --method best", ("--method", "best")),
    Line(3, "select {views} -k 3 --tau 0", ("--tau must be a finite positive", "not 0")),
    Line(3, "select {views} -k 3 --eps -1", ("--eps must be a finite positive", "not -1")),
    Line(3, "select {views} -k 3 --eps audio=0.1", ("--eps", "audio")),
    Line(3, "select {views} -k 3 --calibration unit", ("--calibration", "unit")),
    Line(
        3,
        "select --view text=text.npy --view text=text.npy -k 3",
        ("the view 'text' was given before",),
    ),
    Line(3, "select --view text=text.npy --view vision=other.npy -k 3", ("20", "19")),
    Line(3, "select --vieww text=text.npy -k 3", ("--vieww", "--view")),
    Line(3, "choose -k 3", ("choose",)),
    Line(3, "score {views} --picks no.csv", ("no.csv", "does not exist")),
    Line(3, "verify-bound no.npz {views}", ("no.npz", "does not exist")),
    Line(3, "verify-bound pool.npz {views}", ("pool.npz",)),
    Line(3, "relax {views} -k 3 --solver newton", ("--solver", "newton")),
    Line(3, "demo -k 100000", ("-k must be from 1",)),
    Line(4, "select {views} -k 3 --include 3.txt --exclude 3.txt", ("item 3 is in",)),
    Line(4, "select {views} -k 3 --priority text=0.5", ("--priority", "vision")),
    Line(4, "select {views} -k 3 --floor text=9", ("floor 9 of view 'text' cannot be reached",)),
    Line(4, "select {views} -k 3 --time-limit 0", ("--time-limit", "0.0", "x>0")),
    Line(4, "select {views} -k 3 --node-limit 5", ("--node-limit is for", "exact")),
    Line(4, "select {views} -k 3 --no-certify --target-efficiency 0.9", ("--target-efficiency",)),
    Line(4, "select {views} -k 3 --quota red=1", ("--quota needs groups", "--groups")),
    Line(
        4, "select {views} -k 3 --method softmax --include 3.txt", ("'softmax' does not support",)
    ),
    Line(5, "select --view text=short.npy -k 3", ("short.npy",)),
    Line(5, "select --view text=magic.npy -k 3", ("magic.npy",)),
    Line(5, "select --view text=gap -k 3", ("gap",)),
    Line(5, "select --view text=widths -k 3", ("widths",)),
    Line(5, "select --view text=null.parquet:v -k 3", ("row 2",)),
    Line(5, "select {views} -k 3 --memory-limit 1MB", ("--memory-limit", "the least that")),
    Line(5, "convert text.npy --out there.csv", ("there.csv",)),
    Line(5, "convert no.npy --out shards", ("no.npy", "does not exist")),
    Line(5, "convert --verify gap", ("gap has no manifest.json", "`fairnepv convert`")),
    Line(6, "select {views} -k 3 --engine quick", ("there is no engine 'quick'",)),
    Line(6, "select {views} -k 3 --workers 2", ("workers are for the engine 'local-ray'",)),
    Line(
        16,
        "select {views} -k 3 --out a.csv --checkpoint a.csv",
        ("a.csv is named twice", "its own file"),
    ),
    Line(7, "uspto ingest plain.xml --images logos --out corpus", ("plain.xml",)),
    Line(7, "uspto ingest torn.zip --images logos --out corpus", ("torn.zip",)),
    Line(
        7, "uspto ingest no.xml --images logos --out corpus", ("no.xml is no file", "give bulk XML")
    ),
    Line(
        7,
        "uspto ingest --corpus songs --out corpus",
        ("no corpus 'songs'", "uspto, openmoji or folder"),
    ),
    Line(7, "uspto split gap", ("gap is no corpus", "uspto ingest")),
    Line(7, "uspto features gap", ("gap",)),
    Line(7, "uspto run gap", ("gap",)),
    Line(7, "uspto verify gap widths", ("widths is no corpus", "corpus.json")),
    Line(21, "downstream run study.toml --out study", ("study.toml", "colour")),
    Line(21, "downstream run no.toml --out study", ("no.toml", "does not exist")),
    Line(22, "select recipe.toml", ("recipe.toml", "colour")),
    Line(22, "select torn.toml", ("torn.toml",)),
    Line(22, "select {views} -k 3 --report r.pdf", ("r.pdf", ".html")),
    Line(22, "select {views} -k 3 --missing keep", ("--missing", "keep")),
    Line(19, "select {views} -k 3 --objective fair", ("--objective", "fair")),
    Line(20, "select {views} -k 3 --method greedy --solver plain", ("--solver", "nepv")),
    Line(20, "select {views} -k 3 --passes 3", ("--passes", "auto")),
)
