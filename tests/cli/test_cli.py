"""The command line: files in, one table or one document out, and one line when something is wrong.

`run` calls the entry point as the shell does; signals, pipes and terminals get a process of their
own.
"""

import csv
import hashlib
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import fairnepv
from cases import PAPER_OPTIMUM
from fairnepv import data as embedded
from fairnepv.api import search
from fairnepv.api import selection as selection_module
from fairnepv.api.selection import Comparison
from fairnepv.cli import commands, main
from fairnepv.cli.files import ProblemFiles
from fairnepv.compute import Engine, LocalEngine
from fairnepv.data import Pictograms, openmoji
from fairnepv.data.probe import Probe
from fairnepv.errors import Status
from fairnepv.io.read import read_picks
from fairnepv.io.write import TABLES
from fairnepv.loop import bars
from fairnepv.loop.bars import StageBar
from fairnepv.methods.baselines import baselines
from fairnepv.search.greedy import Greedy
from fairnepv.search.local import LocalSearch
from fairnepv.search.tabu import TabuSearch
from fairnepv.stiefel.lbfgs import Lbfgs

COMMANDS = [
    *("certify", "compare", "convert", "demo", "downstream", "embed", "init", "local-features"),
    *("relax", "score"),
    *("select", "synthetic", "uspto", "verify-bound"),
]
SELECTORS = ["auto", "nepv", "greedy-swaps", "greedy", *baselines(("text", "vision"))]
N, K = 40, 5
CHOSEN, BARRED = [7, 3], [21, 6]
GROUPS = ["ab"[i % 3 == 0] for i in range(N)]
WEIGHTS = np.linspace(0.5, 2.0, N)
VIEWS = "--view text=text.npy --view vision=pool.npz:vision"
POSED = f"{VIEWS} -k {K}"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(command):
    """A command line through the entry point."""
    return command


def pool_of(n: int, width: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {name: rng.standard_normal((n, width)) for name in ("text", "vision")}


@pytest.fixture
def pool() -> dict[str, np.ndarray]:
    return pool_of(N)


@pytest.fixture
def folder(tmp_path, monkeypatch, pool) -> Path:
    """The pool in files of every kind, in the current folder; ids are 00x, 01x, ..."""
    monkeypatch.chdir(tmp_path)
    ids = [f"{i:02}x" for i in range(N)]
    np.save("text.npy", pool["text"])
    np.savez("pool.npz", **pool)
    sp.save_npz("sparse.npz", sp.csr_array(np.where(pool["text"] > 0, pool["text"], 0)))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(pool["vision"].ravel()), 8)
    pq.write_table(pa.table({"id": ids, "v:1": lists}), "pool.parquet")
    Path("ids.txt").write_text("\n".join(ids) + "\n")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too; folders count as empty."""
    paths = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}


def stopped(*_, **__) -> None:
    """A function in which Ctrl-C is pressed."""
    raise KeyboardInterrupt


def interrupt(monkeypatch, kind: type, method: str, calls: int) -> None:
    """Ctrl-C in the given call of a method."""
    whole, count = getattr(kind, method), iter(range(calls))

    def step(*arguments):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(kind, method, step)


# --- engines --------------------------------------------------------------------------------------


class Named(Engine):
    """What stands for an engine of a name, and says that it was used."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.passes = 0

    def of(self, name: Any, workers: Any = None, device: Any = None) -> Any:
        self.asked.append((name, workers, device))
        return self

    def map(self, *arguments: Any, **options: Any) -> Any:
        self.passes += 1
        return LocalEngine().map(*arguments, **options)

    def reduce(self, *arguments: Any, **options: Any) -> Any:
        self.passes += 1
        return LocalEngine().reduce(*arguments, **options)


@pytest.mark.parametrize(
    "line",
    [
        f"select {POSED} --effort fast --json",
        f"certify {POSED} --json",
        f"compare {POSED} --method greedy --json",
        f"relax {POSED} --max-steps 3 --json",
        f"score {VIEWS} --picks rows.npy --json",
        f"verify-bound bound.npz {VIEWS} --json",
    ],
    ids=lambda line: line.split()[0],
)
def test_every_command_takes_an_engine(run, folder, monkeypatch, line):
    np.save("rows.npy", np.arange(K))
    assert run(f"certify {POSED} --out bound.npz").code == 0
    expected, named = run(line), Named()
    with monkeypatch.context() as patched:
        patched.setattr("fairnepv.compute.engine_of", named.of)
        found = run(f"{line} --engine local-ray --workers 3 --device cpu")
    assert found.code == expected.code == 0, found.err
    assert named.asked == [("local-ray", 3, "cpu")]
    assert named.passes > 0
    assert _timeless(found.out) == _timeless(expected.out)


def _timeless(text: str) -> str:
    return re.sub(r'"(seconds|time)": [\d.e-]+', "", text)


def test_engines_that_cannot_be_are_refused(run, folder):
    for options, reason in {
        "--engine quick": "there is no engine 'quick'; name 'local', 'torch'",
        "--workers 2": "workers are for the engine 'local-ray', not for 'local'",
        "--device cpu": "device is for the workers of Ray, not for 'local'; name 'torch:cpu'",
        "--engine local-ray --device tpu": "'tpu' is not one of 'cuda', 'cpu'",
        "--engine ray://host": "write the address as in 'ray://HOST:10001'",
        "--engine ray://host:²": "write the address as in 'ray://HOST:10001'",
        "--engine ray://no..host:1": "does not answer (",
        "--engine local-ray --workers 0": "0 is not in the range x>=1",
    }.items():
        if "ray" in options:
            pytest.importorskip("ray", reason="Ray is not installed (fairnepv[ray])")
        result = run(f"select {POSED} {options}")
        assert result.code == 2
        assert reason in result.err
        assert len(result.err.splitlines()) == 1


def test_a_plan_starts_no_engine(run, folder, monkeypatch):
    monkeypatch.setattr("fairnepv.compute.engine_of", lambda *_: pytest.fail("started"))
    for command in ("select", "certify"):
        assert run(f"{command} {POSED} --plan --engine local-ray").code == 0
    monkeypatch.undo()
    data = {"v": np.ones((50, 3))}
    assert fairnepv.plan(data, 3, engine="ray://nowhere:1").passes > 0


# --- select ---------------------------------------------------------------------------------------


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("options", "knobs"),
    [
        ("", {}),
        ("--tau 0.4", {"tau": 0.4}),
        ("--eps 0.5", {"eps": 0.5}),
        ("--eps text=0.5 --eps vision=0.01", {"eps": {"text": 0.5, "vision": 0.01}}),
        ("--calibration trace", {"calibration": "trace"}),
        ("--calibration efficiency", {"calibration": "efficiency"}),
        (
            "--calibration text=2 --calibration vision=0.5",
            {"calibration": {"text": 2.0, "vision": 0.5}},
        ),
        ("--method vision-only", {"method": "vision-only"}),
        ("--method random --seed 3", {"method": "random", "random_state": 3}),
        ("--effort fast", {"effort": "fast"}),
        ("--effort thorough", {"effort": "thorough"}),
        ("--hierarchical", {"hierarchical": True}),
        ("--hierarchical 2 --effort fast", {"hierarchical": 2, "effort": "fast"}),
    ],
)
def test_select_is_the_library_call(run, folder, pool, options, knobs):
    """Every knob gets there: what is printed is what the library returns."""
    document = run(f"select {POSED} {options} --json").document
    expected = fairnepv.select(pool, K, **knobs)
    assert [pick["row"] for pick in document["picks"]] == expected.indices.tolist()
    assert document["fair_score"] == pytest.approx(expected.fair_score, abs=1e-12)
    assert document["scores"] == pytest.approx(dict(expected.scores), abs=1e-12)
    assert document["upper_bound"] == pytest.approx(expected.upper_bound, abs=1e-12)
    assert document["status"] == expected.status.name
    assert document["settings"] == json.loads(json.dumps(dict(expected.settings)))


@pytest.mark.parametrize(
    ("shards", "match"),
    [("some", "not a number of shards"), ("0", "from 1, not 0"), ("1000", "give at most")],
)
def test_a_number_of_shards_that_cannot_be_is_one_line(run, folder, shards, match):
    refused = run(f"select {POSED} --hierarchical {shards}")
    assert refused.code == 2
    assert match in refused.err
    assert refused.err.count("\n") == 1


def test_a_plan_knows_of_shards(run, folder):
    plan = run(f"select {POSED} --hierarchical 3 --no-certify --plan --json").out
    assert "3 shards of up to" in plan
    assert "winners" in plan


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "source", ["vision=pool.npz:vision", "vision=pool.parquet:v:1", "vision=./pool.npz:vision"]
)
def test_a_view_is_the_same_from_every_format(run, folder, pool, source):
    document = run(f"select --view text=text.npy --view {source} -k {K} --json").document
    assert document["fair_score"] == pytest.approx(fairnepv.select(pool, K).fair_score, abs=1e-12)


def test_a_column_may_be_called_like_an_archive(run, folder, pool):
    pq.write_table(pa.table({"a.npz:b": pool["text"].tolist()}), "c.parquet")
    document = run(f"select --view a=c.parquet:a.npz:b -k {K} --json").document
    expected = fairnepv.select({"a": pool["text"]}, K)
    assert document["fair_score"] == pytest.approx(expected.fair_score, abs=1e-12)


def test_a_sparse_view_is_read(run, folder, pool):
    views = {"text": sp.load_npz("sparse.npz"), "vision": pool["vision"]}
    document = run(
        f"select --view text=sparse.npz --view vision=pool.npz:vision -k {K} --json"
    ).document
    expected = fairnepv.select(views, K)
    assert [pick["row"] for pick in document["picks"]] == expected.indices.tolist()
    assert document["fair_score"] == pytest.approx(expected.fair_score, abs=1e-12)


def test_k_may_be_a_fraction(run, folder):
    assert len(run(f"select {VIEWS} -k 0.2 --effort fast --json").document["picks"]) == N // 5


def test_picks_have_id_row_order_and_gains(run, folder):
    document = run(f"select {POSED} --ids ids.txt --json").document
    picks = document["picks"]
    assert list(picks[0]) == ["id", "row", "order", "gain_text", "gain_vision"]
    assert [pick["order"] for pick in picks] == list(range(K))
    assert [pick["id"] for pick in picks] == [f"{pick['row']:02}x" for pick in picks]


@pytest.mark.parametrize("method", ["auto", "random", "text-only"])
def test_gains_add_up_to_the_scores(run, folder, method):
    document = run(f"select {POSED} --method {method} --json").document
    for view, d in document["scores"].items():
        mean = np.mean([pick[f"gain_{view}"] for pick in document["picks"]])
        assert mean == pytest.approx(d, abs=1e-9)


def test_without_ids_rows_are_their_own(run, folder):
    picks = run(f"select {POSED} --json").document["picks"]
    assert [pick["id"] for pick in picks] == [pick["row"] for pick in picks]


@pytest.mark.parametrize("ids", ["ids.txt", "pool.parquet", "pool.parquet:id"])
def test_ids_come_from_any_file(run, folder, ids):
    picks = run(f"select {POSED} --effort fast --ids {ids} --json").document["picks"]
    assert {pick["id"] for pick in picks} == {f"{pick['row']:02}x" for pick in picks}


def test_ids_by_view_align_the_views(run, folder, pool):
    """Here the rows of one view come in another order."""
    order = np.random.default_rng(5).permutation(N)
    np.save("shuffled.npy", pool["vision"][order])
    Path("shuffled.txt").write_text("\n".join(f"{i:02}x" for i in order))
    views = "--view text=text.npy --view vision=shuffled.npy"
    aligned = run(f"select {views} -k {K} --ids text=ids.txt --ids vision=shuffled.txt --json")
    expected = fairnepv.select(pool, K)
    assert aligned.document["fair_score"] == pytest.approx(expected.fair_score, abs=1e-12)
    ids = [pick["id"] for pick in aligned.document["picks"]]
    assert ids == [f"{i:02}x" for i in expected.indices]


def test_people_get_a_table_and_the_picks(run, folder, pool):
    code, out, err = run(f"select {POSED} --ids ids.txt")
    expected = fairnepv.select(pool, K)
    assert (code, err) == (0, "")
    assert f"Chose {K} of {N} items: fair score {expected.fair_score:.4f}" in out
    assert f"Why the search stopped: {expected.status.value}." in out
    assert "Picks in order: " + ", ".join(f"{i:02}x" for i in expected.indices) in out


def test_picks_that_are_addresses_are_told_apart(run, folder, pool):
    names = [f"https://pictures.example/show?v={i}" for i in range(N)]
    Path("names.txt").write_text("\n".join(names))
    chosen = fairnepv.select(pool, K).indices
    out = run(f"select {POSED} --ids names.txt").out
    assert "Picks in order: " + ", ".join(names[i] for i in chosen) in out


@pytest.mark.slow
def test_all_files_are_written_though_nobody_reads(folder):
    """`head` has seen enough, or a log has no room left."""
    files = "--out o.csv --bound b.npz --explain e.csv --assign a.csv"
    for options in (f"-k {K} {files}", f"-k {K},{K + 1} --out m.csv"):
        command = [sys.executable, "-m", "fairnepv", *f"select {VIEWS} {options}".split()]
        with Path("/dev/full").open("w") as full:
            assert subprocess.run(command, stdout=full, stderr=subprocess.PIPE).returncode == 2
    written = {path.name for path in Path.cwd().iterdir()}
    assert written >= {"o.csv", "b.npz", "e.csv", "a.csv", f"m-{K}.csv", f"m-{K + 1}.csv"}


def test_the_same_seed_gives_the_same_bytes(run, folder):
    runs = [run(f"select {POSED} --method random --seed {seed} --json").document for seed in "001"]
    assert runs[0]["picks"] == runs[1]["picks"]
    assert runs[0]["picks"] != runs[2]["picks"]


