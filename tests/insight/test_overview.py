"""What a page needs besides a selection: maps against dense principal components, rivals and
neighbours against the functions that they are, and a limit that leaves out and says so."""

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
import reference
from fairnepv import InputError
from fairnepv.insight import collected, overview, plane
from fairnepv.insight.plane import planes

N, K = 120, 8
pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")


def rows(n=N, p=14, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) * np.linspace(3, 0.2, p) + 0.5


@pytest.fixture(scope="module")
def selection():
    data = {"a": rows(), "b": rows(p=9, seed=1)}
    return fairnepv.select(data, K, effort="fast")


def calibrated(problem, name):
    view = problem.pool.views[problem.pool.names.index(name)]
    found = view.rows(np.arange(problem.n))
    return found.toarray() if sp.issparse(found) else np.asarray(found)


def alike(found, dense):
    """The same coordinates, axes up to their signs."""
    return np.abs(np.abs(found) - np.abs(dense)).max() < 1e-5 * np.abs(dense).max()


KINDS = {
    "dense": lambda X, folder: X,
    "float32": lambda X, folder: X.astype(np.float32),
    "sparse": lambda X, folder: sp.csr_array(np.where(np.abs(X) > 0.6, X, 0.0)),
    "kernel": lambda X, folder: fairnepv.KernelView(X @ X.T),
    "file": lambda X, folder: _filed(X, folder),
}


def _filed(X, folder):
    np.save(folder / "x.npy", X)
    return fairnepv.open_rows(folder / "x.npy")


@pytest.mark.parametrize("objective", ["diverse", "representative"])
@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_principal_components(kind, objective, tmp_path):
    data = {"x": KINDS[kind](rows(), tmp_path), "other": rows(p=5, seed=2)}
    problem = fairnepv.select(data, K, objective=objective, effort="fast").problem
    whole = planes(problem, np.arange(N))
    for name in data:
        if kind == "sparse" and objective == "representative" and name == "x":
            X = data["x"].toarray()
            X = reference.unit_diagonal(reference.centered(X))
        else:
            X = calibrated(problem, name)
        dense, shares = reference.principal_components(X)
        assert whole[name].shares == pytest.approx(shares, abs=1e-6)
        assert alike(whole[name].coordinates, dense)
    some = np.array([7, 3, 90])
    assert np.allclose(planes(problem, some)["x"].coordinates, whole["x"].coordinates[some])


def test_few_landmarks_find_nearly_the_same_axes(selection, monkeypatch):
    exact = planes(selection.problem, np.arange(N))["a"].shares
    monkeypatch.setattr(plane, "LANDMARKS", 9)
    monkeypatch.setattr(plane, "SAMPLE", 60)
    near = planes(selection.problem, np.arange(N))["a"]
    assert sum(near.shares) > 0.8 * sum(exact)
    assert near.coordinates.shape == (N, 2)


def test_a_view_of_rank_one_lies_on_a_line():
    line = np.outer(np.linspace(-1, 2, N), [1.0, 2.0, 0.5])
    data = {"line": line, "b": rows()}
    problem = fairnepv.select(data, K, calibration="none", effort="fast").problem
    found = planes(problem, np.arange(N))["line"]
    dense, _ = reference.principal_components(line, 1)
    assert alike(found.coordinates[:, 0], dense[:, 0])
    assert np.abs(found.coordinates[:, 1]).max() < 1e-6


@pytest.mark.parametrize("missing", ["drop", "neutral"])
def test_rows_that_lack_a_view_are_in_no_mean_of_its_map(missing):
    lacking = np.arange(N) % 2 == 0
    data = {"a": np.where(lacking[:, None], np.nan, rows() + 2.0), "b": rows(p=9, seed=1)}
    found = fairnepv.select(data, K, missing=missing, center=False, certify=False, effort="fast")
    whole = planes(found.problem, np.arange(N))
    for name, kept in (("a", ~lacking), ("b", ~lacking if missing == "drop" else lacking | True)):
        dense, shares = reference.principal_components(calibrated(found.problem, name)[kept])
        assert whole[name].shares == pytest.approx(shares, abs=1e-6)
        assert alike(whole[name].coordinates[kept], dense)


