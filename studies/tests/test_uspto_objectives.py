"""The protocol about another objective: numbers, words, what goes on, and lies that are found."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
from corpora import add_features, make_corpus, write_view
from forging import check, difference, edit, forge, seal

import fairnepv
import reference
from fairnepv.concave import proof_arrays
from fairnepv.errors import InputError, UnsupportedError
from fairnepv.options import Rounding
from fairnepv.signatures import options_of
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.feature_files import read_view
from fairnepv_studies.protocol.execution import carry_out
from fairnepv_studies.protocol.pool import SelectionPool, open_pool
from fairnepv_studies.protocol.publication import publish
from fairnepv_studies.protocol.report import results_caption
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.settings import Settings, make_settings
from fairnepv_studies.protocol.split import split, write_split
from fairnepv_studies.protocol.tables import cells, headings

LINE = "uspto run {} --objective representative --k 4,9 --seeds 2 --effort fast"
ASKED: dict[str, dict[str, Any]] = {
    "representative": {"objective": "representative"},
    "as they came": {"objective": "representative", "center": False},
    "diverse": {},
    "diverse and centred": {"center": True},
}


def prepared(folder: Path) -> SelectionPool:
    corpus = make_corpus(folder, 60)
    add_features(corpus)
    write_split(corpus, split(corpus, seed=5))
    return open_pool(corpus)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, Path]:
    """By what was asked for a folder with corpus/ and published/."""
    folders = {}
    for name, knobs in ASKED.items():
        folders[name] = tmp_path_factory.mktemp("objective")
        pool = prepared(folders[name] / "corpus")
        settings = make_settings(pool, [4, 9], effort="fast", seeds=2, **knobs)
        run = carry_out(Run.start(pool.corpus, "main", settings), pool)
        publish(run, pool, folders[name] / "published")
    return folders


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return shutil.copytree(made["representative"], tmp_path / "made")


def run_of(folder: Path) -> Run:
    return Run.open(Corpus.open(folder / "corpus"), "main")


def test_numbers_are_those_of_the_formulas(made):
    run = run_of(made["representative"])
    corpus = Corpus.open(made["representative"] / "corpus")
    pool = open_pool(corpus)
    text, vision = (read_view(corpus, view)[0][pool.rows] for view in ("text", "vision"))
    plain = {"text": text.toarray().astype(float), "vision": vision.astype(float)}
    rows = {view: reference.unit_diagonal(X - X.mean(axis=0)) for view, X in plain.items()}
    settings = run.settings
    assert (settings.objective, settings.center) == ("representative", True)
    assert (settings.tau, settings.eps) == (0.02, 1.0)
    for result in run.results:
        chosen = [pool.rows.tolist().index(row) for row in result.rows]
        shares = {view: reference.explained(Phi, 1.0, chosen) for view, Phi in rows.items()}
        assert result.objective == "representative"
        assert result.scores == pytest.approx(shares, abs=1e-6)  # float32 rows of unit length
        fair = -0.02 * np.log(np.mean(np.exp(-np.array(list(result.scores.values())) / 0.02)))
        assert result.fair_score == pytest.approx(fair, abs=1e-12)
        assert result.efficiency == pytest.approx(result.fair_score / result.upper_bound)
        assert result.fair_score <= result.upper_bound


@pytest.mark.parametrize("name", ASKED)
def test_every_method_is_what_select_finds(made, name):
    pool = open_pool(Corpus.open(made[name] / "corpus"))
    for result in run_of(made[name]).results:
        if result.k == 4:
            asked = {"method": result.method, "random_state": result.seed, "effort": "fast"}
            found = fairnepv.select(pool.views, 4, **asked, **ASKED[name])
            assert pool.rows[found.indices].tolist() == result.rows, result.unit
            assert found.fair_score == pytest.approx(result.fair_score, abs=1e-9)


def test_tables_tell_shares_in_percent_and_ratios(made):
    run = run_of(made["representative"])
    first = run.results[0]
    table = pyarrow.csv.read_csv(run.folder / "results.csv").to_pydict()
    assert table["share_vision"] == [r.scores["vision"] for r in run.results]
    assert "d_vision" not in table
    assert headings(run.results)[:4] == ["selector", "F", "share text", "share vision"]
    row = cells(run.results, run.seconds, 4)[0]
    assert row[1] == f"{100 * first.fair_score:.1f}%"
    assert row[-2] == f"{first.fair_score / first.upper_bound:.3f}"
    tex = (run.folder / "results.tex").read_text()
    assert r"$e_{\mathrm{text}}$" in tex
    assert rf"{100 * first.scores['text']:.1f}\%" in tex
    assert "nats" not in tex
    assert "exp(" not in tex
    for words in (
        "objective representative, tau = 0.02, eps = 1, centred, unit-diagonal, effort fast",
        "share of its variance that the picks explain",
        "eff. is F / bound",
        "Not supported here, and left out: k-dpp, softmax, d-optimal, saturate.",
    ):
        assert words in results_caption(run.settings)


def test_a_caption_about_diverse_picks_is_what_it_was(made):
    """Tables of publications from before there were several objectives are held against it."""
    settings = run_of(made["diverse"]).settings
    assert settings.caption.endswith("48 items, tau = 0.05, eps = 0.1, unit-diagonal, effort fast")
    assert ": d per view and F in nats per item, higher is better; C" in results_caption(settings)
    assert "eps = 0.1, centred, unit" in run_of(made["diverse and centred"]).settings.caption


def test_the_commands_say_the_objective(tmp_path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pool = prepared(tmp_path / "corpus")
    code, out, _ = command(LINE.format(pool.corpus.folder))
    assert code == 0
    for words in ("objective representative", "share", "%", "left out: k-dpp, softmax"):
        assert words in out
    assert "…" not in out
    assert command(f"uspto publish {pool.corpus.folder} --out {tmp_path / 'published'}")[0] == 0
    code, out, err = command(f"uspto verify {tmp_path / 'published'} {pool.corpus.folder}")
    assert (code, err) == (0, "")
    assert "objective, which is, too: representative, in share of variance explained" in out
    assert "% follows from its proof" in out


@pytest.mark.parametrize("name", ASKED)
def test_a_publication_is_what_its_corpus_gives(made, name):
    said = check(made[name])
    assert any(f": {run_of(made[name]).settings.objective}, in " in line for line in said)
    manifest = json.loads((made[name] / "published" / "manifest.json").read_text())
    asked = fairnepv.options.OBJECTIVES[manifest["settings"]["objective"]] | ASKED[name]
    assert manifest["settings"]["center"] is asked["center"]


# --- what goes on, and what is another run --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "another objective ('representative', now 'diverse')"),
        ("--objective representative --no-center", "another center (True, now False)"),
    ],
)
def test_another_objective_is_another_run(folder, command, options, message):
    line = f"uspto run {folder / 'corpus'} --k 4,9 --seeds 2 --effort fast"
    code, _, err = command(f"{line} {options}")
    assert code == 2
    assert f"was begun with {message}" in err
    assert "give this run another --name" in err


def test_what_is_lost_is_made_again(folder, command):
    run = folder / "corpus" / "runs" / "main"
    before = {f: f.read_bytes() for f in run.rglob("*") if f.suffix in (".json", ".csv", ".tex")}
    for lost in (*run.glob("done/k4-*"), run / "bounds" / "k9.npz"):
        lost.unlink()
    assert command(LINE.format(folder / "corpus"))[0] == 0
    assert {f: f.read_bytes() for f in before if "seconds" not in str(f.relative_to(run))} == {
        f: content for f, content in before.items() if "seconds" not in str(f.relative_to(run))
    }


# Which came later still.
LETTERS = ("nepv", "shifts", "shift_grid", "passes", "budgets", *options_of(Rounding))


def forget(document: dict[str, object], *names: str) -> None:
    for name in names:
        document.pop(name)


def test_a_run_from_before_there_were_objectives_goes_on(made, tmp_path, command):
    folder = shutil.copytree(made["diverse"], tmp_path / "made")
    run = folder / "corpus" / "runs" / "main"
    for file in (run / "settings.json", *run.glob("done/*.json")):
        document = json.loads(file.read_text())
        forget(document, *({"objective", "center", *LETTERS} & set(document)))
        file.write_text(json.dumps(document))
    (run / "done" / "k4-auto-seed0.json").unlink()
    line = f"uspto run {folder / 'corpus'} --k 4,9 --seeds 2 --effort fast"
    assert command(line)[0] == 0
    assert run_of(folder).results == run_of(made["diverse"]).results
    tables = [(f / "corpus/runs/main/results.tex").read_bytes() for f in (folder, made["diverse"])]
    assert tables[0] == tables[1]


def test_a_publication_from_before_there_were_objectives_holds(made, tmp_path):
    folder = shutil.copytree(made["diverse"], tmp_path / "made")
    forge(folder, lambda results: None, nepv={}, budgets={})  # whose captions say nothing of them
    caption = (folder / "published" / "results.tex").read_text()
    assert "With effort fast no selector is refined by swaps. Mean and" in caption
    edit(folder, "manifest.json", lambda m: forget(m["settings"], "objective", "center", *LETTERS))
    edit(folder, "results.json", lambda results: [forget(r, "objective") for r in results])
    assert check(folder)


# --- lies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("representative", {"objective": "diverse"}),
        ("representative", {"center": False}),
        ("as they came", {"center": True}),
        ("diverse", {"objective": "representative"}),
        ("diverse", {"center": True}),
        ("diverse and centred", {"center": False}),
    ],
)
def test_settings_that_lie_are_found(made, tmp_path, name, lie):
    """With results, captions, tables and checksums that say the same."""
    folder = shutil.copytree(made[name], tmp_path / "made")
    also = {"nepv": run_of(made[lie["objective"]]).settings.nepv} if "objective" in lie else {}
    lying = {**lie, **also}
    forge(folder, lambda results: [r.update(lie) for r in results if "objective" in lie], **lying)
    assert "'nepv', k = 4, seed 0" in difference(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "magic"}, "objective must be one of diverse, representative"),
        ({"objective": ["diverse"]}, "objective must be one of diverse, representative"),
        ({"objective": None}, "objective must be one of diverse, representative"),
        ({"center": 1}, "center must be True or False"),
        ({"center": None}, "settings, center: published None, found True"),
        ({"tau": None}, "tau: published None, found 0.02"),
        ({"methods": ["k-dpp"], "drawn": {}}, "does not support method 'k-dpp'"),
    ],
)
def test_settings_that_no_run_has_are_found(folder, change, message):
    edit(folder, "manifest.json", lambda m: m["settings"].update(change))
    assert message in difference(folder)


@pytest.mark.parametrize("name", ["objective", "center"])
def test_settings_that_leave_it_out_are_about_diverse_picks_as_they_came(folder, name):
    edit(folder, "manifest.json", lambda m: forget(m["settings"], name))
    difference(folder)


@pytest.mark.parametrize("lie", ["diverse", "magic", ["representative"], None])
def test_a_result_that_lies_is_found(folder, lie):
    edit(folder, "results.json", lambda results: results[3].update(objective=lie))
    method = run_of(folder).results[3].method
    said = difference(folder)
    assert f"objective of '{method}', k = 4" in said or "holds no result of a run" in said


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"objective": "diverse", "center": True, "tau": 0.02, "eps": 1.0}, "objective is 'div"),
        ({"center": False}, "center is False, expected True"),
    ],
)
def test_a_proof_about_another_problem_is_found(folder, other, said):
    """The proof itself holds, of what it is about."""
    views = open_pool(Corpus.open(folder / "corpus")).views
    asked = {"objective": "representative", **other}
    proof = fairnepv.certify(views, 9, **asked).proof
    np.savez(folder / "published/bounds/k9.npz", **proof_arrays(proof))
    seal(folder)
    assert said in difference(folder)


@pytest.mark.parametrize("lie", [{"objective": "diverse"}, {"center": False}])
def test_a_proof_that_says_what_it_is_not_about_is_found(made, tmp_path, lie):
    """The terms of a proof are changed under its dual variables, and the settings with them."""
    folder = shutil.copytree(made["representative"], tmp_path / "made")
    for k in (4, 9):
        path = folder / "published" / "bounds" / f"k{k}.npz"
        with np.load(path) as archive:
            arrays = dict(archive)
        about = json.loads(str(arrays["about"]))
        about["terms"].update(lie)
        np.savez(path, **{**arrays, "about": np.array(json.dumps(about))})
    seal(folder)
    said = difference(folder)
    assert "bounds/k4.npz" in said or "no bound that fairnepv wrote" in said


# --- refusals -------------------------------------------------------------------------------------


def test_what_is_about_determinants_is_refused_by_name(tmp_path, command):
    pool = prepared(tmp_path / "corpus")
    with pytest.raises(UnsupportedError, match="does not support method 'k-dpp'"):
        make_settings(pool, [4], methods=["auto", "k-dpp"], objective="representative")
    with pytest.raises(InputError, match="objective must be one of"):
        make_settings(pool, [4], objective="magic")
    code, _, err = command(f"{LINE.format(pool.corpus.folder)} --methods auto,softmax")
    assert (code, err.count("\n")) == (2, 1)
    assert "does not support method 'softmax'" in err
    assert "k-dpp" not in make_settings(pool, [4], objective="representative").methods


def test_a_view_without_variance_is_named(tmp_path, command):
    pool = prepared(tmp_path / "corpus")
    write_view(pool.corpus, "vision", np.ones((60, 2)))
    code, _, err = command(LINE.format(pool.corpus.folder))
    assert code == 2
    assert "view 'vision' has no variance" in err


def test_settings_are_read_as_they_were_written(made):
    for name in ASKED:
        file = made[name] / "corpus" / "runs" / "main" / "settings.json"
        settings = Settings.read(json.loads(file.read_text()), "")
        assert (settings.objective, settings.center) == (
            ASKED[name].get("objective", "diverse"),
            ASKED[name].get("center", "objective" in ASKED[name]),
        )
