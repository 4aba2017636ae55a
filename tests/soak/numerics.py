"""Ratios as LAPACK's tests have them, ||Q^T Q - I|| / (eps m) and residuals over what rounding
allows, against thresholds: where floats end, views are deficient, and knobs are extreme."""

import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fairnepv
import reference
from cases import Array
from fairnepv import FairnepvError
from soak.runner import Group

UNIT = float(np.finfo(np.float64).eps)
ORTHOGONAL = 30.0  # the threshold of LAPACK's own tests
SCORED = 1e3  # of scores, in roundings of their largest terms
_Rng = np.random.Generator


def _rows(rng: _Rng, n: int, p: int) -> Array:
    """Rows of some kind: plain, of low rank, with copies, or with columns of all lengths."""
    Phi = rng.standard_normal((n, p))
    kind = rng.choice(["plain", "deficient", "copies", "uneven"])
    if kind == "deficient":
        rank = int(rng.integers(1, p + 1))
        Phi = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p))
    if kind == "copies":
        Phi[n // 2 :] = Phi[: n - n // 2]
    if kind == "uneven":
        Phi *= 10.0 ** rng.uniform(-4, 2, size=p)
    return Phi


def _size(rng: _Rng, n: int) -> int:
    return int(rng.choice([1, n - 1, int(rng.integers(1, n))]))


def frames(rng: _Rng) -> None:
    """A relaxed frame is orthonormal; its values and residual are those of the dense formula."""
    n, M = int(rng.integers(5, 40)), int(rng.integers(1, 4))
    k = _size(rng, min(n, 12))
    data = {f"v{q}": _rows(rng, n, int(rng.integers(2, 20))) for q in range(M)}
    eps, tau = float(10.0 ** rng.uniform(-4, 3)), float(10.0 ** rng.uniform(-2, 2))
    solver = str(rng.choice(["accelerated", "damped-shifted", "plain"]))
    options: dict[str, Any] = {"eps": eps, "tau": tau, "calibration": "none", "solver": solver}
    found = fairnepv.relax(data, k, max_steps=40, **options)
    V = found.basis
    assert V.shape == (n, k)
    off = float(np.linalg.norm(V.T @ V - np.eye(k)))
    assert off <= ORTHOGONAL * UNIT * n, f"||V'V - I|| is {off / (UNIT * n):.3g} eps n"
    lengths = np.sum(V**2, axis=1)
    if found.status.name == "DEGENERATE":  # whose frame is all of the joint range, and any rest
        assert (found.leverage <= lengths + ORTHOGONAL * UNIT * n).all()
    else:
        np.testing.assert_allclose(found.leverage, lengths, atol=ORTHOGONAL * UNIT * n)
    Ls = [reference.kernel(Phi, eps) for Phi in data.values()]
    g = reference.view_values(Ls, V)
    condition = max(np.linalg.norm(L, 2) for L in Ls) / eps
    near = SCORED * UNIT * condition + 1e-9
    np.testing.assert_allclose(list(found.view_values.values()), g, atol=near)
    np.testing.assert_allclose(found.value, reference.soft_min(g, tau), atol=near)
    highest = reference.spectral_certificate(Ls, k, tau)
    assert found.value <= highest + near, "a frame above the spectral bound"
    # A degenerate relaxation has nothing to converge to, and plain steps may still be on their way.
    if found.status.name == "CONVERGED" and solver == "accelerated":
        residual = k * float(np.linalg.norm(reference.A_perp(Ls, V, tau)))
        assert residual <= 10 * found.residual + 1e-5 + 1e3 * near, (residual, found.residual)


def scales(rng: _Rng) -> None:
    """Rows times 2^s and ridges times 4^s: every score rises by 2 s log 2, whatever s."""
    n, k = 12, _size(rng, 12)
    M = int(rng.integers(1, 4))
    data = {f"v{q}": _rows(rng, n, int(rng.integers(1, 9))) for q in range(M)}
    eps = float(10.0 ** rng.uniform(-6, 1))
    S = rng.permutation(n)[:k].tolist()
    asked: dict[str, Any] = {"tau": 0.1, "calibration": "none"}
    plain = fairnepv.score(data, S, eps=eps, **asked)
    power = int(rng.choice([-450, -300, -100, -10, 10, 100, 300, 450]))
    scaled = {name: np.ldexp(Phi, power) for name, Phi in data.items()}
    ridge = math.ldexp(eps, 2 * power)
    far = fairnepv.score(scaled, S, eps=ridge, **asked)
    rise = 2 * power * math.log(2)
    near = SCORED * UNIT * max(1.0, abs(rise))
    for name, value in plain.scores.items():
        assert math.isclose(far.scores[name], value + rise, abs_tol=near), (name, power)
    method = str(rng.choice(["greedy", "auto"]))
    chosen = [
        fairnepv.select(rows, k, eps=e, method=method, effort="balanced", **asked)
        for rows, e in ((data, eps), (scaled, ridge))
    ]
    assert chosen[1].upper_bound >= chosen[1].fair_score - near
    assert math.isclose(
        chosen[0].fair_score + rise, chosen[1].fair_score, abs_tol=max(near, 1e-9 * abs(rise))
    ), f"another set is chosen of rows times 2^{power}"


def ends(rng: _Rng) -> None:
    """Where floats end there is an answer or a sentence: 1e-150 to 1e150."""
    n, k = 10, _size(rng, 10)
    size = float(10.0 ** rng.choice([-150, -149, -146, -140, -75, 75, 140, 146, 149, 150]))
    Phi = _rows(rng, n, 5) * size
    data = {"far": Phi, "near": rng.standard_normal((n, 4))}
    rule = str(rng.choice(["unit-diagonal", "trace", "none"]))
    objective = str(rng.choice(["diverse", "representative"]))
    asked: dict[str, Any] = {"calibration": rule, "objective": objective, "effort": "fast"}
    asked["eps"] = {
        "far": max(size, 1e-140) ** 2 if rule == "none" and size < 1e140 else 0.1,
        "near": 0.1,
    }
    try:
        found = fairnepv.select(data, k, **asked)
    except FairnepvError as error:
        if "view 'far'" not in str(error) and "eps" not in str(error):
            raise
        return
    assert math.isfinite(found.fair_score)
    assert found.upper_bound >= found.fair_score - 1e-9 * max(1.0, abs(found.fair_score))
    assert len(set(found.indices.tolist())) == k


def knobs(rng: _Rng) -> None:
    """eps from 1e-12 to 1e6 and tau from 1e-8 to 1e6, one to twenty views: scores of the picks are
    those of singular values, no bound is below the optimum, and the proof holds."""
    n, M = 9, int(rng.choice([1, 2, 3, 8, 20]))
    k = _size(rng, n)
    eps, tau = float(10.0 ** rng.uniform(-12, 6)), float(10.0 ** rng.uniform(-8, 6))
    rows = [_rows(rng, n, int(rng.integers(1, 8))) for _ in range(M)]
    data = {f"v{q}": Phi for q, Phi in enumerate(rows)}
    asked: dict[str, Any] = {"eps": eps, "tau": tau, "calibration": "none"}
    method = str(rng.choice(["auto", "exact"]))
    found = fairnepv.select(data, k, method=method, **asked)
    d = reference.row_scores(rows, [eps] * M, found.indices.tolist())
    near = SCORED * UNIT * (1.0 + float(np.abs(d).max())) + 1e-10
    np.testing.assert_allclose(list(found.scores.values()), d, atol=near, rtol=0)
    np.testing.assert_allclose(found.fair_score, reference.soft_min(d, tau), atol=near + 1e-9)
    F = [
        reference.soft_min(reference.row_scores(rows, [eps] * M, S), tau)
        for S in combinations(range(n), k)
    ]
    best = max(F)
    slack = max(1e-6, near)
    assert found.upper_bound >= best - slack, f"bound {found.upper_bound} below {best}"
    assert found.status.name != "OPTIMAL" or found.fair_score >= best - slack
    assert fairnepv.verify_bound(data, found).holds


def storage(rng: _Rng) -> None:
    """The same numbers in any storage: scores agree to rounding, and so do the picks' merits."""
    n, p = 14, int(rng.integers(2, 10))
    k = _size(rng, n)
    Phi = np.where(rng.random((n, p)) < 0.6, rng.standard_normal((n, p)), 0.0)
    Phi[~Phi.any(axis=1), 0] = 1.0
    half = Phi.astype(np.float16)
    stored: dict[str, Callable[[Array], Any]] = {
        "float16": lambda X: X,
        "float32": lambda X: X.astype(np.float32),
        "float64": lambda X: X.astype(np.float64),
        "Fortran": lambda X: np.asfortranarray(X.astype(np.float64)),
        "sparse": lambda X: sp.csr_array(X.astype(np.float32)),
        "sparse, float64": lambda X: sp.csc_array(X.astype(np.float64)),
    }
    eps = float(10.0 ** rng.uniform(-5, 2))
    asked: dict[str, Any] = {
        "eps": eps,
        "objective": str(rng.choice(["diverse", "representative"])),
        "calibration": str(rng.choice(["unit-diagonal", "trace", "none"])),
        "center": bool(rng.random() < 0.3),
    }
    S = rng.permutation(n)[:k].tolist()
    scores, fair = [], []
    for make in stored.values():
        data = {"one": make(half)}
        scores.append(fairnepv.score(data, S, **asked).fair_score)
        fair.append(fairnepv.select(data, k, effort="balanced", **asked).fair_score)
    near = SCORED * UNIT * (1.0 + abs(scores[0]) + 1.0 / math.sqrt(eps))
    np.testing.assert_allclose(scores, scores[0], atol=near, err_msg=str(list(stored)))
    np.testing.assert_allclose(fair, fair[0], atol=max(near, 1e-9), err_msg=str(list(stored)))


def gains(rng: _Rng) -> None:
    """Gains add up to scores, and each is the difference of two determinants."""
    n, M = int(rng.integers(6, 60)), int(rng.integers(1, 4))
    k = _size(rng, min(n, 20))
    rows = [_rows(rng, n, int(rng.integers(1, 16))) for _ in range(M)]
    eps = float(10.0 ** rng.uniform(-6, 3))
    data = {f"v{q}": Phi for q, Phi in enumerate(rows)}
    found = fairnepv.select(data, k, eps=eps, calibration="none", certify=False, effort="balanced")
    for (name, own), Phi in zip(found.gains.items(), rows, strict=True):
        assert math.isclose(own.sum() / k, found.scores[name], abs_tol=1e-9, rel_tol=1e-10)
        # What a row adds is the logarithm of its distance to those before it, plus the ridge.
        _, R = np.linalg.qr(
            np.hstack([Phi[found.indices], math.sqrt(eps) * np.eye(k)]).T, mode="reduced"
        )
        expected = 2 * np.log(np.abs(np.diag(R)))
        reach = float(np.linalg.norm(Phi[found.indices], 2)) / math.sqrt(eps)
        near = SCORED * UNIT * (1.0 + reach) * k + 1e-9
        np.testing.assert_allclose(own, expected, atol=near)


KINDS = (frames, scales, ends, knobs, storage, gains)


def case(number: int, folder: Path) -> None:
    KINDS[number % len(KINDS)](np.random.default_rng([23, 3, number]))


GROUP = Group("numerics", case, 150, sample=range(0, 150, 5))