# --- What select writes, score reads --------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("ids", ["", "--ids ids.txt"])
def test_score_reads_what_select_wrote(run, folder, ending, ids):
    knobs = "--tau 0.1 --eps 0.2 --calibration trace"
    selected = run(f"select {POSED} {knobs} {ids} --out picks{ending} --json").document
    named = ids if ending == ".txt" else ""  # a list of ids alone says no rows
    scored = run(f"score {VIEWS} {knobs} {named} --picks picks{ending} --json").document
    assert scored["k"] == K
    assert scored["fair_score"] == pytest.approx(selected["fair_score"], abs=1e-12)
    for part in ("scores", "view_weights", "coverage"):
        assert scored[part] == pytest.approx(selected[part], abs=1e-12)
    assert scored["worst_view"] == selected["worst_view"]


@pytest.mark.parametrize("ending", TABLES)
def test_score_finds_picks_by_their_ids(run, folder, pool, ending):
    """Also in a pool whose rows come in another order."""
    selected = run(f"select {POSED} --ids ids.txt --out picks{ending} --json").document
    for name, view in pool.items():
        np.save(f"turned_{name}.npy", view[::-1])
    Path("turned.txt").write_text("\n".join(f"{i:02}x" for i in reversed(range(N))))
    turned = "--view text=turned_text.npy --view vision=turned_vision.npy --ids turned.txt"
    scored = run(f"score {turned} --picks picks{ending} --by-id --json").document
    assert scored["fair_score"] == pytest.approx(selected["fair_score"], abs=1e-12)


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("form", ["{:03}", "{}", "#{}", "# {}", "{}.0", "a,{}", 'say "{}"'])
def test_hard_to_read_ids_are_found_again(run, folder, ending, form):
    """Names that look like numbers, comments or the file's own punctuation."""
    pq.write_table(pa.table({"id": [form.format(i) for i in range(N)]}), "i.parquet")
    ids = "--ids i.parquet"
    selected = run(f"select {POSED} --effort fast {ids} --out p{ending} --json").document
    assert [pick["id"] for pick in selected["picks"]] == [
        form.format(pick["row"]) for pick in selected["picks"]
    ]
    for by in ("", "--by-id"):
        scored = run(f"score {VIEWS} {ids} --picks p{ending} {by} --json").document
        assert scored["k"] == K
        assert scored["fair_score"] == pytest.approx(selected["fair_score"], abs=1e-12)


def test_names_that_are_numbers_survive_a_csv_file(run, folder):
    """Counted from 1 and turned around, so that taking ids for rows would show."""
    Path("i.json").write_text(json.dumps([str(N - i) for i in range(N)]))
    selected = run(f"select {POSED} --ids i.json --out p.csv --json").document
    ids = [str(N - pick["row"]) for pick in selected["picks"]]
    assert [pick["id"] for pick in selected["picks"]] == ids
    with open("p.csv", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ids
    scored = run(f"score {VIEWS} --ids i.json --picks p.csv --by-id --json").document
    assert scored["k"] == K
    assert scored["fair_score"] == pytest.approx(selected["fair_score"], abs=1e-12)


def test_one_id_that_begins_with_a_hash_is_counted(run, folder):
    first = run(f"select {POSED} --json").document["picks"][0]["row"]
    ids = [f"#{i}" if i == first else f"x{i}" for i in range(N)]
    pq.write_table(pa.table({"id": ids}), "i.parquet")
    run(f"select {POSED} --ids i.parquet --out p.txt")
    assert run(f"score {VIEWS} --ids i.parquet --picks p.txt --json").document["k"] == K


def test_ids_in_a_csv_file_keep_leading_zeros(run, folder):
    Path("i.csv").write_text("id\n" + "\n".join(f"{i:03}" for i in range(N)) + "\n")
    picks = run(f"select {POSED} --ids i.csv --json").document["picks"]
    assert [pick["id"] for pick in picks] == [f"{pick['row']:03}" for pick in picks]


def test_a_byte_order_mark_is_no_part_of_an_id(run, folder, pool):
    Path("i.txt").write_text("\ufeff" + "\n".join(f"x{i}" for i in range(N)))
    Path("p.txt").write_text("x0\nx1\n")
    document = run(f"score {VIEWS} --ids i.txt --picks p.txt --by-id --json").document
    assert document["fair_score"] == pytest.approx(fairnepv.score(pool, [0, 1]).fair_score)


@pytest.mark.parametrize("ending", [".json", ".csv", ".txt"])
@pytest.mark.parametrize("kind", ["dates", "bytes"])
def test_ids_that_json_does_not_know_are_written_as_text(run, folder, ending, kind):
    days = np.arange(N).astype("datetime64[D]")
    names = np.array([b"x%d" % i for i in range(N)])
    np.save("i.npy", days if kind == "dates" else names)
    texts = days.astype(str) if kind == "dates" else names.astype(str)
    picks = run(f"select {POSED} --effort fast --ids i.npy --out p{ending} --json").document[
        "picks"
    ]
    ids = [texts[pick["row"]] for pick in picks]
    assert [pick["id"] for pick in picks] == ids
    assert read_picks(f"p{ending}", "id").tolist() == ids


def test_out_holds_the_record_in_every_format(run, folder):
    """Id, row, order and gains in columns of their types, and the settings besides."""
    for ending in TABLES:
        run(f"select {POSED} --ids ids.txt --out picks{ending}")
    document = json.loads(Path("picks.json").read_text())
    parquet = pq.read_table("picks.parquet")
    comma = pyarrow.csv.read_csv("picks.csv")
    assert parquet.to_pylist() == document["picks"]
    assert comma.to_pylist() == document["picks"]
    lines = Path("picks.txt").read_text().splitlines()
    assert lines == [pick["id"] for pick in document["picks"]]
    records = [
        json.loads(parquet.schema.metadata[b"fairnepv"]),
        json.loads(Path("picks.csv.settings.json").read_text()),
        json.loads(Path("picks.txt.settings.json").read_text()),
        document,
    ]
    for record in records:
        assert record["settings"] == document["settings"]
        assert record["settings"]["k"] == K
        assert record["fair_score"] == document["fair_score"]
        assert record["complete"] is True


def test_select_says_what_it_wrote(run, folder):
    code, out, err = run(f"select {POSED} --out picks.csv")
    assert (code, err) == (0, "")
    assert out.endswith("Wrote picks.csv and picks.csv.settings.json.\n")
    assert "Picks in order" not in out


def test_force_replaces_an_output(run, folder):
    Path("picks.json").write_text("old")
    assert run(f"select {POSED} --out picks.json --force").code == 0
    assert len(json.loads(Path("picks.json").read_text())["picks"]) == K


@pytest.mark.parametrize("name", ["rows.npy", "rows.txt", "rows.csv", "rows.json", "rows.parquet"])
def test_score_takes_plain_row_numbers(run, folder, pool, name):
    rows = [3, 17, 5]
    np.save("rows.npy", rows)
    Path("rows.txt").write_text("3\n17\n5\n")
    Path("rows.csv").write_text("row\n3\n17\n5\n")
    Path("rows.json").write_text("[3, 17, 5]")
    pq.write_table(pa.table({"row": rows}), "rows.parquet")
    document = run(f"score {VIEWS} --picks {name} --json").document
    assert document["fair_score"] == pytest.approx(fairnepv.score(pool, rows).fair_score)


def test_score_for_people(run, folder, pool):
    Path("rows.txt").write_text("3\n17\n5\n")
    code, out, err = run(f"score {VIEWS} --picks rows.txt")
    assert (code, err) == (0, "")
    fair_score = fairnepv.score(pool, [3, 17, 5]).fair_score
    assert out.startswith(f"3 items: fair score {fair_score:.4f} nats per item.\n")
    assert "text" in out
    assert "vision" in out


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet", ".txt"])
def test_rows_that_have_moved_since_they_were_picked_are_found_out(run, folder, ending):
    """Row numbers of another order are other items, and their score looks like any other."""
    Path("names.json").write_text(json.dumps([f"item {i}" for i in range(N)]))
    Path("moved.json").write_text(json.dumps([f"item {i}" for i in reversed(range(N))]))
    out = f"picks{ending}"
    assert run(f"select {POSED} --ids names.json --effort fast --out {out}").code == 0
    assert run(f"score {VIEWS} --ids names.json --picks {out}").code == 0
    if ending == ".txt":  # ids alone, which are found wherever their rows are
        assert "lists ids, not row numbers" in run(f"score {VIEWS} --picks {out}").err
        assert run(f"score {VIEWS} --ids moved.json --picks {out}").code == 0
        return
    assert run(f"score {VIEWS} --picks {out}").code == 0  # nobody says what rows are called
    code, shown, err = run(f"score {VIEWS} --ids moved.json --picks {out}")
    assert (code, shown) == (2, "")
    assert "so the rows have moved; score by --by-id" in err
    assert run(f"score {VIEWS} --ids moved.json --picks {out} --by-id").code == 0


# --- Rules, weights and proofs --------------------------------------------------------------------


@pytest.fixture
def ruled(folder) -> Path:
    """The folder with items to include and exclude, groups, and weights of the rows."""
    Path("chosen.txt").write_text("".join(f"{i}\n" for i in CHOSEN))
    Path("chosen_ids.txt").write_text("".join(f"{i:02}x\n" for i in CHOSEN))
    Path("barred.csv").write_text("row\n" + "".join(f"{i}\n" for i in BARRED))
    Path("groups.txt").write_text("\n".join(GROUPS))
    pq.write_table(pa.table({"group": GROUPS, "other": GROUPS[::-1]}), "groups.parquet")
    np.save("weights.npy", WEIGHTS)
    return folder


RULED = [
    ("--include chosen.txt", {"include": CHOSEN}),
    ("--include chosen.txt --k-more", {"include": CHOSEN, "include_counts": False}),
    ("--exclude barred.csv", {"exclude": BARRED}),
    ("--exclude barred.csv:row --include chosen.txt", {"exclude": BARRED, "include": CHOSEN}),
    ("--groups groups.txt", {"groups": GROUPS}),
    ("--groups groups.txt --quota proportional", {"groups": GROUPS, "quotas": "proportional"}),
    ("--groups groups.parquet --quota a=1", {"groups": GROUPS, "quotas": {"a": 1}}),
    (
        "--groups groups.parquet:other --quota a=..1 --quota b=2..",
        {"groups": GROUPS[::-1], "quotas": {"a": (None, 1), "b": (2, None)}},
    ),
    ("--groups groups.txt --quota b=3..4", {"groups": GROUPS, "quotas": {"b": (3, 4)}}),
    ("--floor text=0.07", {"floors": {"text": 0.07}}),
    ("--floor text=0.04 --floor vision=0.04", {"floors": {"text": 0.04, "vision": 0.04}}),
    (
        "--priority text=0.9 --priority vision=0.1 --tau 0.5",
        {"priorities": {"text": 0.9, "vision": 0.1}, "tau": 0.5},
    ),
    ("--quality weights.npy", {"quality": WEIGHTS}),
    ("--quality vision=weights.npy", {"quality": {"vision": WEIGHTS}}),
    ("--no-certify", {"certify": False}),
    ("--gap 0.3 --method greedy --calibration none", {"gap": 0.3, "calibration": "none"}),
    ("--target-efficiency 0.6 --no-certify --certify", {"target_efficiency": 0.6}),
    ("--method exact --node-limit 1", {"method": "exact", "node_limit": 1}),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("options", "knobs"), RULED, ids=[options for options, _ in RULED])
def test_every_rule_gets_there(run, ruled, pool, options, knobs):
    document = run(f"select {POSED} {options} --json").document
    if "greedy" in options:
        knobs = {**knobs, "method": "greedy"}
    expected = fairnepv.select(pool, K, **knobs)
    assert [pick["row"] for pick in document["picks"]] == expected.indices.tolist()
    assert document["fair_score"] == pytest.approx(expected.fair_score, abs=1e-12)
    assert document["status"] == expected.status.name
    assert document["settings"] == json.loads(json.dumps(dict(expected.settings)))
    if expected.certificate is None:
        assert document["upper_bound"] is document["certificate"] is None
        return
    assert document["upper_bound"] == pytest.approx(expected.upper_bound, abs=1e-12)
    proven = document["certificate"]
    assert proven["by_view"] == pytest.approx(dict(expected.certificate.by_view), abs=1e-12)
    assert proven["duality_gap"] == pytest.approx(expected.certificate.duality_gap, abs=1e-12)


def test_included_items_come_first_and_may_be_named_by_id(run, ruled):
    by_row = run(f"select {POSED} --include chosen.txt --json").document["picks"]
    ids = "--ids ids.txt --include chosen_ids.txt"
    by_id = run(f"select {POSED} {ids} --json").document["picks"]
    assert [pick["row"] for pick in by_row[:2]] == CHOSEN
    assert [pick["id"] for pick in by_id[:2]] == ["07x", "03x"]
    assert [pick["row"] for pick in by_id] == [pick["row"] for pick in by_row]


@pytest.mark.parametrize("ending", TABLES)
def test_a_selection_grows_from_what_was_written(run, ruled, ending):
    """--include takes what --out wrote, with ids and without."""
    for ids in ("", "--ids ids.txt"):
        line = f"select {VIEWS} --effort fast {ids} --json"
        first = run(f"{line} -k 3 --out first{ending} --force").document["picks"]
        more = run(f"{line} -k 2 --include first{ending} --k-more").document["picks"]
        assert len(more) == 5
        assert [pick["row"] for pick in more[:3]] == [pick["row"] for pick in first]


def test_excluded_items_and_quotas_are_kept_to(run, ruled):
    rules = "--exclude barred.csv --groups groups.txt --quota a=2"
    rows = [pick["row"] for pick in run(f"select {POSED} {rules} --json").document["picks"]]
    assert not set(rows) & set(BARRED)
    assert [GROUPS[row] for row in rows].count("a") == 2


def test_compare_keeps_to_the_rules(run, ruled):
    rules = "--include chosen.txt --exclude barred.csv --groups groups.txt --quota a=2"
    rows = run(f"compare {POSED} {rules} --effort fast --json").document["selectors"]
    refused = ("softmax", "d-optimal", "k-dpp")
    assert [row["method"] for row in rows] == [name for name in SELECTORS if name not in refused]
    for row in rows:
        assert set(CHOSEN) <= set(row["picks"])
        assert not set(BARRED) & set(row["picks"])
        assert [GROUPS[i] for i in row["picks"]].count("a") == 2


def test_without_a_bound_people_are_told_none(run, folder):
    code, out, err = run(f"select {POSED} --no-certify")
    assert (code, err) == (0, "")
    assert "can score above" not in out
    assert "best possible" not in out
    assert "bound" not in out


def test_people_are_told_how_good_it_is(run, folder, pool):
    out = run(f"select {POSED} --method greedy").out
    greedy = fairnepv.select(pool, K, method="greedy")
    [share] = re.findall(r"at least ([0-9.]+)% of the best possible", out)
    assert greedy.efficiency - 2e-3 <= float(share) / 100 <= greedy.efficiency
    [bound] = re.findall(r"can score above (-?[0-9.]+),", out)
    assert greedy.upper_bound <= float(bound) <= greedy.upper_bound + 1e-4
    assert "This is the best possible" in run(f"select {POSED}").out


def test_a_node_limit_says_so_and_is_exit_code_1_under_strict(run, folder):
    line = f"select {VIEWS} -k 14 --method exact --node-limit 1 --calibration none"
    document = run(f"{line} --json").document
    assert document["status"] == "NODE_LIMIT"
    assert document["complete"] is False
    assert document["fair_score"] <= document["upper_bound"]
    code, _, err = run(f"{line} --strict")
    assert code == 1
    assert err.startswith("fairnepv: --strict: node limit reached")


def test_a_target_that_is_reached_ends_the_search(run, folder):
    """k = 14 is too many subsets for a proof, and greedy is good enough here."""
    line = f"select {VIEWS} -k 14 --target-efficiency 0.5"
    document = run(f"{line} --strict --json").document
    assert document["status"] == "TARGET"
    assert document["efficiency"] >= 0.5


# --- Several sizes --------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_several_sizes_at_once(run, folder, pool, nested):
    flag = "--nested" if nested else ""
    documents = run(f"select {VIEWS} -k 8,4 {flag} --effort fast --out p.csv --json").document
    expected = fairnepv.select(pool, [8, 4], nested=nested, effort="fast")
    assert list(expected) == [8, 4]
    for document, (size, selection) in zip(documents, expected.items(), strict=True):
        rows = [pick["row"] for pick in document["picks"]]
        assert document["settings"]["k"] == size
        assert rows == selection.indices.tolist() == read_picks(f"p-{size}.csv", "row").tolist()
    assert not Path("p.csv").exists()
    if nested:
        assert rows == [pick["row"] for pick in documents[0]["picks"]][:4]


def test_sizes_may_be_fractions(run, folder):
    documents = run(f"select {VIEWS} -k 0.1,0.2 --effort fast --out p.json --json").document
    assert [len(document["picks"]) for document in documents] == [4, 8]
    assert sorted(p.name for p in folder.glob("p-*")) == ["p-0.1.json", "p-0.2.json"]


@pytest.mark.parametrize("sizes", ["8,4", "0.2,4", "8,0.1", "0.2,0.1"])
def test_an_interruption_leaves_each_size_its_file(run, folder, monkeypatch, sizes):
    interrupt(monkeypatch, Greedy, "step", calls=2)
    line = f"select {VIEWS} -k {sizes} --effort fast --no-certify --method greedy --out p.csv"
    code, _, err = run(line)
    assert code == 130
    [written] = folder.glob("p-*.csv")
    assert f"{written.name} and {written.name}.settings.json hold it, marked INTERRUPTED" in err
    counts = {"p-8.csv": 8, "p-0.2.csv": 8, "p-4.csv": 4, "p-0.1.csv": 4}
    assert len(read_picks(written.name, "row")) == counts[written.name]


def test_an_interruption_is_told_however_other_sizes_ended(run, folder, monkeypatch):
    """The first one spends its nodes, which is no failure; the code was that of the first."""
    line = f"select {VIEWS} --method exact --node-limit 1 --no-certify"
    assert run(f"{line} -k 4 --strict")[0] == 1
    step, steps = Greedy.step, []
    monkeypatch.setattr(Greedy, "step", lambda *given: steps.append(1) or step(*given))
    assert run(f"{line} -k 4")[0] == 0
    monkeypatch.setattr(Greedy, "step", step)
    interrupt(monkeypatch, Greedy, "step", calls=len(steps) + 1)
    code, _, err = run(f"{line} -k 4,8 --out p.csv")
    assert code == 130
    assert "p-8.csv and p-8.csv.settings.json hold it, marked INTERRUPTED" in err


def test_several_sizes_for_people(run, folder):
    code, out, err = run(f"select {VIEWS} -k 3,6 --nested --effort fast")
    assert (code, err) == (0, "")
    first, second = re.findall(r"Picks in order: (.*)", out)
    assert second.split(", ")[:3] == first.split(", ")
    assert "Chose 3 of 40" in out
    assert "Chose 6 of 40" in out


def test_sizes_beside_included_items(run, ruled):
    line = f"select {VIEWS} -k 1,3 --nested --include chosen.txt --k-more --effort fast --json"
    small, large = ([pick["row"] for pick in document["picks"]] for document in run(line).document)
    assert small[:2] == CHOSEN
    assert len(small) == 3
    assert large[:3] == small
    assert len(large) == 5


# --- What else select writes ----------------------------------------------------------------------


def read_table(path: str) -> list[dict[str, Any]]:
    if path.endswith(".json"):
        [rows] = [v for v in json.loads(Path(path).read_text()).values() if isinstance(v, list)]
        return rows
    if path.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    return pyarrow.csv.read_csv(path).to_pylist()


@pytest.mark.sample(1)
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".json"])
def test_an_explanation_is_the_library_call(run, folder, pool, ending):
    assert run(f"select {POSED} --ids ids.txt --explain why{ending}").code == 0
    ids = np.array([f"{i:02}x" for i in range(N)])
    expected = fairnepv.explain(fairnepv.select(pool, K, ids=ids)).rows()
    for row, pick in zip(read_table(f"why{ending}"), expected, strict=True):
        assert (row["id"], row["row"]) == (pick["id"], pick["row"])
        assert (row["rival_id"], row["rival_row"]) == (pick["rival_id"], pick["rival_row"])
        assert row["margin"] == pytest.approx(pick["margin"], abs=1e-12)
        for name, own in pick["contributions"].items():
            assert row[f"contribution_{name}"] == pytest.approx(own, abs=1e-12)


