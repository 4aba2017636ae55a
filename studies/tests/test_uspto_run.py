"""Runs of the protocol: right numbers, the same bytes after a kill, and clear refusals."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
import scipy.sparse as sp
from corpora import add_features, make_corpus, write_view

import fairnepv
import reference
from fairnepv.api.inputs import pool_of
from fairnepv.api.select import select_posed
from fairnepv.api.selection import Selection, SubsetScore
from fairnepv.errors import InputError, NumericalError
from fairnepv.io.locks import locked
from fairnepv.loop import Step
from fairnepv.methods import APART
from fairnepv_studies.cli import uspto_run
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.feature_files import read_view
from fairnepv_studies.pictures import pixels_sha256
from fairnepv_studies.protocol import execution
from fairnepv_studies.protocol import pool as pools
from fairnepv_studies.protocol.clock import Clock
from fairnepv_studies.protocol.execution import carry_out
from fairnepv_studies.protocol.pool import open_pool
from fairnepv_studies.protocol.publication import publish, sums
from fairnepv_studies.protocol.report import (
    budget_sentence,
    results_caption,
    seconds_caption,
    seeds_sentence,
)
from fairnepv_studies.protocol.results import (
    BOUND,
    Result,
    Unit,
    best_methods,
    measures,
    summarise,
)
from fairnepv_studies.protocol.run import Run, environment
from fairnepv_studies.protocol.settings import make_settings
from fairnepv_studies.protocol.split import read_split, split, write_split
from fairnepv_studies.protocol.tables import cells, escaped, results_csv, results_tex
from fairnepv_studies.protocol.verification import verify

ENDS = ("results.csv", "results.tex", "selections.csv", "views.png", "efficiency.png")
LINE = "uspto run {} --k 3,12 --seeds 2"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A corpus of 60 with features and a split."""
    corpus = make_corpus(tmp_path_factory.mktemp("run") / "corpus", 60)
    add_features(corpus)
    write_split(corpus, split(corpus))
    return corpus.folder


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory) -> Path:
    """The same after a run that nobody disturbed."""
    folder = shutil.copytree(prepared, tmp_path_factory.mktemp("finished") / "corpus")
    execute(folder)
    return folder


@pytest.fixture
def folder(prepared, tmp_path) -> Path:
    return shutil.copytree(prepared, tmp_path / "corpus")


def execute(folder: Path) -> None:
    subprocess.run([*FAIRNEPV, *shlex.split(LINE.format(folder))], check=True, capture_output=True)


FAIRNEPV = (sys.executable, "-m", "fairnepv")


def contents(run: Path) -> dict[str, bytes]:
    """Everything but seconds, by name."""
    files = [f for f in run.rglob("*") if f.is_file() and "seconds" not in str(f.relative_to(run))]
    return {f.relative_to(run).as_posix(): content_of(f) for f in files}


def content_of(file: Path) -> bytes:
    """Of a picture its pixels."""
    content = file.read_bytes()
    return pixels_sha256(content).encode() if file.suffix == ".png" else content


def test_numbers_are_those_of_the_library_and_of_the_formulas(finished):
    corpus = Corpus.open(finished)
    rows = read_split(corpus).pool
    X = {view: read_view(corpus, view)[0][rows] for view in ("text", "vision")}
    X["vision"] = X["vision"].astype(np.float32)
    dense = [
        reference.unit_diagonal(np.asarray(x, dtype=float))
        for x in (X["text"].toarray(), X["vision"])
    ]
    kernels = [reference.kernel(Phi, 0.1) for Phi in dense]
    results = Run.open(corpus, "main").results
    assert len(results) == 2 * (9 + 2)  # auto and random twice
    for result in results:
        chosen = [rows.tolist().index(row) for row in result.rows]
        assert len(set(chosen)) == result.k
        assert result.ids == [corpus.ids[row] for row in result.rows]
        scored = fairnepv.score(X, chosen)
        assert result.scores == pytest.approx(dict(scored.scores), abs=1e-12)
        assert result.coverage == pytest.approx(dict(scored.coverage), abs=1e-12)
        assert list(result.scores.values()) == pytest.approx(
            reference.subset_scores(kernels, chosen), abs=1e-9
        )
        assert result.fair_score == pytest.approx(
            reference.fair_score(kernels, chosen, 0.05), abs=1e-9
        )
        covered = [reference.coverage(Phi @ Phi.T, chosen) for Phi in dense]
        assert list(result.coverage.values()) == pytest.approx(covered, abs=1e-6)
        assert result.efficiency == pytest.approx(np.exp(result.fair_score - result.upper_bound))
        assert result.fair_score <= result.upper_bound + 1e-12


