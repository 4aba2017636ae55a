"""`certify`: how good any answer can be, from the data alone and never from what a search found."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fairnepv.concave.concave import Concave, ConcaveState, Start, evaluation_cost
from fairnepv.concave.dual import Dual
from fairnepv.concave.proof import Proof, best_apart, proven, proven_alone
from fairnepv.concave.spectral import diagonal_bound, spectral_bounds
from fairnepv.concave.terms import Terms
from fairnepv.errors import InputError, Status
from fairnepv.loop import Context
from fairnepv.objective import soft_min
from fairnepv.options import default
from fairnepv.problem import Problem, by_view
from fairnepv.views.base import Floats, Indices

GAP: float = default("gap")  # nats per item
_MOST_STEPS = 200
_APART = 10.0  # times the gap, for the bounds of views alone: nothing is decided by these
_CHEAP = 1e7  # multiply-adds of an evaluation on all rows, up to which they are as precise
_HARD = 0.01  # a temperature at which the soft-min is nearly the minimum


@dataclass(frozen=True, eq=False)
class Certificate:
    """No k items that the constraints allow score above `upper_bound`.

    It is the bound of the concave relaxation (docs/method.md#concave-bound), proven by the dual
    variables in `proof`; the paper's spectral certificate stands beside it.
    """

    upper_bound: float
    duality_gap: float  # how much of the bound a longer run of the solver could still take away
    by_view: Mapping[str, float]  # no such k items bring this view alone above this
    weights: Mapping[str, float]  # of the views in the proof; where they are large, views bind
    spectral_bound: float  # [FairNEPv, appendix B]
    spectral: Mapping[str, float]  # U_{k,q}; Hadamard's bound where `rules` says 'diagonal'
    diagonal: Mapping[str, float]  # Hadamard's bound
    ranks: Mapping[str, int | None]  # numerical rank; None where the eigenvalues are not known
    rules: Mapping[str, str]
    status: Status
    proof: Proof = field(repr=False)  # dual variables, by which anybody can check the bounds
    support: Indices = field(repr=False)  # rows of the relaxed solution
    relaxed: Floats = field(repr=False)  # its values there, from 0 to 1, summing to k
    notes: tuple[str, ...] = ()


def certify(problem: Problem, *, gap: float = GAP, session: Context | None = None) -> Certificate:
    """The concave bound on F_tau and on every view alone, and the spectral ones."""
    context = session or Context()
    solver, state, status = _solve(problem, gap, context)
    pool, dual = problem.pool, solver.dual(state)
    spectral = spectral_bounds(problem)
    loose: tuple[str, ...] = ()
    bounds, alone = np.minimum(spectral.diagonal, state.bound), [dual]
    if len(pool.names) > 1:
        joint = _Joint(dual, state.rows, state.x, solver.view_values(state))
        own = [_view_alone(problem, q, joint, gap, context) for q in range(len(bounds))]
        bounds, alone = np.array([view.bound for view in own]), [view.dual for view in own]
        loose = _notes_apart(dict(zip(pool.names, own, strict=True)), _APART * gap)
    status = context.stopped or status
    upper, views = min(state.bound, best_apart(problem, bounds)), by_view(pool, bounds)
    proofs = dict(zip(pool.names, alone, strict=True))
    ranks = dict(zip(pool.names, spectral.ranks, strict=True))
    return Certificate(
        upper_bound=upper,
        duality_gap=max(upper - state.value, 0.0),
        by_view=views,
        weights=by_view(pool, dual.weights),
        spectral_bound=float(soft_min(spectral.bounds + problem.lifts, problem.tau)),
        spectral=by_view(pool, spectral.bounds),
        diagonal=by_view(pool, spectral.diagonal),
        ranks=ranks,
        rules={name: "diagonal" if ranks[name] is None else "spectral" for name in ranks},
        status=status,
        proof=Proof(Terms.of(problem), upper, views, dual, proofs),
        support=state.rows,
        relaxed=state.x,
        notes=_notes(state, status, gap) + loose,
    )


def view_bound(
    problem: Problem,
    name: str,
    *,
    gap: float = GAP,
    session: Context | None = None,
    start: Start | None = None,
) -> tuple[float, Dual]:
    """No k items that the constraints allow bring d_q of this view above the bound.

    Where calibration has proven one for the same view, its dual variables are priced again: they
    prove something about any problem, and about the same one nearly the same.
    """
    bound, dual, _ = _bound_alone(problem, name, gap, session, start)
    return bound, dual


class _Alone(NamedTuple):
    """What is proven of one view."""

    bound: float
    dual: Dual
    value: float  # of the relaxation, roughly: no proof takes the bound below


def _bound_alone(
    problem: Problem, name: str, gap: float, session: Context | None, start: Start | None
) -> _Alone:
    alone = problem.over(problem.pool.only(name))
    hadamard = diagonal_bound(alone.pool.views[0], problem.k)
    dual = problem.calibration.evidence.get(name)
    if dual is not None:
        with contextlib.suppress(InputError):  # a calibration may come from other data
            bound = proven(alone, dual)
            if bound <= gap:  # after such a calibration a view reaches 0 at most
                return _Alone(min(bound, hadamard), dual, 0.0)
    solver, state, _ = _solve(alone, gap, session, start)
    return _Alone(min(state.bound, hadamard), solver.dual(state), state.value)


class _Joint(NamedTuple):
    """The solution for all views together, from which those of single views begin."""

    dual: Dual
    rows: Indices
    x: Floats
    values: Floats  # (M,) of the relaxation at x, by view

    def alone(self, q: int) -> Dual:
        """What it says of one view."""
        return Dual(np.ones(1), self.dual.rows, (self.dual.views[q],))


def _view_alone(problem: Problem, q: int, joint: _Joint, gap: float, session: Context) -> _Alone:
    """What is proven of a view: by the joint proof where that is good enough, or time is over."""
    name, dual, value = problem.pool.names[q], joint.alone(q), joint.values[q]
    alone = problem.over(problem.pool.only(name))
    if not session.stopped and evaluation_cost(alone, problem.n) <= _CHEAP:
        return _bound_alone(problem, name, gap, session, None)
    found = _Alone(proven_alone(problem, name, dual), dual, value)
    if session.stopped or found.bound - value <= _APART * gap:
        return found
    other = _bound_alone(problem, name, _APART * gap, session, (joint.rows, joint.x))
    return other if other.bound <= found.bound else found._replace(value=other.value)


def refuse_unreachable_floors(problem: Problem) -> None:
    """Floors that are proven to be out of reach, of one view or of several together."""
    if problem.floors is None:
        return
    names, floors = problem.pool.names, problem.floors
    held = [q for q in range(len(names)) if np.isfinite(floors[q])]
    for q in held:
        bound, _ = view_bound(problem, names[q])
        if bound < floors[q]:
            raise InputError(
                f"the floor {floors[q]:g} of view {names[q]!r} cannot be reached: no {problem.k} "
                f"items that are allowed bring it above {bound:.4f}; lower it"
            )
    if len(held) < 2:
        return
    views = [problem.pool.views[q] for q in held]
    above = tuple(v.scaled(v.scale, v.offset - floors[q]) for q, v in zip(held, views, strict=True))
    pool = problem.pool.with_views(tuple(names[q] for q in held), above)
    # The soft-min is at least the minimum: where it cannot be positive, some floor is missed.
    _, state, _ = _solve(problem.over(pool, tau=_HARD), GAP, None)
    if state.bound < 0:
        together = ", ".join(f"{names[q]!r}: {floors[q]:g}" for q in held)
        raise InputError(
            f"the floors {{{together}}} cannot be reached together: whatever {problem.k} items are "
            f"chosen, one of them is missed by {-state.bound:.4f} or more; lower some"
        )


def _solve(
    problem: Problem, gap: float, session: Context | None, start: Start | None = None
) -> tuple[Concave, ConcaveState, Status]:
    """The relaxation solved; without a session of the caller an interruption is passed on."""
    solver = Concave(problem, gap=gap, start=start)
    outcome = (session or Context()).run(solver, max_steps=_MOST_STEPS)
    if session is None and outcome.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return solver, solver.prove(outcome.state), outcome.status


def _notes(state: ConcaveState, status: Status, gap: float) -> tuple[str, ...]:
    if status is Status.CONVERGED:
        return ()
    reached = f"{state.bound - state.value:.2g} and not {gap:.2g} ({status.name})"
    return (f"the bound is proven, but its solver stopped at a duality gap of {reached}",)


def _notes_apart(views: Mapping[str, _Alone], gap: float) -> tuple[str, ...]:
    return tuple(
        f"the bound of view {name!r} alone is proven, but may be {own.bound - own.value:.2g} too "
        "high: its solver stopped early"
        for name, own in views.items()
        if own.bound - own.value > gap
    )
