"""Questions about a selection: each answer against dense loops, its symmetries, and bad input."""

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import cases
import fairnepv
import reference
from fairnepv import (
    DiagonalView,
    InputError,
    KernelView,
    LocalEngine,
    NumericalError,
    Selection,
    Status,
)
from fairnepv.api.grading import make_selection
from fairnepv.api.neighbours import usual_rows as _usual_rows
from fairnepv.data import paper_instance
from fairnepv.errors import TimeLimitError
from fairnepv.insight.floors import _settled
from fairnepv.methods import find
from fairnepv.problem import Constraints
from refusals import refused
from search_problems import (
    STORAGE,
    case_kernels,
    examples,
    kernels,
    obeys,
    pose,
    pose_case,
    random_rules,
    rules_of_each_kind,
)

SEEDS = st.integers(0, 10**6)
BY_CASE = pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
FAST: dict[str, Any] = {"certify": False, "effort": "fast"}
pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.errors.RankWarning")


def selected(problem: Any, S: Any) -> Selection:
    """The record of a given subset, without a search."""
    return make_selection(
        problem,
        np.asarray(S, dtype=np.int64),
        certificate=None,
        proven=None,
        settings={"method": "auto", "effort": "fast", "oversampling": 3.0},
        chosen_from={"n": problem.n},
        trace=(),
        status=Status.COMPLETE,
        seconds=0.0,
    )


def some_subset(case: cases.Case, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).permutation(len(case.views[0]))[: case.k].tolist()


def pool(seed: int = 0, n: int = 40, widths: tuple[int, ...] = (9, 7)) -> dict[str, np.ndarray]:
    views = cases.clustered_views(np.random.default_rng(seed), n, list(widths), 8)
    return {"text": views[0], "vision": views[1]}


def unit_kernels(data: dict[str, np.ndarray], eps: float = 0.1) -> list[np.ndarray]:
    return [reference.kernel(reference.unit_diagonal(view), eps) for view in data.values()]


def grams(views: Any) -> list[np.ndarray]:
    return [view @ view.T for view in views]


# --- The problem behind a selection ---------------------------------------------------------------


def results() -> dict[str, Any]:
    """One of every record that a user gets."""
    data = pool(n=12)
    found = fairnepv.select(data, 3)
    return {
        "selection": found,
        "score": fairnepv.score(data, [0, 1]),
        "optimum": fairnepv.exhaustive(data, 2),
        "comparison": fairnepv.compare(data, 3, methods=["greedy"], effort="fast"),
        "certificate": found.certificate,
        "proof": found.certificate.proof,
        "verified": fairnepv.verify_bound(data, found),
        "calibration": found.calibration,
        "plan": found.plan,
        "forecast": fairnepv.plan(data, 3),
        "relaxation": fairnepv.relax(data, 3),
        "assignment": fairnepv.assign(found),
        "explanation": fairnepv.explain(found),
        "difference": fairnepv.diff(found, found),
        "stability": fairnepv.stability(found, tau=(2,), eps=(), seeds=()),
        "curve": fairnepv.curve(data, 3),
        "tradeoff": fairnepv.tradeoff(data, 3, "text", points=2, **FAST),
        "pool": fairnepv.Pool.of(data),
    }


def test_results_can_be_compared_and_hashed():
    other = results()
    for name, one in results().items():
        assert one == one, name
        assert (one == other[name]) in (True, False), name
        assert len({one, one}) == 1, name
    assert one is not other[name]
    assert one != other[name]


LATE = {
    "coverage": lambda found: found.coverage,
    "isolated": lambda found: found.isolated,
    "neighbours": lambda found: found.neighbours(),
    "assign": fairnepv.assign,
    "explain": fairnepv.explain,
    "stability": lambda found: fairnepv.stability(found, tau=(2,), eps=(), seeds=()),
}


@pytest.mark.parametrize("question", LATE.values(), ids=LATE)
def test_arrays_that_were_overwritten_are_not_asked(question):
    data = pool()
    found = fairnepv.select(data, 4, **FAST)
    assert question(fairnepv.select(data, 4, **FAST)) is not None
    data["vision"][:] = data["vision"][::-1].copy()  # of the same norms
    with pytest.raises(InputError, match="view 'vision' has been overwritten"):
        question(found)


OVERWRITTEN = {
    "dense": lambda rows: (rows, rows),
    "transposed": lambda rows: ((held := np.asfortranarray(rows)), held),
    "sparse": lambda rows: ((held := sp.csr_array(rows)), held.data),
    "kernel": lambda rows: ((held := rows @ rows.T), held),
    "diagonal": lambda rows: ((held := np.abs(rows[:, 0])), held),
}


@pytest.mark.parametrize("kind", OVERWRITTEN)
def test_every_storage_knows_that_it_was_overwritten(kind):
    rows = pool()["text"]
    given_, held = OVERWRITTEN[kind](rows)
    wrap = {"kernel": KernelView, "diagonal": DiagonalView}.get(kind, lambda array: array)
    found = fairnepv.select({"a": wrap(given_), "b": pool(seed=1)["text"]}, 4, **FAST)
    held *= 2
    with pytest.raises(InputError, match="view 'a' has been overwritten"):
        _ = found.coverage


def test_a_row_between_the_remembered_ones_is_found_by_its_norm():
    data = pool(n=700)
    found = fairnepv.select(data, 4, **FAST)
    others = np.setdiff1d(np.arange(700), found.imprint.rows)
    data["text"][others[0]] *= 1.5
    for question in LATE.values():
        with pytest.raises(InputError, match="the data has been overwritten"):
            question(found)


def test_ids_that_were_overwritten_do_not_rename_rows():
    ids = np.array([f"item {row}" for row in range(40)])
    found = fairnepv.select(pool(n=40), 4, ids=ids, **FAST)
    before = fairnepv.explain(found).rival_ids
    ids[:] = ids[::-1].copy()
    assert fairnepv.explain(found).rival_ids == before


def test_a_stored_selection_says_that_its_data_was_overwritten():
    data = pool()
    found = fairnepv.select(data, 4, **FAST)
    data["text"][:] = 1.0
    stored = pickle.loads(pickle.dumps(found))
    assert stored.indices.tolist() == found.indices.tolist()
    assert any("has been overwritten" in note for note in stored.run_notes)


def test_a_relaxation_knows_that_its_data_was_overwritten():
    data = pool()
    found = fairnepv.relax(data, 3)
    data["text"][:] = data["text"][::-1].copy()
    for late in ("leverage", "basis"):
        with pytest.raises(InputError, match="view 'text' has been overwritten"):
            getattr(found, late)


def test_a_selection_knows_its_problem():
    result = fairnepv.select(pool(), 4, tau=0.2, exclude=[3], **FAST)
    assert (result.problem.k, result.problem.tau, result.problem.n) == (4, 0.2, 40)
    assert result.problem.constraints.fixed_out.tolist() == [3]
    assert "problem" not in repr(result)


def test_a_pickled_selection_does_not_carry_the_data():
    data = {"text": np.random.default_rng(0).normal(size=(4000, 50))}
    result = fairnepv.select(data, 3, **FAST)
    stored = pickle.dumps(result)
    assert len(stored) < 100_000  # the data has 1.6 MB
    back = pickle.loads(stored)
    assert back.problem is None
    assert result.problem is not None
    assert back.indices.tolist() == result.indices.tolist()
    assert back.scores == result.scores
    assert back.has_ids is result.has_ids is False


def test_ids_are_told_from_row_numbers_even_where_they_are_equal():
    named = fairnepv.select(pool(), 4, ids=np.arange(40), **FAST)
    assert named.ids.tolist() == named.indices.tolist()
    assert named.has_ids
    assert pickle.loads(pickle.dumps(named)).has_ids
    assert not fairnepv.select(pool(), 4, **FAST).has_ids