def test_every_method_is_what_select_finds(finished):
    corpus = Corpus.open(finished)
    pool = open_pool(corpus)
    for result in Run.open(corpus, "main").results:
        if result.k == 3:
            budget = {} if result.method in APART else {"passes": 1000}
            asked = {"method": result.method, "random_state": result.seed, **budget}
            found = fairnepv.select(pool.views, 3, **asked)
            assert pool.rows[found.indices].tolist() == result.rows, result.unit
            assert found.certificate.upper_bound == pytest.approx(result.upper_bound, abs=1e-12)


def test_one_bound_serves_all_selectors_of_a_size(finished):
    results = Run.open(Corpus.open(finished), "main").results
    assert len({(result.k, result.upper_bound) for result in results}) == 2


def test_files_say_the_same_and_that_data_is_simulated(finished):
    run = Run.open(Corpus.open(finished), "main")
    table = pyarrow.csv.read_csv(run.folder / "results.csv").to_pydict()
    assert table["fair_score"] == [r.fair_score for r in run.results]
    assert table["coverage_vision"] == [r.coverage["vision"] for r in run.results]
    assert set(table["corpus"]) == {"simulated uspto"}
    chosen = pyarrow.csv.read_csv(run.folder / "selections.csv")
    assert chosen.column("row").to_pylist() == [row for r in run.results for row in r.rows]
    seconds = pyarrow.csv.read_csv(run.folder / "seconds.csv").column("seconds").to_pylist()
    assert len(seconds) == len(run.results) + 2
    assert min(seconds) > 0
    for name in ("results.tex", "seconds.tex"):
        assert "\\caption{Simulated uspto corpus" in (run.folder / name).read_text()
    assert "seconds" not in (run.folder / "results.csv").read_text()


def test_the_terminal_has_all_columns_and_says_simulated(finished, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command(LINE.format(finished))
    assert code == 0
    assert "12 of 48 items, simulated uspto" in out
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if "selector" in line)
    assert lines[at - 1].split() == ["d", "d", "C", "C"]
    words = "selector F text vision min text vision eff."
    assert lines[at].split() == words.split()
    assert "over 2 seeds of what depends on the seed: fairnepv, default, Random" in out
    said = " ".join(out.split())
    assert (
        "then has at most 1000 passes of one-swaps under it, but fairnepv, default has mor" in said
    )
    table = lines[: next(i for i, line in enumerate(lines) if line.startswith("Simulated"))]
    assert max(map(len, table)) <= 80
    assert "…" not in out
    run = Run.open(Corpus.open(finished), "main")
    seconds = run.seconds[Unit(12, BOUND, 0)]
    assert f"{seconds:.2f}" in next(line for line in table if "(bound)" in line).split()
    row = next(line for line in table if line.split()[:1] == ["averaged"])
    first = next(r for r in run.results if r.method == "averaged")
    assert row.split()[1:] == [f"{x:.3f}" for n, x in first.numbers.items() if n != "upper_bound"]


@pytest.mark.parametrize("views", [1, 2, 3, 6, 9])
def test_tables_are_cut_into_pieces_that_fit_and_lose_no_column(views):
    columns = 2 * views + 3
    pieces = uspto_run._pieces(columns, views)
    assert [i for piece in pieces for i in range(columns)[piece]] == list(range(columns))
    assert max(piece.stop - piece.start for piece in pieces) <= 7
    assert len(pieces) == 1 or any(piece.start == views + 2 for piece in pieces)


def test_figures_say_simulated(finished, monkeypatch):
    from fairnepv_studies.protocol import report

    titles = []
    monkeypatch.setattr(report, "draw_view_scores", lambda *a: titles.append(a[-1]) or b"")
    monkeypatch.setattr(report, "draw_efficiency", lambda *a: titles.append(a[-1]) or b"")
    report.write_report(
        Run.open(Corpus.open(shutil.copytree(finished, finished.parent / "f")), "main")
    )
    assert len(titles) == 2
    assert all("Simulated uspto corpus" in title for title in titles)


@pytest.mark.torch
def test_another_engine_finds_the_same_and_goes_on(finished, tmp_path, command):
    pytest.importorskip("torch")
    folder = shutil.copytree(finished, tmp_path / "corpus")
    run = folder / "runs" / "main"
    for file in (*run.glob("done/k12-nepv*"), *run.glob("done/k12-averaged*")):
        file.unlink()
    before = contents(run)
    assert command(f"{LINE.format(folder)} --engine torch")[0] == 0
    assert json.loads(before.pop("environment.json")) != json.loads(
        (run / "environment.json").read_text()
    )
    assert {name: contents(run)[name] for name in before} == before
    assert (run / "selections.csv").read_bytes() == (
        finished / "runs/main/selections.csv"
    ).read_bytes()


