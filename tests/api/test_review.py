"""What a hard review of the bounds, the constraints and the front door once found, kept found."""

import sys
from itertools import combinations

import numpy as np
import pytest

import fairnepv
import reference
from fairnepv import InputError, KernelView, Status
from fairnepv.compute import HOST
from fairnepv.concave import concave
from fairnepv.loop import run

pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")


def two_views(seed: int, n: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((n, 6)), "b": rng.standard_normal((n, 5))}


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("beyond", [1e-6, 1e-3])
def test_a_floor_just_above_the_optimum_is_a_floor(seed, beyond):
    """However little a better set misses it by."""
    data = two_views(seed, 10)
    Ls = [reference.kernel(reference.unit_diagonal(X), 0.1) for X in data.values()]
    top = fairnepv.exhaustive(data, 3)
    floor = top.scores["a"] + beyond
    allowed = [
        reference.fair_score(Ls, S, 0.05)
        for S in combinations(range(10), 3)
        if reference.subset_score(Ls[0], S) >= floor
    ]
    if not allowed:
        with pytest.raises(InputError, match=r"floor"):
            fairnepv.select(data, 3, floors={"a": floor})
        return
    for method in ("auto", "exact"):
        found = fairnepv.select(data, 3, floors={"a": floor}, method=method)
        assert found.fair_score == pytest.approx(max(allowed), abs=1e-9)
        assert found.scores["a"] >= floor - 1e-9
    assert fairnepv.exhaustive(data, 3, floors={"a": floor}).fair_score == pytest.approx(
        max(allowed), abs=1e-9
    )


def test_a_calibration_from_other_rows_proves_nothing_about_these():
    """Its proofs name rows that are not there, or bound something else."""
    data = two_views(1)
    earlier = fairnepv.select(data, 6, calibration="efficiency").calibration
    fewer = {name: X[:15] for name, X in data.items()}
    other = two_views(2)
    for pool in (fewer, other):
        found = fairnepv.select(pool, 6, calibration=earlier, effort="fast")
        assert fairnepv.verify_bound(pool, found, calibration=earlier).holds
        for name, bound in found.certificate.by_view.items():
            alone = fairnepv.select(pool, 6, calibration=earlier, method=f"{name}-only")
            assert alone.scores[name] <= bound


def test_a_calibration_from_another_kernel_proves_nothing_about_this_one():
    rng = np.random.default_rng(14)
    A, B = rng.standard_normal((12, 12)), rng.standard_normal((12, 3))
    first = {"k": KernelView(A @ A.T, eps=0.0)}
    second = {"k": KernelView(B @ B.T + 1e-3 * np.eye(12), eps=0.0)}
    earlier = fairnepv.select(first, 4, calibration="efficiency").calibration
    found = fairnepv.select(second, 4, calibration=earlier)
    assert fairnepv.exhaustive(second, 4, calibration=earlier).fair_score <= found.upper_bound
    assert fairnepv.verify_bound(second, found, calibration=earlier).holds


@pytest.mark.slow
def test_no_optimality_is_claimed_where_float64_cannot_see():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((20, 3))
    kernel = KernelView(A @ A.T + 1e-13 * np.eye(20), eps=0.0)
    found = fairnepv.select({"k": kernel}, 6, calibration="none", method="exact")
    assert found.status is Status.INEXACT
    assert found.proven is None


def test_a_selection_without_ids_is_included_by_its_rows():
    data = two_views(3)
    earlier = fairnepv.select(data, 3, effort="fast")
    ids = np.arange(40)[::-1].copy()  # ids that look like other rows
    found = fairnepv.select(data, 5, ids=ids, include=earlier, effort="fast")
    assert found.indices[:3].tolist() == earlier.indices.tolist()


def test_a_target_is_about_the_fair_score_alone():
    data = two_views(4)
    certificate = fairnepv.certify(data, 4)
    for method in ("a-only", "averaged", "auto", "exact"):
        found = fairnepv.select(data, 4, method=method, target_efficiency=0.8)
        reached = found.fair_score >= certificate.upper_bound + np.log(0.8) - 1e-9
        assert found.status is not Status.TARGET or reached, method


