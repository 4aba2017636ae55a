"""How many rows the relaxation is solved on, by what an evaluation costs: counted at length."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from fairnepv.concave import costs
from fairnepv.problem import Means
from search_problems import pose, representative

N, K = 60, 5
WIDTHS = (7, 90)  # narrower and wider than there are rows


@pytest.fixture(scope="module")
def diverse():
    rng = np.random.default_rng(0)
    return pose([rng.standard_normal((N, p)) for p in WIDTHS], K, 0.1, [0.1, 0.1])


@pytest.fixture(scope="module")
def explained(diverse):
    return representative(diverse)


def cost(m, eigenvectors):
    """A Gram matrix of the smaller side, and its eigenvectors."""
    sides = [min(p, m) for p in WIDTHS]
    return sum(m * side**2 / 2 + eigenvectors * side**3 for side in sides)


def largest(of, most):
    return max(m for m in range(1, N + 1) if m == 1 or of(m) <= most)


@pytest.mark.parametrize("m", [1, 6, 7, 8, 60])
def test_an_evaluation_factors_the_smaller_side_of_every_view(m, diverse, explained):
    assert costs.evaluation_cost(diverse, m) == cost(m, 4.0)
    assert costs.evaluation_cost(explained, m) == cost(m, 12.0)
    assert costs.evaluation_work(explained, m) == cost(m, 12.0)
    assert costs.is_cheap(diverse, m)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("k", [5, 30])
@pytest.mark.parametrize("m", [40, 60])
def test_of_log_determinants_few_leading_vectors_will_do(m, k, light, diverse, monkeypatch):
    monkeypatch.setattr(costs, "_MANY", 20)
    weights = np.array([1.0, 0.005 if light else 0.006])
    columns = k / 8.0 if light else k * max(1.0, k / 20)
    narrow = min(m * 7**2 / 2 + 4.0 * 7**3, 4.0 * m * (k * max(1.0, k / 20)) * 7)
    wide = min(m * m**2 / 2 + 4.0 * m**3, 4.0 * m * columns * m)
    posed = replace(diverse, k=k)
    assert costs.evaluation_work(posed, m, weights) == pytest.approx(narrow + wide)
    if not light:
        assert costs.evaluation_work(posed, m) == pytest.approx(narrow + wide)


def test_of_sparse_rows_it_is_making_columns_orthogonal_that_counts():
    rows = sp.random_array((N, 400), density=0.05, rng=np.random.default_rng(1), format="csr")
    problem = pose([rows], K, 0.1, [0.1])
    assert costs.evaluation_work(problem, 50) == 4.0 * 50 * K * K


def test_rows_are_cheap_where_matrices_of_the_columns_are_factored(diverse, explained, monkeypatch):
    assert not costs.rows_are_cheap(diverse)
    assert costs.rows_are_cheap(explained)
    monkeypatch.setattr(costs, "WIDEST_MOMENTS", 89)
    assert not costs.rows_are_cheap(explained)


@pytest.mark.parametrize("most", [0.0, 1e4, 1e5, 3e5, 1e9])
def test_as_many_rows_as_an_evaluation_may_cost(most, diverse, explained, monkeypatch):
    monkeypatch.setattr(costs, "_MOST_COST", most)
    weights = np.array([1.0, 1e-3])
    for problem, share in ((diverse, 0.0), (explained, 0.06)):
        affordable = max(most, share * problem.work())
        for own in (None, weights):
            of = partial(costs.evaluation_work, problem, weights=own)
            expected = largest(of, affordable)
            assert costs.most_rows(problem, own) == expected
    few = replace(diverse, means=Means(support=9))
    assert costs.most_rows(few) == min(9, costs.most_rows(diverse))


def test_where_rows_are_cheap_they_may_cost_a_share_of_a_product(explained, monkeypatch):
    monkeypatch.setattr(costs, "_MOST_COST", 0.0)
    monkeypatch.setattr(costs, "_MOST_SHARE", 30.0)
    affordable = 30.0 * explained.work()
    expected = largest(lambda m: cost(m, 12.0), affordable)
    assert 1 < expected < N
    assert costs.most_rows(explained) == expected


@pytest.mark.parametrize("first", [3, 25, 40])
def test_the_first_rows_are_what_is_affordable_and_at_least_some(first, diverse, monkeypatch):
    monkeypatch.setattr(costs, "_FIRST_ROWS", first)
    for dense in (0.0, 1e5, 1e9):
        monkeypatch.setattr(costs, "_DENSE_COST", dense)
        expected = max(first, 4 * K, largest(lambda m: cost(m, 4.0), dense))
        assert costs.first_size(diverse) == min(expected, N)
    few = replace(diverse, means=Means(support=9))
    assert costs.first_size(few) == 9


def test_where_rows_are_cheap_there_are_some_for_each_column(explained, monkeypatch):
    monkeypatch.setattr(costs, "_FIRST_ROWS", 3)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)
    assert costs.first_size(explained) == N
    for by_column, share in ((0.25, 0.0), (0.5, 0.0), (0.0, 10.0)):
        monkeypatch.setattr(costs, "_PER_COLUMN", by_column)
        monkeypatch.setattr(costs, "_FIRST_SHARE", share)
        some = largest(lambda m: cost(m, 12.0), share * explained.work())
        assert costs.first_size(explained) == max(4 * K, by_column * max(WIDTHS), some)