@pytest.mark.parametrize("ending", TABLES)
def test_picks_that_must_be_there_have_no_rival(run, ruled, ending):
    """Whose margin is no number, for which JSON has no word."""
    assert run(f"select {POSED} --effort fast --include chosen.txt --explain why{ending}").code == 0
    if ending == ".txt":
        return
    first, *_, last = read_table(f"why{ending}")
    assert (first["row"], first["rival_row"]) == (CHOSEN[0], -1)
    assert not first["rival_id"]
    assert first["margin"] is None or np.isnan(first["margin"])
    assert last["margin"] is not None


@pytest.mark.sample(1)
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".json"])
def test_an_assignment_is_the_library_call(run, folder, pool, ending):
    assert run(f"select {POSED} --ids ids.txt --assign who{ending}").code == 0
    selection = fairnepv.select(pool, K)
    expected = fairnepv.assign(selection)
    rows = read_table(f"who{ending}")
    picks = selection.indices[expected.pick]
    assert [row["row"] for row in rows] == list(range(N))
    assert [row["id"] for row in rows] == [f"{i:02}x" for i in range(N)]
    assert [row["pick_row"] for row in rows] == picks.tolist()
    assert [row["pick_id"] for row in rows] == [f"{i:02}x" for i in picks]
    weights = [row["pick_weight"] for row in rows]
    assert weights == pytest.approx(expected.weights[expected.pick].tolist(), abs=1e-12)
    similarity = [row["similarity"] for row in rows]
    assert similarity == pytest.approx(expected.similarity.tolist(), abs=1e-12)


def test_all_outputs_at_once(run, folder):
    names = ["picks.csv", "bound.npz", "why.csv", "who.csv"]
    options = "--out picks.csv --bound bound.npz --explain why.csv --assign who.csv"
    before = {path.name for path in folder.iterdir()}
    code, out, _ = run(f"select {POSED} {options}")
    assert code == 0
    beside = [f"{name}.settings.json" for name in names if name.endswith(".csv")]
    names += beside
    told = out.splitlines()[-1]
    assert told.startswith("Wrote picks.csv, picks.csv.settings.json, ")
    assert all(name in told for name in names)
    assert {path.name for path in folder.iterdir()} - before == set(names)
    code, _, err = run(f"select {POSED} {options}")
    assert code == 2
    assert "--force" in err
    assert run(f"select {POSED} {options} --force").code == 0


def test_an_output_that_cannot_be_written_does_not_take_the_others_along(run, folder, monkeypatch):
    """Nor the result: what was found is shown, then the first complaint."""
    move = os.replace

    def partly_full(source, target):
        if str(target).endswith(".npz"):
            raise OSError(28, "No space left on device")
        move(source, target)

    monkeypatch.setattr("os.replace", partly_full)
    code, out, err = run(f"select {POSED} --out picks.csv --bound b.npz --explain why.csv")
    assert code == 2
    assert "No space left on device" in err
    assert len(err.splitlines()) == 1
    assert f"Chose {K} of {N}" in out
    assert Path("picks.csv").exists()
    assert Path("why.csv").exists()
    assert sorted(folder.glob("b*")) == []
    code, out, err = run(f"certify {POSED} --out b.npz")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "can score above" in out
    assert "Wrote" not in out


# --- certify and verify-bound ---------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("options", "knobs"),
    [
        ("", {}),
        ("--calibration none --tau 0.3 --gap 0.01", {"calibration": "none", "tau": 0.3}),
        ("--include chosen.txt --k-more", {"include": CHOSEN, "include_counts": False}),
        (
            "--exclude barred.csv --groups groups.txt --quota a=1",
            {"exclude": BARRED, "groups": GROUPS, "quotas": {"a": 1}},
        ),
        (
            "--priority text=0.9 --priority vision=0.1 --tau 0.5",
            {"priorities": {"text": 0.9, "vision": 0.1}, "tau": 0.5},
        ),
        ("--quality weights.npy --eps 0.5", {"quality": WEIGHTS, "eps": 0.5}),
        ("--center", {"center": True}),
    ],
)
def test_certify_is_the_library_call_and_its_proof_holds(run, ruled, pool, options, knobs):
    document = run(f"certify {POSED} {options} --out bound.npz --json").document
    gap = {"gap": 0.01} if "--gap" in options else {}
    expected = fairnepv.certify(pool, K, **knobs, **gap)
    assert document["upper_bound"] == pytest.approx(expected.upper_bound, abs=1e-12)
    assert document["by_view"] == pytest.approx(dict(expected.by_view), abs=1e-12)
    assert document["spectral_bound"] == pytest.approx(expected.spectral_bound, abs=1e-12)
    assert document["duality_gap"] <= (gap or {"gap": 2e-3})["gap"]
    assert document["status"] == "CONVERGED"
    best = fairnepv.select(pool, K, **knobs, certify=False)
    assert best.fair_score <= document["upper_bound"]
    quality = "--quality weights.npy" if "--quality" in options else ""
    verified = run(f"verify-bound bound.npz {VIEWS} {quality} --json").document
    assert verified["holds"] is True
    claim = verified["upper_bound"]
    assert claim["claimed"] == document["upper_bound"]
    assert claim["proven"] == pytest.approx(claim["claimed"], abs=1e-9)
    assert verified["terms"]["k"] == best.settings["k"]
    assert verified["terms"]["tau"] == best.settings["tau"]


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--tau 0.3 --eps text=0.2 --eps vision=0.1 --calibration text=2 --calibration vision=1",
        "--include chosen.txt --k-more --quality weights.npy",
        "--exclude barred.csv --groups groups.txt --quota a=1 --quota b=..5",
        "--priority text=0.9 --priority vision=0.1 --calibration trace",
        "--center",
    ],
)
def test_the_command_that_certify_prints_expects_the_terms_that_were_asked_for(run, ruled, options):
    out = run(f"certify {POSED} {options} --out bound.npz").out
    command = out.splitlines()[-1].strip().removeprefix("fairnepv ")
    code, out, err = run(command)
    assert (code, err) == (0, "")
    assert out.endswith("The bound holds under these terms.\n")
    code, out, err = run(f"{command} --tau 0.07")
    assert (code, out) == (2, "")
    assert "tau" in err


def test_the_command_that_certify_prints_names_no_rule_that_was_cut_short(run, ruled):
    out = run(f"certify {POSED} --calibration efficiency --time-limit 1e-9 --out bound.npz").out
    assert "calibration 'efficiency' divides views 'text', 'vision' by a bound" in out
    command = out.splitlines()[-1].strip().removeprefix("fairnepv ")
    code, out, err = run(command)
    assert (code, err) == (0, "")
    assert "efficiency, cut short" in out


def test_what_a_verifier_names_is_what_the_bound_is_about(run, ruled):
    """Options used to be ignored, so that a bound of one problem passed for that of another."""
    run(f"certify {POSED} --out bound.npz")
    for named in (
        "--tau 0.2",
        "--eps 1",
        "--calibration none",
        "--center",
        f"-k {K + 1}",
        "--include chosen.txt",
    ):
        code, out, err = run(f"verify-bound bound.npz {VIEWS} {named}")
        assert (code, out) == (2, ""), named
        assert "the certificate" in err
    code, out, _ = run(f"verify-bound bound.npz {VIEWS} -k {K} --tau 0.05 --eps 0.1")
    assert code == 0
    assert f"sha256 {hashlib.sha256(Path('text.npy').read_bytes()).hexdigest()}" in out


