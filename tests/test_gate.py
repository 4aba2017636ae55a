"""The gate of `make bench-gate`: what it calls slower, and what it does not let pass in silence."""

import json
from types import SimpleNamespace

import pytest

import gate
from gate import ALLOWED, CASES, RECORDED, Pair, is_slower, judged, ratio


def clocked(*seconds):
    """Calls that take so long, each in turn, by a clock that nothing else moves."""
    state = SimpleNamespace(now=0.0, left=list(seconds))

    def call():
        state.now += state.left.pop(0)

    return call, lambda: state.now


def measuring(values):
    """Ratios by case, one after the other, instead of a clock."""
    left = {name: list(ratios) for name, ratios in values.items()}
    return lambda name, repeats: left[name].pop(0)


def gated(values, recorded):
    cases = {name: (lambda name=name: name) for name in values}
    said = []
    found, bad = judged(cases, recorded, measuring(values), said.append)
    return found, bad, said


@pytest.mark.parametrize(("measured", "bad"), [(1.0, 0), (1.25, 0), (1.26, 1), (4.0, 1)])
def test_a_quarter_more_is_allowed(measured, bad):
    _, sentences, _ = gated({"one": [2.0 * measured, 2.0 * measured]}, {"one": 2.0})
    assert len(sentences) == bad
    if bad:
        assert sentences[0].startswith("one takes")
        assert f"{measured:.2f} times the 2 recorded" in sentences[0]


def test_what_was_slow_once_is_measured_again():
    found, bad, _ = gated({"one": [9.0, 2.1]}, {"one": 2.0})
    assert (found, bad) == ({"one": 2.1}, [])
    found, bad, _ = gated({"one": [9.0, 8.0]}, {"one": 2.0})
    assert found == {"one": 8.0}
    assert len(bad) == 1


def test_quicker_is_no_failure():
    assert gated({"one": [0.1]}, {"one": 2.0})[1] == []


def test_no_case_passes_without_a_comparison():
    assert "one is not recorded" in gated({"one": [1.0]}, {})[1][0]
    (sentence,) = gated({"one": [1.0]}, {"one": 1.0, "two": 1.0})[1]
    assert sentence == "two is recorded and is no case any more"


def test_a_peer_that_is_not_installed_is_said():
    def make():
        raise ImportError("No module named 'pyversity'")

    found, bad = judged({"peer": make}, {"peer": 1.0}, measuring({}), print)
    assert found == {}
    (sentence,) = bad
    assert sentence.startswith("peer was not measured (No module named 'pyversity')")


def test_a_ratio_is_the_median_of_runs_each_beside_its_units():
    # A first run for the caches; then units and runs in turns: 1 [4] 1 [40] 19 [4] 1.
    call, clock = clocked(9.0, 1.0, 4.0, 1.0, 40.0, 19.0, 4.0, 1.0)
    assert ratio(Pair(call, call, 1, clock), 3) == pytest.approx(4.0)


def test_a_unit_that_is_made_several_times_counts_once():
    call, clock = clocked(9.0, 1.0, 1.0, 6.0, 1.0, 1.0)
    assert ratio(Pair(call, call, 2, clock), 1) == pytest.approx(6.0)


def test_every_case_is_recorded():
    recorded = json.loads(RECORDED.read_text())
    assert set(recorded["ratios"]) == set(CASES)
    assert all(value > 0 for value in recorded["ratios"].values())
    assert not any(is_slower(value, value) for value in recorded["ratios"].values())
    assert ALLOWED == 1.25


def test_the_command_fails_where_a_case_does(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gate, "CASES", {"one": lambda: "one"})
    monkeypatch.setattr(gate, "RECORDED", tmp_path / "gate.json")
    monkeypatch.setattr(gate, "judged", lambda *_, **__: ({"one": 3.0}, ["one takes 3"]))
    monkeypatch.setattr("sys.argv", ["gate.py"])
    assert gate.main() == 1
    assert "one takes 3" in capsys.readouterr().err