def test_eigenvalues_that_do_not_converge_are_computed_otherwise(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((12, 12))
    expected = HOST.leading(X @ X.T, 2)
    refused = []

    def fails(matrix, **_):
        refused.append(matrix)
        return np.zeros(12), np.zeros((12, 2)), 0, None, 1

    monkeypatch.setattr("fairnepv.compute.place.dsyevr", fails)
    lam, Y = HOST.leading(X @ X.T, 2)
    assert refused
    np.testing.assert_allclose(lam, expected[0], rtol=1e-10)
    np.testing.assert_allclose(np.abs(Y.T @ expected[1]), np.eye(2), atol=1e-8)


def test_exact_chooses_nearly_everything():
    """As deep as it gets: one level per item."""
    data = {"a": np.random.default_rng(6).standard_normal((120, 130))}
    found = fairnepv.select(data, 119, method="exact", effort="fast", certify=False)
    best = max(
        fairnepv.score(data, [j for j in range(120) if j != i]).fair_score for i in range(0, 120)
    )
    assert found.status is Status.OPTIMAL
    assert found.fair_score == pytest.approx(best, abs=1e-9)


def test_a_view_of_zeros_alone():
    found = fairnepv.select({"zero": np.zeros((12, 3))}, 2, calibration="none")
    assert found.fair_score == pytest.approx(np.log(0.1))


@pytest.mark.parametrize("k", [["3"], [None, 3], [[1], [2, 3]], [3, 3], [], "5", [0.1, 0.101]])
def test_sizes_that_are_none(k):
    with pytest.raises(InputError, match=r"^k |^k ="):
        fairnepv.select(two_views(7), k, effort="fast", certify=False)


def test_sizes_are_keyed_by_what_was_asked_for():
    found = fairnepv.select(
        two_views(8), [3, 5], include=[1, 2], include_counts=False, effort="fast", certify=False
    )
    assert {k: len(s.indices) for k, s in found.items()} == {3: 5, 5: 7}


@pytest.mark.parametrize("wrong", ["bound.npz", None, 3])
def test_what_is_no_certificate_cannot_be_verified(wrong):
    with pytest.raises(InputError, match="verify_bound needs a certificate"):
        fairnepv.verify_bound(two_views(9), wrong)


@pytest.mark.parametrize("gap", ["x", -1, 0])
def test_the_gap_of_a_comparison_is_checked(gap):
    with pytest.raises(InputError, match="gap"):
        fairnepv.compare(two_views(10), 3, gap=gap, methods=["greedy"])


def interrupt_after(monkeypatch, steps: int) -> None:
    """Ctrl-C in the bound's solver, once."""
    step, left = concave.Concave.step, [steps]

    def stop(self, state):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return step(self, state)

    monkeypatch.setattr(concave.Concave, "step", stop)


def test_an_interruption_while_views_are_calibrated_is_one(monkeypatch):
    """Rows are read by then, so that there is a set to return; a score has none."""
    interrupt_after(monkeypatch, 1)
    found = fairnepv.select(two_views(11), 4, calibration="efficiency")
    assert found.status is Status.INTERRUPTED
    assert len(set(found.indices.tolist())) == 4
    assert any("divides view" in note for note in found.notes)
    monkeypatch.undo()
    interrupt_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        fairnepv.score(two_views(11), [0, 1, 2, 3], calibration="efficiency")


def test_an_interruption_of_any_bound_is_said(monkeypatch):
    data = two_views(12)
    steps = len([r for r in _heard(data) if r.step > 0])  # of all three bounds
    interrupt_after(monkeypatch, steps)
    certificate = fairnepv.certify(data, 4)
    assert certificate.status is Status.INTERRUPTED
    assert certificate.notes


def _heard(data):
    heard = []
    fairnepv.certify(data, 4, progress=heard.append)
    return heard


def test_sizes_after_an_interruption_are_not_begun(monkeypatch):
    interrupt_after(monkeypatch, 1)
    found = fairnepv.select(two_views(13), [3, 5, 8])
    *_, last = found.values()
    assert last.status is Status.INTERRUPTED
    assert 8 not in found


@pytest.mark.parametrize("method", ["auto", "random"])
def test_ctrl_c_while_picks_are_put_into_order_is_heard(monkeypatch, method):
    """The run that orders them absorbs it, and the search is over: sizes and rows that wait for
    their turn were chosen all the same, and the last one was called optimal."""
    ordering = sys.modules["fairnepv.search.greedy"]  # the package has a function of that name

    def pressed(row):
        if row.step == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(ordering, "run", lambda search: run(search, progress=pressed))
    found = fairnepv.select(two_views(15), [3, 5, 8], method=method)
    assert {size: one.status for size, one in found.items()} == {3: Status.INTERRUPTED}
    assert "only the first 1 of 3 items are in the order" in " ".join(found[3].notes)
    rows = fairnepv.compare(two_views(15), 3, methods=[method, "a-only", "b-only"])
    assert [row.status for row in rows] == [Status.INTERRUPTED]


def test_stability_leaves_out_what_floors_make_impossible():
    data = two_views(14, 12)
    fair = fairnepv.select(data, 3)
    top = fairnepv.select(data, 3, method="a-only").scores["a"]
    found = fairnepv.select(data, 3, floors={"a": 0.5 * (fair.scores["a"] + top)})
    stable = fairnepv.stability(found, eps=(0.01,), tau=(2,), seeds=())
    assert len(stable.variants) <= 2