# --- killed and started again ---------------------------------------------------------------------


STOPPED = """
import os, sys
from fairnepv.loop.journal import Journal
from fairnepv.cli import main
moment, count, sent = sys.argv[1], [int(sys.argv[2])], int(sys.argv[3])
def stopping(action, target):
    def acted(*arguments, **options):
        action(*arguments, **options)
        count[0] -= moment in str(target(*arguments))
        if count[0] == 0:
            count[0] = -1
            os.kill(os.getpid(), sent)
    return acted
os.replace = stopping(os.replace, lambda source, target: target)
Journal.keep = stopping(Journal.keep, lambda journal, *_: journal._path)
sys.argv[1:] = sys.argv[4:]
main()
"""


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "count", "sent", "code"),
    [
        ("unfinished/k12-auto", 9, signal.SIGINT, 130),
        ("unfinished/k12-auto", 9, signal.SIGKILL, -9),
        ("bounds/k12", 1, signal.SIGKILL, -9),
    ],
)
def test_a_stopped_run_goes_on_and_ends_in_the_same_bytes(
    folder, finished, moment, count, sent, code
):
    """In the middle of a search, and between a proof and its selection."""
    command = [sys.executable, "-c", STOPPED, moment, str(count), str(int(sent))]
    line = [*command, *LINE.format(folder).split()]
    assert subprocess.run(line, check=False, capture_output=True).returncode == code
    done = folder / "runs" / "main" / "done"
    kept = {file: file.stat().st_mtime_ns for file in done.glob("k*.json")}
    assert 0 < len(kept) < 20
    assert "unfinished" not in moment or list((done.parent / "unfinished").glob("k12-auto-*.state"))
    for file in (done.parent / "unfinished").glob("*.seconds"):
        assert min(json.loads(file.read_text())) >= 0
        file.write_text("[1000.0, 2000.0]")
    execute(folder)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert contents(folder / "runs" / "main") == contents(finished / "runs" / "main")
    seconds = Run.open(Corpus.open(folder), "main").seconds
    added = [unit for unit, spent in seconds.items() if spent >= 1000]
    assert added == EARLIER[moment]
    assert all(2000 <= seconds[unit] < 3000 for unit in added if unit.method != BOUND)


EARLIER = {  # whose seconds were found beside the state of a part that was cut short
    "done/k3-averaged": [],
    "unfinished/k12-auto": [Unit(12, BOUND, 0), Unit(12, "auto", 0)],
    "bounds/k12": [Unit(12, "auto", 0)],
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "lost", ["done/k3-*", "done/k*-auto-*", "bounds/*", "*.*", "done/*-random-*", "seconds/k3-*"]
)
def test_whatever_is_missing_is_made_again(finished, tmp_path, lost):
    folder = shutil.copytree(finished, tmp_path / "corpus")
    run = folder / "runs" / "main"
    for file in run.glob(lost):
        if file.name != "settings.json":
            file.unlink()
    (run / ".ipynb_checkpoints").mkdir()
    (run / "done" / ".gitignore").write_text("*")
    for torn in ("done/.k3-auto-seed0.json.torn_123", ".results.csv.8torn_ab"):
        (run / torn).write_text("{")
    execute(folder)
    assert (run / ".ipynb_checkpoints").is_dir()
    (run / "done" / ".gitignore").unlink()
    assert contents(run) == contents(finished / "runs" / "main")


def test_an_interruption_keeps_what_is_done(folder, command, monkeypatch):
    def interrupted(problem, options):
        if options["method"] == "averaged":
            raise KeyboardInterrupt
        return select_posed(problem, options)

    monkeypatch.setattr(execution, "select_posed", interrupted)
    code, _, err = command(LINE.format(folder))
    assert code == 130
    assert "6 of 22 selections are kept" in err


