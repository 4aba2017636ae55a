"""Cells are made once, in any number of runs, and end in the same table."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from downstream_studies import DOCUMENT, StandIn, carried_out, make_study, prepared

from fairnepv.errors import InputError
from fairnepv.io.locks import locked
from fairnepv_studies.downstream.__main__ import Lines, main, said_of
from fairnepv_studies.downstream.cells import Cell
from fairnepv_studies.downstream.execution import Turn, agreed, local_model, source_of
from fairnepv_studies.downstream.export import bring, export
from fairnepv_studies.downstream.folder import StudyFolder
from fairnepv_studies.downstream.plain_rouge import mean_rouge_l
from fairnepv_studies.downstream.preparation import prepare
from fairnepv_studies.downstream.recipe import ModelSource
from fairnepv_studies.downstream.report import TABLES, finished, write_report
from fairnepv_studies.downstream.study import study_of

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("cells")).path


@pytest.fixture
def folder(original, tmp_path):
    shutil.copytree(original, tmp_path / "study")
    return StudyFolder.open(tmp_path / "study")


def tables_of(path: Path) -> dict[str, bytes]:
    """Without seconds, which differ."""
    found = {name: (path / name).read_bytes() for name in TABLES if name != "cells.csv"}
    lines = (path / "cells.csv").read_text().splitlines()
    found["cells.csv"] = "\n".join(line.rsplit(",", 2)[0] for line in lines).encode()
    return found


def test_all_cells_are_made_and_the_validation_split_chooses(folder):
    worker = StandIn()
    assert carried_out(folder, worker) == []
    assert len(worker.calls) == len(folder.tuning) + len(folder.tested) == 2 + 14
    assert [call[0] for call in worker.calls[:2]] == [cell.name for cell in folder.tuning]
    document = folder.tuning_document
    texts = [item.text for item in folder.evaluated("validation")]
    scores = [round(mean_rouge_l(folder.record(c).texts, texts), 6) for c in folder.tuning]
    best = folder.study.tuning.values[scores.index(max(scores))]
    assert document["rouge_l"] == scores
    assert document["chosen"] == best
    assert {call[3] for call in worker.calls[2:]} == {best}
    assert not (folder.path / "unfinished").exists()
    for cell in folder.tested:
        record = folder.record(cell)
        assert len(record.texts) == len(folder.evaluated("test"))
        assert record.seconds.keys() == {"training", "cell"}


def test_what_is_done_is_not_done_again(folder):
    carried_out(folder)
    before = {file: file.read_bytes() for file in folder.path.rglob("*.json")}
    gone = folder.tested[5]
    folder.cell_file(gone).unlink()
    worker = StandIn()
    assert carried_out(folder, worker) == []
    assert [call[0] for call in worker.calls] == [gone.name]
    again = {file: file.read_bytes() for file in folder.path.rglob("*.json")}
    differing = [file for file in again if again[file] != before[file]]
    assert differing in ([], [folder.cell_file(gone)])  # its seconds


def test_matched_seeds_mean_the_same_for_every_selector(folder):
    worker = StandIn()
    carried_out(folder, worker)
    of_selector = {
        name: [(k, seed) for cell, k, seed, _ in worker.calls[2:] if cell.startswith(f"{name}-")]
        for name in ("ours", "k-medoids", "random")
    }
    assert of_selector["ours"] == of_selector["k-medoids"]
    assert set(of_selector["ours"]) < set(of_selector["random"])


def test_time_that_is_up_leaves_cells_for_the_next_run(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("fairnepv_studies.downstream.execution.time.monotonic", lambda: clock[0])

    def work():
        clock[0] += 10

    calls = []
    for _ in range(10):
        clock[0] = 0.0
        worker = StandIn(when_called=work)
        left = carried_out(folder, worker, time_limit=35)
        calls.append(len(worker.calls))
        assert clock[0] <= 35
        if not left:
            break
    assert calls == [3, 3, 3, 3, 3, 1]


def test_another_model_is_refused(folder):
    carried_out(folder, time_limit=0.0)
    folder_cells = StandIn()
    with pytest.raises(KeyboardInterrupt):
        carried_out(folder, StandIn(when_called=_interrupt_after(3)))
    with pytest.raises(InputError, match="was made with another model"):
        carried_out(folder, StandIn(sha="1" * 64))
    assert carried_out(folder, folder_cells) == []


def _interrupt_after(count):
    left = [count]

    def work():
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return work


def test_losses_that_are_no_numbers_are_told_as_such(folder, monkeypatch):
    worker = StandIn()
    plain = worker.train_and_write

    def diverging(*given):
        made = plain(*given)
        made.losses[-1] = float("nan")
        return made

    monkeypatch.setattr(worker, "train_and_write", diverging)
    carried_out(folder, worker)
    assert folder.record(folder.tested[0]).losses[-1] is None
    write_report(folder)


def test_two_runs_in_one_folder_are_kept_apart(folder):
    with locked(folder.path):
        handle = os.open(folder.path, os.O_RDONLY)  # as another process has it
        with pytest.raises(OSError, match="unavailable"):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
        code = f"""
