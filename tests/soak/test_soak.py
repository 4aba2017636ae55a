"""A sample of every group, and the runner itself."""

import json
import os
import signal
import time
from dataclasses import replace

import pytest

import sections
from fairnepv import InputError
from soak import groups, runner, table
from soak.groups import GROUPS, group_of
from soak.runner import Group, Journal, carry_out, digest, how_to_repeat, run

pytestmark = [pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")]
SAMPLE = [(name, number) for name in GROUPS for number in group_of(name).sample]


@pytest.mark.parametrize(("name", "number"), SAMPLE)
def test_a_sample_of_the_soak(name, number, tmp_path):
    group = group_of(name)
    if number in (group.known or {}):
        pytest.xfail(group.known[number])
    try:
        group.case(number, tmp_path)
    except Exception as error:
        error.add_note(how_to_repeat(group, number))
        raise


# --- the runner ----------------------------------------------------------------------------------


def odd(number, folder):
    assert not any(folder.iterdir())
    (folder / "left").touch()
    if number % 2:
        raise InputError(f"{number} is odd")


def failing(error):
    def case(number, folder):
        raise error

    return Group("failing", case, 1, [0])


ODD = Group("odd", odd, 6, [0])


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl")


def test_what_has_passed_is_not_done_again(journal, monkeypatch):
    said = []
    record = run(ODD, journal, source="a", say=said.append)
    assert record == {**record, "group": "odd", "cases": 6, "of": 6, "failures": 3}
    assert sum("is odd" in line for line in said) == 3
    assert said[-1].endswith("python -m soak --group odd --case 5")
    asked = []
    watched = Group("odd", lambda number, folder: asked.append(number), 6, [0])
    assert run(watched, journal, source="a")["failures"] == 0
    assert asked == [1, 3, 5]
    assert run(watched, journal, source="b", count=2)["cases"] == 2
    assert asked == [1, 3, 5, 0, 1]


def test_a_torn_line_is_none(journal):
    run(ODD, journal, source="a", count=3)
    whole = journal.path.read_text()
    journal.path.write_text(whole[:-20])
    assert set(journal.passed("odd", "a")) == {0}
    run(ODD, journal, source="a", count=3)
    assert set(journal.passed("odd", "a")) == {0, 2}


def test_time_ends_a_run_and_not_what_it_has_found(journal):
    slow = Group("slow", lambda number, folder: time.sleep(0.05), 1000, [0])
    record = run(slow, journal, source="a", seconds=0.2)
    assert 1 < record["cases"] < 10
    assert len(journal.path.read_text().splitlines()) == record["cases"]


def test_a_case_that_hangs_fails():
    endless = Group("endless", lambda number, folder: time.sleep(60), 1, [0], patience=0.1)
    assert "has taken more than 0.1 seconds" in carry_out(endless, 0, "").error
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_case_that_skips_has_shown_nothing():
    told = Group("told", lambda number, folder: pytest.skip("no browser"), 1, [0])
    assert "no browser" in carry_out(told, 0, "").error


def test_warnings_are_errors():
    import warnings

    told = Group("told", lambda number, folder: warnings.warn("look", stacklevel=1), 1, [0])
    assert "UserWarning: look" in carry_out(told, 0, "").error


def test_a_case_that_is_known_to_fail_is_no_failure(journal):
    known = Group("odd", odd, 6, [0], known={1: "why", 3: "why"})
    record = run(known, journal, source="a")
    assert (record["failures"], record["known"], record["cases"]) == (1, 2, 6)


def test_a_group_is_of_its_sources():
    one, other = digest({"numerics"}), digest({"cross_product"})
    assert one != other
    assert one == digest({"numerics"})


def test_the_table_tells_the_last_outcome_of_every_case(journal, tmp_path, monkeypatch):
    run(ODD, journal, source="old")
    run(ODD, journal, source="new", count=4)
    run(Group("odd", lambda number, folder: None, 2, [0]), journal, source="new")
    journal.path.write_text(journal.path.read_text() + '{"group": "odd", "ca')
    told = table.told_of(journal.path)
    groups_ = {"odd": replace(ODD, known={3: "why"}), "apart": ODD}
    text = table.table(told, groups_, {"odd": "new", "apart": "new"})
    (row,) = [line for line in text.splitlines() if line.startswith("| odd |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:5] == ["odd", "4 of 6", "3", "0", "1"]  # case 1 passed when it was repeated
    assert "| apart | 0 of 6 | 0 | 0 | 0 |" in text
    assert "earlier sources" not in text
    changed = table.table(told, groups_, {"odd": "newer", "apart": "newer"})
    assert "commit: odd." in changed


def test_the_table_goes_between_its_marks(journal, tmp_path, monkeypatch, capsys):
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("above\n<!-- soak -->\nold\n<!-- /soak -->\nbelow\n")
    monkeypatch.setattr(sections, "_FILE", page)
    run(ODD, journal, source="a")
    table.write(journal.path, {"odd": ODD}, {"odd": "a"})
    written = page.read_text()
    assert written.startswith("above\n<!-- soak -->\n`make soak`, ")
    assert written.endswith("|\n<!-- /soak -->\nbelow\n")
    assert "| odd | 6 of 6 | 3 | 3 | 0 |" in written


def test_a_journal_that_is_not_there_has_no_table(tmp_path, monkeypatch, capsys):
    from soak.__main__ import main

    monkeypatch.setattr("sys.argv", ["soak", "--write", "--journal", str(tmp_path / "none")])
    assert main() == 2
    assert "run `make soak` first" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch, capsys):
    from soak.__main__ import main

    monkeypatch.setattr(groups, "GROUPS", {"numerics": "numerics"})
    journal = str(tmp_path / "j")
    line = ["soak", "--group", "numerics", "--count", "2", "--journal", journal]
    monkeypatch.setattr("sys.argv", line)
    monkeypatch.setattr(os, "environ", {**os.environ})
    assert main() == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["group"], told["cases"], told["failures"]) == ("numerics", 2, 0)
    assert runner.HERE.name == "soak"