def test_a_bound_for_people(run, folder, pool):
    code, out, err = run(f"certify {POSED} --out bound.npz")
    assert (code, err) == (0, "")
    bound = fairnepv.certify(pool, K).upper_bound
    [shown] = re.findall(rf"No {K} of {N} items can score above (-?[0-9.]+) nats", out)
    assert bound <= float(shown) <= bound + 1e-4
    assert "Wrote bound.npz" in out
    code, out, err = run(f"verify-bound bound.npz {VIEWS}")
    assert (code, err) == (0, "")
    assert out.endswith("The bound holds under these terms.\n")
    assert "view 'text' alone" in out


def test_the_bound_of_a_selection_can_be_checked(run, folder):
    document = run(f"select {POSED} --method greedy --bound bound.npz --json").document
    verified = run(f"verify-bound bound.npz {VIEWS} --json").document
    assert verified["holds"] is True
    assert verified["upper_bound"]["claimed"] == document["upper_bound"]


def test_a_bound_without_time_is_still_a_bound(run, folder, pool):
    document = run(f"certify {POSED} --calibration none --time-limit 1e-9 --json").document
    assert document["status"] == "TIME_LIMIT"
    assert document["notes"] != []
    best = fairnepv.select(pool, K, calibration="none")
    assert document["upper_bound"] >= best.fair_score


@pytest.fixture
def bound(run, folder) -> dict[str, np.ndarray]:
    """The arrays of a bound that holds, of kernels as they are."""
    assert run(f"certify {POSED} --calibration none --out bound.npz").code == 0
    with np.load("bound.npz") as archive:
        return dict(archive)


def claiming(arrays: dict[str, np.ndarray], change: Callable[[Any], None]) -> None:
    """The bound with its text changed, as `forged.npz`."""
    about = json.loads(str(arrays["about"]))
    change(about)
    np.savez("forged.npz", **{**arrays, "about": np.array(json.dumps(about))})


def lower(about: Any) -> None:
    about["upper_bound"] -= 1e-3


def lower_a_view(about: Any) -> None:
    about["by_view"]["vision"] -= 1e-3


def change_the_terms(about: Any) -> None:
    about["terms"]["tau"] *= 8


@pytest.mark.parametrize("change", [lower, lower_a_view, change_the_terms])
def test_a_claim_that_does_not_follow_is_exit_code_1(run, bound, change):
    claiming(bound, change)
    code, out, err = run(f"verify-bound forged.npz {VIEWS}")
    assert code == 1
    assert out.endswith("The bound does NOT follow for this data under these terms.\n")
    assert err == "fairnepv: forged.npz: what is claimed does not follow for this data\n"
    code, out, err = run(f"verify-bound forged.npz {VIEWS} --json")
    assert (code, json.loads(out)["holds"], len(err.splitlines())) == (1, False, 1)


@pytest.mark.parametrize("part", ["joint/levels", "alone-0/levels", "alone-1/combine-0"])
def test_dual_variables_that_prove_less_are_exit_code_1(run, bound, part):
    """Zero levels prove nothing; without its combinations W proves less."""
    arrays = {**bound, part: 0.0 * bound[part]}
    if part == "joint/levels":  # or what the views prove alone might do
        arrays |= {f"alone-{q}/levels": 0.0 * bound[f"alone-{q}/levels"] for q in range(2)}
    np.savez("forged.npz", **arrays)
    code, out, _ = run(f"verify-bound forged.npz {VIEWS}")
    assert code == 1
    assert "does NOT follow" in out


def test_a_bound_does_not_follow_for_other_data(run, bound, pool):
    np.save("larger.npy", 2 * pool["text"])
    views = "--view text=larger.npy --view vision=pool.npz:vision"
    assert run(f"verify-bound bound.npz {views}").code == 1
    np.save("smaller.npy", 0.5 * pool["text"])  # where it follows all the more
    views = "--view text=smaller.npy --view vision=pool.npz:vision"
    assert run(f"verify-bound bound.npz {views}").code == 0


@pytest.mark.parametrize("views", ["text", "vision text", "text vision more", "text other"])
def test_a_bound_is_about_its_views(run, bound, views):
    options = " ".join(f"--view {name}=text.npy" for name in views.split())
    code, out, err = run(f"verify-bound bound.npz {options}")
    assert (code, out) == (2, "")
    assert "about views ['text', 'vision']" in err
    assert f"the data has {views.split()}" in err


def without(part: str) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: np.savez("forged.npz", **{k: v for k, v in arrays.items() if k != part})


def with_terms(**terms: Any) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: claiming(arrays, lambda about: about["terms"].update(terms))


def with_part(name: str, change: Callable[[np.ndarray], Any]) -> Callable[..., None]:
    return lambda arrays: np.savez("forged.npz", **{**arrays, name: change(arrays[name])})