@pytest.mark.parametrize("question", [fairnepv.explain, fairnepv.assign, fairnepv.stability])
def test_what_needs_the_data_says_so(question):
    stored = pickle.loads(pickle.dumps(fairnepv.select(pool(), 4, **FAST)))
    with pytest.raises(InputError, match=f"{question.__name__} needs the data.*select again"):
        question(stored)
    for wrong in (None, [1, 2], fairnepv.score(pool(), [1, 2])):
        with pytest.raises(InputError, match="selection must be a Selection"):
            question(wrong)


# --- Isolated picks -------------------------------------------------------------------------------


@pytest.mark.sample
@BY_CASE
@pytest.mark.parametrize("storage", STORAGE)
def test_isolated_picks_by_loops(case, storage):
    problem = pose([STORAGE[storage](view) for view in case.views], case.k, case.tau, case.eps)
    S = some_subset(case)
    result = selected(problem, S)
    sample = _usual_rows(problem).tolist()
    assert sorted(sample) == list(range(problem.n))  # small pools are their own sample
    for view, found in zip(case.views, result.isolated.values(), strict=True):
        assert found.tolist() == reference.isolated(view @ view.T, S, sample)
    assert list(result.coverage.values()) == pytest.approx(
        [reference.coverage(view @ view.T, S) for view in case.views], abs=1e-9
    )


def lonely_pool(n: int = 300) -> dict[str, np.ndarray]:
    """Tight clusters in both views; rows 7 and 8 point into directions of their own in one."""
    views = cases.clustered_views(np.random.default_rng(1), n, [12, 10], 6, spread=0.05)
    text = np.hstack([views[0], np.zeros((n, 2))])
    text[7], text[8] = np.eye(14)[12], np.eye(14)[13]
    return {"text": text, "vision": views[1]}


def test_junk_is_flagged_and_named_in_a_note():
    data = lonely_pool()
    result = fairnepv.select(data, 8, include=[7, 8], **FAST)
    assert result.isolated["text"].tolist() == [0, 1]
    assert result.isolated["vision"].tolist() == []
    sample = _usual_rows(result.problem)
    assert len(set(sample.tolist())) == 64
    K = data["text"] @ data["text"].T
    assert result.isolated["text"].tolist() == reference.isolated(K, result.indices, sample)
    assert len(result.notes) == 1
    assert result.notes[0].startswith("2 picks are isolated in view 'text' (rows ")
    assert result.notes[0].endswith("quality=typicality(data)")


@pytest.mark.parametrize("missing", ["drop", "neutral"])
def test_rows_that_lack_a_view_do_not_tell_how_far_apart_rows_are(missing, tmp_path):
    data, lacking = lonely_pool(), np.arange(300) >= 60
    data["text"][lacking] = np.nan
    result = fairnepv.select(data, 8, include=[7, 8], missing=missing, **FAST)
    for name, rows in data.items():
        kept = np.flatnonzero(~lacking) if missing == "drop" or name == "text" else np.arange(300)
        place = {row: at for at, row in enumerate(kept.tolist())}
        sample = [place[row] for row in _usual_rows(result.problem).tolist() if row in place]
        known = [at for at, row in enumerate(result) if row in place]
        picks = [place[result[at]] for at in known]
        found = reference.isolated(rows[kept] @ rows[kept].T, picks, sample)
        assert result.isolated[name].tolist() == [known[j] for j in found]
    assert result.isolated["text"].tolist() == [0, 1]
    result.save(tmp_path / "found.npz")
    assert fairnepv.load(tmp_path / "found.npz").notes == result.notes


def test_the_note_names_ids_and_few_of_them():
    ids = np.array([f"item{i}" for i in range(300)])
    one = fairnepv.select(lonely_pool(), 8, ids=ids, include=["item7"], exclude=["item8"], **FAST)
    assert not one.notes  # a property makes no pass over the data
    one.neighbours()
    assert one.notes[0].startswith("1 pick is isolated in view 'text' (id item7): nothing")
    data = lonely_pool()
    data["text"] = np.hstack([data["text"], np.zeros((300, 9))])
    data["text"][20:29] = np.eye(23)[14:]
    many = fairnepv.select(data, 20, include=[7, 8, *range(20, 29)], **FAST)
    assert many.isolated["text"].tolist() == list(range(11))
    assert many.notes[-1].startswith(
        "11 picks are isolated in view 'text' (rows 7, 8, 20, 21, 22, "
    )
    assert "22, ...): nothing" in many.notes[-1]


def test_duplicates_are_not_isolated_by_their_rounding():
    rows = np.repeat(np.random.default_rng(3).normal(size=(30, 6)), 4, axis=0)
    result = fairnepv.select({"text": rows}, 5, **FAST)
    assert result.isolated["text"].tolist() == []


def test_isolation_does_not_depend_on_blocks():
    whole = fairnepv.select(lonely_pool(), 8, **FAST)
    parts = fairnepv.select(lonely_pool(), 8, engine=LocalEngine(7), **FAST)
    assert whole.coverage == parts.coverage
    assert whole.notes == parts.notes


# --- explain --------------------------------------------------------------------------------------


def check_explanation(result: Selection, Ls: list, tau: float, rules: Constraints) -> None:
    S, found = result.indices.tolist(), fairnepv.explain(result)
    F, values = reference.fair_score(Ls, S, tau), reference.swap_values(Ls, S, tau)
    for L, own in zip(Ls, found.contributions.values(), strict=True):
        assert own == pytest.approx(reference.contributions(L, S), abs=1e-8)
    for slot in range(len(S)):
        allowed = [
            row
            for row in range(len(Ls[0]))
            if row not in S and obeys(rules, [*S[:slot], row, *S[slot + 1 :]])
        ]
        if not allowed:
            assert found.rivals[slot] == -1
            assert found.rival_ids[slot] is None
            assert math.isnan(found.margins[slot])
            continue
        best = max(values[row, slot] for row in allowed)
        assert found.rivals[slot] in allowed
        assert values[found.rivals[slot], slot] == pytest.approx(best, abs=1e-8)
        assert found.margins[slot] == pytest.approx(F - best, abs=1e-8)


@pytest.mark.sample
@BY_CASE
@pytest.mark.parametrize("storage", STORAGE)
def test_explain_by_loops(case, storage):
    problem = pose([STORAGE[storage](view) for view in case.views], case.k, case.tau, case.eps)
    result = selected(problem, some_subset(case))
    check_explanation(result, case_kernels(case), case.tau, Constraints())


@pytest.mark.parametrize("kind", rules_of_each_kind(14, 4))
def test_rivals_obey_the_rules(kind):
    case = next(case for case in cases.SMALL if case.name == "clusters")
    rules = rules_of_each_kind(14, 4)[kind]
    S = next(S for S in np.ndindex(*[14] * 4) if obeys(rules, S))
    result = selected(pose_case(case, rules=rules, block=3), list(S))
    check_explanation(result, case_kernels(case), case.tau, rules)


@given(SEEDS)
@examples(25)
def test_rivals_obey_random_rules(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(5, 10)), int(rng.integers(1, 4))
    views = cases.random_views(rng, n, [3, 4])
    rules = random_rules(rng, n, k)
    S = next(S for S in np.ndindex(*[n] * k) if obeys(rules, S))
    problem = pose(views, k, 0.1, (0.1, 0.2), rules=rules)
    check_explanation(selected(problem, S), kernels(views, (0.1, 0.2)), 0.1, rules)