def test_a_pool_is_posed_once(prepared, tmp_path, monkeypatch):
    posed = []
    monkeypatch.setattr(pools, "pool_of", lambda *given: posed.append(given) or pool_of(*given))
    corpus = Corpus.open(shutil.copytree(prepared, tmp_path / "corpus"))
    pool = open_pool(corpus)
    settings = make_settings(pool, [3, 5], methods=["auto", "random"], effort="fast", seeds=2)
    run = carry_out(Run.start(corpus, "once", settings), pool)
    assert len(posed) == 1
    assert len(run.results) == 6
    carry_out(Run.start(corpus, "once", settings), pool)  # nothing is left to do
    assert len(posed) == 1
    publish(run, pool, tmp_path / "published")
    assert list(verify(tmp_path / "published", corpus))
    assert len(posed) == 2


def test_other_settings_are_refused_and_go_elsewhere(finished, tmp_path, command):
    folder = shutil.copytree(finished, tmp_path / "corpus")
    code, _, err = command(f"uspto run {folder} --k 3,12 --seeds 2 --tau 0.1")
    assert code == 2
    assert "was begun with another tau (0.05, now 0.1); give this run another --name" in err
    code, _, _ = command(f"uspto run {folder} --k 4 --methods random --seeds 1 --name other")
    assert code == 0
    assert (folder / "runs" / "other" / "results.csv").is_file()


# --- settings -------------------------------------------------------------------------------------


def test_random_methods_are_run_for_every_seed_and_others_once(prepared):
    pool = open_pool(Corpus.open(prepared))
    quick = make_settings(pool, [4, 6], effort="fast", seeds=4)
    assert quick.drawn == {"random": [4, 6]}
    assert [u.seed for u in quick.units if u.method == "random" and u.k == 4] == [0, 1, 2, 3]
    assert len(quick.units) == 2 * (8 + 4)
    assert set(make_settings(pool, [4]).drawn) == {"auto", "random"}
    once = make_settings(pool, [4], seeds=1)
    assert seeds_sentence(once) == "Every selector was run once."