FORGERIES = {
    "no text": (without("about"), ["forged.npz", "no bound"]),
    "no rows": (without("joint/rows"), ["forged.npz", "no bound"]),
    "another format": (
        lambda arrays: claiming(arrays, lambda about: about.update(format="x")),
        ["forged.npz", "'x'"],
    ),
    "text that is no JSON": (with_part("about", lambda _: np.array("{")), ["forged.npz"]),
    "weights of two": (with_part("joint/weights", lambda w: 2 * w), ["damaged or foreign"]),
    "weights below zero": (with_part("joint/weights", lambda w: w - 1), ["damaged or foreign"]),
    "rows out of reach": (with_part("joint/rows", lambda r: r + 9), ["damaged or foreign"]),
    "rows twice": (with_part("alone-0/rows", lambda r: 0 * r), ["damaged or foreign"]),
    "not finite": (
        with_part("joint/combine-0", lambda c: c + np.nan),
        ["forged.npz"],
    ),
    "combinations of other rows": (
        with_part("joint/combine-1", lambda c: c[:-1]),
        ["forged.npz"],
    ),
    "a soft-min that is none": (with_terms(tau=-1), ["forged.npz", "cannot be posed"]),
    "nothing chosen": (with_terms(k=0), ["forged.npz", "cannot be posed"]),
    "other rows": (with_terms(n=41), ["41 rows", f"{N}"]),
    "weighted rows": (with_terms(quality=True), ["quality"]),
    "rows included out of reach": (
        with_part("include", lambda _: np.array([N])),
        ["include", f"0 to {N - 1}"],
    ),
    "rows included in a matrix": (
        with_part("include", lambda _: np.array([[1]])),
        ["forged.npz", "include"],
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_bound_that_cannot_be_is_one_line(run, bound, forgery):
    forge, words = FORGERIES[forgery]
    forge(bound)
    code, out, err = run(f"verify-bound forged.npz {VIEWS}")
    assert (code, out) == (2, "")
    assert err.startswith("fairnepv: ")
    assert len(err.splitlines()) == 1
    assert [word for word in words if word not in err] == []


# --- compare --------------------------------------------------------------------------------------


def test_compare_has_a_record_per_selector(run, folder, pool):
    document = run(f"compare {POSED} --effort fast --seed 2 --json").document
    expected = fairnepv.compare(pool, K, effort="fast", random_state=2)
    assert [row["method"] for row in document["selectors"]] == SELECTORS
    for shown, row in zip(document["selectors"], expected, strict=True):
        assert shown["picks"] == row.indices.tolist()
        assert shown["fair_score"] == pytest.approx(row.fair_score, abs=1e-12)


def test_compare_takes_only_the_methods_named(run, folder):
    document = run(f"compare {POSED} --method random --method greedy --json").document
    assert [row["method"] for row in document["selectors"]] == ["random", "greedy"]


@pytest.mark.parametrize("ending", TABLES)
def test_compare_writes_its_table(run, folder, ending):
    line = f"compare {POSED} --method greedy --method random --out table{ending} --json"
    document = run(line).document
    methods = [row["method"] for row in document["selectors"]]
    if ending == ".txt":
        rows = Path("table.txt").read_text().splitlines()[2:]
        assert [row.split("\t")[0] for row in rows] == methods
        return
    if ending == ".json":
        rows = json.loads(Path("table.json").read_text())["selectors"]
    elif ending == ".csv":
        rows = pyarrow.csv.read_csv("table.csv").to_pylist()
    else:
        rows = pq.read_table("table.parquet").to_pylist()
    assert [row["method"] for row in rows] == methods
    assert [row["fair_score"] for row in rows] == [r["fair_score"] for r in document["selectors"]]


def test_compare_draws_a_picture(run, folder):
    assert run(f"compare {POSED} --effort fast --plot bars.png").code == 0
    assert Path("bars.png").read_bytes().startswith(PNG)


def test_compare_shows_every_selector_and_who_is_left_behind(run, folder):
    code, out, err = run(f"compare {POSED} --effort fast")
    assert (code, err) == (0, "")
    assert f"{K} of {N} items" in out
    assert all(name in out for name in SELECTORS)


# --- relax ----------------------------------------------------------------------------------------


def test_relax_is_the_library_call(run, folder, pool):
    options = "--solver damped --alpha 0.5 --start random --seed 4 --tol 1e-4 --max-steps 30"
    document = run(f"relax {POSED} {options} --json").document
    knobs = {"solver": "damped", "alpha": 0.5, "start": "random", "tol": 1e-4, "max_steps": 30}
    expected = fairnepv.relax(pool, K, random_state=4, **knobs)
    assert document["value"] == pytest.approx(expected.value, abs=1e-12)
    assert document["residual"] == pytest.approx(expected.residual)
    assert document["status"] == expected.status.name
    assert document["solver"] == {
        **{"name": "damped", "tol": 1e-4, "max_steps": 30},
        **{"alpha": 0.5, "sigma": expected.solver.sigma},
    }


def test_relax_writes_an_orthonormal_basis(run, folder, pool):
    assert run(f"relax {POSED} --out V.npy").code == 0
    V = np.load("V.npy")
    np.testing.assert_allclose(V, fairnepv.relax(pool, K).basis, atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-12)


def test_a_trace_is_printed(run, folder):
    code, out, err = run(f"relax {POSED} --trace")
    assert (code, err) == (0, "")
    heading, *lines = out.splitlines()
    assert heading.split() == ["step", "stage", "seconds", "objective", "residual"]
    steps = [line.split() for line in lines if re.match(r" +\d+ ", line)]
    assert [int(cells[0]) for cells in steps] == list(range(len(steps)))
    assert float(steps[-1][-1]) <= 1e-6 < float(steps[0][-1])
    assert "Relaxed value" in out


def test_a_trace_for_machines_is_in_the_document(run, folder):
    document = run(f"relax {POSED} --trace --json").document
    objectives = [row["objective"] for row in document["trace"]]
    assert objectives[-1] == pytest.approx(document["value"])
    assert set(document["trace"][0]) >= {"step", "stage", "seconds", "residual", "weight_text"}


@pytest.mark.sample
@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("solver", ["accelerated", "damped-shifted"])
def test_a_trace_goes_to_a_table(run, folder, ending, solver):
    run(f"relax {POSED} --solver {solver} --trace trace{ending}")
    if ending == ".json":
        rows = json.loads(Path("trace.json").read_text())["trace"]
    elif ending == ".csv":
        rows = pyarrow.csv.read_csv("trace.csv").to_pylist()
    else:
        rows = pq.read_table("trace.parquet").to_pylist()
    assert [row["step"] for row in rows] == list(range(len(rows)))
    assert rows[-1]["residual"] < rows[0]["residual"]
    assert rows[-1]["objective"] > rows[0]["objective"]
    seconds = [row["seconds"] for row in rows]
    assert seconds == sorted(seconds)
    for row in rows:
        assert row["weight_text"] + row["weight_vision"] == pytest.approx(1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("solver", ["accelerated", "plain"])
def test_a_trace_goes_to_a_picture(run, folder, solver):
    assert run(f"relax {POSED} --solver {solver} --trace trace.png --out V.npy").code == 0
    assert Path("trace.png").read_bytes().startswith(PNG)
    assert Path("V.npy").exists()


@pytest.mark.sample(4)
@pytest.mark.parametrize("k", [1, 8, 16, 30])
@pytest.mark.parametrize("trace", ["--trace", "--trace t.csv", "--trace t.png"])
def test_a_trace_of_any_length_can_be_shown(run, folder, k, trace):
    """Up to the joint rank and beyond it, where there is nothing to solve."""
    assert run(f"relax {VIEWS} -k {k} {trace}").code == 0


# --- synthetic ------------------------------------------------------------------------------------


def test_synthetic_for_machines(run):
    document = run("synthetic --seeds 2 --json").document
    assert document["seeds"] == 2
    by_selector = {row["selector"]: row for row in document["rows"]}
    assert len(by_selector) == len(document["rows"])
    best = max(row["fair_score"] for row in document["rows"])
    assert best == pytest.approx(PAPER_OPTIMUM)
    for row in document["rows"]:
        assert len(row["picks"]) == sum(row["types"].values()) == 5
        assert row["minimum"] == pytest.approx(min(row["scores"].values()))
        assert row["minimum"] <= row["fair_score"] <= row["upper_end"] + 1e-12
    for ends in document["ends_by_oversampling"].values():
        assert sum(ends.values()) == 2


def test_synthetic_for_people(run, folder):
    code, out, err = run("synthetic --seeds 2 --plot figure.png")
    assert (code, err) == (0, "")
    assert "Simulated" in out
    assert "1.141" in out
    assert out.endswith("Wrote figure.png.\n")
    assert Path("figure.png").read_bytes().startswith(PNG)


# --- The demo -------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch, tmp_path) -> Pictograms:
    """The embedded pool with every 15th row, so that a demo takes a second."""
    whole = openmoji()
    pool = Pictograms(**{f.name: getattr(whole, f.name)[::15] for f in fields(Pictograms)})
    monkeypatch.setattr(embedded, "openmoji", lambda: pool)
    monkeypatch.chdir(tmp_path)
    return pool


DEMO = ["auto", "fixed-weight", "concatenated", "text-only", "vision-only", "random"]


def tables(output: str) -> list[dict[str, list[str]]]:
    """The cells of each row of each table, by the first of them, whatever lines are drawn."""
    found = []
    for part in re.split(r"selector", output)[1:]:
        rows = [re.sub(r"[^\x00-\x7f]", " ", line).split() for line in part.splitlines()[1:]]
        rows = [cells for cells in rows if cells]
        found.append({cells[0]: cells[1:] for cells in rows[: len(DEMO)]})
    return found


def test_the_demo_has_a_row_for_every_selector(run, small, monkeypatch):
    """Under both objectives, by its whole name, also where the terminal is 80 columns wide; the
    answer comes first."""
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("demo -k 5")
    assert (code, err) == (0, "")
    assert [list(rows) for rows in tables(out)] == [DEMO, DEMO]
    assert out.startswith("Train on 5 pictograms, and tell the group of the others: random picks")


@pytest.mark.slow
def test_the_demo_shows_what_the_library_returns(run, small, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = run("demo -k 4").out
    probe = Probe(small.views, small.groups)
    rules = [{"calibration": "efficiency"}, {"objective": "representative"}]
    for shown, rule in zip(tables(out), rules, strict=True):
        options = {"effort": "fast", "gap": 0.01, "methods": DEMO, **rule}
        rows = fairnepv.compare(small.views, 4, **options)
        for row in rows:
            shares = [f"{row.units.length(value):.1%}" for value in row.scores.values()]
            expected = [*shares, row.worst_view, row.units.shown(row.fair_score)]
            assert shown[row.method][:4] == expected
            if row.method != "random":
                assert shown[row.method][4].rstrip("*") == f"{probe.accuracy(row.indices):.1%}"
        first = ", ".join(small.titles[rows["auto"].indices])
        assert f"First picks of `{rows['auto'].objective}`: {first}." in out
    drawn = probe.drawn(4, 10, np.random.default_rng(0)).mean()
    assert f"random picks get {drawn:.1%} right (10 draws" in out
    assert "OpenMoji (CC BY-SA 4.0)" in out


def test_an_interrupted_demo_tells_nothing(run, small, monkeypatch):
    compare = fairnepv.compare

    def cut(*arguments, **options):
        rows = compare(*arguments, **options).rows
        return Comparison((*rows[:-1], replace(rows[-1], status=Status.INTERRUPTED)))

    monkeypatch.setattr(fairnepv, "compare", cut)
    assert run("demo -k 3") == (130, "", "fairnepv: interrupted\n")
    assert not Path("fairnepv-demo").exists()


@pytest.mark.slow
def test_the_demo_leaves_pictures_and_data(run, small):
    assert run("demo -k 4").code == 0
    folder = Path("fairnepv-demo")
    pages = ["report-diverse.html", "report-representative.html"]
    names = ["NOTICE.txt", "ids.txt", "picks.png", *pages, "scores.png", "text.npy", "vision.npy"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(b'"pictures": {' in (folder / page).read_bytes() for page in pages)
    assert (folder / "picks.png").read_bytes().startswith(PNG)
    assert (folder / "scores.png").read_bytes().startswith(PNG)
    np.testing.assert_array_equal(np.load(folder / "vision.npy"), small.vision)
    np.testing.assert_array_equal(np.load(folder / "text.npy"), small.text)
    assert (folder / "ids.txt").read_text().split() == small.ids.tolist()


@pytest.mark.slow
def test_the_demo_names_a_next_command_that_runs(run, small):
    out = run("demo -k 3").out
    [line] = [line.strip() for line in out.splitlines() if line.startswith("  fairnepv select")]
    line = line.removeprefix("fairnepv ").replace("-k 20", "-k 3").replace("thorough", "fast")
    assert "-k 3" in line
    code, _, err = run(line)
    assert (code, err) == (0, "")
    picks = pyarrow.csv.read_csv("picks.csv")
    assert set(picks["id"].to_pylist()) <= set(small.ids.tolist())
    assert picks.num_rows == 3


@pytest.mark.slow
def test_the_next_command_survives_a_space(run, small):
    out = run("demo -k 3", "--out", "my demo").out
    [line] = [line.strip() for line in out.splitlines() if line.startswith("  fairnepv select")]
    code, _, err = run(line.removeprefix("fairnepv ").replace("-k 20", "-k 3"))
    assert (code, err) == (0, "")
    assert pyarrow.csv.read_csv("picks.csv").num_rows == 3


@pytest.mark.slow
def test_the_demo_can_be_repeated_elsewhere(run, small):
    for _ in range(2):
        document = run("demo -k 3 --out there --json").document
    assert [row["method"] for row in document["selectors"]] == DEMO * 2
    objectives = ["diverse"] * len(DEMO) + ["representative"] * len(DEMO)
    assert [row["objective"] for row in document["selectors"]] == objectives
    assert all(0 <= row["probe_accuracy"] <= 1 for row in document["selectors"])
    assert document["answer"][0].startswith("Train on 3 pictograms")
    assert len(list(Path("there").iterdir())) == 8


@pytest.mark.slow
def test_the_demo_leaves_a_folder_of_yours_alone(run, small):
    Path("mine").mkdir()
    Path("mine/ids.txt").write_text("mine")
    refused = run("demo -k 3 --out mine")
    assert (refused.code, refused.out) == (2, "")
    assert "--force" in refused.err
    assert Path("mine/ids.txt").read_text() == "mine"
    assert run("demo -k 3 --out mine --force").code == 0


def test_an_interruption_outranks_other_endings(run, folder, monkeypatch):
    """A comparison whose first selector ran out of passes and whose last was interrupted."""
    compare = fairnepv.compare

    def stopped(*arguments, **options):
        rows = compare(*arguments, **options).rows
        ends = [Status.PASS_LIMIT, *[Status.COMPLETE] * (len(rows) - 2), Status.INTERRUPTED]
        return Comparison(tuple(replace(r, status=e) for r, e in zip(rows, ends, strict=True)))

    monkeypatch.setattr(fairnepv, "compare", stopped)
    assert run(f"compare {POSED} --effort fast").code == 130


def test_a_file_that_cannot_be_written_does_not_take_the_result_along(run, folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    result = run(f"select {POSED} --effort fast --out p.csv")
    assert result.code == 2
    assert "No space left on device" in result.err
    assert "Picks in order" in result.out
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("option", ["--view a=", "--out "])
def test_a_name_that_no_system_takes(run, folder, option):
    ending = ".npy" if "view" in option else ".csv"
    result = run(f"select {POSED} {option}{'x' * 300}{ending}")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1


def test_a_link_stays_a_link(run, folder):
    Path("there.csv").write_text("old")
    Path("link.csv").symlink_to("there.csv")
    assert run(f"select {POSED} --effort fast --out link.csv").code == 2
    assert run(f"select {POSED} --effort fast --out link.csv --force").code == 0
    assert Path("link.csv").is_symlink()
    assert Path("there.csv").read_text() != "old"


def test_numbers_of_many_views_are_readable_on_80_columns(run, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    views = " ".join(f"--view {name}=text.npy" for name in "abcd")
    out = run(f"compare {views} -k 3 --effort fast --method auto").out
    assert "…" not in out
    assert out.count("d ") >= 4


@pytest.mark.slow
def test_the_seed_reaches_the_selectors(run, small):
    runs = [run(f"demo -k 3 --seed {seed} --json").document["selectors"] for seed in "001"]
    picks = [{row["method"]: row["picks"] for row in rows} for rows in runs]
    assert picks[0] == picks[1]
    assert picks[0]["random"] != picks[2]["random"]
    assert picks[0]["auto"] == picks[2]["auto"]


def test_the_whole_demo_chooses_two_hundred_of_the_embedded_pool(monkeypatch, tmp_path):
    """The defaults, without the search: the arguments that reach the library."""
    calls = []

    class Stop(Exception):
        pass

    def compare(views, k, **options):
        calls.append((views, k, options))
        raise Stop

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fairnepv, "compare", compare)
    result = CliRunner().invoke(commands, ["demo"])
    assert isinstance(result.exception, Stop)
    [(views, k, options)] = calls
    assert k == 200
    assert options["random_state"] == 0
    assert options["objective"] == "diverse"
    assert options["calibration"] == "efficiency"
    assert views["vision"].shape == (2297, 1280)
    assert views["text"].shape == (2297, 384)


def test_a_damaged_pool_is_said_to_be_damaged(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(embedded._SHA256, "openmoji.parquet", "0" * 16)
    message = "the embedded pool openmoji.parquet is damaged: install fairnepv again"
    assert run("demo -k 4") == (2, "", f"fairnepv: {message}\n")


# --- Bad input ------------------------------------------------------------------------------------

BAD = {
    # files that cannot be read
    "select --view a=no.npy -k 3": ["--view a=no.npy", "does not exist", "check the path"],
    "select --view a=text.doc -k 3": ["--view a=text.doc", ".doc", ".npy, .npz, .parquet"],
    "select --view a=ids.txt -k 3": ["--view a=ids.txt", ".npy, .npz, .parquet"],
    "select --view a=sub -k 3": ["--view a=sub", "sub is a folder without rows", ".npy"],
    "select --view a=pool.npz -k 3": ["2 keys (text, vision)", "name one, as in pool.npz:text"],
    "select --view a=pool.npz:nope -k 3": ["--view", "no key 'nope'", "it has text, vision"],
    "select --view a=pool.parquet -k 3": ["2 columns (id, v:1)", "as in pool.parquet:id"],
    "select --view a=pool.parquet:v -k 3": ["no column 'v'", "it has id, v:1"],
    "select --view a=pool.parquet:id -k 3": ["must hold numbers", "str"],
    "select --view a=objects.npy -k 3": ["--view a=objects.npy", "Python objects", "save it as"],
    "select --view a=objects.npz:x -k 3": ["--view a=objects.npz:x", "Python objects", "save it"],
    "select --view a=ragged.parquet:x -k 3": [
        "ragged.parquet, column 'x'",
        "different lengths",
        "row 39",
    ],
    "select --view a=empty.npy -k 3": ["--view a=empty.npy", "not a .npy file", "write it again"],
    "select --view a=wrong.npz -k 3": ["--view a=wrong.npz", "single array", "call it .npy"],
    "select --view a=torn.npz -k 3": ["--view a=torn.npz", ".npz archive", "write the file again"],
    "select --view a=torn.npy -k 3": ["--view a=torn.npy", ".npy file", "write the file again"],
    "select --view a=torn.parquet:id -k 3": ["torn.parquet", "Parquet", "write the file again"],
    "select --view a=format.npz -k 3": ["2 keys (format, x)", "name one, as in format.npz:format"],
    "select --view a=no_rows.parquet -k 3": ["view 'a'", "no rows"],
    "select --view a=twice.parquet:x -k 1": ["--view a=twice.parquet:x", "'x' more than once"],
    f"select {POSED} --ids no.txt": ["--ids no.txt", "does not exist", "check the path"],
    f"select {POSED} --ids short.txt": ["ids", "one id per row", f"{N} in all"],
    f"select {POSED} --ids twice.txt": ["ids repeat", "'a'", "must be unique"],
    f"select {POSED} --ids table.csv": ["--ids table.csv", "name one, as in table.csv:name"],
    f"select {POSED} --ids table.csv:id": ["--ids table.csv:id", "no column 'id'", "it has name"],
    f"select {POSED} --ids objects.npy": ["--ids objects.npy", "Python objects", "save it as"],
    f"select {POSED} --ids text.npy": ["--ids text.npy", "one value per row"],
    f"select {POSED} --ids ragged.json": ["--ids ragged.json", "list of integers or of strings"],
    f"select {POSED} --ids plain.json:nope": ["--ids plain.json:nope", "not a file of picks"],
    f"select {POSED} --ids twice.csv": ["--ids twice.csv", "'id' more than once", "rename one"],
    f"select {POSED} --ids latin.csv": ["--ids latin.csv", "as CSV", "write the file again"],
    f"select {POSED} --ids lines.csv": ["--ids lines.csv", "as CSV", "write the file again"],
    f"select {POSED} --ids gap.csv": ["--ids gap.csv", "1 empty row(s)", "row 7", "drop or fill"],
    f"score {VIEWS} --picks no.csv": ["--picks no.csv", "does not exist", "check the path"],
    f"score {VIEWS} --picks ids.txt": ["--picks ids.txt", "not row numbers", "--by-id"],
    f"score {VIEWS} --picks far.txt": ["indices", f"from 0 to {N - 1}"],
    f"score {VIEWS} --picks far.txt --by-id --ids ids.txt": ["picks", "no row has", "'1'"],
    f"score {VIEWS} --picks ids.txt --by-id --ids rows.txt": ["picks", "give the same type"],
    f"score {VIEWS} --picks gap.csv --by-id --ids ids.txt": ["--picks gap.csv", "1 empty row(s)"],
    # outputs that must not be
    f"select {POSED} --out old.csv": ["--out", "old.csv exists already", "--force"],
    f"select {POSED} --out no/p.csv": ["--out", "folder no does not exist", "make it first"],
    f"select {POSED} --out p.doc": ["--out", "'.doc'", ".parquet, .csv, .json, .txt"],
    f"select {POSED} --out p": ["--out", "no ending", ".parquet, .csv, .json, .txt"],
    f"select {POSED} --ids ids.txt --out ids.txt --force": ["--out", "also read", "another file"],
    f"select {POSED} --ids ids.txt --out sub/../ids.txt --force": ["--out", "another file"],
    "select --view a=pool.parquet:v:1 -k 3 --out pool.parquet --force": ["--out", "another file"],
    f"compare {POSED} --plot old.png": ["--plot", "exists already", "--force"],
    f"compare {POSED} --plot bars.jpg": ["--plot", "'.jpg'", ".png"],
    f"compare {POSED} --out old.csv": ["--out", "exists already", "--force"],
    f"relax {POSED} --trace old.csv": ["--trace", "exists already", "--force"],
    f"relax {POSED} --trace t.svg": ["--trace", "'.svg'", ".png"],
    f"relax {POSED} --out text.npy --force": ["--out", "also read", "another file"],
    f"relax {POSED} --out V.csv": ["--out", "'.csv'", ".npy"],
    f"relax {POSED} --trace same.npy --out same.npy": ["--trace", "same.npy", ".parquet, .csv"],
    "synthetic --plot old.png": ["--plot", "exists already", "--force"],
    "demo --out old.csv": ["--out old.csv", "this is a file", "name a folder"],
    "demo --out no/demo": ["--out no/demo", "the folder no does not exist", "make it first"],
    # contradictions
    f"select {POSED} --eps 0.1 --eps 0.2": ["--eps 0.1 0.2", "contradict", "give one value"],
    f"select {POSED} --eps 0.1 --eps text=1": ["--eps", "contradict", "NAME=VALUE"],
    f"select {POSED} --eps text=1 --eps text=2": ["--eps", "contradict", "NAME=VALUE"],
    f"select {POSED} --calibration trace --calibration text=2": [
        *("--calibration", "contradict", "one rule, or NAME=FACTOR")
    ],
    f"select {POSED} --calibration trace --calibration none": ["--calibration", "contradict"],
    f"select {POSED} --view text=text.npy": ["--view text=text.npy", "given before", "rename"],
    f"select {POSED} --ids ids.txt --ids pool.parquet": ["--ids", "given before", "one file"],
    f"select {POSED} --ids ids.txt --ids text=ids.txt": ["--ids", "one file for all views, or"],
    f"select {POSED} --ids text=ids.txt": ["ids", "['text']", "['text', 'vision']"],
    f"relax {POSED} --solver accelerated --alpha 0.5": ["alpha", "'accelerated'", "SCF"],
    f"relax {POSED} --sigma 0.5": ["sigma", "'accelerated'", "SCF"],
    f"score {VIEWS} --picks far.txt --by-id": ["--by-id needs --ids"],
    f"select {POSED} --include far.txt": ["include", f"from 0 to {N - 1}", "99"],
    f"select {POSED} --include no.txt": ["--include no.txt", "does not exist"],
    f"select {POSED} --include six.txt": ["include has 6 items", "k is only 5"],
    f"select {POSED} --include twice_rows.txt": ["include", "more than once"],
    f"select {POSED} --include six.txt --exclude six.txt": ["item 0", "include", "exclude"],
    f"select {POSED} --include six.txt --ids ids.txt": ["include", "no row has", "'0'"],
    f"select {VIEWS} -k 35 --include six.txt --k-more": ["-k 35", "6 included", "lower -k"],
    f"select {POSED} --exclude rows.txt": ["-k 5", "exclude leaves only 0"],
    f"select {POSED} --exclude no.txt": ["--exclude no.txt", "does not exist"],
    f"select {POSED} --groups no.txt": ["--groups no.txt", "does not exist"],
    f"select {POSED} --groups short.txt": ["groups", f"{N} labels", "(2,)"],
    f"select {POSED} --groups short.txt --groups text.npy": ["--groups text.npy", "one value"],
    f"select {POSED} --quota a=1": ["--quota needs groups"],
    f"select {POSED} --groups ids.txt --quota z=1": ["--quota name", "'z'", "no row belongs to"],
    f"select {POSED} --groups ids.txt --quota 00x": ["--quota 00x", "LABEL=5"],
    f"select {POSED} --groups ids.txt --quota =1": ["--quota =1", "LABEL=5"],
    f"select {POSED} --groups ids.txt --quota 00x=few": ["--quota 00x=few", "'few'", "whole"],
    f"select {POSED} --groups ids.txt --quota 00x=1 --quota 00x=1": ["--quota", "each label once"],
    f"select {POSED} --groups ids.txt --quota 00x=": ["the quota of group '00x'"],
    f"select {POSED} --groups ids.txt --quota 00x=-1": ["the quota of group '00x'", "-1"],
    f"select {POSED} --groups ids.txt --quota 00x=2": ["quota of group '00x'", "only 1 rows"],
    f"select {POSED} --groups ids.txt --quota 00x=3..1": ["'00x'", "at least 3 and at most 1"],
    f"select {POSED} --floor text=9": ["the floor 9 of view 'text'", "cannot be reached", "lower"],
    f"select {POSED} --floor text": ["--floor text", "NAME=VALUE"],
    f"select {POSED} --floor sound=1": ["--floor sound=1", "no view", "['text', 'vision']"],
    f"select {POSED} --floor text=low": ["--floor text=low", "'low' is not a number"],
    f"select {POSED} --floor text=nan": ["floors", "'text'", "finite"],
    f"select {POSED} --floor text=0 --method averaged": ["'averaged'", "floors", "'auto'"],
    f"select {POSED} --priority text=1": ["--priority", "['vision']", "one for each view"],
    f"select {POSED} --priority text=1 --priority vision=1": ["--priority", "sum to 1", "not 2"],
    f"select {POSED} --priority text=2 --priority vision=-1": ["--priority", "positive"],
    f"select {POSED} --priority sound=1": ["--priority sound=1", "no view"],
    f"select {POSED} --priority 0.5": ["--priority 0.5", "NAME=WEIGHT"],
    f"select {POSED} --quality no.npy": ["--quality no.npy", "does not exist"],
    f"select {POSED} --quality text.npy": ["--quality text.npy", "one value per row"],
    f"select {POSED} --quality ids.txt": ["--quality ids.txt", "must hold numbers", "'00x'"],
    f"select {POSED} --quality short.txt": ["--quality short.txt", "must hold numbers", "'a'"],
    f"select {POSED} --quality far.txt": ["quality", f"{N}"],
    f"select {POSED} --quality rows.txt --quality far.txt": ["--quality far.txt", "given before"],
    f"select {POSED} --quality rows.txt --quality text=rows.txt": ["--quality", "one file for all"],
    f"select {POSED} --exclude six.txt --method k-dpp": ["'k-dpp'", "exclude", "'auto'"],
    f"select {POSED} --nested": ["nested needs several sizes"],
    f"select {VIEWS} -k 4,4": ["k must be", "each once", "[4, 4]"],
    f"select {VIEWS} -k 4,": ["-k", "''", "a number of items nor a fraction"],
    f"select {VIEWS} -k 4,many": ["-k", "'many'"],
    f"select {VIEWS} -k 4,{N}": ["k must be from 1 to", str(N - 1)],
    f"compare {VIEWS} -k 4,8": ["-k", "'4,8'"],
    f"certify {VIEWS} -k 4,8": ["-k", "'4,8'"],
    f"select {VIEWS} -k 3,4 --bound b.npz": ["--bound", "one size"],
    f"select {VIEWS} -k 3,4 --explain e.csv": ["--explain", "one size"],
    f"select {VIEWS} -k 3,4 --assign a.csv": ["--assign", "one size"],
    f"select {VIEWS} -k 3,4 --out sub/../old.csv": ["--out", "old-3.csv exists already"],
    f"select {POSED} --bound b.npz --no-certify": ["--bound", "--no-certify"],
    f"select {POSED} --bound b.csv": ["--bound", "'.csv'", ".npz"],
    f"select {POSED} --bound pool.npz": ["--bound", "exists already", "--force"],
    f"select {POSED} --bound pool.npz --force": ["--bound", "also read", "another file"],
    f"select {POSED} --explain e.doc": ["--explain", "'.doc'", ".parquet, .csv"],
    f"select {POSED} --explain old.csv": ["--explain", "exists already", "--force"],
    f"select {POSED} --assign no/a.csv": ["--assign", "folder no does not exist"],
    f"select {POSED} --explain x.csv --assign x.csv": ["--assign", "named twice", "its own file"],
    f"select {POSED} --out x.csv --explain x.csv": ["--explain", "named twice", "its own file"],
    f"select {POSED} --out x.csv --explain sub/../x.csv": ["--explain", "named twice"],
    f"select {POSED} --out x.csv --checkpoint ./x.csv": ["--checkpoint", "x.csv is named twice"],
    f"select {POSED} --bound b.npz --checkpoint sub/../b.npz": ["--checkpoint", "named twice"],
    f"select {POSED} --checkpoint pool.npz": ["--checkpoint", "pool.npz is also read"],
    f"select {POSED} --groups ids.txt --out ids.txt --force": ["--out", "also read"],
    f"select {POSED} --quality text=rows.txt --out rows.txt --force": ["--out", "also read"],
    f"select {POSED} --target-efficiency 0": ["--target-efficiency", "0"],
    f"select {POSED} --target-efficiency 1.1": ["--target-efficiency", "1.1"],
    f"select {POSED} --target-efficiency 0.9 --no-certify": ["--target-efficiency", "--no-certify"],
    f"select {POSED} --node-limit 5": ["--node-limit", "'exact'", "'auto'"],
    f"select {POSED} --method exact --node-limit 0": ["--node-limit", "0"],
    f"select {POSED} --gap 0": ["--gap", "0"],
    f"certify {POSED} --gap small": ["--gap", "'small'"],
    f"certify {VIEWS} -k {N}": ["k must be from 1 to", str(N - 1)],
    f"certify {POSED} --out b.csv": ["--out", "'.csv'", ".npz"],
    f"certify {POSED} --out pool.npz --force": ["--out", "also read", "another file"],
    f"certify {POSED} --include six.txt": ["include has 6 items", "k is only 5"],
    f"certify {POSED} --quota a=1": ["--quota needs groups"],
    f"certify {POSED} --method exact": ["--method"],
    f"verify-bound no.npz {VIEWS}": ["BOUND no.npz", "does not exist", "check the path"],
    f"verify-bound text.npy {VIEWS}": ["BOUND text.npy", "'.npy'", ".npz"],
    f"verify-bound pool.npz {VIEWS}": ["BOUND pool.npz", "no bound"],
    f"verify-bound torn.npz {VIEWS}": ["BOUND torn.npz", ".npz archive", "write the file again"],
    f"verify-bound objects.npz {VIEWS}": ["BOUND objects.npz"],
    f"verify-bound {VIEWS}": ["BOUND"],
    "verify-bound pool.npz": ["'--view'"],
    # values that make no sense
    "select --view text.npy -k 3": ["--view text.npy", "write NAME=FILE"],
    "select --view =text.npy -k 3": ["--view =text.npy", "write NAME=FILE"],
    "select --view a= -k 3": ["--view a=", "write NAME=FILE"],
    f"select {VIEWS} -k {N}": ["k must be from 1 to", str(N - 1)],
    f"select {VIEWS} -k 0": ["k must be from 1 to", "not 0"],
    f"select {VIEWS} -k many": ["-k", "'many'", "a number of items nor a fraction"],
    f"select {VIEWS} -k 1.5": ["k must be an integer or a fraction"],
    f"select {VIEWS}": ["'-k'"],
    "select -k 3": ["'--view'"],
    f"select {POSED} --tau 0": ["tau", "positive"],
    f"select {POSED} --tau nan": ["tau", "positive", "nan"],
    f"select {POSED} --tau warm": ["--tau", "'warm'"],
    f"select {POSED} --eps -1": ["eps", "positive", "-1"],
    f"select {POSED} --eps much": ["--eps much", "'much' is not a number", "like 0.1"],
    f"select {POSED} --eps text=much": ["--eps text=much", "'much' is not a number", "like 0.1"],
    f"select {POSED} --eps sound=1": ["--eps sound=1", "no view", "['text', 'vision']"],
    f"select {POSED} --eps text=1": ["eps", "['vision']", "give one for each view"],
    f"select {POSED} --calibration fair": ["calibration", "unit-diagonal, trace", "'fair'"],
    f"select {POSED} --calibration text=2": ["calibration", "give one factor per view"],
    f"select {POSED} --calibration text=0 --calibration vision=1": ["calibration", "positive"],
    f"select {POSED} --method best": ["method", "auto, nepv, greedy", "'best'"],
    f"select {POSED} --effort heroic": ["--effort", "'fast', 'balanced', 'thorough'"],
    f"select {POSED} --seed -1": ["--seed", "-1"],
    f"select {POSED} --time-limit 0": ["--time-limit", "0"],
    f"compare {POSED} --method best": ["method", "auto, nepv, greedy", "'best'"],
    f"relax {POSED} --solver magic": ["solver", "accelerated", "'magic'"],
    f"relax {POSED} --tol 0": ["tol", "positive"],
    f"relax {POSED} --max-steps 0": ["--max-steps", "0"],
    f"select {POSED} --nope": ["--nope"],
    "synthetic --seeds 0": ["--seeds", "0"],
    "demo -k many": ["-k", "'many'"],
    "nope": ["nope"],
}


@pytest.fixture
def strewn(folder) -> Path:
    """The folder with all kinds of unfit files."""
    Path("sub").mkdir()
    Path("old.csv").write_text("old")
    Path("old.png").write_text("old")
    Path("old-3.csv").write_text("old")
    Path("six.txt").write_text("0\n1\n2\n3\n4\n5\n")
    Path("twice_rows.txt").write_text("1\n2\n1\n")
    Path("empty.npy").write_bytes(b"")
    Path("far.txt").write_text("1\n99\n")
    Path("short.txt").write_text("a\nb\n")
    Path("twice.txt").write_text("\n".join(["a", "a", *map(str, range(2, N))]))
    Path("table.csv").write_text("name,value\na,1\nb,2\n")
    objects = np.array([{"a": 1}] * N, dtype=object)
    np.save("objects.npy", objects)
    np.savez("objects.npz", x=objects)
    pq.write_table(pa.table({"x": [[1.0]] * (N - 1) + [[1.0, 2.0]]}), "ragged.parquet")
    pq.write_table(pa.table({"x": pa.array([], pa.list_(pa.float64()))}), "no_rows.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, names=["x", "x"])
    pq.write_table(twice, "twice.parquet")
    np.savez("format.npz", format=np.array(3), x=np.eye(3))
    Path("twice.csv").write_text("id,id\n1,2\n")
    Path("latin.csv").write_bytes(b"\xe4d,id\n1,2\n")
    Path("lines.csv").write_text('id,x\n1,2\n"2,\n3\n')
    Path("gap.csv").write_text("id,x\n" + "".join(f"{i if i != 7 else ''},0\n" for i in range(N)))
    Path("ragged.json").write_text("[[1], [1, 2]]")
    Path("plain.json").write_text(str(list(range(N))))
    Path("rows.txt").write_text("\n".join(map(str, range(N))))
    write_torn_files()
    return folder


def write_torn_files() -> None:
    """Arrays whose bytes are damaged: a header, compressed data, the first page of a table."""
    content = Path("text.npy").read_bytes()
    Path("wrong.npz").write_bytes(content)
    Path("torn.npy").write_bytes(content.replace(b"(40, 8)", b"(40, 8("))
    np.savez_compressed("torn.npz", x=np.load("text.npy"))
    for name, source, at in (("torn.npz", "torn.npz", 200), ("torn.parquet", "pool.parquet", 4)):
        damaged = bytearray(Path(source).read_bytes())
        damaged[at : at + 20] = b"\xff" * 20
        Path(name).write_bytes(damaged)


def test_a_broken_distribution_takes_neither_help_nor_other_commands_with_it(
    run, tmp_path, monkeypatch
):
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    points = "[fairnepv.commands]\ngone = no_such_module:gone\nodd = json:dumps\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = run("--help")
    assert shown.code == 0
    assert {"select", "gone", "odd"} <= set(shown.out.split())
    gone, odd = run("gone --option 1 more"), run("odd")
    assert (gone.code, odd.code) == (2, 2)
    assert "`fairnepv gone` cannot be loaded (ModuleNotFoundError" in gone.err
    assert "install broken again" in gone.err
    assert "json:dumps is no command" in odd.err


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(run, strewn, line):
    """Exit code 2, nothing on stdout, and every file as it was."""
    before = contents(strewn)
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("fairnepv: ")
    assert len(err.splitlines()) == 1
    assert [word for word in BAD[line] if word not in err] == []
    assert contents(strewn) == before


def test_a_name_with_a_line_break_is_one_line(run, folder):
    code, out, err = run("select -k 3 --view", "a=no\nsuch.npy")
    assert (code, out) == (2, "")
    assert "does not exist" in err
    assert len(err.splitlines()) == 1


def test_json_does_not_change_how_errors_look(run, folder):
    code, out, err = run("select --view a=no.npy -k 3 --json")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_views_of_different_lengths_are_refused(run, folder, pool):
    np.save("short.npy", pool["vision"][:-1])
    code, out, err = run("select --view text=text.npy --view vision=short.npy -k 3")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert str(N) in err
    assert str(N - 1) in err


def test_a_bad_value_names_its_view_and_row(run, folder, pool):
    pool["vision"][7, 2] = np.nan
    np.save("bad.npy", pool["vision"])
    code, out, err = run("select --view vision=bad.npy -k 3")
    assert (code, out) == (2, "")
    assert err.startswith("fairnepv: view 'vision' has 1 value(s) that are NaN or infinite")
    assert "row 7" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("line", ["select --view a=no.npy -k 3 --debug", "nope --debug"])
def test_debug_shows_where_it_happened(run, folder, line):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1].startswith("fairnepv: ")


@pytest.mark.parametrize("k", ["0", "-3", "154", "100000"])
def test_a_bad_k_in_the_demo_is_one_line(run, small, tmp_path, k):
    """And leaves no folder."""
    assert run(f"demo -k {k}") == (2, "", f"fairnepv: -k must be from 1 to n - 1 = 153, not {k}\n")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("out", ["file", "no/demo"])
def test_a_folder_that_cannot_be_is_said_before_the_search(run, small, monkeypatch, out):
    monkeypatch.setattr(fairnepv, "compare", stopped)
    Path("file").write_text("old")
    code, _, err = run(f"demo -k 3 --out {out}")
    assert code == 2
    assert err.startswith(f"fairnepv: --out {out}: ")
    assert Path("file").read_text() == "old"


# --- Exit codes: numerical trouble and interruptions ----------------------------------------------


@pytest.mark.parametrize("ending", TABLES)
def test_out_of_time_is_exit_code_1_under_strict(run, folder, ending):
    line = f"select {POSED} --time-limit 1e-9 --out picks{ending}"
    code, out, err = run(f"{line} --strict")
    assert code == 1
    assert "Chose 5 of 40" in out
    assert err.startswith("fairnepv: --strict: time limit reached")
    apart = f" and picks{ending}.settings.json hold" if ending in (".csv", ".txt") else " holds"
    assert err.endswith(f"picks{ending}{apart} it, marked TIME_LIMIT\n")
    assert len(err.splitlines()) == 1
    assert run(f"score {VIEWS} --picks picks{ending} --json").document["k"] == K
    assert run(f"{line} --force").code == 0


def test_out_of_time_is_marked(run, folder):
    document = run(f"select {POSED} --time-limit 1e-9 --json").document
    assert document["status"] == "TIME_LIMIT"
    assert document["complete"] is False
    assert len(document["picks"]) == K


@pytest.mark.parametrize("verb", ["select", "select --checkpoint state", "compare"])
def test_no_look_around_when_time_is_up(run, folder, monkeypatch, verb):
    """The pass over the data that coverage takes came on top of the limit."""
    monkeypatch.setattr("fairnepv.loop.MOMENT", -1.0)  # which would be enough for so few rows
    made = []
    monkeypatch.setattr("fairnepv.api.neighbours._look_around", lambda *_: made.append(1))
    line = f"{verb} {POSED} --method greedy --time-limit 1e-9"
    code, out, err = run(line)
    assert (code, err, made) == (0, "", [])
    assert "coverage is not known, since --time-limit left no time" in out


def test_a_look_around_within_the_limit(run, folder):
    """Few rows are looked at in a moment, also when there is none left."""
    whole = run(f"select {POSED} --method greedy --time-limit 60 --json").document
    cut = run(f"select {POSED} --method greedy --time-limit 1e-9 --json").document
    for document in (whole, cut):
        assert all(0 < value < 1 for value in document["coverage"].values())


def test_a_relaxation_that_did_not_converge_is_exit_code_1_under_strict(run, folder):
    line = f"relax {POSED} --max-steps 1 --out V.npy --force"
    assert run(line).code == 0
    code, _, err = run(f"{line} --strict")
    assert code == 1
    assert err.startswith("fairnepv: --strict: step limit reached")
    assert np.load("V.npy").shape == (N, K)


def test_a_run_that_ended_well_is_exit_code_0_under_strict(run, folder):
    assert run(f"select {POSED} --strict").code == 0
    assert run(f"relax {POSED} --strict").code == 0


INTERRUPTIONS = [
    (Greedy, "step", 2),
    (LocalSearch, "step", 0),
    (TabuSearch, "step", 1),
    (StageBar, "__call__", 4),
    (StageBar, "__call__", 12),
]


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize(("kind", "method", "calls"), INTERRUPTIONS)
def test_an_interrupted_selection_is_written_and_marked(
    run, folder, monkeypatch, kind, method, calls, ending
):
    interrupt(monkeypatch, kind, method, calls)
    line = f"select {POSED} --ids ids.txt --out picks{ending} --no-certify --json"
    code, out, err = run(line)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    document = json.loads(out)
    assert code == 130
    assert document["status"] == "INTERRUPTED"
    assert document["complete"] is False
    apart = f" and picks{ending}.settings.json hold" if ending in (".csv", ".txt") else " holds"
    assert err == (
        f"fairnepv: interrupted; this is the best so far; picks{ending}{apart} it, marked "
        "INTERRUPTED\n"
    )
    marked = f"picks{ending}.settings.json" if ending in (".csv", ".txt") else f"picks{ending}"
    assert "INTERRUPTED" in Path(marked).read_bytes().decode(errors="replace")
    rows = {pick["row"] for pick in document["picks"]}
    assert len(rows) == K
    fair_score = fairnepv.score(pool_of(N), sorted(rows)).fair_score
    assert document["fair_score"] == pytest.approx(fair_score)


def test_an_interrupted_selection_is_printed(run, folder, monkeypatch):
    interrupt(monkeypatch, LocalSearch, "step", 1)
    code, out, err = run(f"select {POSED}")
    assert code == 130
    assert "Picks in order: " in out
    assert err == "fairnepv: interrupted; this is the best so far\n"


def test_an_interrupted_comparison_is_written_and_marked(run, folder, monkeypatch):
    interrupt(monkeypatch, LocalSearch, "step", 4)
    code, out, _ = run(f"compare {POSED} --out table.csv --json")
    rows = json.loads(out)["selectors"]
    assert code == 130
    assert 1 <= len(rows) < len(SELECTORS)
    assert pyarrow.csv.read_csv("table.csv")["status"].to_pylist()[-1] == "INTERRUPTED"


def test_an_interruption_between_two_selectors_keeps_those_that_ended(run, folder, monkeypatch):
    interrupt(monkeypatch, StageBar, "_turn", 3)
    code, out, err = run(f"compare {POSED} --effort fast --out table.csv --json")
    assert code == 130
    assert err.endswith("table.csv and table.csv.settings.json hold it, marked INTERRUPTED\n")
    assert [row["method"] for row in json.loads(out)["selectors"]] == SELECTORS[:3]
    assert pyarrow.csv.read_csv("table.csv")["status"].to_pylist()[-1] == "INTERRUPTED"


def test_an_interrupted_relaxation_is_written_and_marked(run, folder, monkeypatch):
    interrupt(monkeypatch, Lbfgs, "step", 3)
    code, out, err = run(f"relax {POSED} --out V.npy --trace trace.json --json")
    V = np.load("V.npy")
    assert code == 130
    assert err == (
        "fairnepv: interrupted; this is the best so far; trace.json holds it, marked INTERRUPTED\n"
    )
    assert json.loads(out)["status"] == "INTERRUPTED"
    assert json.loads(Path("trace.json").read_text())["status"] == "INTERRUPTED"
    np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-12)


@pytest.mark.parametrize("trace", ["", "--trace trace.png"])
def test_a_file_without_a_mark_is_not_called_marked(run, folder, monkeypatch, trace):
    """An array and a picture have no room for one."""
    interrupt(monkeypatch, Lbfgs, "step", 3)
    code, _, err = run(f"relax {POSED} --out V.npy {trace}")
    assert (code, err) == (130, "fairnepv: interrupted; this is the best so far\n")


@pytest.mark.sample(2)
@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("method", ["auto", "random"])
def test_an_interruption_after_the_search_keeps_its_result(
    run, folder, monkeypatch, method, ending
):
    """The search had found its subset and was about to put it into order."""
    line = f"select {POSED} --method {method} --json"
    whole = run(line).document
    monkeypatch.setattr(search, "fair_order", stopped)
    code, out, err = run(f"{line} --out picks{ending}")
    document = json.loads(out)
    assert code == 130
    beside = ending in (".csv", ".txt")  # where settings are in a file of their own
    files = [f"picks{ending}", *([f"picks{ending}.settings.json"] if beside else [])]
    written = f"{' and '.join(files)} {'hold' if beside else 'holds'}"
    assert err == (
        f"fairnepv: interrupted; this is the best so far; {written} it, marked INTERRUPTED\n"
    )
    assert document["status"] == "INTERRUPTED"
    assert document["complete"] is False
    assert "INTERRUPTED" in Path(files[-1]).read_bytes().decode(errors="replace")
    rows = [pick["row"] for pick in document["picks"]]
    assert read_picks(f"picks{ending}", "row").tolist() == rows
    assert sorted(rows) == sorted(pick["row"] for pick in whole["picks"])
    assert document["fair_score"] == pytest.approx(whole["fair_score"], abs=1e-12)


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["--json", ""])
def test_an_interruption_of_the_look_around_keeps_the_result(run, folder, monkeypatch, form):
    """Coverage takes a pass of its own, after the search."""
    whole = run(f"select {POSED} --json").document
    monkeypatch.setattr(selection_module, "survey", stopped)
    code, out, _ = run(f"select {POSED} --out picks.csv {form}")
    assert code == 130
    rows = sorted(pick["row"] for pick in whole["picks"])
    assert sorted(read_picks("picks.csv", "row").tolist()) == rows
    if form:
        assert json.loads(out)["status"] == "INTERRUPTED"
        assert set(json.loads(out)["coverage"].values()) == {None}


def test_an_interruption_before_the_search_leaves_nothing(run, folder, monkeypatch):
    monkeypatch.setattr(fairnepv, "select", stopped)
    before = contents(folder)
    code, out, err = run(f"select {POSED} --out picks.csv")
    assert (code, out) == (130, "")
    assert err == "fairnepv: interrupted\n"
    assert contents(folder) == before


# --- Processes: signals, pipes, terminals ---------------------------------------------------------

# A shell that runs the tests in the background has its children ignore SIGINT.
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fairnepv.cli import main; main()"
)
LONG = "select --view text=long_text.npy --view vision=long_vision.npy -k 100 --effort thorough"


def start(line: str, **streams: Any) -> subprocess.Popen[bytes]:
    """The command in a process of its own, as a plain terminal of 120 columns would run it."""
    unset = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "120"}
    arguments = [sys.executable, "-c", PROGRAM, *shlex.split(line)]
    return subprocess.Popen(arguments, env=environment, **streams)


class Terminal:
    """A pseudo-terminal to give to a process as its stderr, and what was written to it."""

    def __init__(self) -> None:
        self._reader, self.end = pty.openpty()
        self._seen = b""

    def started(self) -> None:
        """Our copy of the process's end, without which there would be no end of file."""
        os.close(self.end)

    def read(self, until: str | None = None, seconds: float = 300.0) -> str:
        """What was shown, without control sequences, up to a pattern or the end."""
        deadline = time.monotonic() + seconds
        while until is None or not re.search(until, self.text):
            assert time.monotonic() < deadline, self.text
            if select.select([self._reader], [], [], 0.1)[0]:
                try:
                    more = os.read(self._reader, 65536)
                except OSError:  # how Linux says that the other end was closed
                    more = b""
                if not more:
                    break
                self._seen += more
        return self.text

    @property
    def text(self) -> str:
        plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self._seen)
        return plain.decode(errors="replace").replace("\r", "\n")

    def close(self) -> None:
        os.close(self._reader)


@pytest.fixture
def terminal():
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture
def long_pool(tmp_path, monkeypatch) -> Path:
    """A pool on which `LONG` takes more than half a minute."""
    monkeypatch.chdir(tmp_path)
    for name, view in pool_of(4000, 64).items():
        np.save(f"long_{name}.npy", view)
    return tmp_path


def test_ctrl_c_writes_the_best_so_far(long_pool, terminal):
    process = start(f"{LONG} --out picks.json", stdout=subprocess.DEVNULL, stderr=terminal.end)
    terminal.started()
    terminal.read(until=r"(tabu|swaps) .*step")  # whichever search comes first
    process.send_signal(signal.SIGINT)
    shown = terminal.read()
    assert process.wait(timeout=300) == 130
    message = "fairnepv: interrupted; this is the best so far; picks.json holds it"
    assert message in shown
    assert "Traceback" not in shown
    document = json.loads(Path("picks.json").read_text())
    assert document["status"] == "INTERRUPTED"
    assert len({pick["row"] for pick in document["picks"]}) == 100
    assert sorted(p.name for p in long_pool.iterdir() if "long" not in p.name) == ["picks.json"]


@pytest.mark.slow
def test_a_terminal_shows_a_bar_and_the_time_left(long_pool, terminal):
    process = start(f"{LONG} --time-limit 3", stdout=subprocess.DEVNULL, stderr=terminal.end)
    terminal.started()
    shown = terminal.read()
    assert process.wait(timeout=300) == 0
    lines = [line for line in shown.split("\n") if re.search(r"(tabu|swaps) .*step", line)]
    assert lines, shown
    assert all("━" in line for line in lines)
    assert any(re.search(r"value -?\d\.\d+ .*\d:\d\d, 0:0[0123] left", line) for line in lines), (
        lines
    )


def test_without_a_terminal_there_is_no_progress(long_pool):
    process = start(
        f"{LONG} --time-limit 0.5 --json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(out)["status"] == "TIME_LIMIT"


@pytest.mark.sample(1)
@pytest.mark.parametrize("reader", [["head", "-1"], ["true"]])
@pytest.mark.parametrize("output", ["--json", ""])
def test_a_reader_that_leaves_early_is_no_error(folder, reader, output):
    line = f"select {POSED} --effort fast --out picks.csv {output}"
    process = start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        subprocess.run(reader, stdin=process.stdout, stdout=subprocess.DEVNULL, check=True)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, 141)  # 0 where all was written before the reader left
    assert pyarrow.csv.read_csv("picks.csv").num_rows == K


@pytest.mark.sample(1)
@pytest.mark.parametrize("line", [f"select {POSED}", f"select {POSED} --json", "", "--help"])
def test_a_reader_that_is_not_there_is_no_numerical_trouble(folder, line):
    """The exit code is what a shell makes of SIGPIPE."""
    process = start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("line", "code"), [(f"select {POSED} --effort fast --out p.csv", 0), ("select -k 3", 2)]
)
def test_closed_streams_are_no_error(folder, line, code):
    """As `>&-` leaves them."""
    process = start(line, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert process.communicate()[1].count(b"\n") == (code != 0)
    assert process.returncode == code
    assert Path("p.csv").exists() == (code == 0)


# --- What is shown of data and addresses ----------------------------------------------------------

EVIL = "\x1b[31m[red]:bomb:\u202e\x9b\x7f\nThe bound holds."
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def check_harmless(*texts: str) -> None:
    """No control but the end of a line, and no line that a name has made."""
    for text in texts:
        assert not RAW.search(text), text
        assert "The bound holds." not in text.splitlines()


@pytest.fixture
def hostile(folder, pool, monkeypatch) -> Path:
    """Ids, groups, columns and keys that would speak to the terminal."""
    monkeypatch.setenv("COLUMNS", "200")  # so that no name is broken into two lines
    Path("i.json").write_text(json.dumps([f"{EVIL}{i}" for i in range(N)]))
    Path("g.json").write_text(json.dumps([EVIL if i % 2 else "b" for i in range(N)]))
    Path("chosen.json").write_text(json.dumps([f"{EVIL}{i}" for i in CHOSEN]))
    pq.write_table(pa.table({EVIL: [1.0], f"{EVIL}2": [2.0]}), "odd.parquet")
    np.savez("odd.npz", **{EVIL: pool["text"], f"{EVIL}2": pool["text"]})
    Path("odd.csv").write_text(f'"{EVIL}","b"\n1,2\n')
    return folder


@pytest.mark.parametrize("form", ["", "--json"])
@pytest.mark.parametrize(
    "line",
    [
        "select -k 5 --effort fast --ids i.json --include chosen.json",
        "select -k 5 --effort fast --ids i.json --groups g.json",
        "select -k 5 --plan",
        "compare -k 3 --ids i.json --method auto --method random",
        "relax -k 3 --max-steps 3",
        "certify -k 3 --out bound.npz",
        "score --ids i.json --picks chosen.json --by-id",
    ],
)
def test_names_reach_the_terminal_as_text(run, hostile, pool, line, form):
    np.save("v.npy", pool["vision"])
    code, out, err = run(f"{line} {form} --view v=v.npy", "--view", f"{EVIL}=text.npy")
    assert code == 0, err
    check_harmless(out, err)
    if form:
        json.loads(out)
    elif "--plan" not in line:
        assert r"\x1b[31m[red]:bomb:\u202e\x9b\x7f\nThe bound holds." in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--view", f"{EVIL}=no.npy"],
        ["--view", f"a={EVIL}.npy"],
        ["--view", "a=odd.parquet"],
        ["--view", "a=odd.npz"],
        ["--view", f"a=odd.npz:{EVIL}3"],
        ["--view", "a=text.npy", "--ids", "odd.csv"],
        ["--view", "a=text.npy", "--out", f"{EVIL}.txt/x"],
        ["--view", "a=text.npy", "--groups", "g.json", "--quota", f"{EVIL}=999"],
        ["--view", "a=text.npy", "--ids", "i.json", "--exclude", "g.json"],
        ["--view", "a=text.npy", f"--{EVIL}"],
        ["--view", "a=text.npy", "--method", EVIL],
        ["--view", "a=text.npy", "--engine", EVIL],
        ["--view", "a=text.npy", "--calibration", EVIL],
    ],
)
@pytest.mark.parametrize("debug", ["", "--debug"])
def test_complaints_show_names_as_text(run, hostile, arguments, debug):
    code, out, err = run(f"select -k 3 {debug}", *arguments)
    assert (code, out) == (2, "")
    check_harmless(err)
    if not debug:
        assert len(err.splitlines()) == 1


