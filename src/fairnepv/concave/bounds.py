"""`certify`: how good any answer can be, from the data alone and never from what a search found."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairnepv.compute.clock import Limit, OutOfTime, limited, now, unlimited
from fairnepv.concave.certificate import Certificate as Certificate
from fairnepv.concave.concave import Concave, Start
from fairnepv.concave.costs import evaluation_cost
from fairnepv.concave.dual import Dual, price
from fairnepv.concave.proof import Proof, best_apart, proven, proven_alone
from fairnepv.concave.spectral import diagonal_bound, spectral_bounds
from fairnepv.concave.state import ConcaveState
from fairnepv.concave.terms import Terms
from fairnepv.errors import InputError, Status
from fairnepv.loop import MOMENT, Context
from fairnepv.objective import UNITS, soft_min, utility_of
from fairnepv.options import default
from fairnepv.problem import Problem, by_view
from fairnepv.views.base import Floats, Indices

GAP: float = default("gap")  # nats per item, or a share of variance
_MOST_STEPS = 200
_APART = 10.0  # times the gap, for the bounds of views alone: nothing is decided by these
_CHEAP = 1e7  # multiply-adds of an evaluation on all rows, up to which they are as precise
_FLOOR = 1e11  # multiply-adds that a relaxation may take in any case
_HARD = 0.01  # a temperature at which the soft-min is nearly the minimum
_SOLVING = 0.7  # of the time for a bound, its solver, before what it has must be proven
_JOINT = 0.4  # the same of the bound on all views, if those on each of them are still to come
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Solved:
    """A relaxation as far as it was solved, and what its dual variables prove, in float64."""

    bound: float
    dual: Dual
    status: Status
    value: float = -np.inf  # of the relaxation at the point that was reached
    state: ConcaveState | None = None  # None: no solver had proven anything
    view_values: Floats = field(default_factory=lambda: np.empty(0))  # (M,) at that point

    def point(self, problem: Problem) -> tuple[Indices, Floats]:
        """Rows and x of the relaxed solution, for which without one the largest rows stand."""
        if self.state is not None:
            return self.state.rows, self.state.x
        norms = problem.pool.squared_norms @ (1.0 / problem.pool.largest_norms.clip(_TINY))
        rows = problem.constraints.best_set(norms, problem.k)
        return np.sort(rows).astype(np.int64), np.ones(problem.k)


def certify(
    problem: Problem,
    *,
    gap: float = GAP,
    session: Context | None = None,
    products: float = np.inf,
) -> Certificate:
    """The concave bound on F_tau and on every view alone, and the spectral ones.

    Where time runs out or it is interrupted, each of them is what was proven by then, and at least
    what the norms of the rows prove. `products`: work that each may take, beside a floor.
    """
    context = session or Context()
    pool = problem.pool
    part = _SOLVING if len(pool.names) == 1 else _JOINT
    joint = _solve(problem, gap, context, part=part, products=products)
    alone = _views_alone(problem, joint, gap, context, products)
    cut = [s.status for s in (joint, *alone) if s.status.stops_everything]
    spectral = spectral_bounds(problem, context, hurries=np.isfinite(products))
    interrupted = context.stopped is Status.INTERRUPTED
    status = Status.INTERRUPTED if interrupted else next(iter(cut), joint.status)
    bounds = np.array([solved.bound for solved in alone])
    upper, views = min(joint.bound, best_apart(problem, bounds)), by_view(pool, bounds)
    dual, proofs = _published(problem, joint, alone)
    ranks = dict(zip(pool.names, spectral.ranks, strict=True))
    support, relaxed = joint.point(problem)
    return Certificate(
        upper_bound=upper,
        duality_gap=max(upper - joint.value, 0.0),
        by_view=views,
        weights=by_view(pool, dual.weights),
        spectral_bound=float(soft_min(spectral.bounds + problem.lifts, problem.tau)),
        spectral=by_view(pool, spectral.bounds),
        diagonal=by_view(pool, spectral.diagonal),
        ranks=ranks,
        rules={name: "trace" if ranks[name] is None else "spectral" for name in ranks},
        status=status,
        proof=Proof(Terms.of(problem), upper, views, dual, proofs),
        support=support,
        relaxed=relaxed,
        notes=_notes(joint, status, gap, UNITS[problem.utility].unit)
        + _notes_apart(dict(zip(pool.names, alone, strict=True)), _APART * gap),
    )


def view_bound(
    problem: Problem,
    name: str,
    *,
    gap: float = GAP,
    session: Context | None = None,
    start: Start | None = None,
    products: float = np.inf,
) -> Solved:
    """No k items that the constraints allow bring d_q of this view above the bound.

    Where calibration has proven one for the same view, its dual variables are priced again: they
    prove something about any problem, and about the same one nearly the same.
    """
    alone = problem.over(problem.pool.only(name))
    hadamard = diagonal_bound(alone.pool.views[0], problem.k, utility_of(problem))
    dual = problem.calibration.evidence.get(name)
    if dual is not None and not (session and session.stopped):
        with contextlib.suppress(InputError):  # a calibration may come from other data
            bound = proven(alone, dual)
            if bound <= gap:  # after such a calibration a view reaches 0 at most
                return Solved(min(bound, hadamard), dual, Status.CONVERGED, 0.0)
    solved = _solve(alone, gap, session, start, products=products)
    return replace(solved, bound=min(solved.bound, hadamard))


def _views_alone(
    problem: Problem, joint: Solved, gap: float, session: Context, products: float
) -> list[Solved]:
    """The bound and the proof of every view, from the joint solution on; each gets its share of the
    time that is left, and the spectral bounds one, too."""
    names, k, utility = problem.pool.names, problem.k, utility_of(problem)
    if len(names) == 1:
        hadamard = diagonal_bound(problem.pool.views[0], k, utility)
        return [replace(joint, bound=min(joint.bound, hadamard))]
    found = []
    for q, name in enumerate(names):
        solved = None
        if not session.stopped:
            with session.share(1.0 / (len(names) - q + 1)), session.absorbing_interruption():
                solved = _view_alone(problem, q, joint, gap, session, products)
        if solved is None:
            alone = problem.over(problem.pool.only(name))
            hadamard = diagonal_bound(alone.pool.views[0], k, utility)
            solved = _by_norms(alone, session.stopped or Status.TIME_LIMIT)
            solved = replace(solved, bound=min(solved.bound, hadamard))
        found.append(solved)
    return found


def _published(
    problem: Problem, joint: Solved, alone: Sequence[Solved]
) -> tuple[Dual, dict[str, Dual]]:
    """The dual variables of the joint bound and of every view's, on the host: these are many, and
    to copy them takes long, so it is done once, for those that the bounds rest on in the end."""
    pool, dual, own = problem.pool, joint.dual.published(problem.pool.views), {}
    for q, (name, solved) in enumerate(zip(pool.names, alone, strict=True)):
        if solved.dual.views[0] is joint.dual.views[q]:
            own[name] = replace(solved.dual, views=(dual.views[q],))
        else:
            own[name] = solved.dual.published((pool.views[q],))
    return dual, own


def _view_alone(
    problem: Problem, q: int, joint: Solved, gap: float, session: Context, products: float
) -> Solved:
    """What is proven of a view: by the joint proof where that is good enough."""
    name, state = problem.pool.names[q], joint.state
    alone = problem.over(problem.pool.only(name))
    if state is None or evaluation_cost(alone, problem.n) <= _CHEAP:
        return view_bound(problem, name, gap=gap, session=session, products=products)
    dual = Dual(np.ones(1), joint.dual.rows, (joint.dual.views[q],))
    bound, value = proven_alone(problem, name, dual), float(joint.view_values[q])
    found = Solved(bound, dual, joint.status, value)
    if bound - value <= _APART * gap:
        return found
    start = state.rows, state.x
    options: Any = {"session": session, "start": start, "products": products}
    other = view_bound(problem, name, gap=_APART * gap, **options)
    return other if other.bound <= bound else replace(found, value=max(value, other.value))


def refuse_unreachable_floors(problem: Problem, session: Context) -> None:
    """Floors that are proven to be out of reach, of one view or of several together. What cannot be
    proven in time is left to the search."""
    if problem.floors is None or session.stopped:
        return
    names, floors = problem.pool.names, problem.floors
    held = [q for q in range(len(names)) if np.isfinite(floors[q])]
    for turn, q in enumerate(held):
        with session.share(1.0 / (len(held) - turn + 1)), session.absorbing_interruption():
            bound = view_bound(problem, names[q], session=session).bound
            if bound < floors[q]:
                raise InputError(
                    f"the floor {floors[q]:g} of view {names[q]!r} cannot be reached: no "
                    f"{problem.k} items that are allowed bring it above {bound:.4f}; lower it"
                )
        if session.stopped:
            return
    if len(held) < 2:
        return
    views = [problem.pool.views[q] for q in held]
    above = tuple(v.scaled(v.scale, v.offset - floors[q]) for q, v in zip(held, views, strict=True))
    pool = problem.pool.with_views(tuple(names[q] for q in held), above)
    # The soft-min is at least the minimum: where it cannot be positive, some floor is missed.
    bound = _solve(problem.over(pool, tau=_HARD), GAP, session).bound
    if bound < 0:
        together = ", ".join(f"{names[q]!r}: {floors[q]:g}" for q in held)
        raise InputError(
            f"the floors {{{together}}} cannot be reached together: whatever {problem.k} items are "
            f"chosen, one of them is missed by {-bound:.4f} or more; lower some"
        )


# --- one relaxation -------------------------------------------------------------------------------


def _solve(
    problem: Problem,
    gap: float,
    session: Context | None,
    start: Start | None = None,
    part: float = _SOLVING,
    products: float = np.inf,
) -> Solved:
    """The relaxation solved in a part of the time that is left, so that what it has can be proven;
    without a session of the caller an interruption is passed on."""
    context, found, state = session or Context(), None, None
    if context.stopped:
        return _by_norms(problem, context.stopped)
    with context.absorbing_interruption():
        with context.share(part):
            budget = _FLOOR + products * problem.work()
            solver = Concave(problem, gap=gap, start=start, budget=budget)
            found = context.run(solver, max_steps=_MOST_STEPS)
        if found is not None:
            state = _proven_in_time(solver, found.state, context)
    if session is None and context.stopped is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if found is None or state is None:
        return _by_norms(problem, context.stopped or Status.TIME_LIMIT)
    with unlimited():
        values = solver.view_values(state)
        return Solved(state.bound, solver.dual(state), found.status, state.value, state, values)


def _proven_in_time(solver: Concave, state: ConcaveState, context: Context) -> ConcaveState | None:
    """The state with its bound proven in float64; after an interruption in a moment or not."""
    if state.proven or context.stopped is not Status.INTERRUPTED:
        return solver.prove(state)
    with contextlib.suppress(OutOfTime), limited(Limit(now() + MOMENT)):
        return solver.prove(state)
    return None


def _by_norms(problem: Problem, status: Status) -> Solved:
    """What the norms of the rows prove by themselves."""
    dual = Dual.by_norms(problem)
    return Solved(price(problem, dual).bound, dual, status)


def _notes(joint: Solved, status: Status, gap: float, unit: str) -> tuple[str, ...]:
    if status is Status.CONVERGED:
        return ()
    because = {
        Status.TIME_LIMIT: "time_limit ran out",
        Status.INTERRUPTED: "it was interrupted",
    }.get(status, f"its solver stopped ({status.name})")
    if joint.state is None:
        note = (
            f"the bound is only what the lengths of the rows prove, which is mostly far from what "
            f"any set can score, because {because} before there was a better one"
        )
        return (note,)
    reached = f"{joint.bound - joint.value:.2g} {unit}"
    note = (
        f"the bound is proven, but a longer run could lower it by up to {reached}: {because} "
        f"before the gap was {gap:.2g}"
    )
    return (note,)


def _notes_apart(views: Mapping[str, Solved], gap: float) -> tuple[str, ...]:
    return tuple(
        f"the bound of view {name!r} alone is proven, but may be {own.bound - own.value:.2g} too "
        "high: its solver stopped early"
        for name, own in views.items()
        if len(views) > 1 and gap < own.bound - own.value < np.inf
    )