def test_the_default_is_random_where_it_searches(prepared):
    pool = open_pool(Corpus.open(prepared))
    assert set(make_settings(pool, [4], effort="fast").drawn) == {"random"}
    assert set(make_settings(pool, [4]).drawn) == {"auto", "random"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--k 4,48", "k = 48 does not fit the selection pool of 48 items"),
        ("--k 0.5", "k = 0.5 does not fit the selection pool of 48 items"),
        ("--k 4,4", "sizes must be named, each once"),
        ("--k 4 --methods magic", "method must be one of auto, nepv"),
        ("--k 4 --methods random,random", "methods must be named, each once"),
        ("--k 4 --views text,smell", "has no features of view 'smell' (there are: text, vision)"),
        ("--k 4 --views text,text", "views must be names, each once"),
        ("--k 4 --tau 0", "tau must be"),
        ("--k 4 --eps -1", "eps must be"),
        ("--k 4 --name ../x", "a run cannot be called '../x'"),
        ("--k four", "'four' is neither a number of items nor a fraction"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(folder, command, options, message):
    code, out, err = command(f"uspto run {folder} {options}")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "runs").exists()


def test_a_corpus_that_is_not_ready_is_refused(tmp_path, command):
    corpus = make_corpus(tmp_path / "c", 30)
    line = f"uspto run {corpus.folder} --k 4"
    assert "has no split.json; make it with fairnepv uspto split" in command(line)[2]
    write_split(corpus, split(corpus))
    assert "has no features yet; make them with fairnepv uspto features" in command(line)[2]
    add_features(corpus)
    write_view(corpus, "vision", np.ones((30, 2)), corpus="0" * 64)
    assert "describes features of another corpus" in command(line)[2]
    write_view(corpus, "vision", np.ones((30, 2)), checksum="0" * 64)
    assert "do not have the checksum" in command(line)[2]
    assert "is no corpus" in command(f"uspto run {tmp_path} --k 4")[2]


def test_three_views_and_odd_names(tmp_path):
    corpus = make_corpus(tmp_path / "c", 40, simulated=False, kind="folder")
    rng = np.random.default_rng(0)
    for view in ("a_b%", "c & d", "e"):
        write_view(corpus, view, rng.standard_normal((40, 9)))
    write_split(corpus, split(corpus))
    pool = open_pool(corpus)
    settings = make_settings(pool, [5], effort="fast", seeds=2)
    assert settings.methods[:3] == ["nepv", "greedy-swaps", "auto"]
    assert settings.methods[3:6] == ["a_b%-only", "c & d-only", "e-only"]
    run = carry_out(Run.start(corpus, "odd", settings), pool)
    tex = results_tex(run.results, settings.caption)
    assert r"A\_b\% only" in tex
    assert r"$d_{\mbox{\scriptsize c \& d}}$" in tex
    assert r"$d_{\mathrm{e}}$" in tex
    assert "imulated" not in tex
    table = pyarrow.csv.read_csv(io.BytesIO(results_csv(run.results, "folder")))
    assert table.column("d_c & d").null_count == 0


# --- tables ---------------------------------------------------------------------------------------


def result(method: str, seed: int, fair: float) -> Result:
    return Result(
        k=4,
        method=method,
        seed=seed,
        fair_score=fair,
        scores={"text": fair, "vision": fair + 1},
        view_weights={"text": 1.0, "vision": 0.0},
        coverage={"text": 0.5, "vision": 0.25},
        upper_bound=0.0,
        efficiency=float(np.exp(fair)),
        status="COMPLETE",
        notes=[],
        rows=[0],
        ids=["a"],
    )


def test_nothing_is_less_than_zero_by_rounding_and_what_prints_the_same_is_as_good():
    results = [result("auto", 0, -0.0001), result("nepv", 0, -0.0004), result("random", 0, -0.002)]
    tex = results_tex(results, "")
    assert "-0.000" not in tex
    assert best_methods(results, 4) == {"auto", "nepv"}
    assert tex.count(r"\mathbf{0.000}") == 2
    assert cells(results, {}, 4)[0][1] == "0.000"


def test_a_bound_below_a_score_is_no_bound():
    scored = SubsetScore("diverse", {"a": -1.0}, -1.0, {"a": 1.0}, {"a": 0.5})
    assert measures(scored, -1.0 - 1e-12)["efficiency"] == 1.0
    with pytest.raises(NumericalError, match=r"bound -1\.01 is no bound"):
        measures(scored, -1.01)


EQUAL = "Every selector is greedy in its own objective, or rounded, and then has "


def test_captions_say_what_every_selector_gets(prepared):
    pool = open_pool(Corpus.open(prepared))
    caption = results_caption(make_settings(pool, [4]))
    for words in (
        f"{EQUAL}at most 1000 passes of one-swaps under it, but ",
        f"fairnepv, default has {APART['auto']}; ",
        "Random has less: drawn.",
    ):
        assert words in caption
    for own in ("paper's pipeline has", "Fair greedy, one-swaps has", "kernel has"):
        assert own not in caption
    alike = make_settings(pool, [4, 6], methods=["averaged", "text-only"], passes=3)
    assert alike.budgets == {"4": 3, "6": 3}
    assert budget_sentence(alike) == f"{EQUAL}at most 3 passes of one-swaps under it."
    assert seconds_caption(alike).endswith("and of the bound, which serves all.")
    apart = make_settings(pool, [4], methods=["greedy", "random"])
    said = "Selectors have no budget in common: Fair greedy has less: no swaps; Random has less"
    assert budget_sentence(apart).startswith(said)


def test_a_caption_says_the_passes_of_every_size(prepared):
    settings = make_settings(open_pool(Corpus.open(prepared)), [4, 6], methods=["averaged"])
    sizes = replace(settings, budgets={"4": 1000, "6": 20})
    assert budget_sentence(sizes) == (
        f"{EQUAL}at most 1000 (k = 4) or 20 (k = 6) passes of one-swaps under it."
    )


def test_without_swaps_what_has_none_either_is_not_set_apart(prepared):
    pool = open_pool(Corpus.open(prepared))
    fast = make_settings(pool, [4], effort="fast")
    assert f"{EQUAL}no swaps, but Random has less: drawn. " in results_caption(fast)
    assert "fairnepv, default starts from the bound's solution" in seconds_caption(fast)
    few = budget_sentence(make_settings(pool, [4], effort="fast", passes=2))
    said = "at most 2 passes of one-swaps under it, but fairnepv, default has less: no swaps; "
    assert said in few
    alone = budget_sentence(make_settings(pool, [4], passes=0))
    assert f"{EQUAL}no swaps, but fairnepv, default has more: tabu search" in alone


def test_a_run_that_had_other_budgets_does_not_go_on(folder):
    """Runs from before they were told had the search of their effort; without swaps it is one."""
    corpus = Corpus.open(folder)
    pool = open_pool(corpus)
    for effort in ("balanced", "fast"):
        settings = make_settings(pool, [4], methods=["averaged"], effort=effort)
        run = Run.start(corpus, effort, settings)
        run.write("settings.json", json.dumps({**asdict(settings), "budgets": {}}))
    assert Run.start(corpus, "fast", settings).settings.budgets == {"4": 0}
    with pytest.raises(InputError, match="was begun with another budgets"):
        Run.start(corpus, "balanced", make_settings(pool, [4], methods=["averaged"]))


# --- the paper's pipeline by its letters ----------------------------------------------------------

PLAIN = {"solver": "plain", "start": "random", "max_steps": 9, "oversampling": 2.0, "passes": 1}


def test_the_letters_of_the_paper_reach_its_pipeline_and_are_told(folder, command):
    knobs = "--solver plain --start random --max-steps 9 --oversampling 2 --passes 1"
    line = f"uspto run {folder} --k 4 --methods nepv,averaged --seeds 2 {knobs}"
    code, out, _ = command(line)
    assert code == 0
    corpus = Corpus.open(folder)
    run, pool = Run.open(corpus, "main"), open_pool(corpus)
    own = [result for result in run.results if result.method == "nepv"]
    assert [result.seed for result in own] == [0, 1]  # which a random start depends on
    for result in own:
        found = fairnepv.select(pool.views, 4, method="nepv", random_state=result.seed, **PLAIN)
        assert pool.rows[found.indices].tolist() == result.rows
    told = run.settings.nepv["4"]
    assert told == {**PLAIN, "tol": 1e-6, "alpha": 1.0, "sigma": 0.0}
    words = "relaxed by solver plain, alpha = 1, sigma = 0, tol = 1e-06, at most 9 steps"
    assert words in " ".join(out.split())
    assert words in results_caption(run.settings)
    assert "at most 1 passes" in budget_sentence(run.settings)
    publish(run, pool, folder / "published")
    manifest = json.loads((folder / "published" / "manifest.json").read_text())
    assert manifest["settings"]["nepv"] == {"4": told}
    assert any(words in sentence for sentence in verify(folder / "published", corpus))


def test_captions_say_what_stands_behind_the_name(prepared):
    pool = open_pool(Corpus.open(prepared))
    usual = results_caption(make_settings(pool, [4]))
    assert "relaxed by solver accelerated, tol = 0.1, at most 300 steps, start spectral" in usual
    assert "relaxed" not in results_caption(make_settings(pool, [4], methods=["averaged"]))


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"solver": "newton"}, "solver must be one of"),
        ({"start": "nowhere"}, "start must be one of spectral, random"),
        ({"tol": -1.0}, "tol must be a finite positive number"),
        ({"passes": -1}, "passes must be a non-negative integer"),
        ({"sigma": 1.0}, "alpha and sigma belong to the SCF variants"),
        ({"methods": ["averaged"], "solver": "plain"}, "solver is for method 'nepv'"),
    ],
    ids=str,
)
def test_letters_that_no_pipeline_has_are_refused(prepared, knobs, said):
    with pytest.raises(InputError, match=said):
        make_settings(open_pool(Corpus.open(prepared)), [4], **knobs)