def test_a_warning_is_one_line_of_text(run, capsys):
    run("--version")
    warnings.showwarning(UserWarning(f"{EVIL} s3://me:{SECRET}@b/x"), UserWarning, "x.py", 1)
    err = capsys.readouterr().err
    check_harmless(err)
    assert err.startswith(r"fairnepv: UserWarning: \x1b[31m")
    assert SECRET not in err


def test_bars_take_names_for_text():
    task = SimpleNamespace(description=EVIL, fields={"said": "now: [red]\x1b"})
    plain, _ = bars._columns()
    texts = ("{task.description:<14}", "{task.fields[said]:<28}")
    seen = [plain(text).render(task) for text in texts]
    check_harmless(*(text.plain for text in seen))
    assert "[red]" in seen[0].plain
    assert not any(text.spans for text in seen)


SECRET = "Xy7Secret"
ADDRESSES = {
    "password": f"s3://me:{SECRET}@127.0.0.1/a",
    "user": f"s3://{SECRET}@pool/a",
    "slash": f"s3://me:x/{SECRET}@pool/a",
    "mark": f"s3://me:x?{SECRET}@pool/a",
    "space": f"s3://me:x {SECRET}@pool/a",
    "quote": f"s3://me:x'{SECRET}@pool/a",
    "encoded": f"gs://me%3A{SECRET}@pool/a",
    "lost": f"s3:/me:{SECRET}@pool/a",
    "fragment": f"s3://pool/a#{SECRET}",
    "bare": f"s3://pool/a?{SECRET}",
    "sas": f"abfs://c@me.dfs/a?sv=1&sig={SECRET}",
    "signed": f"https://pool/a?X-Amz-Signature={SECRET}",
    "option": f"s3://pool/a?colour={SECRET}",
    "endpoint": f"s3://pool/a?endpoint_override=http://me:{SECRET}@host",
    "file": f"file://me:{SECRET}@host/a",
}
WAYS = {
    "view": "select -k 3 --view a={}.npy",
    "ids": "select -k 3 --view a=text.npy --ids {}.txt",
    "include": "select -k 3 --view a=text.npy --include {}.csv",
    "out": "select -k 3 --view a=text.npy --out {}.csv",
    "outs": "select -k 3,4 --view a=text.npy --out {}.csv",
    "bound": "select -k 3 --view a=text.npy --bound {}.npz",
    "checkpoint": "select -k 3 --view a=text.npy --checkpoint {}",
    "engine": "select -k 3 --view a=text.npy --engine {}",
    "picks": "score --view a=text.npy --picks {}.csv",
    "verify": "verify-bound {}.npz --view a=text.npy",
    "convert": "convert {}.npy --out there",
    "converted": "convert text.npy --out {}",
    "again": "convert --verify {}",
    "demo": "demo --out {}",
    "unknown": "select -k 3 --view a=text.npy --vieww={}",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_complaint_tells_a_secret(run, folder, way):
    before = contents(folder)
    for kind, address in ADDRESSES.items():
        for debug in ([], ["--debug"]):
            words = [word.format(address) for word in shlex.split(WAYS[way])]
            code, out, err = run("", *words, *debug)
            assert code == 2, (kind, out, err)
            assert SECRET not in out + err, (kind, err)
            if not debug:
                assert len(err.splitlines()) == 1
    assert contents(folder) == before


@pytest.mark.ray
@pytest.mark.parametrize("address", [f"ray://me:{SECRET}@127.0.0.1:1", f"RAY://{SECRET}@h:1"])
def test_the_address_of_a_cluster_tells_no_secret(run, folder, address):
    pytest.importorskip("ray")
    code, out, err = run(f"select {POSED} --debug --engine", address)
    assert code == 2
    assert SECRET not in out + err


def test_settings_have_addresses_without_secrets():
    posed = ProblemFiles(
        {"a": f"s3://{SECRET}@b/a.npy?region={SECRET}", "b": "b.npy"},
        {"": f"s3://b/ids.txt?region={SECRET}"},
        {"tau": 0.05},
        rules={"include": f"gs://{SECRET}@b/i.txt"},
    )
    assert posed.settings == {
        "views": {"a": "s3://b/a.npy", "b": "b.npy"},
        "ids": {"": "s3://b/ids.txt"},
        "include": "gs://b/i.txt",
        "tau": 0.05,
    }


# --- Help, version, installation ------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_commands(run, flag):
    code, out, err = run(flag)
    assert (code, err) == (0, "")
    assert re.findall(r"^  ([a-z][\w-]+)  ", out, flags=re.MULTILINE) == COMMANDS
    assert "no view of the data is left behind" in out


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("select", "-k --view --ids --tau --eps --calibration --method --effort --time-limit"),
        ("select", "--seed --out --force --json --strict --debug --nested --bound --explain"),
        ("select", "--include --k-more --exclude --groups --quota --floor --priority --quality"),
        ("select", "--certify --no-certify --gap --target-efficiency --node-limit --assign"),
        ("certify", "-k --view --ids --tau --eps --calibration --quality --priority --gap --out"),
        ("certify", "--include --k-more --exclude --groups --quota --floor --time-limit --json"),
        ("verify-bound", "BOUND.npz --view --ids --quality --json --debug"),
        ("score", "--view --ids --picks --by-id --json --debug"),
        ("compare", "-k --view --method --effort --seed --out --plot --force --json --strict"),
        ("relax", "-k --view --solver --alpha --sigma --start --tol --max-steps --trace --out"),
        ("convert", "SOURCE --out --dtype --rows-per-shard --ids --no-ids --verify --force --json"),
        ("local-features", "--view --ids --engine --out --force --json --debug"),
        ("synthetic", "--seeds --plot --force --json --debug"),
        ("demo", "-k --seed --out --json --debug"),
    ],
)
def test_help_of_a_command_names_its_options(run, verb, options):
    code, out, _ = run(f"{verb} --help")
    assert code == 0
    assert [option for option in options.split() if option not in out] == []