def test_rows_that_were_left_out_are_on_no_map():
    data = {"a": rows(), "b": rows(p=9, seed=1)}
    data["a"][[3, 50]] = np.nan
    seen = overview(fairnepv.select(data, K, missing="drop", effort="fast"))
    assert sorted(seen.rows) == [row for row in range(N) if row not in (3, 50)]
    assert (seen.assignment.pick[seen.rows] >= 0).all()


def test_rivals_are_selectors_of_one_view_and_a_draw(selection):
    seen = overview(selection)
    assert [row.method for row in seen.rivals] == ["a-only", "b-only", "random"]
    for row in seen.rivals:
        same = fairnepv.select(
            {"a": rows(), "b": rows(p=9, seed=1)}, K, effort="fast", method=row.method
        )
        assert row.indices.tolist() == same.indices.tolist()
    assert set(seen.seconds) == {"rivals", "neighbours", "maps"}
    assert seen.searched
    assert seen.notes == ()


def test_rows_begin_with_the_picks_and_are_there_once(selection, monkeypatch):
    seen = overview(selection)
    assert seen.rows[:K].tolist() == selection.indices.tolist()
    assert sorted(seen.rows) == list(range(N))
    named = {*selection.indices, *np.concatenate(seen.examples)}
    named |= {i for row in seen.rivals for i in row.indices}
    assert set(seen.rows[: seen.named]) == named
    monkeypatch.setattr(collected, "SHOWN", seen.named + 5)
    fewer = overview(selection)
    assert len(fewer.rows) == len(set(fewer.rows)) == seen.named + 5


def test_examples_are_the_nearest_that_a_pick_stands_for(selection):
    seen, nearest = overview(selection), fairnepv.assign(selection)
    for place, own in enumerate(seen.examples):
        behind = [i for i in np.flatnonzero(nearest.pick == place) if i not in selection.indices]
        behind.sort(key=lambda i: (-nearest.similarity[i], i))
        assert own.tolist() == behind[:6]


def test_a_comparison_brings_its_own_rivals():
    methods = ["averaged", "auto", "random"]
    compared = fairnepv.compare({"a": rows(), "b": rows(p=9)}, K, methods=methods, effort="fast")
    seen = overview(compared)
    assert seen.selection is compared["auto"]
    assert [row.method for row in seen.rivals] == ["averaged", "random"]
    assert not seen.searched
    first = overview(fairnepv.Comparison(compared.rows[:1]))
    assert first.selection.method == "averaged"


def test_what_the_limit_leaves_out_is_named(selection):
    seen = overview(selection, time_limit=1e-9)
    assert not any(row.method.endswith("-only") for row in seen.rivals)
    assert seen.assignment is None
    assert seen.planes == {}
    assert "neighbours are left out" in " ".join(seen.notes)
    assert "maps are left out" in " ".join(seen.notes)
    assert any("a-only is left out" in note or "rivals are left out" in note for note in seen.notes)
    assert seen.rows[:K].tolist() == selection.indices.tolist()


def test_coordinates_of_the_user(selection):
    places = np.random.default_rng(0).standard_normal((N, 2))
    seen = overview(selection, coordinates=places)
    assert list(seen.planes) == [""]
    assert np.allclose(seen.planes[""].coordinates, places[seen.rows], atol=1e-6)
    assert list(overview(selection, coordinates={"b": places}).planes) == ["b"]
    far = overview(selection, coordinates=places + 1.7e9)
    assert np.allclose(far.planes[""].coordinates - 1.7e9, places[far.rows], atol=1e-6)
    for wrong, said in (
        (places[:5], "two numbers per row"),
        ({"c": places}, "not views"),
        (np.full((N, 2), np.nan), "not finite"),
        ([["a", "b"]] * N, "two numbers per row"),
    ):
        with pytest.raises(InputError, match=said):
            overview(selection, coordinates=wrong)


def test_a_stored_selection_has_no_data_to_show(selection, tmp_path):
    import copy

    with pytest.raises(InputError, match="needs the data"):
        copy.copy(selection).report(tmp_path / "r.html")


def test_floors_leave_rivals_out_and_say_so():
    found = fairnepv.select({"a": rows(), "b": rows(p=9)}, K, floors={"a": -5.0}, effort="fast")
    seen = overview(found)
    assert seen.rivals == ()
    assert "not supported" in seen.notes[0]