def test_the_shift_is_chosen_on_the_items_that_validate(folder, command):
    """By the relaxed objective of Algorithm 1 there, and of what ends alike by the smallest."""
    line = f"uspto run {folder} --k 12 --methods nepv --max-steps 4 --tune-shift"
    assert command(line)[0] == 0
    corpus = Corpus.open(folder)
    run, pool, rows = Run.open(corpus, "main"), open_pool(corpus), read_split(corpus).validation
    views = {view: read_view(corpus, view)[0][rows] for view in pool.views}
    k = round(12 * len(rows) / len(pool.rows))
    grid = run.settings.shift_grid
    values = [
        fairnepv.relax(views, k, solver="shifted", sigma=times / k, max_steps=4).value
        for times in grid
    ]
    assert len({round(value, 4) for value in values}) > 1  # or there would be nothing to choose
    best = next(t for t, v in zip(grid, values, strict=True) if v >= max(values) - 1e-6)
    assert run.settings.shifts == {"12": best}
    assert run.settings.nepv["12"]["sigma"] == best / 12
    knobs = {"solver": "shifted", "sigma": best / 12, "max_steps": 4}
    found = fairnepv.select(pool.views, 12, method="nepv", **knobs)
    assert pool.rows[found.indices].tolist() == run.results[0].rows
    assert "Its sigma was chosen on the validation split" in results_caption(run.settings)
    publish(run, pool, folder / "published")
    assert list(verify(folder / "published", corpus))
    file = folder / "published" / "manifest.json"
    other = next(t for t in grid if t != best)
    file.write_text(file.read_text().replace(f'"12": {best}', f'"12": {other}'))
    (folder / "published" / "SHA256SUMS").write_text(sums(folder / "published"))
    with pytest.raises(NumericalError, match="shifts, 12"):
        list(verify(folder / "published", corpus))


