"""Sentences, records and figures: they say what the objects say, and nothing else."""

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

import cases
import fairnepv
import reference
from fairnepv import Comparison, DiagonalView, Selection
from fairnepv.io.write import table_document
from fairnepv.loop import Step
from fairnepv.methods import APART
from fairnepv.report import (
    budget_line,
    comparison_columns,
    comparison_record,
    comparison_table,
    contact_sheet,
    draw_comparison,
    draw_traces,
    figures,
    left_behind,
    relaxation_record,
    score_record,
    selection_record,
    selection_table,
    trace_lines,
    trace_table,
)
from fairnepv.stiefel import Relaxation

pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
TAU = 0.05


@lru_cache
def digits() -> dict[str, np.ndarray]:
    return {name: cases.uci()[name][::80] for name in ("fou", "pix")}


@lru_cache
def comparison(calibration: str = "unit-diagonal") -> Comparison:
    return fairnepv.compare(digits(), 5, calibration=calibration)


# --- Sentences ------------------------------------------------------------------------------------


def made_up(method: str, scores: dict[str, float], rule: str = "unit-diagonal") -> Selection:
    """A selection with these scores; all else is of a real one."""
    real = comparison()["auto"]
    return replace(
        real,
        scores=scores,
        fair_score=reference.soft_min(np.array(list(scores.values())), TAU),
        settings={**real.settings, "method": method, "calibration": rule},
        calibration=replace(real.calibration, rule=rule),
    )


def sentences(fair: dict[str, float], other: dict[str, float], rule: str = "none") -> list[str]:
    rows = (made_up("auto", fair, rule), made_up("other", other, rule))
    return left_behind(Comparison(rows))


@pytest.mark.sample(1)
@pytest.mark.parametrize("rule", ["unit-diagonal", "trace", "none", "explicit"])
def test_a_view_that_lost(rule):
    """exp(-0.4 - 0.1) = 0.6065 of the volume per item."""
    said = sentences({"text": 0.0, "vision": 0.1}, {"text": 0.2, "vision": -0.4}, rule)
    assert said == ["other leaves vision behind: 60.7% of the volume per item that auto has there."]


def test_a_view_that_lost_under_efficiency():
    """Scores are then logs of shares of the bound, and both shares are said."""
    fair = {"text": math.log(0.8), "vision": math.log(0.752)}
    (said,) = sentences(fair, {"text": math.log(0.9), "vision": math.log(0.308)}, "efficiency")
    assert said == (
        "other leaves vision behind: it keeps 30.8% of the bound on what vision could have alone, "
        "auto 75.2%."
    )


def test_a_view_that_is_explained_less():
    """Shares are said as they are, and a hundredth of the whole is noticeable."""
    rows = (made_up("auto", {"a": 0.5, "b": 0.6}), made_up("other", {"a": 0.61, "b": 0.4125}))
    shares = Comparison(tuple(replace(row, objective="representative") for row in rows))
    assert left_behind(shares) == [
        "other leaves b behind: it explains 41.25% of the variance there, auto 60.00%."
    ]
    assert "representative\n" in repr(shares["auto"])
    close = replace(shares["auto"], scores={"a": 0.495, "b": 0.6}, settings=rows[1].settings)
    (said,) = left_behind(Comparison((shares["auto"], close)))
    assert said == "other leaves no view behind: none is 1 percentage point below auto."


def test_the_view_that_lost_most_is_named():
    fair = {"a": 1.0, "b": 2.0, "c": 3.0}
    (said,) = sentences(fair, {"a": 0.9, "b": 1.5, "c": 2.8})
    assert said.startswith("other leaves b behind: 60.7% ")


def test_no_view_lost():
    fair = {"text": 0.3, "vision": 0.2}
    for other in (fair, {"text": 0.295, "vision": 0.195}):
        assert sentences(fair, other) == ["other leaves no view behind: none is 1% below auto."]


@pytest.mark.parametrize("rule", ["none", "efficiency"])
def test_a_baseline_that_scores_higher_gets_its_due(rule):
    fair = {"text": -0.3, "vision": -0.2}
    for other in ({"text": -0.2, "vision": -0.2}, {"text": -0.25, "vision": -0.205}):
        (said,) = sentences(fair, other, rule)
        assert said.startswith("other leaves no view behind: none is 1% below auto; ")
        assert said.endswith("; its fair score is higher than that of auto.")


