"""The front door: the whole method on one screen, from the user's arrays to a Selection."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.baselines import baselines, refuse
from fairnepv.calibration import calibrate
from fairnepv.certificate import Certificate
from fairnepv.certificate import certify as make_certificate
from fairnepv.engines import Engine, few_threads
from fairnepv.errors import InputError, NumericalError, RankWarning, Status
from fairnepv.loop import Progress, Session, Step
from fairnepv.objective import soft_min_weights, subset_scores
from fairnepv.problem import Problem, check_k, check_random_state, check_tau
from fairnepv.relaxation import Relaxation, Solver, make_solver
from fairnepv.relaxation import relax as solve_relaxation
from fairnepv.search import (
    Effort,
    Found,
    better,
    check_effort,
    enumerate_subsets,
    fair_order,
    greedy,
    improve,
    restart_from,
    shortlist,
)
from fairnepv.search.enumeration import LIMIT
from fairnepv.selection import (
    Comparison,
    Optimum,
    Score,
    Selection,
    make_optimum,
    make_selection,
    score_subset,
)
from fairnepv.views import Pool
from fairnepv.views.arrays import check_positive, plain_array
from fairnepv.views.base import Indices
from fairnepv.views.intake import check_ids, find_ids

OWN_METHODS = ("auto", "nepv", "greedy")
Start = Callable[[Session], Found]
# Plenty for an ordering of candidates (DESIGN 3.2).
_FOR_ROUNDING = Solver("accelerated", tol=1e-3, max_steps=300)
_BINDS = 0.9  # soft-min weight of a view that decides the fair score all but alone


def select(
    data: Any,
    k: int | float,
    *,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    method: str = "auto",
    effort: str = "balanced",
    oversampling: float = 3.0,
    certify: bool = True,
    random_state: int = 0,
    time_limit: float | None = None,
    strict: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Selection:
    """Choose k items so that no view is left behind, and say how good the choice is.

    data: mapping from view names to (n, p) arrays, SciPy sparse matrices or views, or a list of
        them; with `views`, one (n, p) array whose columns `views` maps to names.
    k: how many, or a fraction of n.
    tau: temperature of the soft-min; as it falls, F_tau approaches the worst view's score.
    eps: ridge, common or by view name.
    calibration: 'unit-diagonal', 'trace', 'none', 'efficiency', factors on L by view name, or the
        `calibration` of an earlier result.
    quality: per-item weights (n,), common or by view name: L = diag(sqrt q) K diag(sqrt q) + eps I.
    ids: (n,) row ids, or row ids by view name, by which the views are then aligned.
    method: 'auto', 'nepv' (the paper's pipeline), 'greedy', or a baseline: '<view>-only',
        'averaged', 'fixed-weight', 'concatenated', 'softmax', 'd-optimal', 'saturate', 'k-dpp',
        'random'.
    effort: 'fast' (fair greedy), 'balanced' (the better of two starts, swaps, pair exchanges) or
        'thorough' (more starts, perturbation and restart).
    oversampling: the shortlist of the NEPv start holds this many times k items.
    certify: also bound what any k items could score.
    time_limit: seconds for the search; the best so far is returned and marked. Reading, calibration
        and the bound come on top.
    strict: raise NumericalError unless the search ended well.
    progress: called with a `Step` after every step of every stage.
    """
    problem = _pose(data, k, views, tau, eps, calibration, quality, ids, random_state, engine)
    chosen = _method(problem, method)
    level = check_effort(effort)
    oversampling = _check_oversampling(oversampling)
    session = _session(time_limit, progress)
    bound = _certify(problem) if certify else None
    selection = _select(problem, chosen, level, oversampling, bound, session)
    _warn(_rank_notes(problem, bound))
    if strict and not selection.status.ok:
        raise NumericalError(f"selection: {selection.status.value}")
    return selection


def compare(
    data: Any,
    k: int | float,
    *,
    methods: Sequence[str] | None = None,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    effort: str = "balanced",
    oversampling: float = 3.0,
    random_state: int = 0,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """One row per selector on the same problem, all with the same rounding budget."""
    problem = _pose(data, k, views, tau, eps, calibration, quality, ids, random_state, engine)
    if methods is None:
        known = (*OWN_METHODS, *baselines(problem.pool.names))
        methods = [name for name in known if refuse(problem, name) is None]
    names = [methods] if isinstance(methods, str) else list(methods)
    if not names:
        raise InputError("methods is empty; name at least one, or leave it out for all")
    chosen = [_method(problem, name) for name in names]
    level = check_effort(effort)
    oversampling = _check_oversampling(oversampling)
    bound = _certify(problem)
    began = time.monotonic()
    rows: list[Selection] = []
    for name in chosen:
        session = _session(None, progress)
        if progress is not None:
            with session.absorbing_interruption() if rows else contextlib.nullcontext():
                progress(_turn_of(name, rows, len(chosen), began))
            if session.stopped:
                rows[-1] = replace(rows[-1], status=session.stopped)
                break
        rows.append(_select(problem, name, level, oversampling, bound, session))
        if session.stopped is Status.INTERRUPTED:
            break
    _warn(_rank_notes(problem, bound))
    return Comparison(tuple(rows))


def score(
    data: Any,
    indices: Any,
    *,
    by_id: bool = False,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    engine: Engine | None = None,
) -> Score:
    """How the given rows do: d_q per view, F_tau and coverage, in float64 from the rows.

    `indices` count rows of the pool; with `ids` by view name that is the order of the first view.
    With `by_id` they are ids instead.
    """
    tau = check_tau(tau)
    pool = Pool.of(data, views=views, eps=eps, ids=ids, quality=quality, engine=engine)
    rows = _rows_of_ids(indices, pool.ids) if by_id else _check_indices(indices, pool.n)
    rule = calibrate(pool, calibration, len(rows))
    problem = Problem(rule.apply(pool), len(rows), tau, rule)
    _warn(_width_notes(problem))
    with few_threads(problem.work()):
        return score_subset(problem, rows)


def relax(
    data: Any,
    k: int | float,
    *,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    solver: str = "accelerated",
    start: Any = "spectral",
    tol: float = 1e-6,
    max_steps: int | None = None,
    alpha: float | None = None,
    sigma: float | None = None,
    random_state: int = 0,
    time_limit: float | None = None,
    strict: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Relaxation:
    """Maximise f_tau over orthonormal frames [FairNEPv, Eq. (P-Fair)].

    solver: 'accelerated', or Algorithm 1 as 'plain', 'damped', 'shifted' or 'damped-shifted' with
        its own `alpha` and `sigma`.
    start: 'spectral', 'random', a frame (n, k) to warm-start from, or k row indices.
    tol: on k ||A_perp||_F for 'accelerated', on the paper's ||A - V/k||_F for the others.
    """
    problem = _pose(data, k, views, tau, eps, calibration, quality, ids, random_state, engine)
    chosen = make_solver(
        solver, k=problem.k, tol=tol, max_steps=max_steps, alpha=alpha, sigma=sigma
    )
    session = _session(time_limit, progress)
    result = solve_relaxation(problem, chosen, start=start, session=session)
    if strict and not result.status.ok:
        raise NumericalError(f"relaxation: {result.status.value} (residual {result.residual:.3g})")
    return result


def exhaustive(
    data: Any,
    k: int | float,
    *,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    limit: int = LIMIT,
    engine: Engine | None = None,
) -> Optimum:
    """The discrete optimum of a small pool by looking at all C(n, k) subsets."""
    problem = _pose(data, k, views, tau, eps, calibration, quality, ids, 0, engine)
    _warn(_width_notes(problem))
    with few_threads(problem.work()):
        return make_optimum(problem, enumerate_subsets(problem, limit))


# --- posing the problem -------------------------------------------------------------------------


def _pose(
    data: Any,
    k: Any,
    views: Mapping[str, Any] | None,
    tau: Any,
    eps: Any,
    calibration: Any,
    quality: Any,
    ids: Any,
    random_state: Any,
    engine: Engine | None,
) -> Problem:
    """Every check of what a user hands in, and the calibrated problem that comes of it."""
    tau, seed = check_tau(tau), check_random_state(random_state)
    pool = Pool.of(data, views=views, eps=eps, ids=ids, quality=quality, engine=engine)
    k = check_k(k, pool.n)
    rule = calibrate(pool, calibration, k)
    return Problem(rule.apply(pool), k, tau, rule, random_state=seed)


def _method(problem: Problem, name: Any) -> str:
    known = (*OWN_METHODS, *baselines(problem.pool.names))
    if not isinstance(name, str) or name not in known:
        raise InputError(f"method must be one of {', '.join(known)}, not {name!r}")
    reason = refuse(problem, name)
    if reason:
        raise InputError(reason)
    return name


def _check_oversampling(value: Any) -> float:
    oversampling = check_positive("oversampling", value)
    if oversampling < 1:
        raise InputError(f"oversampling must be at least 1, not {value!r}")
    return oversampling


def _check_indices(indices: Any, n: int) -> Indices:
    array = plain_array(indices, "indices")
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise InputError(
            f"indices must be a non-empty list of row numbers, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.min() < 0 or array.max() >= n:
        raise InputError(
            f"indices must be row numbers from 0 to {n - 1}, but they reach from {array.min()} to "
            f"{array.max()}"
        )
    if len(np.unique(array)) < len(array):
        raise InputError("indices name some row more than once; a subset has each row once")
    return array.astype(np.int64)


def _rows_of_ids(picks: Any, ids: NDArray[Any] | None) -> Indices:
    if ids is None:
        raise InputError("by_id needs ids, which say what the rows are called")
    given = plain_array(picks, "picks")
    if given.ndim != 1 or not len(given):
        raise InputError(f"picks must be a non-empty list of ids, not {given.dtype} {given.shape}")
    array = check_ids(given, len(given), "picks")
    if array.dtype.kind == "i" and ids.dtype.kind == "U":  # names that look like numbers
        array = array.astype(str)
    if array.dtype.kind != ids.dtype.kind:
        raise InputError(f"picks are {array.dtype}, but ids are {ids.dtype}; give the same type")
    rows = find_ids(array, ids)
    strangers = array[ids[rows] != array]
    if len(strangers):
        raise InputError(
            f"picks name {len(strangers)} id(s) that no row has, for example "
            f"{strangers[0].item()!r}; check that ids and picks belong together"
        )
    return rows


def _session(time_limit: Any, progress: Progress | None) -> Session:
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of one Step, not {progress!r}")
    limit = None if time_limit is None else check_positive("time_limit", time_limit)
    return Session(time_limit=limit, progress=progress)


# --- the method ---------------------------------------------------------------------------------


def _select(
    problem: Problem,
    method: str,
    effort: Effort,
    oversampling: float,
    certificate: Certificate | None,
    session: Session,
) -> Selection:
    began = time.monotonic()
    with few_threads(problem.work()):
        found = _search(problem, method, effort, oversampling, session)
        indices = found.indices
        with session.absorbing_interruption():
            indices = fair_order(problem, indices)
        return make_selection(
            problem,
            indices,
            certificate=certificate,
            settings=_settings(problem, method, effort, oversampling),
            trace=tuple(session.trace),
            status=session.stopped or found.status,
            seconds=time.monotonic() - began,
            notes=(*_rank_notes(problem, certificate), *session.notes),
        )


def _search(
    problem: Problem, method: str, effort: Effort, oversampling: float, session: Session
) -> Found:
    if method == "greedy":
        return greedy(problem, session)
    if method == "nepv":
        start = nepv_start(problem, oversampling, session)
        return improve(problem, start, effort.one_swaps, session)
    if method == "auto":
        return _auto(problem, effort, oversampling, session)
    return baselines(problem.pool.names)[method](problem, effort, session)


def _auto(problem: Problem, effort: Effort, oversampling: float, session: Session) -> Found:
    """The better of two starts at one-swap optima, then pairs; then further starts and restarts.

    What more effort adds comes after what less effort does, so it never ends with less.
    """
    best = improve(problem, greedy(problem, session), effort.one_swaps, session)
    if effort.max_passes == 0 or session.stopped:
        return best
    without_restarts = replace(effort, restarts=0)
    with session.absorbing_interruption():
        start = nepv_start(problem, oversampling, session)
        best = better(problem, best, improve(problem, start, effort.one_swaps, session))
    best = improve(problem, best, without_restarts, session)
    for further in _further_starts(problem, effort, oversampling, best):
        if session.stopped:
            break
        with session.absorbing_interruption():
            found = improve(problem, further(session), without_restarts, session)
            best = better(problem, best, found)
    return restart_from(problem, best, effort, session)


def _further_starts(
    problem: Problem, effort: Effort, oversampling: float, best: Found
) -> Iterator[Start]:
    """What is tried besides, each a function of the session that it runs in.

    Where one view binds all but alone, its own optimum is nearly fair and a start of its own; a
    thorough search starts from every view's.
    """
    names = problem.pool.names
    weights = soft_min_weights(subset_scores(problem.pool, best.indices), problem.tau)
    binding = [name for name, w in zip(names, weights, strict=True) if w > _BINDS]
    if effort.restarts:
        yield partial(nepv_start, problem, oversampling, start="random")
    if len(names) > 1:
        for name in names if effort.restarts else binding:
            yield partial(_single_view_start, problem, name, replace(effort, restarts=0))


def _single_view_start(problem: Problem, name: str, effort: Effort, session: Session) -> Found:
    """The local optimum of one view alone, as the baseline of that view finds it."""
    alone = problem.over(problem.pool.only(name))
    return improve(alone, greedy(alone, session), effort, session)


def nepv_start(
    problem: Problem, oversampling: float, session: Session, *, start: str = "spectral"
) -> Found:
    """Relax, screen by leverage, fair greedy within the shortlist [FairNEPv, section 4.4]."""
    relaxation = solve_relaxation(problem, _FOR_ROUNDING, start=start, session=session)
    if relaxation.status is not Status.CONVERGED:
        session.notes.append(f"relaxation: {relaxation.status.value}")
    return round_by_leverage(problem, relaxation, oversampling, session)


def round_by_leverage(
    problem: Problem, relaxation: Relaxation, oversampling: float, session: Session
) -> Found:
    """The subset that fair greedy finds among the items of highest leverage."""
    rows = shortlist(problem, relaxation.leverage, oversampling)
    found = greedy(problem.take(rows), session)
    return Found(rows[found.indices], found.status)


def _turn_of(name: str, rows: list[Selection], of: int, began: float) -> Step:
    """What a listener hears before a selector of a comparison takes its turn."""
    best = max((row.fair_score for row in rows), default=0.0)
    details = {"selector": name, "size": len(rows), "of": of}
    return Step("compare", len(rows), 0, time.monotonic() - began, best, details=details)


def _certify(problem: Problem) -> Certificate:
    with few_threads(problem.work()):
        return make_certificate(problem)


# --- what is said about it ----------------------------------------------------------------------


def _settings(problem: Problem, method: str, effort: Effort, oversampling: float) -> dict[str, Any]:
    pool = problem.pool
    return {
        "method": method,
        "effort": effort.name,
        "n": problem.n,
        "k": problem.k,
        "views": {name: view.p for name, view in pool.items()},
        "tau": problem.tau,
        "eps": {name: view.ridge for name, view in pool.items()},
        "calibration": problem.calibration.rule,
        "quality": pool.quality is not None,
        "oversampling": oversampling,
        "random_state": problem.random_state,
    }


def _rank_notes(problem: Problem, certificate: Certificate | None) -> tuple[str, ...]:
    if certificate is None:
        return _width_notes(problem)
    widths = {name: min(view.n, view.p) for name, view in problem.pool.items()}
    ranks = {name: widths[name] if r is None else r for name, r in certificate.ranks.items()}
    return tuple(_rank_note(problem.k, name, r) for name, r in ranks.items() if problem.k > r)


def _width_notes(problem: Problem) -> tuple[str, ...]:
    """As far as widths tell, without looking at the data."""
    widths = [(name, min(view.n, view.p)) for name, view in problem.pool.items()]
    return tuple(_rank_note(problem.k, name, p) for name, p in widths if problem.k > p)


def _rank_note(k: int, name: str, rank: int) -> str:
    return (
        f"k = {k} exceeds the rank {rank} of view {name!r}, so its score fills with log eps "
        f"({k - rank} of {k} terms); lower k or drop the view"
    )


def _warn(notes: tuple[str, ...]) -> None:
    for note in notes:
        warnings.warn(note, RankWarning, stacklevel=3)
