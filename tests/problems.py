"""Problems for the tests of search, baselines and front door, each beside its dense kernels.

`pose` makes the record that every method receives, `kernels` the twins for `reference`, and the
rules of `Constraints` are restated here as plain loops over subsets.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import HealthCheck, settings

import reference
from cases import Array, Case
from fairnepv import Calibration, KernelView, LocalEngine, Pool
from fairnepv.problem import Constraints, Problem, Quotas

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


def pose_case(case: Case, **options: Any) -> Problem:
    return pose(case.views, case.k, case.tau, case.eps, **options)


def kernels(
    views: Sequence[Array], eps: Sequence[float], quality: Sequence[Array] | None = None
) -> list[Array]:
    qualities = [None] * len(views) if quality is None else quality
    return [reference.kernel(Phi, e, q) for Phi, e, q in zip(views, eps, qualities, strict=True)]


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