@pytest.mark.parametrize(("loss", "behind"), [(0.0099, False), (0.0101, True)])
def test_one_per_cent_is_noticed(loss, behind):
    (said,) = sentences({"text": 1.0, "vision": 1.0}, {"text": 1.0, "vision": 1.0 - loss})
    assert ("leaves vision behind: 99.0% " in said) == behind
    assert ("leaves no view behind" in said) != behind


def test_every_selector_but_the_fair_one_gets_its_sentence():
    for rule in ("unit-diagonal", "efficiency"):
        rows = comparison(rule)
        said = left_behind(rows)
        others = [row.method for row in rows if row.method != "auto"]
        assert [sentence.split()[0] for sentence in said] == others
        for sentence in said:
            check_sentence(sentence, rows)


def check_sentence(said: str, rows: Comparison) -> None:
    """The view and the percentages of a sentence, computed again."""
    fair, row = rows["auto"], rows[said.split()[0]]
    lost = {name: fair.scores[name] - row.scores[name] for name in fair.scores}
    view = max(lost, key=lost.__getitem__)
    if lost[view] < 0.01:
        assert "leaves no view behind" in said
        return
    assert f"leaves {view} behind" in said
    shares = [100 * math.exp(row.scores[view]), 100 * math.exp(fair.scores[view])]
    if row.settings["calibration"] != "efficiency":
        shares = [100 * math.exp(-lost[view])]
    written = [word.rstrip(".,;") for word in said.split() if word.rstrip(".,;").endswith("%")]
    assert written == [f"{share:.1f}%" for share in shares]


def test_any_row_may_be_the_fair_one():
    said = left_behind(comparison(), fair="greedy")
    assert len(said) == len(comparison()) - 1
    assert all("greedy" in sentence.split(" ", 1)[1] for sentence in said)
    with pytest.raises(KeyError, match="best"):
        left_behind(comparison(), fair="best")


EQUAL = "Every selector is greedy in its own objective, or rounded, and then has "


def test_a_comparison_says_who_has_more_or_less():
    uneven = [row.method for row in comparison() if row.method in APART]  # also of a new method
    said = "; ".join(f"{name} has {APART[name]}" for name in uneven)
    assert budget_line(comparison()) == (
        f"{EQUAL}at most 1000 passes of one-swaps under it, but {said}."
    )
    assert {"auto", "greedy", "k-dpp", "random"} <= set(uneven)
    assert (APART["greedy"], APART["random"]) == ("less: no swaps", "less: drawn")
    few = fairnepv.compare(digits(), 5, methods=["averaged", "nepv"], passes=2)
    assert budget_line(few) == f"{EQUAL}at most 2 passes of one-swaps under it."
    fast = fairnepv.compare(digits(), 5, methods=["auto", "averaged", "random"], effort="fast")
    assert budget_line(fast) == f"{EQUAL}no swaps, but random has less: drawn."
    apart = fairnepv.compare(digits(), 5, methods=["greedy", "random"])
    assert budget_line(apart) == (
        "Selectors have no budget in common: greedy has less: no swaps; random has less: drawn."
    )


@pytest.mark.parametrize(("effort", "marks"), [("balanced", "+--"), ("fast", ["", "", "-"])])
def test_the_table_marks_who_has_more_or_less(effort, marks):
    methods = ["auto", "greedy", "random", "averaged", "greedy-swaps"]
    rows = fairnepv.compare(digits(), 5, methods=methods, effort=effort)
    table = comparison_table(rows, "")
    [passes] = [column for column in table.columns if str(column.header) == "passes"]
    assert [str(cell).lstrip("0123456789") for cell in passes.cells] == [*marks, "", ""]


# --- Records --------------------------------------------------------------------------------------


def plain(document: Any) -> Any:
    """What JSON makes of it; numbers that are not finite are refused."""
    return json.loads(json.dumps(document, allow_nan=False))


def options(**changes: Any) -> dict[str, Any]:
    return {"calibration": "unit-diagonal", **changes}


