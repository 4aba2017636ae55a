"""Picks that a device makes without being asked in between: those of the literal greedy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairnepv
import reference
from fairnepv.api.inputs import pose
from fairnepv.loop import run
from fairnepv.search import Greedy
from search_problems import examples, kernels, nearly_doubled

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from fairnepv.compute.device import TorchEngine  # noqa: E402
from fairnepv.search import sprint  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::fairnepv.RankWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEEDS = st.integers(0, 10**6)


def picks(views, k, tau, eps, **options) -> list[int]:
    names = [f"view{q}" for q in range(len(views))]
    data, ridges = dict(zip(names, views, strict=True)), dict(zip(names, eps, strict=True))
    given = {"eps": ridges, "calibration": "none", **options}
    problem = replace(pose(data, k, engine=TorchEngine(DEVICE), **given), tau=tau)
    return run(Greedy(problem)).state.indices.tolist()


@pytest.mark.slow
@examples(60)
@given(SEEDS)
def test_the_picks_are_those_of_the_literal_greedy(seed):
    """However few rows are raced among, and however long before anybody asks."""
    rng = np.random.default_rng(seed)
    views, k, eps, tau = nearly_doubled(rng)
    tau = np.inf if rng.random() < 0.2 else tau
    literal = [view.astype(float) for view in views]
    expected = reference.fair_greedy(kernels(literal, eps), k, tau)
    with pytest.MonkeyPatch.context() as patch:
        among(patch, int(rng.integers(1, 30)))
        patch.setattr(sprint, "_STRETCH", int(rng.integers(1, 9)))
        patch.setattr(sprint, "_MOST", int(rng.integers(1, 20)))
        assert picks(views, k, tau, eps) == expected


def among(patch, rows):
    """So many rows are raced among."""
    patch.setattr(sprint, "_ROWS", dict.fromkeys(sprint._ROWS, rows))


def counted(patch) -> list[int]:
    """How many picks every sprint made."""
    lengths, plain = [], sprint.Sprint.run

    def counting(self, *given):
        found = plain(self, *given)
        lengths.append(len(found))
        return found

    patch.setattr(sprint.Sprint, "run", counting)
    return lengths


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"include": [7, 3], "exclude": [0, 1, 2]},
        {"floors": {"view0": -0.28}},
        {"priorities": {"view0": 0.7, "view1": 0.3}},
        {"quality": np.linspace(0.5, 2.0, 400)},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_rules_and_floors_hold_in_a_sprint(options):
    rng = np.random.default_rng(4)
    data = {"view0": rng.standard_normal((400, 20)), "view1": rng.standard_normal((400, 30))}
    plan = {"effort": "fast", "certify": False, **options}
    here = fairnepv.select(data, 25, **plan)
    with pytest.MonkeyPatch.context() as patch:
        lengths = counted(patch)
        among(patch, 100)
        there = fairnepv.select(data, 25, engine=TorchEngine(DEVICE), **plan)
    assert there.indices.tolist() == here.indices.tolist()
    assert sum(lengths) > 12, "most picks are foreseen"


def test_groups_that_fill_up_are_for_the_ordinary_way():
    rng = np.random.default_rng(5)
    data, groups = [rng.standard_normal((200, 9))], np.arange(200) % 4
    plan = {"effort": "fast", "certify": False, "groups": groups, "quotas": {0: 1, 1: (2, 3)}}
    with pytest.MonkeyPatch.context() as patch:
        lengths = counted(patch)
        there = fairnepv.select(data, 12, engine=TorchEngine(DEVICE), **plan)
    assert lengths == []
    assert there.indices.tolist() == fairnepv.select(data, 12, **plan).indices.tolist()


def test_rows_that_are_all_alike_end_a_sprint_and_not_the_search():
    data = [np.vstack([np.tile(np.eye(6), (40, 1)), 0.5 * np.eye(6)])]
    with pytest.MonkeyPatch.context() as patch:
        among(patch, 10)  # of which forty are tied
        there = fairnepv.select(data, 5, engine=TorchEngine(DEVICE), certify=False, effort="fast")
    assert there.indices.tolist() == [0, 1, 2, 3, 4]


def test_sprints_that_lead_nowhere_become_rare():
    data = [np.tile(np.eye(40), (30, 1))]  # whatever is raced among, as many are tied beside it
    with pytest.MonkeyPatch.context() as patch:
        lengths = counted(patch)
        among(patch, 10)
        there = fairnepv.select(data, 36, engine=TorchEngine(DEVICE), certify=False, effort="fast")
    assert there.indices.tolist() == list(range(36))
    assert set(lengths) == {0}
    assert len(lengths) <= 7


def test_a_bound_beside_that_is_higher_is_not_overlooked():
    """The rows raced among are the highest at first; after a pick others may be."""
    rng = np.random.default_rng(6)
    crowd = np.outer(rng.uniform(2.0, 2.1, 50), np.eye(20)[0])  # high, and all in one direction
    crowd += 0.1 * rng.standard_normal(crowd.shape)
    views = [np.vstack([crowd, rng.standard_normal((80, 20)) / 4])]
    expected = reference.fair_greedy(kernels(views, [0.1]), 12, 0.05)
    with pytest.MonkeyPatch.context() as patch:
        among(patch, 40)
        assert picks(views, 12, 0.05, [0.1]) == expected


def test_many_more_picks_than_columns():
    rng = np.random.default_rng(7)
    views = [rng.standard_normal((90, p)) for p in (3, 5)]
    expected = reference.fair_greedy(kernels(views, [0.1, 0.1]), 60, 0.05)
    with pytest.MonkeyPatch.context() as patch:
        among(patch, 30)
        assert picks(views, 60, 0.05, [0.1, 0.1]) == expected


@examples(40)
@given(SEEDS)
def test_scores_on_a_device_are_those_of_the_scorer(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(10, 40)), int(rng.integers(2, 30))
    data, eps = [rng.standard_normal((n, p))], float(10.0 ** rng.uniform(-9, 0))
    items = rng.permutation(n)[: int(rng.integers(1, n))]
    here = fairnepv.score(data, items, eps=eps)
    there = fairnepv.score(data, items, eps=eps, engine=TorchEngine(DEVICE))
    assert there.fair_score == pytest.approx(here.fair_score, abs=1e-11)
    literal = [row / np.linalg.norm(row) for row in data[0]]
    (L,) = kernels([np.array(literal)], [eps])
    if eps > 1e-4:
        expected = reference.subset_score(L, items.tolist())
        assert there.fair_score == pytest.approx(expected, abs=1e-9)


def test_picks_that_cannot_be_made_one_by_one_are_filled_up_all_the_same():
    """Beyond a ratio of 1e16 between rows and ridge all that is left of most rows is rounding."""
    rng = np.random.default_rng(0)
    data = [1e3 * rng.standard_normal((60, 6)), rng.standard_normal((60, 9))]
    plan = {"eps": 1e-10, "calibration": "none", "effort": "fast", "certify": False}
    found = fairnepv.select(data, 20, engine=TorchEngine(DEVICE), **plan)
    assert len(set(found.indices.tolist())) == 20


def test_sprints_are_in_all_digits_whatever_a_user_allows(monkeypatch):
    """TF32 leaves bounds 1e-3 too low, and then the best row is not even looked at."""
    rng, before = np.random.default_rng(1), torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    precisions, product = [], torch.Tensor.__matmul__

    def looking(self, other):
        if self.dtype == torch.float32:
            precisions.append(torch.backends.cuda.matmul.fp32_precision)
        return product(self, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", looking)
    monkeypatch.setattr(sprint, "replayable", lambda work, *_: work)
    try:
        picks([rng.standard_normal((80, 9))], 10, 0.05, [0.1])
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert set(precisions) == {"ieee"}