def test_tied_rivals_go_to_the_lowest_row():
    row = np.random.default_rng(0).normal(size=(6, 5))
    row[4] *= 9  # nobody else is a rival
    views = [np.vstack([row, row[4], row[4]])]  # rows 4, 6 and 7 are one
    found = fairnepv.explain(selected(pose(views, 2, 0.1, (0.1,)), [0, 1]))
    values = reference.swap_values(kernels(views, (0.1,)), [0, 1], 0.1)
    for slot in range(2):
        tied = np.flatnonzero(values[:, slot] >= values[:, slot].max() - 1e-10)
        assert found.rivals[slot] == tied[0]
    assert found.rivals.tolist() == [4, 4]


def test_contributions_contain_the_factor_of_a_calibration():
    data, factors = pool(), {"text": 2.0, "vision": 0.5}
    result = fairnepv.select(data, 4, calibration=factors, **FAST)
    Ls = [
        c * reference.kernel(view, 0.1)
        for c, view in zip(factors.values(), data.values(), strict=True)
    ]
    check_explanation(result, Ls, 0.05, Constraints())


def test_margins_know_priorities():
    data, priorities = pool(), {"text": 0.9, "vision": 0.1}
    result = fairnepv.select(data, 4, priorities=priorities, **FAST)
    found, S = fairnepv.explain(result), result.indices.tolist()
    for slot, rival in enumerate(found.rivals):
        swapped = fairnepv.score(
            data, [*S[:slot], int(rival), *S[slot + 1 :]], priorities=priorities
        )
        assert found.margins[slot] == pytest.approx(
            result.fair_score - swapped.fair_score, abs=1e-9
        )


@pytest.mark.slow
def test_a_rival_that_misses_a_floor_is_none():
    data = pool()
    free = fairnepv.select(data, 4, certify=False)
    best = fairnepv.select(data, 4, method="text-only", certify=False)
    floor = {"text": best.scores["text"]}
    result = fairnepv.select(data, 4, floors=floor, certify=False)
    assert result.status.ok
    assert (fairnepv.explain(free).rivals >= 0).all()
    assert (fairnepv.explain(result).rivals == -1).all()  # nothing else reaches the top
    low = fairnepv.select(data, 4, floors={"text": -9.0}, certify=False)
    assert fairnepv.explain(low).margins == pytest.approx(fairnepv.explain(free).margins)


def test_a_missed_floor_puts_no_price_on_margins():
    data = pool()
    floors = {"vision": fairnepv.select(data, 4, certify=False).scores["vision"]}
    problem = fairnepv.select(data, 4, floors=floors, certify=False).problem
    missed = selected(problem, [0, 1, 2, 3])
    margins = fairnepv.explain(missed).margins
    assert (np.nan_to_num(np.abs(margins)) < 10).all()


def test_a_swap_optimum_has_no_negative_margin():
    found = fairnepv.explain(fairnepv.select(pool(), 5, certify=False))
    assert found.margins.min() >= -1e-9
    greedy = selected(pose(list(pool().values()), 5, 0.05, (0.1, 0.1)), range(5))
    assert fairnepv.explain(greedy).margins.min() < 0  # the first rows are no optimum