LETTERS = np.array([f"digit {i:02d}" for i in range(25)])
SELECTIONS = {
    "plain": options(),
    "efficiency": options(calibration="efficiency"),
    "factors": options(calibration={"fou": 2.0, "pix": np.float32(0.5)}),
    "trace": options(calibration="trace"),
    "no bound": options(certify=False),
    "string ids": options(ids=LETTERS),
    "pandas ids": options(ids=LETTERS.astype(object)),
    "integer ids": options(ids=np.arange(25)[::-1].astype(np.int32)),
    "NumPy numbers": options(tau=np.float32(0.1), random_state=np.int64(3), eps=np.float64(0.2)),
    "quality": options(quality=np.linspace(0.5, 2, 25)),
    "out of time": options(time_limit=1e-9),
    "samples": options(method="k-dpp"),
}


@lru_cache
def chosen(name: str) -> Selection:
    return fairnepv.select(digits(), np.int64(5), **SELECTIONS[name])


BY_SELECTION = pytest.mark.parametrize("name", SELECTIONS)


@pytest.mark.sample(2)
@BY_SELECTION
def test_the_record_of_a_selection(name):
    selection = chosen(name)
    record = plain(selection_record(selection))
    assert record == selection_record(selection)  # plain already
    assert record["fairnepv"] == fairnepv.__version__
    assert record["status"] == selection.status.name
    assert record["complete"] == selection.status.ok
    assert record["status_text"] == str(selection.status)
    assert record["fair_score"] == selection.fair_score
    assert record["scores"] == dict(selection.scores)
    assert record["worst_view"] == min(record["scores"], key=record["scores"].get)
    assert record["view_weights"] == dict(selection.view_weights)
    assert record["coverage"] == dict(selection.coverage)
    assert record["upper_bound"] == selection.upper_bound
    assert record["efficiency"] == selection.efficiency
    assert record["settings"] == dict(selection.settings)
    assert record["calibration"]["rule"] == selection.calibration.rule
    assert record["seconds"] == selection.seconds
    assert record["notes"] == list(selection.notes)
    if selection.certificate is None:
        assert record["upper_bound"] is record["certificate"] is record["efficiency"] is None
    else:
        stored, certificate = record["certificate"], selection.certificate
        assert record["fair_score"] <= record["upper_bound"] <= stored["upper_bound"]
        assert stored["upper_bound"] == certificate.upper_bound
        known = math.isfinite(certificate.duality_gap)
        assert stored["duality_gap"] == (certificate.duality_gap if known else None)
        assert stored["by_view"] == dict(certificate.by_view)
        assert stored["weights"] == dict(certificate.weights)
        assert stored["spectral_bound"] == certificate.spectral_bound
        assert stored["spectral_by_view"] == dict(certificate.spectral)
        assert stored["status"] == certificate.status.name
        assert stored["notes"] == list(certificate.notes)


@pytest.mark.slow
def test_a_record_tells_the_calibration_again():
    """What it holds of the factors is enough to score the same picks alike."""
    record = plain(selection_record(chosen("factors")))
    offsets = {name: math.log(c) for name, c in (("fou", 2.0), ("pix", 0.5))}
    assert record["calibration"] == {"rule": "explicit", "offsets": pytest.approx(offsets)}
    efficiency = plain(selection_record(chosen("efficiency")))
    bounds = chosen("plain").certificate.by_view
    assert efficiency["calibration"]["offsets"] == pytest.approx(
        {name: -bound for name, bound in bounds.items()}
    )


@BY_SELECTION
def test_the_table_of_a_selection(name):
    selection = chosen(name)
    table = selection_table(selection)
    assert list(table.columns) == ["id", "row", "order", "gain_fou", "gain_pix"]
    assert table.columns["row"].tolist() == selection.indices.tolist()
    assert table.columns["id"].tolist() == selection.ids.tolist()
    assert table.columns["order"].tolist() == [0, 1, 2, 3, 4]
    for view in ("fou", "pix"):
        gains = table.columns[f"gain_{view}"]
        assert gains.mean() == pytest.approx(selection.scores[view], abs=1e-12)
    document = plain(table_document(table))
    assert document["settings"]["k"] == len(document["picks"]) == 5
    for row, (i, label) in enumerate(zip(selection.indices, selection.ids, strict=True)):
        pick = document["picks"][row]
        assert (pick["id"], pick["row"], pick["order"]) == (label, i, row)


