"""The demo's words follow from its numbers, whichever way these went."""

from dataclasses import replace

import numpy as np
import pytest

import fairnepv
from fairnepv.api.selection import Comparison
from fairnepv.data.probe import Probe, centred_units
from fairnepv.report.demo import Trial, demo_answer, demo_record, demo_table, draw_demo

METHODS = ["auto", "concatenated", "a-only", "b-only", "random"]


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    rng = np.random.default_rng(0)
    data = {"a": rng.standard_normal((40, 6)), "b": rng.standard_normal((40, 9))}
    rules = ({"calibration": "efficiency"}, {"objective": "representative"})
    options = {"methods": METHODS, "effort": "fast"}
    return [fairnepv.compare(data, 5, **options, **rule) for rule in rules]


def trials(comparisons, diverse=0.5, representative=0.8, random=0.7) -> tuple[Trial, Trial]:
    accuracy = dict.fromkeys(METHODS, 0.4) | {"random": random}
    ours = ({**accuracy, "auto": share} for share in (diverse, representative))
    one, two = (Trial(c, a, 0.02, 10) for c, a in zip(comparisons, ours, strict=True))
    return one, two


def answer(diverse: Trial, representative: Trial) -> list[str]:
    return demo_answer(diverse, representative, "things", "kind")


def test_the_answer_comes_first(comparisons):
    lines = answer(*trials(comparisons))
    assert lines[0] == (
        "Train on 5 things, and tell the kind of the others: random picks get 70.0% right (10 "
        "draws, give or take 2.0 points), those of `representative` 80.0%, those of `diverse` "
        "50.0%."
    )
    assert lines[1] == (
        "Against random picks: `representative` gains 10.0 points; `diverse` loses 20.0 points. "
        "Best of all rows below: auto of `representative`, 80.0%."
    )


def test_losses_are_said_as_plainly_as_wins(comparisons):
    line = answer(*trials(comparisons, diverse=0.7, representative=0.6993))[1]
    assert "`representative` loses 0.07 points; `diverse` neither gains nor loses" in line
    assert line.endswith("No row below beats random picks (70.0%).")
    one, two = trials(comparisons)
    ahead = replace(two, accuracy={**two.accuracy, "b-only": 0.9})
    assert answer(one, ahead)[1].endswith(
        "Best of all rows below: b-only of `representative`, 90.0%."
    )


def test_the_worst_view_is_compared_with_that_of_the_best_rival(comparisons):
    for trial, line in zip(trials(comparisons), answer(*trials(comparisons))[2:4], strict=True):
        worst = {r.method: r.units.length(r.minimum) for r in trial.comparison}
        ours = worst.pop("auto")
        rival = max(worst, key=worst.__getitem__)
        difference = 100 * (ours - worst[rival])
        digits = 1 if abs(difference) >= 0.095 else 2
        side = "above" if difference > 0 else "below"
        said = f"{abs(difference):.{digits}f} points {side} that of the best rival, {rival} ("
        assert said in line or (abs(difference) < 0.005 and "level with" in line)
        for view, d in trial.ours.scores.items():
            assert f"{view} {trial.ours.units.length(d):.1%}" in line


def test_a_rival_that_is_ahead_is_said_to_be(comparisons):
    """Ours and the rival change places."""
    diverse, representative = trials(comparisons)
    rows = list(diverse.comparison)
    last, first = (
        replace(rows[0], scores={"a": -9.0, "b": -9.0}),
        replace(rows[1], scores={"a": -0.1, "b": -0.1}),
    )
    behind = replace(diverse, comparison=Comparison((last, first, *rows[2:])))
    line = answer(behind, representative)[2]
    assert "points below that of the best rival, concatenated (a 90.5%, b 90.5%)" in line


def test_the_proof_is_rounded_to_the_safe_side(comparisons):
    both = trials(comparisons)
    for trial, line in zip(both, answer(*both)[4:], strict=True):
        share = float(line.split("at least ")[1].split("%")[0])
        assert 0 <= trial.ours.efficiency - share / 100 < 0.001 + 1e-12
        assert f"`{trial.objective}`" in line


def test_record_table_and_picture_have_every_row(comparisons):
    both = trials(comparisons)
    record = demo_record(both, ["words"])
    assert record["answer"] == ["words"]
    assert [row["method"] for row in record["selectors"]] == METHODS * 2
    shares = [trial.accuracy[m] for trial in both for m in METHODS]
    assert [row["probe_accuracy"] for row in record["selectors"]] == shares
    assert [demo_table(trial).row_count for trial in both] == [len(METHODS)] * 2
    assert draw_demo(*both, "title").startswith(b"\x89PNG")


# --- the probe ------------------------------------------------------------------------------------


def test_a_probe_learns_what_can_be_learned():
    """Two classes apart from each other: a pick of each is enough, picks of one know one."""
    rng = np.random.default_rng(1)
    labels = np.repeat(["x", "y"], 20)
    data = {"a": rng.standard_normal((40, 3)) + 20.0 * (labels == "x")[:, None]}
    probe = Probe(data, labels)
    assert probe.accuracy(np.array([0, 39])) == 1.0
    assert probe.accuracy(np.array([0, 1])) == pytest.approx(18 / 38)
    drawn = probe.drawn(6, 4, np.random.default_rng(0))
    assert drawn.shape == (4,)
    assert (drawn == probe.drawn(6, 4, np.random.default_rng(0))).all()


def test_rows_of_a_probe_have_unit_length():
    X = np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 2.0]])
    np.testing.assert_allclose(centred_units(X), [[-1, 0], [1, 0], [0, 0]])
