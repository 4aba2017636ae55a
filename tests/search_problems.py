"""Problems for the tests of search, baselines and front door, each beside its dense kernels.

`pose` makes the record that every method receives, `kernels` the twins for `reference`, and the
rules of `Constraints` are restated here as plain loops over subsets.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, settings

import reference
from cases import Array, Case, random_views
from fairnepv import Calibration, DiagonalView, KernelView, LocalEngine, Pool
from fairnepv.problem import Constraints, Problem, Quotas
from fairnepv.views.dense import DenseView
from fairnepv.views.moments import with_moments
from fairnepv.views.sparse import SparseView

STORAGE = {
    "dense": lambda Phi: Phi,
    "sparse": sp.csr_array,
    "kernel": lambda Phi: KernelView(Phi @ Phi.T),
}


def examples(count: int) -> settings:
    """The same examples in every run, however slow the machine."""
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def pose(
    views: Sequence[Any],
    k: int,
    tau: float,
    eps: Sequence[float],
    *,
    block: int | None = None,
    rules: Constraints | None = None,
    quality: Sequence[Array] | None = None,
    seed: int = 0,
) -> Problem:
    """The problem of these views as they are, without calibration; a view may have its own eps."""
    names = [f"view{q}" for q in range(len(views))]
    ridges = {
        name: e
        for name, view, e in zip(names, views, eps, strict=True)
        if getattr(view, "eps", None) is None
    }
    pool = Pool.of(
        list(views),
        eps=ridges,
        quality=None if quality is None else dict(zip(names, quality, strict=True)),
        engine=LocalEngine(block),
    )
    none = Calibration("none")
    return Problem(
        none.apply(pool), k, tau, none, constraints=rules or Constraints(), random_state=seed
    )


def representative(problem: Problem, weights: Sequence[Array] | None = None) -> Problem:
    """The same rows, asked for a representative set; `weights` say how much each row counts."""
    own = None if weights is None else dict(zip(problem.pool.names, weights, strict=True))
    return replace(problem, pool=with_moments(problem.pool, own), utility="representative")


def views_of(pool: Pool) -> tuple[Any, ...]:
    """The views of a pool, for tests that know their classes and look inside."""
    return pool.views


def pose_case(case: Case, **options: Any) -> Problem:
    return pose(case.views, case.k, case.tau, case.eps, **options)


def kernels(
    views: Sequence[Array], eps: Sequence[float], quality: Sequence[Array] | None = None
) -> list[Array]:
    qualities = [None] * len(views) if quality is None else quality
    return [reference.kernel(Phi, e, q) for Phi, e, q in zip(views, eps, qualities, strict=True)]


def nearly_doubled(rng: np.random.Generator) -> tuple[list[np.ndarray], int, list[float], float]:
    """Two views in float32, k, ridges and tau; half of the time with duplicates, and with rows that
    are all but that."""
    n, k = int(rng.integers(15, 60)), int(rng.integers(3, 14))
    views = [view.astype(np.float32) for view in random_views(rng, n, [6, 12])]
    if rng.random() < 0.5:
        views = [np.vstack([view, view[: n // 3]]) for view in views]
        views[0][-1] *= np.float32(1 + 1e-6)
    eps = [float(10.0 ** rng.uniform(-4, 0)), 0.1]
    return views, k, eps, float(rng.choice([0.01, 0.05, 1.0]))


def case_kernels(case: Case) -> list[Array]:
    return kernels(case.views, case.eps)


def indices(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


# --- Constraints, restated ------------------------------------------------------------------------


def obeys(rules: Constraints, S: Sequence[int]) -> bool:
    """Whether a whole subset meets every rule, by counting."""
    chosen = {int(i) for i in S}
    if len(chosen) < len(S):
        return False
    if any(int(i) not in chosen for i in rules.fixed_in):
        return False
    if any(int(i) in chosen for i in rules.fixed_out):
        return False
    if rules.quotas is None:
        return True
    for group, (least, most) in enumerate(zip(rules.quotas.least, rules.quotas.most, strict=True)):
        count = sum(int(rules.quotas.groups[i]) == group for i in chosen)
        if not least <= count <= most:
            return False
    return True


def feasible_subsets(rules: Constraints, n: int, k: int) -> list[tuple[int, ...]]:
    return [S for S in combinations(range(n), k) if obeys(rules, S)]


def constrained_greedy(Ls: list[Array], k: int, tau: float, rules: Constraints) -> list[int]:
    """Fair greedy that adds the best item with which some subset of size k is still allowed."""
    goals = [set(S) for S in feasible_subsets(rules, len(Ls[0]), k)]
    S = [int(i) for i in rules.fixed_in]
    while len(S) < k:
        open_goals = [goal for goal in goals if goal.issuperset(S)]
        joinable = sorted(set().union(*open_goals) - set(S))
        scores = {i: reference.fair_score(Ls, [*S, i], tau) for i in joinable}
        best = max(scores.values())
        S.append(min(i for i, score in scores.items() if score >= best - reference.TIE))
    return S


def best_allowed_swap(Ls: list[Array], S: Sequence[int], tau: float, rules: Constraints) -> float:
    """The highest F_tau that one allowed swap of S attains; -inf where there is none."""
    values = reference.swap_values(Ls, [int(i) for i in S], tau)
    best = -math.inf
    for (row, slot), value in np.ndenumerate(values):
        swapped = [*S[:slot], row, *S[slot + 1 :]]
        if obeys(rules, swapped):
            best = max(best, value)
    return best


def random_rules(rng: np.random.Generator, n: int, k: int) -> Constraints:
    """Rules of every kind that at least one subset of size k meets."""
    goal = rng.permutation(n)[:k]
    others = np.setdiff1d(np.arange(n), goal)
    groups = rng.integers(3, size=n)
    counts = np.bincount(groups[goal], minlength=3)
    least = np.maximum(counts - rng.integers(2, size=3), 0)
    most = counts + rng.integers(2, size=3)
    return Constraints(
        fixed_in=goal[: rng.integers(min(k, 2) + 1)],
        fixed_out=others[: rng.integers(min(len(others), 3))],
        quotas=Quotas(groups, least, most),
    )


def rules_of_each_kind(n: int, k: int) -> dict[str, Constraints]:
    """No rule, each kind of rule alone, and all of them together."""
    rules = random_rules(np.random.default_rng(n), n, k)
    return {
        "free": Constraints(),
        "fixed in": Constraints(fixed_in=indices(n - 1, 2)),
        "fixed out": Constraints(fixed_out=indices(0, 3, n - 2)),
        "quotas": Constraints(quotas=rules.quotas),
        "all": rules,
    }


# --- Hostile pools --------------------------------------------------------------------------------


class Hostile(NamedTuple):
    """A small random pool of any kind, and the scores of all subsets that its rules allow."""

    problem: Problem
    Ls: list[Array]
    subsets: list[tuple[int, ...]]
    d: Array  # (subsets, M)
    F: Array  # (subsets,)

    @property
    def best(self) -> float:
        return float(self.F.max())


def hostile(seed: int, most_rows: int = 14) -> Hostile:
    """One to four views of any storage; duplicates, repeated views, k near n and above p; rules,
    priorities, factors."""
    rng = np.random.default_rng([20, seed])
    n = int(rng.integers(4, most_rows + 1))
    k = int(rng.choice([1, n - 1, int(rng.integers(1, n)), int(rng.integers(1, n))]))
    M = int(rng.integers(1, 5))
    tau = float(10.0 ** rng.uniform(-2, 0))
    views, Ls = [], []
    copies = rng.integers(n, size=(2, 2)) if rng.random() < 0.3 else []
    for q in range(M):
        if q and rng.random() < 0.15:  # a repeated view
            views.append(views[0])
            Ls.append(Ls[0])
            continue
        view, L = _hostile_view(rng, n, copies)
        views.append(view)
        Ls.append(L)
    rules = random_rules(rng, n, k) if rng.random() < 0.5 else Constraints()
    factors = np.exp(rng.standard_normal(M)) if rng.random() < 0.3 else np.ones(M)
    names = [f"view{q}" for q in range(M)]
    calibration = Calibration("explicit", offsets=dict(zip(names, np.log(factors), strict=True)))
    pi = rng.dirichlet(np.ones(M)) * 0.9 + 0.1 / M if rng.random() < 0.4 else None
    pool = calibration.apply(Pool.of(views))
    problem = Problem(pool, k, tau, calibration, constraints=rules, priorities=pi)
    subsets = feasible_subsets(rules, n, k)
    d = reference.view_scores(Ls, subsets) + np.log(factors)
    weights = np.full(M, 1 / M) if pi is None else pi
    F = np.array([reference.prioritized(row, tau, weights) for row in d])
    return Hostile(problem, Ls, subsets, d, F)


def _hostile_view(rng: np.random.Generator, n: int, copies: Any) -> tuple[Any, Array]:
    """A view that brings its own ridge, and L."""
    eps = float(10.0 ** rng.uniform(-3, 0))
    Phi = rng.standard_normal((n, int(rng.integers(1, 9)))) * 10.0 ** rng.uniform(-1, 1)
    if rng.random() < 0.4:
        Phi *= 10.0 ** rng.uniform(-1, 1, size=(n, 1))
    for source, copy in copies:
        Phi[copy] = Phi[source]
    kind = rng.choice(["dense", "float32", "sparse", "kernel", "bare kernel", "diagonal"])
    if kind == "dense":
        return DenseView(Phi, eps), reference.kernel(Phi, eps)
    if kind == "float32":
        rounded = Phi.astype(np.float32)
        return DenseView(rounded, eps), reference.kernel(rounded.astype(float), eps)
    if kind == "sparse":
        Phi = np.where(rng.random(Phi.shape) < 0.5, Phi, 0.0)
        return SparseView(sp.csr_array(Phi), eps), reference.kernel(Phi, eps)
    if kind == "kernel":
        return KernelView(Phi @ Phi.T, eps), reference.kernel(Phi, eps)
    if kind == "bare kernel":
        L = reference.kernel(Phi, eps)
        return KernelView(L, 0.0), L
    values = 10.0 ** rng.uniform(-1, 2, size=n)
    ridge = 0.0 if rng.random() < 0.5 else eps
    return DiagonalView(values, ridge), np.diag(values + ridge)


def hostile_shares(seed: int, most_rows: int = 11) -> Hostile:
    """Representative sets of small pools: duplicates, zero rows, collinear rows, ridges from tiny
    to huge, one to three views of any storage, k from 1 to n - 1, weights, rules, priorities."""
    rng = np.random.default_rng([21, seed])
    n, M = int(rng.integers(4, most_rows + 1)), int(rng.integers(1, 4))
    k = int(rng.choice([1, n - 1, int(rng.integers(1, n)), int(rng.integers(1, n))]))
    tau = float(10.0 ** rng.uniform(-2, 0))
    views, eps, stored = [], [], []
    for _ in range(M):
        Phi = rng.standard_normal((n, int(rng.integers(1, 8)))) * 10.0 ** rng.uniform(-1, 1)
        twist = rng.choice(["plain", "doubled", "zero", "collinear", "uneven"])
        if twist == "doubled":
            Phi[-1], Phi[1] = Phi[0], Phi[0]
        if twist == "zero":
            Phi[rng.integers(n)] = 0.0
        if twist == "collinear":
            Phi = Phi[:, :1] * rng.standard_normal(Phi.shape[1])
        if twist == "uneven":
            Phi *= 10.0 ** rng.uniform(-1, 1, size=(n, 1))
        views.append(Phi)
        eps.append(float(10.0 ** rng.uniform(-5, 3)))
        stored.append(STORAGE[str(rng.choice(list(STORAGE)))](Phi))
    weights = [rng.uniform(0.1, 2.0, n) for _ in range(M)] if rng.random() < 0.3 else None
    rules = random_rules(rng, n, k) if rng.random() < 0.5 else Constraints()
    pi = rng.dirichlet(np.ones(M)) * 0.9 + 0.1 / M if rng.random() < 0.4 else None
    posed = replace(pose(stored, k, tau, eps, rules=rules), priorities=pi)
    subsets = feasible_subsets(rules, n, k)
    own = [None] * M if weights is None else weights
    d = np.array(
        [
            [reference.explained(Phi, e, S, w) for Phi, e, w in zip(views, eps, own, strict=True)]
            for S in subsets
        ]
    )
    pi = np.full(M, 1 / M) if pi is None else pi
    F = np.array([reference.prioritized(row, tau, pi) for row in d])
    return Hostile(representative(posed, weights), [], subsets, d, F)