def test_no_shift_is_chosen_by_rows_that_do_not_validate(folder):
    """Neither by those that test nor by those that are selected from: here others stand there."""
    corpus, knobs = Corpus.open(folder), {"max_steps": 4, "tune_shift": True}
    before = make_settings(open_pool(corpus), [4, 12], **knobs)
    kept = np.zeros(len(read_view(corpus, "text")[0].indptr) - 1, dtype=bool)
    kept[read_split(corpus).validation] = True
    for view in ("text", "vision"):
        rows = read_view(corpus, view)[0]
        dense = rows.toarray() if hasattr(rows, "toarray") else np.array(rows)
        dense[~kept] = np.abs(np.random.default_rng(0).standard_normal(dense[~kept].shape))
        write_view(corpus, view, sp.csr_array(dense) if hasattr(rows, "toarray") else dense)
    after = make_settings(open_pool(corpus), [4, 12], **knobs)
    assert after.features != before.features
    assert after.shifts == before.shifts
    assert after.nepv == before.nepv


@pytest.mark.kill
@pytest.mark.parametrize("moment", ["settings.json", "done/k3-nepv"])
def test_a_stopped_run_goes_on_with_the_shift_that_it_has_chosen(folder, tmp_path, moment):
    """Killed once the choice is written, and once the first selection has been made by it."""
    whole = shutil.copytree(folder, tmp_path / "whole")
    line = "uspto run {} --k 3,12 --methods nepv,random --seeds 2 --max-steps 4 --tune-shift"
    killed = [sys.executable, "-c", STOPPED, moment, "1", str(int(signal.SIGKILL))]
    stopped = [*killed, *line.format(folder).split()]
    assert subprocess.run(stopped, check=False, capture_output=True).returncode == -9
    chosen = json.loads((folder / "runs" / "main" / "settings.json").read_text())["shifts"]
    assert set(chosen) == {"3", "12"}
    for corpus in (folder, whole):
        go_on = [*FAIRNEPV, *line.format(corpus).split()]
        subprocess.run(go_on, check=True, capture_output=True)
    assert Run.open(Corpus.open(folder), "main").settings.shifts == chosen
    assert contents(folder / "runs" / "main") == contents(whole / "runs" / "main")


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"methods": ["averaged"]}, "tune_shift is for method 'nepv'"),
        ({"solver": "plain"}, "tune_shift chooses sigma of solver shifted or damped-shifted"),
        ({"solver": "shifted", "sigma": 1.0}, "leave sigma out"),
    ],
    ids=str,
)
def test_what_leaves_no_shift_to_choose_is_refused(prepared, knobs, said):
    with pytest.raises(InputError, match=said):
        make_settings(open_pool(Corpus.open(prepared)), [4], tune_shift=True, **knobs)


def test_items_that_validate_without_a_known_word_are_left_out(folder):
    corpus = Corpus.open(folder)
    rows, (text, _) = read_split(corpus).validation, read_view(corpus, "text")
    silent = text.tolil()
    silent[rows[1]] = 0
    write_view(corpus, "text", silent.tocsr())
    views = pools.validation_views(open_pool(corpus))
    assert {view.shape[0] for view in views.values()} == {len(rows) - 1}
    assert make_settings(open_pool(corpus), [4], max_steps=2, tune_shift=True).shifts


def test_a_shift_needs_items_that_validate(folder):
    corpus = Corpus.open(folder)
    write_split(corpus, split(corpus, validation=0.0), force=True)
    with pytest.raises(InputError, match="tune_shift needs items that validate"):
        make_settings(open_pool(corpus), [4], tune_shift=True)