def test_no_command_is_a_call_for_help(run):
    assert run("") == run("--help")


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0
    assert fairnepv.__version__ in out


def test_the_command_is_installed():
    [script] = entry_points(group="console_scripts", name="fairnepv")
    assert script.load() is main


def test_the_package_runs_as_a_program():
    module = [sys.executable, "-m", "fairnepv"]
    version = subprocess.run([*module, "--version"], capture_output=True, text=True, check=True)
    assert fairnepv.__version__ in version.stdout
    bad = subprocess.run([*module, "nope"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "fairnepv: No such command 'nope'.\n"


# --- Files that change ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "verb"),
    [
        (f"select {POSED} --out picks.csv", "select"),
        (f"compare {POSED} --method greedy --out table.csv", "compare"),
        (f"certify {POSED} --out bound.npz", "certify"),
        (f"relax {POSED} --out V.npy", "relax"),
        (f"local-features {VIEWS} --out near.npy", "local_features"),
    ],
)
@pytest.mark.parametrize("name", ["text.npy", "pool.npz"])
def test_nothing_is_written_of_views_that_were_written_to_in_the_end(
    line, verb, name, run, folder, monkeypatch
):
    whole = getattr(fairnepv, verb)

    def called(*arguments, **options):
        result = whole(*arguments, **options)
        os.utime(name, ns=(1, 1))  # behind the last pass over it
        return result

    monkeypatch.setattr(fairnepv, verb, called)
    before = contents(folder)
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert f"{name} was changed or removed while it was being read; run this again" in err
    assert contents(folder) == before