def test_records_are_plain():
    ids = [f"item{i}" for i in range(40)]
    result = fairnepv.select(pool(), 4, ids=ids, include=["item3"], **FAST)
    rows = json.loads(json.dumps(fairnepv.explain(result).rows(), allow_nan=False))
    assert [row["id"] for row in rows] == result.ids.tolist()
    assert [row["row"] for row in rows] == result.indices.tolist()
    assert [row["order"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["id"] == "item3"
    assert (rows[0]["rival_row"], rows[0]["rival_id"], rows[0]["margin"]) == (None, None, None)
    assert list(rows[1]["contributions"]) == ["text", "vision"]
    for row in rows[1:]:
        assert row["rival_id"] == f"item{row['rival_row']}"
        assert row["margin"] is not None


@pytest.mark.parametrize(("scale", "ridge"), [(1.0, 1e-8), (1.0, 1e-11), (3e3, 0.1)])
def test_margins_where_k_exceeds_the_rank_of_a_view(scale, ridge):
    rng = np.random.default_rng(1)
    views, eps = [scale * rng.normal(size=(20, p)) for p in (4, 3)], (ridge, ridge)
    result = selected(pose(views, 7, 0.1, eps), range(7))
    found, F = fairnepv.explain(result), reference.row_scores(views, eps, range(7))
    best = reference.row_swap_values(views, eps, range(7), 0.1).max(axis=0)
    assert found.margins == pytest.approx(reference.soft_min(F, 0.1) - best, abs=1e-9)
    for q, own in enumerate(found.contributions.values()):
        for slot in range(7):
            rest = [j for j in range(7) if j != slot]
            without = 6 * reference.row_scores(views, eps, rest)[q]
            assert own[slot] == pytest.approx(7 * F[q] - without, abs=1e-8)


def test_a_singular_selection_cannot_be_explained():
    twice = [np.array([[2.0, 0.0], [2.0, 0.0], [1.0, 1.0]])]  # no rounding in 4 - 4
    result = selected(pose(twice, 2, 0.1, (1e-30,)), [0, 1])
    with pytest.raises(NumericalError, match="raise eps"):
        fairnepv.explain(result)


# --- assign ---------------------------------------------------------------------------------------


def check_assignment(result: Selection, Ks: list) -> None:
    S, found = result.indices.tolist(), fairnepv.assign(result)
    expected = reference.assignment(Ks, S)
    assert found.pick.tolist() == [place for place, _ in expected]
    assert found.similarity == pytest.approx([value for _, value in expected], abs=1e-9)
    assert found.counts.tolist() == [
        sum(place == j for place, _ in expected) for j in range(len(S))
    ]
    assert found.weights == pytest.approx(found.counts * len(S) / len(Ks[0]))
    assert found.weights.mean() == pytest.approx(1.0)
    assert (found.similarity <= 1.0).all()


@pytest.mark.sample
@BY_CASE
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("block", [None, 3])
def test_assign_by_loops(case, storage, block):
    views = [STORAGE[storage](view) for view in case.views]
    problem = pose(views, case.k, case.tau, case.eps, block=block)
    check_assignment(selected(problem, some_subset(case)), grams(case.views))


def test_a_pick_stands_for_itself_even_beside_its_duplicate():
    views = cases.with_duplicates(cases.random_views(np.random.default_rng(0), 9, [4, 3]), [(2, 7)])
    result = selected(pose(views, 3, 0.1, (0.1, 0.1)), [7, 2, 5])
    found = fairnepv.assign(result)
    assert found.pick[[7, 2, 5]].tolist() == [0, 1, 2]
    rest = selected(pose(views, 3, 0.1, (0.1, 0.1)), [2, 0, 5])
    assert fairnepv.assign(rest).pick[7] == 0  # the duplicate that was not picked


@given(SEEDS)
@examples(25)
def test_assignments_follow_their_rows(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 12))
    k = int(rng.choice([1, n - 1, 2]))
    views = cases.random_views(rng, n, [4, 3])
    order, S = rng.permutation(n), rng.permutation(n)[:k]
    at = np.argsort(order)  # row i of the pool is row at[i] of the shuffled one
    plain = fairnepv.assign(selected(pose(views, k, 0.1, (0.1, 0.1)), S))
    shuffled = pose([view[order] for view in views], k, 0.1, (0.1, 0.1))
    moved = fairnepv.assign(selected(shuffled, at[S]))
    assert moved.pick[at].tolist() == plain.pick.tolist()
    assert moved.similarity[at] == pytest.approx(plain.similarity, abs=1e-9)


def test_quality_and_calibration_move_no_cosine():
    data = pool()
    quality = np.random.default_rng(0).uniform(0.1, 2, size=40)
    quality[[3, 11]] = 0.0  # which makes zeros of the rows of the kernel, not of the data
    result = fairnepv.select(data, 4, quality=quality, calibration="trace", **FAST)
    check_assignment(result, grams(data.values()))


def test_ties_by_rounding_go_to_the_earlier_pick():
    rows = np.random.default_rng(0).normal(size=(400, 37))
    rows[:4] = rows[0] * np.array([[1.0], [7.3], [0.1], [3e-5]])
    result = selected(pose([rows], 4, 0.1, (0.1,)), [2, 1, 3, 0])
    assert set(fairnepv.assign(result).pick.tolist()) == {0, 1, 2, 3}
    assert fairnepv.assign(result).pick[4:].tolist() == [0] * 396


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    passes: list[str] = []
    for name in ("map", "reduce"):

        def counted(self: Any, *given_: Any, _name: str = name, **options: Any) -> Any:
            passes.append(_name)
            return originals[_name](self, *given_, **options)

        monkeypatch.setattr(LocalEngine, name, counted)
    return passes


originals = {"map": LocalEngine.map, "reduce": LocalEngine.reduce}


def test_explain_looks_at_norms_and_swaps_once_and_assign_at_the_rows(monkeypatch):
    result = fairnepv.select(pool(), 4, **FAST)
    passes = count_passes(monkeypatch)
    fairnepv.explain(result)
    assert passes == ["map", "reduce"]  # and keep no table of (n, M, k) numbers
    fairnepv.assign(result)
    assert passes == ["map", "reduce", "map"]


def test_a_selection_looks_around_once(monkeypatch):
    problem = pose(list(pool().values()), 4, 0.1, (0.1, 0.1))
    passes = count_passes(monkeypatch)
    selection = selected(problem, [1, 2, 3, 4])
    assert passes == []  # nobody has asked yet
    assert selection.coverage
    assert selection.isolated
    assert selection.notes is not None
    assert passes == ["reduce"]  # coverage and isolation together


# --- diff -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_difference_by_hand():
    data = pool()
    a = fairnepv.select(data, 6)
    b = fairnepv.select(data, 5, exclude=a.indices[:2])
    found = fairnepv.diff(a, b)
    S, T = a.indices.tolist(), b.indices.tolist()
    assert found.common.tolist() == [i for i in S if i in T]
    assert found.only_a.tolist() == [i for i in S if i not in T]
    assert found.only_b.tolist() == [i for i in T if i not in S]
    assert set(a.indices[:2].tolist()) <= set(found.only_a.tolist())
    assert found.jaccard == pytest.approx(len(set(S) & set(T)) / len(set(S) | set(T)))
    assert found.score_changes == {name: b.scores[name] - a.scores[name] for name in data}
    assert found.fair_score_change == b.fair_score - a.fair_score
    assert found.upper_bound_change == b.upper_bound - a.upper_bound
    assert found.notes == ("k is 6 in a and 5 in b, so their scores are on different scales",)


def test_nothing_differs_from_itself():
    a = fairnepv.select(pool(), 6, **FAST)
    found = fairnepv.diff(a, a)
    assert found.jaccard == 1.0
    assert found.common.tolist() == a.indices.tolist()
    assert (len(found.only_a), len(found.only_b)) == (0, 0)
    assert found.upper_bound_change is None
    assert found.notes == ()


def test_items_are_told_apart_by_id_where_both_have_ids():
    data, order = pool(), np.random.default_rng(5).permutation(40)
    shuffled = {name: view[order] for name, view in data.items()}
    a = fairnepv.select(data, 6, ids=np.arange(40), **FAST)
    b = fairnepv.select(shuffled, 6, ids=order, include=a.ids[:4], exclude=a.ids[4:], **FAST)
    found = fairnepv.diff(pickle.loads(pickle.dumps(a)), b)
    assert found.common.tolist() == a.ids[:4].tolist()
    assert found.only_a.tolist() == a.ids[4:].tolist()
    assert found.only_b.tolist() == b.ids[4:].tolist()
    unnamed = fairnepv.select(data, 6, include=a.indices[:4], exclude=a.indices[4:], **FAST)
    assert fairnepv.diff(a, unnamed).common.tolist() == a.indices[:4].tolist()
    assert fairnepv.diff(b, unnamed).common.tolist() == [
        i for i in b.indices.tolist() if i in unnamed.indices
    ]  # row numbers, since one of the two has nothing else


def test_differences_that_cannot_be_told():
    a = fairnepv.select(pool(), 4, **FAST)
    with pytest.raises(InputError, match="a was chosen from 40 items and b from 41"):
        fairnepv.diff(a, fairnepv.select(pool(n=41), 4, **FAST))
    with pytest.raises(InputError, match="same views"):
        fairnepv.diff(a, fairnepv.select(list(pool().values()), 4, **FAST))
    with pytest.raises(InputError, match="b must be a Selection"):
        fairnepv.diff(a, a.indices)
    numbers = fairnepv.select(pool(), 4, ids=np.arange(40), **FAST)
    words = fairnepv.select(pool(), 4, ids=[f"i{i}" for i in range(40)], **FAST)
    with pytest.raises(InputError, match="use one type"):
        fairnepv.diff(numbers, words)


# --- stability ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_variants_are_what_select_finds_under_those_knobs():
    data = pool()
    original = fairnepv.select(data, 5, tau=0.1, eps=0.2, certify=False)
    found = fairnepv.stability(original, tau=(0.1, 30), eps=(50,), seeds=(7,))
    assert [v.name for v in found.variants] == ["tau x 0.1", "tau x 30", "eps x 50", "seed 7"]
    assert [dict(v.change) for v in found.variants] == [
        {"tau": 0.1},
        {"tau": 30.0},
        {"eps": 50.0},
        {"seed": 7},
    ]
    again = [
        fairnepv.select(data, 5, tau=0.01, eps=0.2, certify=False),
        fairnepv.select(data, 5, tau=3.0, eps=0.2, certify=False),
        fairnepv.select(data, 5, tau=0.1, eps=10.0, certify=False),
        fairnepv.select(data, 5, tau=0.1, eps=0.2, certify=False, random_state=7),
    ]
    Ls, S = unit_kernels(data, 0.2), set(original.indices.tolist())
    shared = S
    for variant, expected in zip(found.variants, again, strict=True):
        T = set(expected.indices.tolist())
        assert set(variant.indices.tolist()) == T
        assert variant.jaccard == pytest.approx(len(S & T) / len(S | T))
        assert variant.fair_score == pytest.approx(reference.fair_score(Ls, sorted(T), 0.1))
        assert variant.fair_score <= original.fair_score + 1e-9
        shared = shared & T
    assert min(v.jaccard for v in found.variants) < 1  # or the test sees nothing
    assert set(found.core.tolist()) == shared
    assert found.core.tolist() == [i for i in original.indices.tolist() if i in shared]
    assert found.status is Status.COMPLETE
    counts = [sum(i in v.indices for v in found.variants) for i in original.indices]
    assert found.kept.tolist() == [count / 4 for count in counts]


def test_effort_and_method_are_those_of_the_selection_unless_given():
    data = pool(n=60)
    random = fairnepv.select(data, 5, method="random", certify=False)
    found = fairnepv.stability(random, tau=(), eps=(), seeds=(3,))
    expected = fairnepv.select(data, 5, method="random", random_state=3, certify=False)
    assert set(found.variants[0].indices.tolist()) == set(expected.indices.tolist())
    greedy = fairnepv.select(data, 8, certify=False, effort="fast")
    hasty = fairnepv.stability(greedy, tau=(), eps=(), seeds=(0,))
    assert hasty.variants[0].jaccard == 1.0
    better = fairnepv.stability(greedy, tau=(), eps=(), seeds=(0,), effort="balanced")
    assert better.variants[0].fair_score > greedy.fair_score


UNCHANGED: dict[str, Any] = {"tau": (1,), "eps": (1,), "seeds": (0,)}
PLANS: dict[str, dict[str, Any]] = {
    "hierarchical": {"hierarchical": 4, **FAST},
    "nodes": {"method": "exact", "node_limit": 1, **FAST},
    "target": {"target_efficiency": 0.5},
    "oversampling": {"method": "nepv", "oversampling": 1, **FAST},
    "baseline": {"method": "random", "random_state": 0, **FAST},
}


@pytest.mark.parametrize("options", PLANS.values(), ids=PLANS)
def test_an_unchanged_selection_is_as_stable_as_can_be(options):
    found = fairnepv.select(pool(n=24), 3, **options)
    again = fairnepv.stability(found, **UNCHANGED)
    assert [v.jaccard for v in again.variants] == [1.0] * 3
    assert {v.status for v in again.variants[:1]} == {found.status}
    assert found.plan is not None
    assert fairnepv.stability(found, effort="fast", **UNCHANGED).status is Status.COMPLETE


def test_pools_are_searched_again_with_the_effort_they_had(monkeypatch):
    found = fairnepv.select(pool(n=16), 3, certify=False)
    efforts = []
    monkeypatch.setattr(
        "fairnepv.api.search.find",
        lambda problem, plan, session, find=find: (
            efforts.append(plan.effort) or find(problem, plan, session)
        ),
    )
    fairnepv.stability(found, **UNCHANGED)
    fairnepv.stability(found, effort="fast", **UNCHANGED)
    assert [e.name for e in efforts[::3]] == ["balanced", "fast"]


def test_a_variant_has_as_long_as_the_selection_had():
    found = fairnepv.select(pool(), 5, time_limit=100, **FAST)
    hurried = replace(found, plan=replace(found.plan, time_limit=1e-9))
    variants = fairnepv.stability(hurried, **UNCHANGED).variants
    assert {v.status for v in variants} == {Status.TIME_LIMIT}


def test_variants_that_miss_the_floors_are_named():
    data = pool(n=8)
    fair = fairnepv.select(data, 2, method="exact", **FAST)
    floors = {"text": fair.scores["text"]}
    found = fairnepv.select(data, 2, method="exact", floors=floors, **FAST)
    with pytest.raises(InputError, match=r"no variant to compare: eps x 0\.01 is left out.*floor"):
        fairnepv.stability(found, eps=(0.01,), tau=(), seeds=())
    some = fairnepv.stability(found, eps=(0.01,), tau=(2,), seeds=())
    assert [v.name for v in some.variants] == ["tau x 2"]
    assert len(some.notes) == 1


def test_a_ridge_of_zero_stays_zero():
    result = fairnepv.select(paper_instance(), 5, tau=0.15, calibration="none", certify=False)
    found = fairnepv.stability(result, tau=(), eps=(2,), seeds=())
    assert found.variants[0].fair_score == pytest.approx(cases.PAPER_OPTIMUM, abs=1e-9)


def test_progress_hears_of_every_variant():
    heard = []
    result = fairnepv.select(pool(), 4, **FAST)
    found = fairnepv.stability(result, progress=heard.append)
    assert [step.details["variant"] for step in heard] == [v.name for v in found.variants]
    assert [step.objective for step in heard] == [v.fair_score for v in found.variants]
    assert [(step.details["size"], step.details["of"]) for step in heard] == [
        (i, 6) for i in range(1, 7)
    ]


def test_an_interruption_keeps_what_is_there():
    def interrupt(step: Any) -> None:
        if step.details["size"] == 2:
            raise KeyboardInterrupt

    found = fairnepv.stability(fairnepv.select(pool(), 4, **FAST), progress=interrupt)
    assert len(found.variants) == 2
    assert found.status is Status.INTERRUPTED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tau": 2}, "tau must be a list"),
        ({"eps": "ab"}, "eps must be a list"),
        ({"tau": (0,)}, "a factor on tau must be a finite positive number"),
        ({"eps": (math.inf,)}, "a factor on eps must be a finite positive number"),
        ({"seeds": (1.5,)}, "random_state must be a non-negative integer"),
        ({"tau": (), "eps": (), "seeds": ()}, "nothing to vary"),
        ({"effort": "lazy"}, "effort must be one of"),
        ({"progress": 3}, "progress must be"),
    ],
)
def test_bad_options_of_stability(options, words):
    with pytest.raises(InputError, match=words):
        fairnepv.stability(fairnepv.select(pool(), 4, **FAST), **options)


