"""`--report` and what belongs to it, on the command line."""

import io
import json
import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

N, K = 60, 5
ISLAND = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)
SELECT = f"select --view a=t.parquet:a --view b=t.parquet:b --ids t.parquet:id -k {K} --effort fast"


def picture(i):
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (4 * i, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = {
        "id": [f"i{i}" for i in range(N)],
        "caption": [f"caption {i}" if i % 3 else None for i in range(N)],
        "class": [("x", "y")[i % 2] for i in range(N)],
        "image": [picture(i) for i in range(N)],
        "a": list(rng.standard_normal((N, 9))),
        "b": list(rng.standard_normal((N, 7))),
    }
    pq.write_table(pa.table(columns), "t.parquet")
    np.save("xy.npy", rng.standard_normal((N, 2)))
    (tmp_path / "pictures").mkdir()
    for i in range(0, N, 2):
        (tmp_path / "pictures" / f"i{i}.png").write_bytes(picture(i))
    return tmp_path


def document(path):
    return json.loads(ISLAND.search(path.read_text())[1])


def test_a_page_with_everything(command, folder):
    more = "--texts t.parquet:caption --labels t.parquet:class --coordinates xy.npy"
    more += " --images pictures"
    ended = command(f"{SELECT} --out p.csv --bound b.npz --report r.html --atlas a.parquet {more}")
    assert (ended.code, ended.err) == (0, "")
    assert "Wrote r.html: open it in a browser." in ended.out
    shown = document(folder / "r.html")
    rows = [int(name[1:]) for name in shown["names"]]
    assert shown["texts"] == [f"caption {i}" if i % 3 else None for i in rows]
    assert [shown["groups"][g] for g in shown["group"]] == [("x", "y")[i % 2] for i in rows]
    assert {rows[int(item)] % 2 for item in shown["pictures"]} == {0}
    assert shown["points"]["maps"][0]["view"] == ""
    atlas = pq.read_table("a.parquet").to_pylist()
    assert [row["id"] for row in atlas if row["picks"] == "pick"] == shown["names"][:K]
    places = np.load("xy.npy")
    for row in atlas:
        assert [row["x"], row["y"]] == pytest.approx(places[row["row"]], rel=1e-6)


def test_the_commands_on_the_page_run(command, folder):
    command(f"{SELECT} --bound b.npz --report r.html")
    shown = document(folder / "r.html")
    again = shlex.split(shown["ran"]["command"])
    assert again[:2] == ["fairnepv", "select"]
    assert command(shlex.join([*again[1:], "--force"])).code == 0
    verify = shlex.split(shown["sure"]["verify"])
    ended = command(shlex.join(verify[1:]))
    assert ended.code == 0
    assert "The bound holds under these terms." in ended.out


def test_without_a_bound_file_the_page_says_how_to_make_one(command, folder):
    command(f"{SELECT} --report r.html --images t.parquet:image")
    shown = document(folder / "r.html")
    assert len(shown["pictures"]) == len(shown["names"])
    for line in shown["sure"]["verify"].splitlines():
        assert command(shlex.join(shlex.split(line)[1:])).code == 0


def test_compare_writes_a_page(command, folder):
    methods = "--method auto --method averaged --method random"
    line = SELECT.replace("select", "compare").replace("--effort", f"{methods} --effort")
    assert command(f"{line} --report r.html").code == 0
    shown = document(folder / "r.html")
    assert [row["method"] for row in shown["selectors"]] == ["auto", "averaged", "random"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--report r.txt", "--report: r.txt ends in '.txt'; give one of .html"),
        ("--report taken.html", "add --force"),
        ("--texts t.parquet:caption", "are for --report"),
        ("--atlas a.parquet", "are for --report"),
        (
            "--report r.html --texts t.parquet:none",
            "--texts t.parquet:none: t.parquet has no column",
        ),
        ("--report r.html --images nowhere", "--images nowhere: nowhere has no ending"),
        ("--report r.html --images t.parquet:caption", "holds str, not pictures"),
        ("--report r.html --labels b.npy", "--labels b.npy"),
        ("--report r.html --coordinates c=xy.npy", "--coordinates c=xy.npy"),
        ("--report r.html --coordinates bad.npy", "coordinates must be two numbers per row"),
    ],
)
def test_what_is_refused(command, folder, more, said):
    (folder / "taken.html").write_text("mine")
    np.save("bad.npy", np.zeros((N, 3)))
    ended = command(f"{SELECT} {more}")
    assert ended.code == 2
    assert said in ended.err
    assert not (folder / "r.html").exists()
    assert (folder / "taken.html").read_text() == "mine"


def test_several_sizes_have_no_page(command):
    ended = command(SELECT.replace(f"-k {K}", "-k 3,5") + " --report r.html")
    assert "for one size" in ended.err