from pathlib import Path
from fairnepv.io.locks import locked
from fairnepv.errors import InputError
from fairnepv.io.locks import locked
try:
    with locked(Path({str(folder.path)!r})):
        print("both")
except InputError as error:
    print(error)
"""
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another run is at work in" in other.stdout
    with locked(folder.path):
        pass


def test_several_runs_share_the_cells_of_a_folder(folder):
    """Each cell is made once, whoever makes it, and nobody has the folder for himself meanwhile."""
    refused, meeting = [], threading.Barrier(2)

    def work():
        if len(refused) < 2:  # both have a cell at hand
            meeting.wait(60)
        try:
            with locked(folder.path):
                refused.append(False)
        except InputError:
            refused.append(True)

    workers = [StandIn(when_called=work) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(carried_out, folder, worker) for worker in workers]
        assert [run.result() for run in runs] == [[], []]
    assert all(worker.calls for worker in workers)
    assert sum(len(worker.calls) for worker in workers) == len(folder.tuning) + len(folder.tested)
    assert all(refused)
    assert all(map(folder.has, (*folder.tuning, *folder.tested)))
    assert not (folder.path / "unfinished").exists()


def test_a_cell_is_claimed_by_one_and_free_again_when_he_is_gone(folder):
    cell = folder.tested[0]
    with folder.claimed(cell) as first:
        assert first
        with folder.claimed(cell) as second:
            assert not second
    with folder.claimed(cell) as again:
        assert again


MOMENTS = [
    *(f"work:{count}" for count in (1, 2, 4, 16)),  # before a cell
    *(f"replace:{count}" for count in (1, 3, 4, 12, 20)),  # before a file has its name
    *("bytes:2", "bytes:9", "bytes:30"),  # in the middle of a file
]


@pytest.fixture(scope="module")
def whole(original, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "study"
    shutil.copytree(original, path)
    assert killed("never", path).returncode == 0
    return tables_of(path)


def killed(moment: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "cells_killed.py", moment, str(path)],
        cwd=HERE,
        capture_output=True,
        text=True,
    )


@pytest.mark.kill
@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_study_that_was_killed_goes_on(folder, whole, moment):
    died = killed(moment, folder.path)
    assert died.returncode == -9, died.stderr
    there = len(list((folder.path / "done").glob("[!.]*.json")))
    ended = killed("never", folder.path)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == 2 + 14 - there
    assert tables_of(folder.path) == whole
    assert not [f for f in folder.path.rglob("*") if f.name.startswith(".")]


def test_a_table_of_an_incomplete_study_says_so(folder):
    with pytest.raises(InputError, match="16 of 16 cells are missing"):
        write_report(folder, partial=True)
    with pytest.raises(KeyboardInterrupt):
        carried_out(folder, StandIn(when_called=_interrupt_after(8)))
    with pytest.raises(InputError, match="8 of 16 cells are missing, the first is 'ours'"):
        finished(folder)
    write_report(folder, partial=True)
    assert "INCOMPLETE: 6 of 14 cells." in (folder.path / "results.md").read_text()


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("picks/ours-k4-seed0.json", {"ids": ["a", "b", "c", "d"]}, "is none of its items"),
        ("picks/ours-k4-seed0.json", {"k": "4"}, "k is no int"),
        ("study.json", {"format": 2}, "another format"),
        ("study.json", {"study": {}}, "must say corpus"),
    ],
)
def test_a_damaged_folder_is_one_sentence(folder, name, change, said):
    file = folder.path / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError, match=said):
        carried_out(StudyFolder.open(folder.path))


# --- chat turns and predictions -------------------------------------------------------------------


def test_chat_turns_hold_what_cells_are_trained_on(folder):
    names = export(folder)
    chat = folder.path / "chat"
    assert len(names) == len(folder.items) + 2 + (2 + 4 + 6)
    lines = (chat / "train" / "random-k8-seed2.jsonl").read_text().splitlines()
    ids = folder.picks("random", 8, 2).ids
    for line, id in zip(lines, ids, strict=True):
        said = json.loads(line)
        item = folder.items[id].item
        user, answer = said["messages"]
        assert said["id"] == id
        assert [part["type"] for part in user["content"]] == ["image", "text"]
        assert (chat / user["content"][0]["image"]).read_bytes() == item.image
        assert user["content"][1]["text"] == folder.study.recipe.prompt
        assert answer == {"role": "assistant", "content": [{"type": "text", "text": item.text}]}
    for part in ("test", "validation"):
        text = (chat / f"{part}.jsonl").read_text()
        asked = [json.loads(line) for line in text.splitlines()]
        assert [line["id"] for line in asked] == [item.id for item in folder.evaluated(part)]
        assert {message["role"] for line in asked for message in line["messages"]} == {"user"}
        assert not any(item.text in text for item in folder.evaluated(part))


def predictions_of(folder: StudyFolder) -> list[str]:
    return [
        json.dumps({"selector": c.selector, "k": c.k, "seed": c.seed, "id": item.id, "text": text})
        for c in folder.tested
        for item, text in zip(folder.evaluated("test"), folder.record(c).texts, strict=True)
    ]


def test_predictions_from_elsewhere_give_the_same_tables(tmp_path, original):
    shutil.copytree(original.parent / "corpus", tmp_path / "corpus")
    document = {name: value for name, value in DOCUMENT.items() if name != "tuning"}
    untuned = study_of(document, "study.toml")
    ours, theirs = (prepare(untuned, tmp_path, tmp_path / name) for name in ("ours", "theirs"))
    carried_out(ours)
    write_report(ours)
    lines = predictions_of(ours)
    file = tmp_path / "predictions.jsonl"
    file.write_text("\n".join(reversed(lines)) + "\n")
    assert sorted(bring(theirs, [file])) == sorted(ours.tested)
    write_report(theirs)
    for name in ("results.csv", "results.tex", "results.md", "differences.csv", "strata.csv"):
        assert (ours.path / name).read_bytes() == (theirs.path / name).read_bytes()
    with pytest.raises(InputError, match="is there already"):
        bring(theirs, [file])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[:-1], "have no text for"),
        (lambda lines: [*lines, lines[0]], "twice"),
        (lambda lines: [*lines, lines[0].replace('"id": "', '"id": "x')], "which is not tested"),
        (lambda lines: [line.replace('"k": 4', '"k": 5') for line in lines], "has no cell"),
        (lambda lines: [lines[0].replace('"seed": 0', '"seed": true')], "must say seed"),
        (lambda lines: ["[1]"], "must say selector"),
        (lambda lines: ["{"], "cannot be read"),
        (lambda lines: [], "no predictions"),
    ],
)
def test_wrong_predictions_are_refused_and_nothing_is_kept(folder, tmp_path, change, said):
    carried_out(folder)
    lines = predictions_of(folder)
    shutil.rmtree(folder.path / "done")
    file = tmp_path / "predictions.jsonl"
    file.write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(InputError, match=said):
        bring(folder, [file])
    assert not (folder.path / "done").exists()


# --- what is said meanwhile -----------------------------------------------------------------------


def test_progress_tells_cells_and_time_left(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("fairnepv_studies.downstream.execution.time.monotonic", lambda: clock[0])

    def work():
        clock[0] += 5

    heard: list[Turn] = []
    carried_out(folder, StandIn(when_called=work), listener=heard.append)
    assert {turn.of for turn in heard} == {16}
    first = [next(turn for turn in heard if turn.number == n) for n in range(16)]
    assert [turn.seconds_left for turn in first] == [
        None,
        *(5.0 * left for left in range(15, 0, -1)),
    ]
    assert {turn.stage for turn in heard} == {"beginning", "writing"}


def test_a_line_of_progress(capsys):
    turn = Turn(Cell("random", 300, 2), 11, 180, "training", 3, 30, 840.0)
    assert said_of(turn) == (
        "cell 12 of 180: 'random', k = 300, seed 2; training 3 of 30, 14 min left"
    )
    lines = Lines()
    for _ in range(3):
        lines(turn)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_stage_for_the_gpu_is_a_command_of_its_own(folder, monkeypatch, capsys):
    import fairnepv_studies.downstream.__main__ as command

    monkeypatch.setattr(command, "ModelWorker", StandIn)
    assert main(["cells", str(folder.path), "--time-limit", "0"]) == 3
    assert "16 cells are left" in capsys.readouterr().out
    assert main(["cells", str(folder.path), "--model", "elsewhere"]) == 0
    assert "all cells are done" in capsys.readouterr().out
    assert main(["cells", str(folder.path / "no")]) == 2
    assert "is no folder of a study" in capsys.readouterr().err
    monkeypatch.setattr(command, "Execution", _interrupted)
    assert main(["cells", str(folder.path)]) == 130


def _interrupted(*_):
    raise KeyboardInterrupt


def test_the_stage_for_the_gpu_needs_little_else(folder):
    """A machine that trains has no PyArrow, Rich, Click, lxml or SciPy, nor what scores."""
    code = """
import sys
import fairnepv_studies.downstream.__main__
loaded = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(sorted(name for name in loaded if not name.startswith("_")))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(eval(found.stdout))
    assert not loaded & {"pyarrow", "rich", "click", "lxml", "scipy", "sklearn", "matplotlib"}
    assert not loaded & {"sacrebleu", "rouge_score", "bert_score"}


def test_a_model_lies_beside_the_study_or_as_it_is_said(tmp_path):
    study = make_study(model={"name": "model"})
    assert source_of(study, None) == ModelSource("model")
    assert source_of(study, "there") == ModelSource("there")
    assert local_model(ModelSource("model"), tmp_path) == ModelSource("model")
    (tmp_path / "model").mkdir()
    assert local_model(ModelSource("model"), tmp_path) == ModelSource(str(tmp_path / "model"))


def test_one_process_agrees_with_itself(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert agreed(True)
    assert not agreed(False)