@pytest.mark.parametrize("dtype", ["M8[D]", "S4"])
def test_ids_of_every_type_can_be_written_as_json(dtype):
    ids = np.arange(1000, 1025).astype(dtype)
    table = selection_table(fairnepv.select(digits(), 3, method="greedy", ids=ids))
    assert len(plain(table_document(table))["picks"]) == 3


def test_the_record_of_a_score():
    score = fairnepv.score(digits(), [3, 1, 4])
    record = plain(score_record(score))
    assert record == {
        "objective": "diverse",
        "unit": "nats per item",
        "fair_score": score.fair_score,
        "scores": dict(score.scores),
        "worst_view": score.worst_view,
        "view_weights": dict(score.view_weights),
        "coverage": dict(score.coverage),
    }


def test_the_record_of_a_comparison():
    rows = comparison()
    record = plain(comparison_record(rows))
    assert [one["method"] for one in record["selectors"]] == [row.method for row in rows]
    for one, row in zip(record["selectors"], rows, strict=True):
        assert one["picks"] == row.indices.tolist()
        assert {key: one[key] for key in selection_record(row)} == plain(selection_record(row))


def test_the_columns_of_a_comparison():
    rows = comparison().rows
    table = comparison_columns(comparison())
    expected = {
        "method": [row.method for row in rows],
        "d_fou": [row.scores["fou"] for row in rows],
        "d_pix": [row.scores["pix"] for row in rows],
        "worst_view": [row.worst_view for row in rows],
        "fair_score": [row.fair_score for row in rows],
        "coverage_fou": [row.coverage["fou"] for row in rows],
        "coverage_pix": [row.coverage["pix"] for row in rows],
        "passes": [row.swap_passes for row in rows],
        "budget": [row.budget for row in rows],
        "status": [row.status.name for row in rows],
        "seconds": [row.seconds for row in rows],
    }
    assert {name: values.tolist() for name, values in table.columns.items()} == expected
    document = plain(table_document(table))
    assert len(document["selectors"]) == len(rows)
    assert "method" not in document["settings"]
    assert document["settings"]["k"] == 5


# --- Relaxations ----------------------------------------------------------------------------------


def saddle_pool() -> dict[str, DiagonalView]:
    """Distinct diagonal kernels: every coordinate frame is stationary, and few are maxima."""
    rng = np.random.default_rng(1)
    a = rng.uniform(0.01, 10, 40)
    b = rng.uniform(0.5, 2, 40) / a
    return {"fou": DiagonalView(a, eps=0), "pix": DiagonalView(b, eps=0)}


def narrow() -> dict[str, np.ndarray]:
    """Four columns in all, fewer than k."""
    views = cases.random_views(np.random.default_rng(2), 20, [2, 2])
    return dict(zip(("fou", "pix"), views, strict=True))


RELAXATIONS: dict[str, Callable[[], Relaxation]] = {
    "accelerated": lambda: fairnepv.relax(digits(), 5),
    "several stages": lambda: fairnepv.relax(
        saddle_pool(), 6, calibration="none", start=np.eye(40)[:, :6]
    ),
    "plain": lambda: fairnepv.relax(digits(), 5, solver="plain", max_steps=20, start="random"),
    "damped-shifted": lambda: fairnepv.relax(
        digits(), 5, solver="damped-shifted", alpha=0.7, sigma=0.1, max_steps=7
    ),
    "degenerate": lambda: fairnepv.relax(narrow(), 5),
    "out of time": lambda: fairnepv.relax(digits(), 5, time_limit=1e-9),
}
BY_RELAXATION = pytest.mark.parametrize("make", RELAXATIONS.values(), ids=RELAXATIONS.keys())


@BY_RELAXATION
def test_the_record_of_a_relaxation(make):
    relaxed = make()
    record = plain(relaxation_record(relaxed))
    assert record["status"] == relaxed.status.name
    assert record["complete"] == relaxed.status.ok
    for name in ("value", "residual", "curvature", "checked"):
        assert record[name] == getattr(relaxed, name)
    assert record["view_values"] == dict(relaxed.view_values)
    assert record["view_weights"] == dict(relaxed.view_weights)
    starts = sum(step.step == 0 for step in relaxed.trace)
    assert record["steps"] == len(relaxed.trace) - starts
    assert record["solver"] == {
        name: getattr(relaxed.solver, name)
        for name in ("name", "tol", "max_steps", "alpha", "sigma")
    }


