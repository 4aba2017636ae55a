"""What is called a local optimum, held against all allowed swaps, whatever the ridge: scores of the
twin come from singular values of rows, which a small ridge costs no digits."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import fairnepv
import reference
from cases import Array
from fairnepv import Status
from soak.runner import Group

GAIN = 1e-7  # what a swap may bring that is missed: the rounding of scores of this size
STATUSES = (Status.LOCAL_OPTIMUM, Status.INEXACT, Status.SPENT, Status.COMPLETE, Status.OPTIMAL)


class Asked(NamedTuple):
    views: list[Array]
    eps: list[float]
    k: int
    tau: float
    data: dict[str, Any]
    options: dict[str, Any]


def draw(number: int) -> Asked:
    """Every second case has k above the width of a view; every fourth is a representative one."""
    rng = np.random.default_rng([23, 2, number])
    shares = number % 4 == 3
    n = int(rng.integers(6, 13 if shares else 31))
    k = int(rng.integers(2, min(n - 1, 12)))
    M = int(rng.integers(1, 4))
    views, eps, data = [], [], {}
    common = float(10.0 ** rng.uniform(-9, 3))
    for q in range(M):
        narrow = number % 2 and q == 0
        p = int(rng.integers(1, k)) if narrow and k > 1 else int(rng.integers(1, 16))
        Phi = rng.standard_normal((n, p))
        twist = rng.choice(["plain", "plain", "clusters", "copies", "near copies"])
        if twist == "clusters":
            Phi = rng.standard_normal((4, p))[rng.integers(4, size=n)] + 0.05 * Phi
        if twist in ("copies", "near copies"):
            sources = rng.integers(n, size=3)
            noise = 1e-5 if twist == "near copies" else 0.0
            Phi[rng.permutation(n)[:3]] = Phi[sources] + noise * rng.standard_normal((3, p))
        views.append(Phi)
        eps.append(common if rng.random() < 0.7 else float(10.0 ** rng.uniform(-9, 3)))
        data[f"view{q}"] = sp.csr_array(Phi) if rng.random() < 0.25 else Phi
    options: dict[str, Any] = {
        "objective": "representative" if shares else "diverse",
        "center": False,
        "calibration": "none",
        "effort": str(rng.choice(["balanced", "balanced", "thorough"])),
        "method": str(rng.choice(["auto", "auto", "greedy-swaps"])),
        "certify": False,
        "random_state": int(rng.integers(3)),
    }
    if rng.random() < 0.35:
        goal = rng.permutation(n)
        options["include"] = goal[: int(rng.integers(1, min(k - 1, 2) + 1))].tolist()
        options["exclude"] = goal[k : k + int(rng.integers(0, min(3, n - k)))].tolist() or None
    return Asked(views, eps, k, float(10.0 ** rng.uniform(-2, 0)), data, options)


def scorer(asked: Asked) -> Callable[[Sequence[int]], float]:
    if asked.options["objective"] == "diverse":
        return lambda S: reference.soft_min(
            reference.row_scores(asked.views, asked.eps, S), asked.tau
        )
    parts = list(zip(asked.views, asked.eps, strict=True))
    return lambda S: reference.soft_min(
        np.array([shares(Phi, e, S) for Phi, e in parts]), asked.tau
    )


def shares(Phi: Array, eps: float, S: Sequence[int]) -> float:
    """`reference.explained` by singular values of the rows of S."""
    _, s, Vt = np.linalg.svd(Phi[list(S)], full_matrices=False)
    along = np.sum((Phi @ Vt.T) ** 2, axis=0)
    squares = s**2
    return float((squares / (squares + eps)) @ along / np.sum(Phi**2))


def case(number: int, folder: Path) -> None:
    asked = draw(number)
    eps = dict(zip(asked.data, asked.eps, strict=True))
    found = fairnepv.select(asked.data, asked.k, tau=asked.tau, eps=eps, **asked.options)
    S, score = found.indices.tolist(), scorer(asked)
    assert len(set(S)) == asked.k
    include, exclude = asked.options.get("include", []), asked.options.get("exclude") or []
    assert set(include) <= set(S)
    assert not set(exclude) & set(S)
    assert found.status in STATUSES, found.status
    F = score(S)
    assert math.isclose(found.fair_score, F, rel_tol=1e-7, abs_tol=1e-7), (found.fair_score, F)
    if found.status is not Status.LOCAL_OPTIMUM:
        return
    best, swap = -math.inf, None
    for j, gone in enumerate(S):
        if gone in include:
            continue
        for i in set(range(len(asked.views[0]))) - set(S) - set(exclude):
            value = score([*S[:j], i, *S[j + 1 :]])
            if value > best:
                best, swap = value, (gone, i)
    scale = max(1.0, abs(F))
    assert best <= F + GAIN * scale, f"exchanging {swap} brings {best - F:.3g}"


GROUP = Group("local-optima", case, 500, sample=range(0, 500, 20))