# --- curve ----------------------------------------------------------------------------------------


def test_every_prefix_is_scored_by_the_one_function():
    data = pool()
    found = fairnepv.curve(data, 12, tau=0.1)
    assert found.sizes.tolist() == list(range(1, 13))
    Ls = unit_kernels(data)
    assert found.indices.tolist() == reference.fair_greedy(Ls, 12, 0.1)
    for size, fair, *d in zip(found.sizes, found.fair_scores, *found.scores.values(), strict=True):
        score = fairnepv.score(data, found.indices[:size], tau=0.1)
        assert fair == pytest.approx(score.fair_score, abs=1e-10)
        assert d == pytest.approx(list(score.scores.values()), abs=1e-10)
    assert found.bounds == {}
    assert found.status is Status.COMPLETE


@pytest.mark.parametrize("storage", STORAGE)
def test_curves_of_every_storage(storage):
    views = cases.random_views(np.random.default_rng(2), 12, [5, 4])
    stored = [STORAGE[storage](view) for view in views]
    options: dict[str, Any] = {"calibration": "none", "priorities": {"view0": 0.8, "view1": 0.2}}
    found = fairnepv.curve(stored, **options)
    assert found.sizes.tolist() == list(range(1, 12))  # up to n - 1
    for size, fair in zip(found.sizes, found.fair_scores, strict=True):
        expected = fairnepv.score(views, found.indices[:size], **options).fair_score
        assert fair == pytest.approx(expected, abs=1e-8)


def test_chosen_sizes_and_the_reach():
    data = pool()
    assert fairnepv.curve(data).sizes.tolist() == list(range(1, 40))
    assert fairnepv.curve(data, 0.25).sizes[-1] == 10
    assert fairnepv.curve(data, exclude=list(range(30))).sizes[-1] == 10
    assert fairnepv.curve(pool(n=150)).sizes[-1] == 100
    whole, some = fairnepv.curve(data, 12), fairnepv.curve(data, sizes=[12, 3, 7])
    assert some.sizes.tolist() == [3, 7, 12]
    assert some.fair_scores.tolist() == whole.fair_scores[[2, 6, 11]].tolist()
    assert some.scores["text"].tolist() == whole.scores["text"][[2, 6, 11]].tolist()


def test_included_items_come_first_and_begin_the_curve():
    ids = np.array([f"i{i}" for i in range(40)])
    found = fairnepv.curve(pool(), 6, ids=ids, include=["i9", "i4"])
    assert found.sizes.tolist() == [2, 3, 4, 5, 6]
    assert found.ids[:2].tolist() == ["i9", "i4"]
    assert found.ids.tolist() == ids[found.indices].tolist()
    first = fairnepv.score(pool(), [9, 4])
    assert found.fair_scores[0] == pytest.approx(first.fair_score, abs=1e-10)
    chosen = fairnepv.select(pool(), 3, **FAST)
    assert fairnepv.curve(pool(), 6, include=chosen).sizes[0] == 3