def test_the_record_of_a_relaxation_with_numpy_knobs():
    relaxed = fairnepv.relax(digits(), 5, tol=np.float32(1e-3), max_steps=np.int64(7))
    assert plain(relaxation_record(relaxed))["solver"]["max_steps"] == 7


@BY_RELAXATION
def test_the_trace_of_a_relaxation(make):
    relaxed = make()
    table = trace_table(relaxed)
    trace, columns = relaxed.trace, table.columns
    assert {len(values) for values in columns.values()} == {len(trace)}
    assert columns["step"].tolist() == list(range(len(trace)))
    assert columns["stage"].tolist() == [step.stage for step in trace]
    assert columns["objective"].tolist() == [step.objective for step in trace]
    assert columns["residual"].tolist() == [step.residual for step in trace]
    assert (np.diff(columns["seconds"]) >= 0).all()
    weights = np.stack([columns["weight_fou"], columns["weight_pix"]], axis=1)
    assert [tuple(row) for row in weights.tolist()] == [step.weights for step in trace]
    document = plain(table_document(table))
    assert len(document["trace"]) == len(trace)
    assert len(list(trace_lines(table))) == len(trace) + 1


def test_several_stages_were_there():
    starts = [step for step in RELAXATIONS["several stages"]().trace if step.step == 0]
    assert len(starts) > 1


def test_seconds_run_on_from_stage_to_stage():
    """Stages have a clock each, the table has one."""
    stages = [("ascent", [0.1, 1.0, 2.0]), ("newton", [0.0, 0.5]), ("newton", [0.25]), ("x", [3.0])]
    trace = [
        Step(stage, step, 0, seconds, 1.0, 0.1, (0.5, 0.5))
        for stage, clock in stages
        for step, seconds in enumerate(clock)
    ]
    relaxed = replace(RELAXATIONS["accelerated"](), trace=tuple(trace))
    assert trace_table(relaxed).columns["seconds"].tolist() == [0.1, 1, 2, 2, 2.5, 2.75, 5.75]


# --- Figures --------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures behind the bytes."""
    caught: list[Figure] = []
    make = figures.png_of

    def catch(figure: Figure) -> bytes:
        caught.append(figure)
        return make(figure)

    monkeypatch.setattr(figures, "png_of", catch)
    return caught


def check_ticks(figure: Figure) -> None:
    """Numbers that people read: formulas are not parsed, so none may be left in a label."""
    texts = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels()]
    texts += [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert not [text for text in texts if "$" in text or "\\" in text]


def check_picture(content: bytes) -> Image.Image:
    """A PNG that fits on a screen and is not blank."""
    assert content.startswith(b"\x89PNG")
    picture = Image.open(io.BytesIO(content))
    picture.load()
    assert 300 <= picture.width <= 4000
    assert 100 <= picture.height <= 4000
    colours = picture.convert("RGB").getcolors(picture.width * picture.height)
    assert len(colours) > 10
    return picture


def is_outlined(bar: Any) -> bool:
    return to_rgb(bar.get_edgecolor()) == (0, 0, 0) and bar.get_linewidth() > 1


def vertical_lines(axes: Any) -> list[float]:
    lines = [np.asarray(line.get_xdata(), dtype=float) for line in axes.lines]
    return [float(x[0]) for x in lines if len(x) == 2 and x[0] == x[1]]


@pytest.mark.parametrize("rule", ["unit-diagonal", "efficiency"])
def test_a_comparison_as_bars(drawn, rule):
    """A bar of length exp(d) per selector and view, the shortest of each selector outlined."""
    rows = comparison(rule)
    check_picture(draw_comparison(rows, "Digits"))
    axes = drawn[0].axes[0]
    volumes = [math.exp(row.scores[view]) for view in ("fou", "pix") for row in rows]
    assert sorted(bar.get_width() for bar in axes.patches) == pytest.approx(sorted(volumes))
    outlined = [bar.get_width() for bar in axes.patches if is_outlined(bar)]
    assert sorted(outlined) == pytest.approx(sorted(math.exp(row.minimum) for row in rows))
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.method for row in rows]
    bounds = rows["auto"].certificate.by_view.values()
    assert vertical_lines(axes) == pytest.approx([math.exp(bound) for bound in bounds])
    assert "Digits" in {axes.get_title(loc="left"), axes.get_title()}