def test_the_clock_adds_what_earlier_parts_took(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    state, heard = tmp_path / "k4-auto-seed0.state", []
    clock = Clock(state, heard.append)
    for stage, seconds in (("bound", 2.0), ("bound", 3.0), ("swaps", 4.0), ("swaps", 0.1)):
        now[0] += seconds
        clock(Step(stage, 0, 0, 0.0, 0.0))
    assert len(heard) == 4
    written = json.loads(state.with_suffix(".seconds").read_text())
    assert written == pytest.approx([5.0, 4.0])  # the last step came too soon to be written
    assert Clock(state, None).spent(0.0) == (0.0, 0.0)  # without its state nothing goes on
    state.write_text("")
    again = Clock(state, None)
    now[0] += 10.0
    assert again.spent(search=7.0) == pytest.approx((5.0 + 3.0, 4.0 + 7.0))


def test_coverage_is_nobody_s_second(finished, monkeypatch):
    """What looking around takes is neither the bound's nor the search's."""
    corpus = Corpus.open(finished)
    pool, now = open_pool(corpus), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    looked = Selection.looked_around

    def slow(self):
        now[0] += 500.0
        return looked(self)

    monkeypatch.setattr(Selection, "looked_around", slow)
    settings = make_settings(pool, [4], methods=["auto"], seeds=1, effort="fast")
    run = carry_out(Run.start(corpus, "slow", settings), pool)
    assert max(run.seconds.values()) < 400


def test_means_and_spreads():
    first, second = summarise(
        [result("random", 0, -1.0), result("random", 1, -2.0), result("auto", 0, -0.5)]
    )
    assert (first.method, first.seeds, first.means["fair_score"]) == ("random", 2, -1.5)
    assert first.spreads["fair_score"] == pytest.approx(np.std([-1, -2], ddof=1))
    assert (second.seeds, second.spreads) == (1, {})


def test_the_latex_table():
    tex = results_tex(
        [result("random", 0, -1.0), result("random", 1, -2.0), result("auto", 0, -0.5)],
        "50% & more",
    )
    assert (
        r"Random & $-1.500\pm0.707$ & $-0.500\pm0.707$ & $-1.500\pm0.707$ & $-1.500\pm0.707$" in tex
    )
    assert r"fairnepv, default & $-0.500$ & $0.500$ & $-0.500$ & $\mathbf{-0.500}$ &" in tex
    assert r" & $0.500$ & $0.250$ & $0.607$\\" in tex
    assert r"\caption{50\% \& more}" in tex
    columns = tex.split(r"\begin{tabular}{")[1].split("}")[0]
    body = [
        line for line in tex.splitlines() if line.startswith(("Selector", "Random", "fairnepv"))
    ]
    assert {line.count("&") - line.count(r"\&") + 1 for line in body} == {len(columns)}


def test_latex_specials_are_escaped():
    assert escaped(r"a_b & 5% $x #1 {y} ~^ \ <>") == (
        r"a\_b \& 5\% \$x \#1 \{y\} \textasciitilde{}\textasciicircum{} \textbackslash{} "
        r"\textless{}\textgreater{}"
    )
    assert escaped("a\n\n\x1b") == r"a\textbackslash{}n\textbackslash{}n\textbackslash{}x1b"


def test_a_stored_result_that_is_none_is_refused(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "corpus")
    file = folder / "runs" / "main" / "done" / "k3-nepv-seed0.json"
    file.write_text(json.dumps({"k": 4}))
    with pytest.raises(InputError, match="holds no result of a run"):
        _ = Run.open(Corpus.open(folder), "main").results
    file.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        _ = Run.open(Corpus.open(folder), "main").results


def test_the_environment_names_neither_host_nor_paths():
    said = json.dumps(environment())
    assert os.uname().nodename not in said
    assert "/" not in said


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"{}", b"[NaN, 1]", b'["x", 1]', b"5", b"[" * 9999]
)
def test_a_damaged_clock_is_one_sentence(tmp_path, content):
    (tmp_path / "a.state").touch()
    (tmp_path / "a.seconds").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.seconds holds no two numbers of seconds; remove it"):
        Clock(tmp_path / "a.state", None)


@pytest.mark.parametrize("kept", ["foreign", "no place for a key"])
def test_a_state_that_cannot_be_believed_costs_only_itself(tmp_path, monkeypatch, kept):
    """A run that was moved to another machine brings states along whose key is not there."""
    corpus = make_corpus(tmp_path / "corpus", 60)
    add_features(corpus)
    write_split(corpus, split(corpus))
    pool = open_pool(corpus)
    settings = make_settings(pool, [3], methods=["greedy"], effort="fast")
    run = Run.start(corpus, "main", settings)
    if kept == "foreign":
        (run.unfinished / "k3-greedy-seed0.state").write_bytes(b"no state")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    [result] = carry_out(run, pool).results
    expected = fairnepv.select(pool.views, 3, method="greedy", effort="fast")
    assert not run.unfinished.exists()  # nothing is left of it, once all is done
    assert result.rows == pool.rows[expected.indices].tolist()


def test_two_runs_in_one_folder_are_refused(folder, command):
    at = Run.folder_of(Corpus.open(folder), "main")
    with locked(at):
        ended = command(LINE.format(folder))
    assert (ended.code, ended.out) == (2, "")
    assert f"another run is at work in {at}; wait until it has ended" in ended.err
    assert list(at.iterdir()) == []