def test_bounds_bound_and_are_those_of_certify():
    data = pool()
    found = fairnepv.curve(data, 20, bounds=True)
    assert list(found.bounds) == [1, 6, 11, 15, 20]
    named = fairnepv.curve(data, sizes=[4, 6], bounds=True)
    assert list(named.bounds) == [4, 6]
    for size, bound in named.bounds.items():
        assert bound == pytest.approx(fairnepv.certify(data, size).upper_bound, abs=1e-6)
        best = fairnepv.select(data, size, certify=False).fair_score
        assert best <= bound + 1e-9
        assert bound - best < 0.2


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12))
@examples(60)
def test_the_knee_is_farthest_from_the_chord(values):
    sizes = np.cumsum(np.arange(1, len(values) + 1))
    found = bare_curve(sizes, values)
    expected = reference.knee(sizes.tolist(), values)
    share = (sizes - sizes[0]) / (sizes[-1] - sizes[0])
    bends = np.abs(np.array(values) - (1 - share) * values[0] - share * values[-1])
    if bends.max() <= 1e-9:
        assert found.knee in (None, expected)
    else:
        assert found.knee is not None
        assert bends[list(sizes).index(found.knee)] == pytest.approx(max(bends), abs=1e-9)


def bare_curve(sizes: Any, values: Any) -> Any:
    sizes = np.asarray(sizes)
    return fairnepv.Curve(
        "diverse", sizes, np.asarray(values, dtype=float), {}, {}, sizes, sizes, Status.COMPLETE
    )


def test_knees_by_hand():
    assert bare_curve([1, 2, 3, 4, 5], [0, -1, -1.1, -1.2, -1.3]).knee == 2  # below the chord
    assert bare_curve([1, 2, 3, 4, 5], [0, 0, 0, -0.1, -1.3]).knee == 4  # above it
    assert bare_curve([1, 2, 3, 4], [0, 1, 1, 0]).knee == 2  # of two the smaller
    assert bare_curve([1, 2, 3], [0, -1, -2]).knee is None
    assert bare_curve([1, 5], [0, -1]).knee is None


def test_the_largest_size_with_a_score():
    found = bare_curve([2, 4, 6, 8], [0.5, 0.1, 0.3, -1.0])
    assert found.largest_with(fair_score=0.3) == 6
    assert found.largest_with(fair_score=0.31) == 2
    assert found.largest_with(fair_score=-7) == 8
    assert found.largest_with(fair_score=0.6) is None
    assert found.smallest_with(fair_score=0.2) == 2
    assert found.smallest_with(fair_score=0.6) is None
    for wrong in ("a", None, True):
        with pytest.raises(InputError, match="fair_score must be a number"):
            found.largest_with(fair_score=wrong)


def test_a_calibration_from_a_result_has_a_curve():
    data = pool()
    record = fairnepv.select(data, 5, calibration="efficiency", **FAST).calibration
    found = fairnepv.curve(data, 6, calibration=record)
    expected = fairnepv.score(data, found.indices, calibration=record).fair_score
    assert found.fair_scores[-1] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"calibration": "efficiency"}, "'efficiency' scales views.*one k"),
        ({"groups": ["a"] * 40}, "groups belong to one size"),
        ({"floors": {"text": 0.0}}, "floors belong to one size"),
        ({"include_counts": False, "include": [1]}, "leave include_counts out"),
        ({"k_max": 40}, "k must be from 1 to n - 1 = 39"),
        ({"k_max": "many"}, "k must be an integer"),
        ({"sizes": [0, 3]}, "sizes must be from 1 to 3, but they reach from 0"),
        ({"sizes": [3, 50]}, "n - 1 = 39, not 50"),
        ({"sizes": [3, 9], "k_max": 8}, "sizes must be from 1 to 8"),
        ({"sizes": [2], "include": [1, 2, 3], "k_max": 5}, "sizes must be from 3 to 5"),
        ({"sizes": []}, "sizes must be a list of whole numbers"),
        ({"sizes": 5}, "sizes must be a list of whole numbers"),
        ({"sizes": [1.5]}, "sizes must be a list of whole numbers"),
        ({"include": [1, 2, 3], "k_max": 2}, "include has 3 items, but k is only 2"),
        ({"include": [[1], [2, 3]]}, "include cannot be read"),
        ({"tau": -1}, "tau must be"),
        ({"progress": 1}, "progress must be"),
    ],
)
def test_bad_arguments_of_curve(arguments, words):
    with pytest.raises(InputError, match=words):
        fairnepv.curve(pool(), **arguments)


# --- tradeoff -------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("view", ["text", "vision"])
def test_a_tradeoff_goes_from_fair_to_selfish(view):
    data = pool(n=18)
    other = "vision" if view == "text" else "text"
    found = fairnepv.tradeoff(data, 4, view, points=5, certify=False)
    fair = fairnepv.select(data, 4, certify=False)
    own = fairnepv.select(data, 4, method=f"{view}-only", certify=False)
    assert found.view == view
    assert found.floors == pytest.approx(np.linspace(fair.scores[view], own.scores[view], 5))
    assert (found.scores[view] >= found.floors - 1e-8).all()
    assert found.fair_scores[0] >= fair.fair_score
    assert (np.diff(found.fair_scores) <= 1e-9).all()
    assert found.scores[other][-1] < found.scores[other][0]
    assert found.scores[view][-1] == pytest.approx(own.scores[view], abs=1e-6)
    assert found.notes == ()
    for floor, point in zip(found.floors[1:], found.selections[1:], strict=True):
        assert point.settings["floors"] == {view: pytest.approx(floor)}
        best = fairnepv.exhaustive(data, 4, floors={view: floor})
        assert point.fair_score <= best.fair_score + 1e-9
        assert point.fair_score >= best.fair_score - 0.1


def test_a_better_set_under_a_higher_floor_stands_for_the_lower_ones():
    data = pool()
    low = fairnepv.select(data, 5, method="random")
    high = fairnepv.select(data, 5, floors={"text": -9.0})
    top = fairnepv.select(data, 5, method="random", random_state=1)
    assert high.fair_score > max(low.fair_score, top.fair_score)
    first, second, third = _settled([low, high, top])
    assert second is high
    assert third is top
    assert first.indices.tolist() == high.indices.tolist()
    assert first.fair_score == high.fair_score
    assert first.settings is low.settings
    assert first.certificate is low.certificate
    assert first.problem is low.problem


@pytest.mark.slow
def test_a_poor_start_of_the_curve_is_replaced(monkeypatch):
    def poor(data: Any, k: Any, **options: Any) -> Any:
        fair = options.get("floors") is None and "method" not in options
        return fairnepv.select(data, k, **{**options, **({"method": "random"} if fair else {})})

    monkeypatch.setattr("fairnepv.insight.floors.select", poor)
    found = fairnepv.tradeoff(pool(), 5, "text", points=3, certify=False)
    assert (np.diff(found.fair_scores) <= 1e-9).all()


@pytest.mark.slow
def test_floors_hold_even_where_a_search_ran_out_of_time(monkeypatch):
    def hurried(data: Any, k: Any, **options: Any) -> Any:
        limit = None if options.get("floors") is None else 1e-9
        return fairnepv.select(data, k, **{**options, "time_limit": limit})

    monkeypatch.setattr("fairnepv.insight.floors.select", hurried)
    found = fairnepv.tradeoff(pool(), 5, "text", points=4, certify=False)
    assert (found.scores["text"] >= found.floors - 1e-8).all()
    assert len(found.floors) < 4
    assert Status.FLOORS_MISSED.value in found.notes[0]


@pytest.mark.slow
def test_calibration_is_made_once():
    data = pool(n=30)
    found = fairnepv.tradeoff(data, 4, "text", points=3, calibration="efficiency", certify=False)
    made, *others = (point.calibration for point in found.selections)
    assert all(other.evidence is made.evidence for other in others)  # which a bound has proven


