"""The selectors and probes of benchmarks/usefulness.py against their definitions, word by word."""

import itertools

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import rivals
from probes import Probes, found_partners, linear_probe, macro_f1, others
from rivals import SELECTORS

N, K = 24, 6


@pytest.fixture(params=range(5))
def rows(request):
    X = np.random.default_rng(request.param).standard_normal((N, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.mark.parametrize("name", SELECTORS)
def test_selectors_choose_k_different_rows_and_always_the_same(name, rows):
    choose = SELECTORS[name].choose
    for k in (1, K, N):
        picks = choose(rows, k, 0)
        assert len(np.unique(picks)) == k
        assert picks.tolist() == choose(rows, k, 0).tolist()


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("name", SELECTORS)
def test_repeated_rows_are_different_items(name):
    rows = np.tile([[1.0, 0.0], [0.0, 1.0]], (4, 1))
    assert len(np.unique(SELECTORS[name].choose(rows, 6, 0))) == 6


def test_medoids_are_nearest_to_centres(rows):
    centres = KMeans(K, n_init=1, random_state=3).fit(rows).cluster_centers_
    nearest = [np.linalg.norm(rows - centre, axis=1).argmin() for centre in centres]
    assert rivals.medoids(rows, K, 3).tolist() == nearest


def test_each_pick_of_k_center_is_farthest_from_those_before(rows):
    picks = rivals.k_center(rows, K, 0)
    assert picks[0] == np.linalg.norm(rows - rows.mean(axis=0), axis=1).argmin()
    for t in range(1, K):
        nearest = [min(np.linalg.norm(row - rows[s]) for s in picks[:t]) for row in rows]
        assert nearest[picks[t]] == pytest.approx(max(nearest))


def test_facility_location_is_greedy_and_near_the_best_of_all_sets(rows):
    def value(picks):
        return sum(max(0.0, *(row @ rows[s] for s in picks)) for row in rows)

    picks = rivals.facility_location(rows, 3, 0)
    for t in range(3):
        best = max(value([*picks[:t], i]) for i in range(N) if i not in picks[:t])
        assert value(picks[: t + 1]) == pytest.approx(best)
    optimum = max(value(subset) for subset in itertools.combinations(range(N), 3))
    assert (1 - np.exp(-1)) * optimum <= value(picks) <= optimum + 1e-9


def test_typiclust_takes_the_row_of_a_cluster_with_the_nearest_neighbours(rows, monkeypatch):
    monkeypatch.setattr(rivals, "NEIGHBOURS", 2)
    cluster = KMeans(3, n_init=1, random_state=0).fit(rows).labels_
    for pick in rivals.typiclust(rows, 3, 0):
        members = [i for i in range(N) if cluster[i] == cluster[pick]]
        means = {}
        for i in members:
            near = sorted(np.linalg.norm(rows[i] - rows[j]) for j in members if j != i)[:2]
            means[i] = sum(near)
        assert means[pick] == pytest.approx(min(means.values()))


def test_herding_follows_the_mean_of_the_kernel(rows):
    squared = ((rows[:, None] - rows) ** 2).sum(axis=2)
    kernel = np.exp(-squared / (2 * np.median(squared)))
    picks = rivals.herding(rows, K, 0)
    for t in range(K):
        worth = [
            kernel[i].mean() - sum(kernel[i, s] for s in picks[:t]) / (t + 1) for i in range(N)
        ]
        free = [worth[i] for i in range(N) if i not in picks[:t]]
        assert worth[picks[t]] == pytest.approx(max(free))


# --- probes ---------------------------------------------------------------------------------------


def test_a_probe_in_the_span_of_the_picks_is_the_probe_on_all_columns():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    X = rng.standard_normal((3, 40))[labels] + rng.standard_normal((60, 40))
    picks = np.arange(12)
    rest = others(60, picks)
    full = LogisticRegression(max_iter=500, tol=1e-3).fit(X[picks], labels[picks])
    assert np.mean(linear_probe(X, labels, picks, rest) == full.predict(X[rest])) > 0.95


def test_picks_of_one_class_say_that_class():
    X, labels = np.eye(4), np.array([1, 1, 0, 0])
    assert linear_probe(X, labels, np.array([0, 1]), np.array([2, 3])).tolist() == [1, 1]


def test_macro_f1_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    truth, said = rng.integers(4, size=(2, 50))
    assert macro_f1(truth, said) == pytest.approx(f1_score(truth, said, average="macro"))


def test_partners_are_found_where_one_view_is_a_rotation_of_the_other():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = X @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    picks = np.arange(40)
    assert found_partners(X, Y, picks, others(200, picks)) > 0.9
    shuffled = rng.permutation(Y)
    assert found_partners(X, shuffled, picks, others(200, picks)) < 0.3


def test_the_worth_of_picks_is_a_share_and_perfect_where_classes_lie_apart():
    labels = np.arange(30) % 3
    view = np.eye(3)[labels] + 0.01 * np.random.default_rng(0).standard_normal((30, 3))
    probes = Probes({"a": view, "b": 2.0 * view})
    worth = probes.worth(labels, np.arange(6), probes.retrieval(np.arange(6)))
    assert worth[:5] == (1.0,) * 5
    assert 0 <= worth.retrieval <= 1