def test_all_views_that_are_tied_for_worst_are_outlined(drawn):
    tied = made_up("auto", {"fou": 0.25, "pix": 0.25 + 1e-12})
    apart = made_up("greedy", {"fou": 0.25, "pix": 0.25 + 1e-6})
    draw_comparison(Comparison((tied, apart)))
    assert sum(is_outlined(bar) for bar in drawn[0].axes[0].patches) == 3


def test_a_comparison_without_bounds_has_no_lines(drawn):
    rows = [replace(row, certificate=None) for row in comparison()]
    check_picture(draw_comparison(Comparison(tuple(rows))))
    assert vertical_lines(drawn[0].axes[0]) == []


@pytest.mark.parametrize("M", [1, 3, 10])
def test_a_comparison_of_any_number_of_views(drawn, M):
    data = cases.random_views(np.random.default_rng(0), 20, [4] * M)
    rows = fairnepv.compare(data, 3, methods=["auto", "random"])
    check_picture(draw_comparison(rows))
    axes = drawn[0].axes[0]
    assert len(axes.patches) == 2 * M
    assert len(vertical_lines(axes)) == M


def test_names_are_no_formulas():
    data = {"price_$_and_$_size": digits()["fou"], "pix": digits()["pix"]}
    check_picture(draw_comparison(fairnepv.compare(data, 3, methods=["greedy"]), "a $_b_$"))


def test_traces_as_curves(drawn):
    traces = {name: trace_table(RELAXATIONS[name]()).columns for name in ("accelerated", "plain")}
    check_picture(draw_traces(traces, "Digits"))
    check_ticks(drawn[-1])
    panels = drawn[0].axes
    assert len(panels) == 4
    for axes, value in zip(panels, ("objective", "objective", "residual", "residual"), strict=True):
        for line, trace in zip(axes.lines, traces.values(), strict=True):
            shown = line.get_ydata()
            assert len(shown) >= len(trace[value]) - 1  # the start has no place on a log axis
            np.testing.assert_array_equal(shown, trace[value][-len(shown) :])
        assert (axes.get_yscale() == "log") == (value == "residual")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["several stages", "out of time", "degenerate"])
def test_traces_of_any_length_as_curves(name):
    """Many steps, the start alone, and nothing at all."""
    check_picture(draw_traces({name: trace_table(RELAXATIONS[name]()).columns}))


def tile(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 12), (shade, shade, 0)).save(buffer, format="PNG")
    return buffer.getvalue()


def check_sheet(sheet: np.ndarray, shades: Sequence[int], columns: int) -> None:
    """Every picture at its place, in order, and white where there is none."""
    rows = math.ceil(len(shades) / columns)
    assert sheet.shape == (12 * rows, 12 * columns, 3)
    for place in range(rows * columns):
        top, left = 12 * (place // columns), 12 * (place % columns)
        found = sheet[top : top + 12, left : left + 12]
        shade = shades[place] if place < len(shades) else None
        expected = (255, 255, 255) if shade is None else (shade, shade, 0)
        assert (found == np.array(expected)).all()


@pytest.mark.parametrize("columns", [4, 10])
@pytest.mark.parametrize("counts", [(1,), (10,), (11, 11), (30, 7), (3, 25, 10)], ids=str)
def test_a_contact_sheet(drawn, counts, columns):
    shades = [[(40 * p + 5 * i) % 256 for i in range(count)] for p, count in enumerate(counts)]
    panels = {
        f"panel {p}": ([tile(shade) for shade in one], f"line {p}") for p, one in enumerate(shades)
    }
    check_picture(contact_sheet(panels, "Pictures: nobody", columns=columns))
    assert len(drawn[0].axes) == len(counts)
    for axes, one, (heading, (_, line)) in zip(drawn[0].axes, shades, panels.items(), strict=True):
        check_sheet(np.asarray(axes.images[0].get_array()), one, columns)
        texts = " ".join(text.get_text() for text in axes.texts) + axes.get_title(loc="left")
        assert heading in texts
        assert line in texts
    assert "Pictures: nobody" in [text.get_text() for text in drawn[0].texts]


def test_figures_leave_the_users_style_alone():
    before = dict(matplotlib.rcParams)
    draw_comparison(comparison())
    assert dict(matplotlib.rcParams) == before