def test_floors_out_of_reach_end_the_curve():
    data = pool(n=30)
    best = fairnepv.select(data, 4, method="vision-only", certify=False).scores["vision"]
    found = fairnepv.tradeoff(
        data, 4, "text", points=4, floors={"vision": best - 1e-3}, certify=False
    )
    assert 1 <= len(found.selections) == len(found.floors) < 4
    assert found.notes[0].startswith("the curve ends before floors {'vision': ")
    assert all(point.scores["vision"] >= best - 1e-3 - 1e-8 for point in found.selections)


@pytest.mark.parametrize("ending", ["while rows are read", "in its search", "out of time"])
@pytest.mark.parametrize("turn", [1, 2])
def test_a_selection_that_is_cut_short_leaves_those_before_it(monkeypatch, turn, ending):
    """The second is the view's own optimum, the third the first above the fair one."""
    made = []

    def cut(data: Any, k: Any, **options: Any) -> Any:
        made.append(options)
        if len(made) <= turn:
            return fairnepv.select(data, k, **options)
        if ending == "out of time":
            raise TimeLimitError("time_limit is over")
        if ending == "while rows are read":
            raise KeyboardInterrupt
        return replace(fairnepv.select(data, k, **options), status=Status.INTERRUPTED)

    monkeypatch.setattr("fairnepv.insight.floors.select", cut)
    found = fairnepv.tradeoff(pool(), 5, "text", points=4, **FAST)
    assert len(made) == turn + 1
    assert len(found.selections) == len(found.floors) == 1
    assert found.notes[0].startswith("the curve ends ")
    assert found.notes[0].endswith(("interrupted; this is the best so far", "time_limit is over"))


def test_a_view_that_has_nothing_to_gain():
    rows = cases.random_views(np.random.default_rng(0), 12, [5])[0]
    found = fairnepv.tradeoff({"text": rows, "copy": rows}, 3, "copy", certify=False)
    assert len(found.floors) == len(found.selections) == 1
    assert "as good in the fair selection" in found.notes[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"view": "sound"}, r"view must be one of \['text', 'vision'\], not 'sound'"),
        ({"view": ["text"]}, "view must be one of"),
        ({"points": 1}, "points must be at least 2"),
        ({"points": 2.5}, "points must be a whole number"),
        ({"k": [2, 3]}, "k must be one size"),
        ({"floors": {"text": 0.0}}, "floors must map other views"),
        ({"floors": 0.3}, "floors must map other views"),
        ({"k": 100}, "k must be from 1 to"),
        ({"effort": "lazy"}, "effort must be one of"),
    ],
)
def test_bad_arguments_of_tradeoff(arguments, words):
    given_ = {"k": 4, "view": "text", **arguments}
    with pytest.raises(InputError, match=words):
        fairnepv.tradeoff(pool(), **given_)


def test_one_view_has_nothing_to_trade():
    with pytest.raises(InputError, match="at least two views"):
        fairnepv.tradeoff({"text": pool()["text"]}, 4, "text")


# --- extend ---------------------------------------------------------------------------------------


def test_old_picks_are_kept_and_the_rest_is_what_select_adds():
    data, more = pool(n=60), 4
    old_rows = {name: view[:40] for name, view in data.items()}
    priorities = {"text": 0.7, "vision": 0.3}
    old = fairnepv.select(
        old_rows, 5, tau=0.2, eps={"text": 0.3, "vision": 0.05}, priorities=priorities, **FAST
    )
    for given_ in (old, pickle.loads(pickle.dumps(old))):
        found = fairnepv.extend(given_, data, more, **FAST)
        assert len(found.indices) == 9
        assert found.indices[:5].tolist() == old.indices.tolist()
        assert found.settings["tau"] == 0.2
        assert found.settings["eps"] == {"text": 0.3, "vision": 0.05}
        assert found.settings["priorities"] == pytest.approx(priorities)
        expected = fairnepv.select(
            data,
            9,
            tau=0.2,
            eps={"text": 0.3, "vision": 0.05},
            priorities=priorities,
            include=old.indices,
            **FAST,
        )
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.fair_score == expected.fair_score


def test_old_picks_are_found_by_id_wherever_they_lie():
    data = pool(n=60)
    order = np.random.default_rng(3).permutation(60)
    old = fairnepv.select(
        {name: view[:40] for name, view in data.items()}, 5, ids=np.arange(100, 140), **FAST
    )
    shuffled = {name: view[order] for name, view in data.items()}
    found = fairnepv.extend(old, shuffled, 3, ids=100 + order, **FAST)
    assert found.ids[:5].tolist() == old.ids.tolist()
    assert len(set(found.ids.tolist())) == 8


def test_the_old_calibration_is_the_yardstick():
    data = pool(n=60)
    old_rows = {name: 3 * view[:40] for name, view in data.items()}
    old = fairnepv.select(old_rows, 5, calibration="trace", **FAST)
    found = fairnepv.extend(old, {**data, "text": 3 * data["text"]}, 2, **FAST)
    assert found.calibration == old.calibration
    other = fairnepv.extend(old, data, 2, calibration="none", tau=0.7, eps=0.4, **FAST)
    assert other.calibration.rule == "none"
    assert (other.settings["tau"], other.settings["eps"]["text"]) == (0.7, 0.4)


def test_views_with_a_ridge_of_their_own_bring_it_again():
    rng = np.random.default_rng(0)
    rows, values = rng.normal(size=(20, 6)), rng.uniform(1, 2, size=20)

    def data(n: int) -> dict[str, Any]:
        return {
            "kernel": KernelView(rows[:n] @ rows[:n].T, eps=0.7),
            "diagonal": DiagonalView(values[:n], eps=0),
            "sparse": sp.csr_array(rows[:n]),
        }

    old = fairnepv.select(data(12), 3, eps=0.25, calibration="none", **FAST)
    found = fairnepv.extend(old, data(20), 2, **FAST)
    assert found.settings["eps"] == {"kernel": 0.7, "diagonal": 0.0, "sparse": 0.25}
    assert found.indices[:3].tolist() == old.indices.tolist()


def test_columns_of_one_array_are_views_again():
    rows = np.random.default_rng(0).normal(size=(30, 6))
    views = {"a": [0, 1, 2], "b": [3, 4, 5]}
    old = fairnepv.select(rows[:20], 2, views=views, **FAST)
    found = fairnepv.extend(old, rows, 1, views=views, **FAST)
    assert found.indices[:2].tolist() == old.indices.tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include": [1]}, "extend sets include itself"),
        ({"include_counts": True}, "extend sets include_counts itself"),
        ({"nested": True}, "extend sets nested itself"),
        ({"more": 0}, "more must be at least 1"),
        ({"more": 0.5}, "more must be a whole number"),
        ({"more": 38}, "leave nothing to choose"),
        ({"ids": list(range(40))}, "row number only"),
        ({"data": {"text": np.eye(4)}}, "give the same views"),
        ({"exclude": "chosen"}, "is in include and in exclude"),
        (
            {"data": {n: v[:39] for n, v in pool().items()}},
            "data has 39 rows.*from 40.*; extend expects the old rows and the",
        ),
    ],
)
def test_bad_arguments_of_extend(options, words):
    old = fairnepv.select(pool(), 4, **FAST)
    arguments: dict[str, Any] = {"data": pool(), "more": 2, **FAST, **options}
    if arguments.get("exclude"):
        arguments["exclude"] = old.indices[:1]
    with pytest.raises(InputError, match=words):
        fairnepv.extend(old, **arguments)


