"""`--objective` on the command line: what is chosen, what is said, and what files hold."""

import json
from pathlib import Path

import numpy as np
import pytest

import fairnepv
from fairnepv.io.read import read_picks
from fairnepv.io.source import split_source

N, K = 20, 3
VIEWS = "--view text=text.npy --view vision=vision.npy"
POSED = f"{VIEWS} -k {K} --objective representative"
FAST = "--effort fast --no-certify"


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    views = {"text": rng.standard_normal((N, 4)) + 1, "vision": rng.standard_normal((N, 5))}
    for name, rows in views.items():
        np.save(f"{name}.npy", rows)
    return views


@pytest.fixture
def expected(pool):
    return fairnepv.select(pool, K, objective="representative", effort="fast", certify=False)


def test_select_is_the_library_call(command, pool, expected):
    document = command(f"select {POSED} {FAST} --json").document
    assert [pick["row"] for pick in document["picks"]] == expected.indices.tolist()
    assert document["objective"] == document["settings"]["objective"] == "representative"
    assert document["settings"]["tau"] == expected.settings["tau"]
    assert document["settings"]["center"] is True
    assert document["scores"] == pytest.approx(expected.scores)
    assert document["unit"] == "of variance explained"


def test_people_are_told_shares(command, pool, expected):
    out = command(f"select {POSED} {FAST}").out
    assert f"fair score {100 * expected.fair_score:.2f}% of variance explained" in out
    assert "(objective representative)" in out
    assert "nats" not in out
    assert "share" in out


def test_the_usual_objective_is_named_too(command, pool):
    out = command(f"select {VIEWS} -k {K} {FAST}").out
    assert "nats per item" in out
    assert "(objective diverse)" in out


@pytest.mark.parametrize("ending", ["csv", "json", "txt", "parquet"])
def test_tables_say_their_objective(command, pool, expected, ending):
    assert command(f"select {POSED} {FAST} --out picks.{ending}").code == 0
    told = f"picks.{ending}" + (".settings.json" if ending in ("csv", "txt") else "")
    assert b"representative" in Path(told).read_bytes()
    rows = read_picks(split_source(f"picks.{ending}"), "row")
    assert rows.tolist() == expected.indices.tolist()


def test_further_tables_say_it(command, pool):
    files = "--explain why.json --assign who.json"
    assert command(f"select {POSED} {FAST} {files}").code == 0
    for file in ("why.json", "who.json"):
        assert json.loads(Path(file).read_text())["objective"] == "representative"


def test_score_has_the_terms_of_the_objective(command, pool):
    Path("rows.txt").write_text("3\n7\n")
    out = command(f"score {VIEWS} --picks rows.txt --objective representative").out
    score = fairnepv.score(pool, [3, 7], objective="representative")
    assert f"fair score {100 * score.fair_score:.2f}% of variance explained" in out
    assert "objective = representative, tau = 0.02, eps = 1.0, center = True" in out


def test_help_asks_what_the_picks_are_for(command):
    said = " ".join(command("select --help").out.split())
    assert "What are the picks for? To train on them or to label them" in said
    assert "by default 0.05; 0.02 for representative" in said


def test_an_objective_that_does_not_exist(command, pool):
    code, _, err = command(f"select {VIEWS} -k {K} --objective typical")
    assert code == 2
    assert "diverse" in err
    assert "representative" in err


def test_what_is_not_supported_is_one_line(command, pool):
    code, out, err = command(f"select {POSED} --calibration efficiency")
    assert (code, out) == (2, "")
    assert "does not support calibration 'efficiency'" in err
    assert err.count("\n") == 1


def test_bounds_are_stored_and_verified_with_their_objective(command, pool):
    said = command(f"certify {POSED} --out bound.npz").out
    assert "of variance explained, objective representative" in said
    line = next(line for line in said.splitlines() if "verify-bound" in line)
    assert "--objective representative" in line
    verified = command(line.strip().removeprefix("fairnepv "))
    assert verified.code == 0
    assert "objective: representative, in share of variance explained" in verified.out
    bare = command(f"verify-bound bound.npz {VIEWS} --json").document
    assert bare["terms"]["objective"] == "representative"
    other = command(f"verify-bound bound.npz {VIEWS} --objective diverse")
    assert other.code == 2
    assert "objective is 'representative'" in other.err


def test_compare_tells_shares(command, pool):
    out = command(f"compare {POSED} --effort fast --plot bars.png --out table.csv").out
    assert "objective representative" in out
    assert "left out" in out
    assert "share_text" in Path("table.csv").read_text()
    assert Path("bars.png").exists()


def test_relax_tells_shares(command, pool):
    out = command(f"relax {POSED}").out
    assert "of variance explained" in out
    assert "objective representative" in out


@pytest.mark.parametrize("objective", ["diverse", "representative"])
def test_a_ridge_of_zero_is_refused_and_not_the_default(command, pool, objective):
    answer = command(f"select {VIEWS} -k {K} --objective {objective} --eps 0")
    assert answer.code == 2
    assert "eps must be a finite positive number, not 0" in answer.err
