"""`fairnepv downstream` on the command line, with a stand-in for training and with a tiny model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from downstream_studies import StandIn, make_split_corpus

from fairnepv.errors import FairnepvError, InputError, NumericalError
from fairnepv_studies.cli.downstream import downstream
from fairnepv_studies.downstream import execution
from fairnepv_studies.downstream.folder import StudyFolder

STUDY = """
corpus = "corpus"
sizes = [4, 8]
seeds = 2

[[selectors]]
name = "ours"
objective = "representative"
effort = "fast"
[[selectors]]
name = "random"
method = "random"
seeds = 3

[data]
test = 12
pretrain = 0.2
[model]
name = "model"
[recipe]
steps = 3
[scoring]
resamples = 100
"""


@pytest.fixture
def base(tmp_path, monkeypatch):
    make_split_corpus(tmp_path / "corpus")
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stand_in(monkeypatch):
    worker = StandIn()
    monkeypatch.setattr(execution, "ModelWorker", lambda: worker)
    return worker


def command(*arguments: str) -> str:
    """What it says; what it raises is raised."""
    found = CliRunner().invoke(downstream, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_study_by_three_commands(base, stand_in):
    said = command("run", "study.toml", "--out", "study")
    assert len(stand_in.calls) == 10
    assert "BLEU-4" in said
    assert "k = 8" in said
    assert "SHA256SUMS" in said
    said = command("verify", "study", "corpus")
    assert "study holds." in said
    assert "Not checked: that models write these texts" in said
    said = command("verify", "study")
    assert "Nor without the corpus: the corpus" in said


def test_the_stages_apart_give_the_same(base, stand_in):
    command("run", "study.toml", "--out", "whole")
    assert "10 cells to test and 0 to tune by" in command("prepare", "study.toml", "--out", "parts")
    said = command("cells", "parts", "--time-limit", "0")
    assert "Time is up: 10 cells are left" in said
    assert "All cells are done" in command("cells", "parts")
    command("report", "parts")
    for name in ("results.csv", "results.md", "differences.csv", "strata.csv"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()


def test_export_and_score(base, stand_in):
    said = command("export", "study.toml", "--out", "study")
    assert "fairnepv downstream score study predictions.jsonl" in said
    folder = StudyFolder.open(Path("study"))
    lines = [
        {"selector": c.selector, "k": c.k, "seed": c.seed, "id": item.id, "text": item.text}
        for c in folder.tested
        for item in folder.evaluated("test")
    ]
    for name, part in (("a.jsonl", lines[:50]), ("b.jsonl", lines[50:])):
        Path(name).write_text("".join(json.dumps(line) + "\n" for line in part))
    said = command("score", "study", "a.jsonl", "b.jsonl")
    assert "10 cells were taken in" in said
    assert "100.00 ± 0.00" in said
    assert "study holds." in command("verify", "study", "corpus")


def test_init_writes_a_study(base):
    command("init", "new.toml")
    assert "[[selectors]]" in Path("new.toml").read_text()
    with pytest.raises(InputError, match="add --force"):
        command("init", "new.toml")
    with pytest.raises(InputError, match=r"\.toml"):
        command("init", "new.txt")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("sizes", "sises"), "unknown key 'sises'"),
        (lambda text: text.replace("8]", "800]"), "k = 800 does not fit"),
        (lambda text: text.replace('"corpus"', '"nowhere"'), "is no corpus"),
        (lambda text: text.replace("seeds = 3", "seeds = 1"), "seeds are matched"),
        (lambda text: text + "[scoring.bertscore]\nmodel = 'mine'\n", "no baseline for the model"),
    ],
)
def test_mistakes_cost_nothing(base, stand_in, change, said):
    Path("study.toml").write_text(change(STUDY))
    with pytest.raises(InputError, match=said):
        command("run", "study.toml", "--out", "study")
    assert not Path("study").exists()
    assert not stand_in.calls


def test_a_model_that_cannot_be_trained_is_refused_before_anything_is_chosen(base):
    with pytest.raises(InputError, match="model"):
        command("run", "study.toml", "--out", "study")
    Path("model").mkdir()
    with pytest.raises(InputError, match="has no processor"):
        command("run", "study.toml", "--out", "study")
    assert not Path("study").exists()


def test_an_interruption_says_what_is_kept(base, monkeypatch):
    left = [4]

    def work():
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(execution, "ModelWorker", lambda: StandIn(when_called=work))
    with pytest.raises(FairnepvError, match="4 of 10 cells are kept in study"):
        command("run", "study.toml", "--out", "study")


def test_a_difference_is_named(base, stand_in):
    command("run", "study.toml", "--out", "study")
    Path("study", "results.csv").write_text("better\n")
    with pytest.raises(NumericalError, match=r"study differs: results\.csv does not have"):
        command("verify", "study")
    with pytest.raises(InputError, match="needs the corpus"):
        command("verify", "study", "--choose-again")


def test_pretraining_needs_items_of_its_own(base, stand_in):
    text = STUDY.replace("pretrain = 0.2", "pretrain = 0.0")
    Path("study.toml").write_text(text)
    command("prepare", "study.toml", "--out", "study")
    with pytest.raises(InputError, match="sets nothing apart to pretrain on"):
        command("pretrain", "study", "--out", "model")


# --- the real thing, tiny -------------------------------------------------------------------------

TINY = """
[data]
validation = 6
test = 6
pretrain = 0.3
[model]
name = "model"
[recipe]
steps = 2
batch_size = 2
learning_rate = 1e-2
precision = "float32"
gradient_checkpointing = false
max_new_tokens = 6
[recipe.lora]
rank = 2
[scoring]
resamples = 100
"""


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # of libraries of others
def test_a_tiny_model_goes_all_the_way(base):
    head = STUDY.partition("[data]")[0].replace("[4, 8]", "[4]").replace("seeds = 2", "seeds = 1")
    Path("study.toml").write_text(head.replace("seeds = 3", "seeds = 2") + TINY)
    command("prepare", "study.toml", "--out", "study")
    said = command("pretrain", "study", "--out", "model", "--size", "tiny", "--epochs", "1")
    assert "fairnepv downstream cells study --model model" in said
    command("run", "study.toml", "--out", "study")
    assert "study holds." in command("verify", "study", "corpus")
    folder = StudyFolder.open(Path("study"))
    first = {cell: folder.record(cell) for cell in folder.tested}
    assert len(first) == 3
    assert len({json.dumps(record.losses) for record in first.values()}) == 3
    shutil.rmtree("study/done")  # a stranger repeats the cells
    Path("study/done").mkdir()
    command("cells", "study", "--model", "model")
    for cell, record in first.items():
        again = folder.record(cell)
        assert (again.texts, again.losses, again.key) == (record.texts, record.losses, record.key)


def test_the_study_of_the_benchmarks_is_one():
    from fairnepv_studies.downstream.study import read_study

    file = Path(__file__).parents[1] / "downstream" / "study.toml"
    study = read_study(file)
    assert len(study.selectors) == 11
    assert study.seeds == 5
    assert len(study.sizes) == 3