def test_extend_tells_which_rules_do_not_hold_any_more():
    """They belong to rows or sizes; excluded items were chosen without a word."""
    rows = np.random.default_rng(0).standard_normal((30, 4))
    groups = np.repeat(["a", "b"], 15)
    old = fairnepv.select({"v": rows}, 4, exclude=[1, 2], groups=groups, quotas={"a": 2}, **FAST)
    [told] = [note for note in fairnepv.extend(old, {"v": rows}, 2, **FAST).notes if "keep" in note]
    assert "had exclude and quotas, which extend does not keep; pass them again" in told
    again = {"exclude": [1, 2], "groups": groups, "quotas": {"a": 3}}
    for excluded in ([1, 2], np.array([1, 2])):
        kept = fairnepv.extend(old, {"v": rows}, 2, **{**again, "exclude": excluded}, **FAST)
        assert not any("does not keep" in note for note in kept.notes)


def test_a_selection_extended_over_other_rows_says_so():
    old = fairnepv.select(pool(), 4, **FAST)
    assert not any("other rows" in note for note in fairnepv.extend(old, pool(), 2, **FAST).notes)
    strange = fairnepv.extend(old, pool(seed=1), 2, **FAST)
    assert any("if these are other rows" in note for note in strange.notes)


def test_what_belongs_to_rows_must_be_given_again():
    data = pool()
    named = fairnepv.select(data, 4, ids=np.arange(40), **FAST)
    with pytest.raises(InputError, match="pass ids, one per row"):
        fairnepv.extend(named, data, 2)
    words = r"no row for 4 of the 4 items.*extend expects the old rows and the new ones"
    with pytest.raises(InputError, match=words):
        fairnepv.extend(named, data, 2, ids=np.arange(100, 140))
    weighed = fairnepv.select(data, 4, quality=np.full(40, 0.5), **FAST)
    with pytest.raises(InputError, match="was made with quality"):
        fairnepv.extend(weighed, data, 2)
    assert not fairnepv.extend(weighed, data, 2, quality=None, **FAST).settings["quality"]
    with pytest.raises(InputError, match="selection must be a Selection"):
        fairnepv.extend({4: weighed}, data, 2)


def test_the_questions_are_at_the_front_door():
    for name in ("explain", "assign", "diff", "stability", "curve", "tradeoff", "extend"):
        assert name in fairnepv.__all__
        assert callable(getattr(fairnepv, name))


# --- new rows alone -------------------------------------------------------------------------------


def grown(sparse=False):
    rng = np.random.default_rng(8)
    views = {"text": rng.standard_normal((60, 12)), "vision": rng.standard_normal((60, 9))}
    if sparse:
        views["text"] = sp.random_array(
            (60, 12), density=0.6, rng=rng, format="csr"
        ) + sp.csr_array(np.eye(60, 12))
    return views


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("objective", ["diverse", "representative"])
@pytest.mark.parametrize("with_ids", [False, True])
def test_new_rows_alone_are_put_behind_the_old_ones(with_ids, objective, sparse):
    views, names = grown(sparse), np.array([f"i{row}" for row in range(60)])
    old, new = ({n: v[rows] for n, v in views.items()} for rows in (slice(0, 40), slice(40, 60)))
    ids = [{"ids": own} if with_ids else {} for own in (names[:40], names[40:], names)]
    plain = {"objective": objective, "certify": False, "effort": "fast"}
    found = fairnepv.select(old, 6, **plain, **ids[0])
    alone = fairnepv.extend(found, new, 3, certify=False, effort="fast", **ids[1])
    both = fairnepv.extend(found, views, 3, certify=False, effort="fast", **ids[2])
    assert alone.indices.tolist() == both.indices.tolist()
    assert alone.ids.tolist() == both.ids.tolist()
    assert alone.scores == pytest.approx(both.scores, abs=1e-12)
    assert alone.indices[:6].tolist() == found.indices.tolist()
    assert "new rows alone" in alone.notes[-1]
    assert not any("new rows alone" in note for note in both.notes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.arange(40), np.arange(40, 60, dtype=np.uint8)),
        (np.arange(40), [*map(int, range(40, 60))]),
        ([f"i{i}" for i in range(40)], np.array([f"i{i}" for i in range(40, 60)], dtype=object)),
    ],
)
def test_ids_of_new_rows_are_read_as_those_of_old_ones(old, new):
    views = grown()
    found = fairnepv.select({n: v[:40] for n, v in views.items()}, 6, ids=old, **FAST)
    more = fairnepv.extend(found, {n: v[40:] for n, v in views.items()}, 3, ids=new, **FAST)
    both = fairnepv.extend(found, views, 3, ids=[*old, *new], **FAST)
    assert more.ids.tolist() == both.ids.tolist()


def test_old_rows_that_were_overwritten_are_not_put_before_new_ones():
    views = grown()
    old, new = ({n: v[rows] for n, v in views.items()} for rows in (slice(0, 40), slice(40, 60)))
    found = fairnepv.select(old, 6, **FAST)
    views["text"][:40] *= -2.0
    assert "has been overwritten" in refused(fairnepv.extend, found, new, 3, **FAST)


def test_new_rows_alone_may_be_aligned_by_ids():
    views, names = grown(), np.array([f"i{row}" for row in range(60)])
    found = fairnepv.select({n: v[:40] for n, v in views.items()}, 6, ids=names[:40], certify=False)
    order = np.random.default_rng(0).permutation(20)
    new = {"text": views["text"][40:], "vision": views["vision"][40:][order]}
    ids = {"text": names[40:], "vision": names[40:][order]}
    alone = fairnepv.extend(found, new, 3, ids=ids, certify=False)
    both = fairnepv.extend(found, views, 3, ids=names, certify=False)
    assert alone.ids.tolist() == both.ids.tolist()


def test_what_cannot_be_put_behind_the_old_rows_is_refused():
    views, names = grown(), [f"i{row}" for row in range(60)]
    old, new = ({n: v[rows] for n, v in views.items()} for rows in (slice(0, 40), slice(40, 60)))
    found = fairnepv.select(old, 6, ids=names[:40], certify=False)

    def refused_of(selection, data, **options):
        return refused(fairnepv.extend, selection, data, 3, certify=False, **options)

    stored = pickle.loads(pickle.dumps(found))
    assert "a stored selection has no rows" in refused_of(stored, new, ids=names[40:])
    missing = [name for name in names[:40] if name not in found.ids]
    mixed = [*missing[:1], *names[41:]]
    assert "but for others of the old pool" in refused_of(found, new, ids=mixed)
    assert "ids are of another type" in refused_of(found, new, ids=np.arange(20))
    assert "with quality" in refused_of(found, new, ids=names[40:], quality=np.ones(20))
    narrow = {**new, "text": new["text"][:, :5]}
    assert "has 5 columns" in refused_of(found, narrow, ids=names[40:])
    kernel = {n: v @ v.T for n, v in old.items()}
    of_kernels = fairnepv.select({n: fairnepv.KernelView(K) for n, K in kernel.items()}, 6)
    some = {n: fairnepv.KernelView(K[:20, :20]) for n, K in kernel.items()}
    assert "no array or sparse matrix" in refused_of(of_kernels, some)


@pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
def test_new_rows_alone_may_be_like_old_ones_in_a_view():
    """Attributes have few values: new rows were taken for a pool that was cut."""
    rng = np.random.default_rng(5)
    hot, rows = np.eye(3)[rng.integers(0, 3, 40)], rng.standard_normal((40, 4))
    before = fairnepv.select({"hot": hot[:30], "rows": rows[:30]}, 5)
    after = fairnepv.extend(before, {"hot": hot[30:], "rows": rows[30:]}, 3)
    assert after.chosen_from["n"] == 40
    assert "data had new rows alone" in after.notes[-1]
    with pytest.raises(InputError, match="has rows of the old pool in their places"):
        fairnepv.extend(before, {"hot": hot[:20], "rows": rows[:20]}, 3)
