"""Runs of the protocol: right numbers, the same bytes after a kill, and clear refusals."""

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

import fairnepv
import reference
from corpora import add_features, make_corpus, write_view
from fairnepv.cli import main
from fairnepv.errors import InputError
from fairnepv.studies import runs
from fairnepv.studies.corpus import Corpus
from fairnepv.studies.feature_files import read_view
from fairnepv.studies.results import Result, escaped, results_csv, results_tex, summarise
from fairnepv.studies.run_report import seeds_sentence
from fairnepv.studies.runs import Run, carry_out, make_settings, open_pool
from fairnepv.studies.split import read_split, split, write_split

ENDS = ("results.csv", "results.tex", "selections.csv", "views.png", "efficiency.png")
LINE = "uspto run {} --k 3,12 --seeds 2"


@pytest.fixture
def command(monkeypatch, capsys):
    """A command line through the entry point: exit code, stdout, stderr."""

    def run(line: str, *arguments):
        monkeypatch.setattr(sys, "argv", ["fairnepv", *shlex.split(line), *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


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
    return {f.relative_to(run).as_posix(): f.read_bytes() for f in files}


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
    assert len(results) == 2 * (8 + 2)  # auto and random twice
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
            found = fairnepv.select(pool.views, 3, method=result.method, random_state=result.seed)
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


def test_the_terminal_has_all_columns_and_says_simulated(finished, command):
    code, out, _ = command(LINE.format(finished))
    assert code == 0
    assert "12 of 48 items, simulated uspto" in out
    heading = next(line for line in out.splitlines() if "selector" in line)
    words = "selector F d text d vision min C text C vision eff. sec"
    assert " ".join(heading.split()) == words
    assert "over 2 seeds of what depends on the seed: fairnepv, default, Random" in out
    assert max(map(len, out.splitlines()[:12])) < 85


def test_figures_say_simulated(finished, monkeypatch):
    from fairnepv.studies import run_report

    titles = []
    monkeypatch.setattr(run_report, "draw_view_scores", lambda *a: titles.append(a[-1]) or b"")
    monkeypatch.setattr(run_report, "draw_efficiency", lambda *a: titles.append(a[-1]) or b"")
    run_report.write_report(
        Run.open(Corpus.open(shutil.copytree(finished, finished.parent / "f")), "main")
    )
    assert len(titles) == 2
    assert all("Simulated uspto corpus" in title for title in titles)


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
from fairnepv.checkpoint import Journal
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


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    ("moment", "count"), [("done/k3-averaged", 1), ("unfinished/k12-auto", 9), ("bounds/k12", 1)]
)
def test_a_stopped_run_goes_on_and_ends_in_the_same_bytes(
    folder, finished, sent, code, moment, count
):
    """Between two selections, in the middle of a search, and between a proof and its selection."""
    command = [sys.executable, "-c", STOPPED, moment, str(count), str(int(sent))]
    line = [*command, *LINE.format(folder).split()]
    assert subprocess.run(line, check=False, capture_output=True).returncode == code
    done = folder / "runs" / "main" / "done"
    kept = {file: file.stat().st_mtime_ns for file in done.glob("k*.json")}
    assert 0 < len(kept) < 20
    assert "unfinished" not in moment or list((done.parent / "unfinished").glob("k12-auto-*.state"))
    execute(folder)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    assert contents(folder / "runs" / "main") == contents(finished / "runs" / "main")


@pytest.mark.parametrize(
    "lost", ["done/k3-*", "done/k*-auto-*", "bounds/*", "*.*", "done/*-random-*"]
)
def test_whatever_is_missing_is_made_again(finished, tmp_path, lost):
    folder = shutil.copytree(finished, tmp_path / "corpus")
    run = folder / "runs" / "main"
    for file in run.glob(lost):
        if file.name != "settings.json":
            file.unlink()
    for torn in ("done/.k3-auto-seed0.json.torn_123", ".results.csv.8torn_ab"):
        (run / torn).write_text("{")
    execute(folder)
    assert contents(run) == contents(finished / "runs" / "main")


def test_an_interruption_keeps_what_is_done(folder, command, monkeypatch):
    select = runs.select

    def interrupted(*arguments, **options):
        if options["method"] == "averaged":
            raise KeyboardInterrupt
        return select(*arguments, **options)

    monkeypatch.setattr(runs, "select", interrupted)
    code, _, err = command(LINE.format(folder))
    assert code == 130
    assert "5 of 20 selections are kept" in err


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
    assert len(quick.units) == 2 * (7 + 4)
    assert set(make_settings(pool, [4]).drawn) == {"auto", "random"}
    once = make_settings(pool, [4], seeds=1)
    assert seeds_sentence(once) == "Every selector was run once."


def test_the_default_is_not_random_where_its_passes_are_long(prepared, monkeypatch):
    from fairnepv.search import effort

    monkeypatch.setattr(effort, "_LONG_PASS", 1.0)
    pool = open_pool(Corpus.open(prepared))
    assert set(make_settings(pool, [4]).drawn) == {"random"}
    assert set(make_settings(pool, [4], effort="thorough").drawn) == {"auto", "random"}


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
    assert settings.methods[2:5] == ["a_b%-only", "c & d-only", "e-only"]
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
    said = json.dumps(runs.environment())
    assert os.uname().nodename not in said
    assert "/" not in said
