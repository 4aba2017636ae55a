"""`relax`: coordinates, a start, a solver, a check of what was reached, and the record of it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairnepv.compute import block_threads, few_threads
from fairnepv.compute.clock import unlimited
from fairnepv.errors import NumericalError, Status
from fairnepv.io.frames import Table, Tabular
from fairnepv.loop import Context, Step
from fairnepv.objective import Point, StiefelObjective, fair_value, soft_min_weights, utility_of
from fairnepv.objective.geometry import EUCLIDEAN
from fairnepv.options import default
from fairnepv.problem import Problem, Stream, by_view
from fairnepv.stiefel.contraction import Theorem2, observed_rate
from fairnepv.stiefel.coordinates import (
    LARGEST_FRAME,
    Coordinates,
    Reduced,
    choose_coordinates,
    coordinates_of,
)
from fairnepv.stiefel.curvature import Curvature, largest_curvature
from fairnepv.stiefel.dual import Dual, DualState
from fairnepv.stiefel.iteration import PointMemo
from fairnepv.stiefel.lbfgs import Lbfgs
from fairnepv.stiefel.scf import LinearScf, Scf
from fairnepv.stiefel.solver import DUAL, Solver, make_solver, refuse_dual
from fairnepv.stiefel.starts import check_start, small_range, start_frame
from fairnepv.stiefel.trust_region import TrustRegion
from fairnepv.views.base import Floats
from fairnepv.views.imprint import Imprint

_START: str = default("start")
_CURVED = 0.1  # k times a curvature that a saddle is left by, however loose the tolerance
_ESCAPES = 5
_NEAR = 1.0  # residual at which the dual takes over, of the root of its tolerance: values are as
# close as its square
_REACHED = (Status.CONVERGED, Status.ROUNDING_FLOOR)
_IN_N_DIMENSIONS = (
    "the start leaves the joint range of the views, so the iteration was made in all n dimensions"
)
_PROJECTED = (
    "the start leaves the joint range of the views, and the solver began with its projection on it"
)
_LOST = 1e-7  # of orthonormality: more makes a value that no frame has


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Relaxation(Tabular):
    """What the relaxation found, with the basis made on demand."""

    value: float
    view_values: Mapping[str, float]
    view_weights: Mapping[str, float]
    residual: float = 0.0
    curvature: float | None = None  # k times the largest curvature found; None if not checked
    least_curvature: float | None = None  # and the least
    upper_bound: float | None = None  # on all frames, by the dual; None if there was none
    checked: str  # what was checked before the status was given
    status: Status
    trace: tuple[Step, ...] = field(default=(), repr=False)
    solver: Solver
    coordinates: Coordinates = field(repr=False)
    frame: Floats = field(repr=False)  # in those coordinates
    k: int = field(repr=False)
    of_log_determinants: bool = field(default=True, repr=False)
    notes: tuple[str, ...] = ()
    imprint: Imprint | None = field(default=None, repr=False)  # of the rows, for a later look

    @property
    def headline(self) -> str:
        residual = f"residual {self.residual:.2g} after {self.steps} steps of {self.solver.name!r}"
        return f"Relaxation: value {self.value:.6f}, {residual}, {self.status.name}"

    @property
    def table(self) -> Table:
        """One row per view: its value on the frame, and its weight in the soft minimum."""
        columns = {
            "view": np.array(list(self.view_values), dtype=object),
            "value": np.array(list(self.view_values.values())),
            "weight": np.array(list(self.view_weights.values())),
        }
        about = {"k": self.k, "value": self.value, "residual": self.residual, "steps": self.steps}
        ended = {"status": self.status.name, "checked": self.checked, "notes": list(self.notes)}
        return Table(columns, {**about, **ended}, "views")

    @property
    def contraction(self) -> float | None:
        """The factor by which the residual of Algorithm 1 shrank per step at the end."""
        return observed_rate(self.trace)

    @property
    def theorem_2(self) -> Theorem2 | None:
        """Whether local convergence of Algorithm 1 was to be expected here [FairNEPv, Theorem 2]:
        of the variant that ran, and of the plain one after another solver. None where the frame is
        not known to be stationary, and for an objective that the theorem is not about."""
        if self.curvature is None or self.least_curvature is None or not self.of_log_determinants:
            return None
        both = self.curvature, self.least_curvature
        return Theorem2.at(both, self.k, self.solver.alpha, self.solver.sigma)

    @property
    def steps(self) -> int:
        """A stage of s steps leaves s + 1 rows, its start among them."""
        return sum(row.step > 0 for row in self.trace)

    @functools.cached_property
    def basis(self) -> Floats:
        """(n, k) orthonormal frame V."""
        self._check_rows()
        V = self.coordinates.lift(self.frame)
        if V.shape[1] < self.k:  # degenerate: any completion is as good as another
            rest = np.random.default_rng(0).standard_normal((len(V), self.k - V.shape[1]))
            V = np.hstack([V, EUCLIDEAN.orthonormalize(rest - V @ (V.T @ rest))])
        return V

    @functools.cached_property
    def leverage(self) -> Floats:
        """(n,) leverage scores l_i = ||e_i^T V||^2 [FairNEPv, section 4.4]."""
        self._check_rows()
        return self.coordinates.leverage(self.frame)

    def _check_rows(self) -> None:
        if self.imprint is not None:
            self.imprint.check()


def relax(
    problem: Problem,
    solver: Solver | None = None,
    *,
    start: Any = _START,
    coordinates: Coordinates | None = None,
    session: Context | None = None,
) -> Relaxation:
    """Maximise f_tau over frames [FairNEPv, Eq. (P-Fair)]."""
    if solver is None:
        solver = make_solver(k=problem.k, tol=problem.tolerances.residual)
    start = check_start(problem, start)
    refuse_dual(solver, utility_of(problem).linear_on_frames)
    problem = replace(problem, pool=utility_of(problem).along_frames(problem.pool))
    with block_threads(problem.work()):
        chosen = coordinates or choose_coordinates(problem)
        whole_range = small_range(problem, chosen)
    if whole_range is not None:
        return _degenerate(problem, solver, chosen, whole_range)
    note, found, session = None, None, session or Context()
    try:
        with few_threads(chosen.products(problem.k)):
            frame, whole = start_frame(problem, chosen, start)
            if not whole and solver.literal and coordinates is None:
                chosen, note = coordinates_of(problem, "ambient"), _IN_N_DIMENSIONS
                frame, _ = start_frame(problem, chosen, start)
            elif not whole and not isinstance(start, str):
                note = _PROJECTED
            found = _Solve(problem, chosen, solver, session).solve_from(frame)
    except np.linalg.LinAlgError as error:  # not even the start has a sound Gram matrix
        raise NumericalError(Status.INDEFINITE.value) from error
    except KeyboardInterrupt:
        if found is None:
            raise
        session.interrupt()  # it came when threads were given back
    return found if note is None else replace(found, notes=(note,))


class _Solve:
    """One solve; its stages share the step budget and the trace."""

    def __init__(
        self, problem: Problem, coordinates: Coordinates, solver: Solver, context: Context
    ) -> None:
        self.problem, self.solver, self.context = problem, solver, context
        self.trace: list[Step] = []
        self._steps = 0  # of the whole solve: a resumed stage leaves a shorter trace
        self.passes = 0
        self._reached: tuple[Coordinates, Floats] | None = None  # what the last stage left
        self._enter(coordinates)

    def _enter(self, coordinates: Coordinates) -> None:
        """The solve in these coordinates from now on."""
        problem, self.coordinates = self.problem, coordinates
        self.objective = StiefelObjective(
            coordinates.maps,
            problem.pool.eps,
            problem.offsets,
            problem.tau,
            problem.k,
            utility_of(problem),
        )
        self._point = PointMemo(self.objective)
        self._judged: tuple[Point, float] | None = None  # the last point and its residual

    upper: float | None = None  # on all frames, once the dual has one

    def solve_from(self, frame: Floats) -> Relaxation:
        """The solution; where Ctrl-C comes between two stages, the frame that the last one left."""
        try:
            return self._solved(frame)
        except KeyboardInterrupt:
            if self._reached is None or self.context.stopped is Status.INTERRUPTED:
                raise
            self.context.interrupt()
            coordinates, V = self._reached
            self._enter(coordinates)
            with unlimited():
                return self._record(self._point(V), Status.INTERRUPTED, None)

    def _solved(self, frame: Floats) -> Relaxation:
        V, status, curvature = self._maximise(frame)
        if status.stops_everything:
            with unlimited():  # no more than the product or two that a step lost
                return self._record(self._point(V), status, None)
        geometry = self.objective.maps.geometry
        V = geometry.renew(V)
        lost = float(np.abs(geometry.inner(V, V) - np.eye(V.shape[1])).max())
        point = self._point(V if lost <= _LOST else geometry.orthonormalize(V))
        if lost > _LOST and point.residual > self.solver.tol:
            status = Status.STAGNATED
        return self._record(point, status, curvature)

    def _maximise(self, V: Floats) -> tuple[Floats, Status, Curvature | None]:
        """An iteration, a look for directions of ascent, and off along one, unless the iteration
        is that of the paper."""
        name = self.solver.name
        if name == DUAL:
            V, status = self._dual(V)
            if status is not Status.MIXED:
                return V, status, None
        escapes = 0 if self.solver.literal else _ESCAPES
        for attempt in range(escapes + 1):
            V, status = self._iterate(V)
            if status not in _REACHED:
                return V, status, None
            point, curvature = self._point(V), None
            with self.context.absorbing_interruption():
                curvature = self._check(point, attempt)
            if curvature is None or not curvature.ascends:
                return V, status, curvature
            if attempt < escapes:
                with self.context.absorbing_interruption():
                    V = _leave_saddle(point, curvature)
        return V, Status.SADDLE, curvature

    def _dual(self, V: Floats) -> tuple[Floats, Status]:
        """Ascent first, which comes near the best weights in fewer operations."""
        V, status = self._run(Lbfgs, V, tol=max(self.solver.tol, _NEAR * self.solver.tol**0.5))
        return (V, status) if status.stops_everything else self._run(Dual, V)

    def _iterate(self, V: Floats) -> tuple[Floats, Status]:
        """Algorithm 1, or the ascent, and Newton where that stalls."""
        solver = self.solver
        if solver.literal:
            scf = LinearScf if self.objective.utility.linear_on_frames else Scf
            return self._run(scf, V, alpha=solver.alpha, sigma=solver.sigma)
        V, status = self._run(Lbfgs, V)
        if status is Status.CONVERGED and self._residual(self._point(V)) <= solver.tol:
            return V, status
        return self._newton(V) if status in (Status.STAGNATED, Status.CONVERGED) else (V, status)

    def _newton(self, V: Floats) -> tuple[Floats, Status]:
        """Second-order steps to the tolerance, as seen in n dimensions.

        Reduced coordinates leave out directions that drown in the rounding of a Gram matrix. Where
        rows nearly coincide the gradient may still point there; the last steps are then taken in
        n dimensions, or in the span where frames of n rows are too many numbers.
        """
        V, status = self._run(TrustRegion, V)
        if status in _REACHED and self._residual(self._point(V)) > self.solver.tol:
            V, status = self._run(TrustRegion, self._leave_reduced(V))
        return V, status

    def _leave_reduced(self, V: Floats) -> Floats:
        """The same frame in coordinates that leave nothing out, and the solve with it."""
        pool, reduced = self.problem.pool, self.coordinates
        if pool.n * self.problem.k <= LARGEST_FRAME or pool.n <= pool.width:
            self._enter(coordinates_of(self.problem, "ambient"))
            return reduced.lift(V)
        assert isinstance(reduced, Reduced)
        self._enter(coordinates_of(self.problem, "spanned"))
        maps = self.objective.maps
        return maps.geometry.orthonormalize(maps.combine(reduced.coefficients(V)))

    def _residual(self, point: Point) -> float:
        """k ||A_perp||_F in n dimensions, whatever the coordinates; at most one pass per point."""
        if self._judged is None or self._judged[0] is not point:
            left_out = point.unit * self.coordinates.left_out(point.pulls)
            self._judged = point, float(np.hypot(point.residual, left_out))
        return self._judged[1]

    def _check(self, point: Point, attempt: int) -> Curvature | None:
        """As many Lanczos steps as the budget of passes has left for; None where that is none."""
        for_product, products = self._point.for_both, self.solver.lanczos_steps
        if self._passes_left is not None and for_product:
            products = min(products, self._passes_left // for_product)
        if products == 0:
            return None
        self.passes += products * for_product
        threshold = min(max(1e-5, self.solver.tol), _CURVED)
        rng = self.problem.rng(Stream.CURVATURE, attempt)
        return largest_curvature(point, rng, threshold=threshold, products=products)

    def _run(self, kind: Any, V: Floats, **knobs: float) -> tuple[Floats, Status]:
        iteration = kind(self.objective, V, **{"tol": self.solver.tol, **knobs})
        outcome = self.context.run(
            iteration,
            max_steps=self.solver.max_steps - self._steps,
            max_passes=self._passes_left,
        )
        self.trace.extend(outcome.trace)
        self._steps += outcome.steps
        self.passes += outcome.state.passes
        if isinstance(outcome.state, DualState):
            self.upper = outcome.state.upper
        if iteration.reported is not None:  # a journal may know the end of a run without its points
            self._point.keep(iteration.reported)
        self._reached = self.coordinates, outcome.state.V
        return outcome.state.V, outcome.status

    @property
    def _passes_left(self) -> int | None:
        most = self.solver.max_passes
        return None if most is None else max(0, most - self.passes)

    def _record(self, point: Point, status: Status, curvature: Curvature | None) -> Relaxation:
        pool = self.problem.pool
        checked = _describe_check(curvature)
        if self.upper is not None:
            apart = self.upper - point.value
            checked = f"the dual: no frame has a value that is higher by more than {apart:.3g}"
            if not status.stops_everything and apart <= self.solver.tol:
                status = Status.GLOBAL
            elif status in (*_REACHED, Status.SADDLE):
                status = Status.MIXED
        return Relaxation(
            value=point.value,
            upper_bound=self.upper,
            view_values=by_view(pool, point.view_values - self.problem.lifts),
            view_weights=by_view(pool, point.weights),
            residual=point.residual if status.stops_everything else self._residual(point),
            curvature=None if curvature is None else curvature.largest,
            least_curvature=None if curvature is None else curvature.least,
            checked=checked,
            status=status,
            trace=tuple(self.trace),
            solver=self.solver,
            coordinates=self.coordinates.released(),
            frame=point.V,
            k=self.problem.k,
            of_log_determinants=not self.objective.utility.linear_on_frames,
        )


def _describe_check(curvature: Curvature | None) -> str:
    if curvature is None:
        return "first order only: the residual; curvature was not looked at"
    found = "a direction of ascent" if curvature.ascends else "no direction of ascent"
    return (
        f"residual, and {curvature.products} Lanczos steps on the Hessian found {found} "
        f"(k times the largest curvature: {curvature.largest:.3g})"
    )


def _leave_saddle(point: Point, curvature: Curvature) -> Floats:
    """The best of a few steps along a direction of ascent, to either side."""
    lengths = [sign * 2.0**-j for j in range(1, 12) for sign in (1.0, -1.0)]

    def frame(length: float) -> Floats:
        return point.geometry.retract(point.V, length * curvature.direction)

    values = [point.objective.at(frame(length)).value for length in lengths]
    return frame(lengths[int(np.argmax(values))])


def _degenerate(
    problem: Problem, solver: Solver, coordinates: Coordinates, frame: Floats
) -> Relaxation:
    """k >= rank: a frame that holds the whole range gives every view its spectral bound."""
    pool, k, utility = problem.pool, problem.k, utility_of(problem)
    views = zip(coordinates.maps.adjoint(frame), pool.eps, coordinates.maps.traces, strict=True)
    totals = np.array([utility.on_range(*view, k) for view in views])
    g = pool.offsets + totals / utility.divisor(k)
    value = fair_value(problem, g)
    return Relaxation(
        value=value,
        upper_bound=value if utility.linear_on_frames else None,
        view_values=by_view(pool, g),
        view_weights=by_view(pool, soft_min_weights(g + problem.lifts, problem.tau)),
        checked="k against the joint rank of the views; this value is the global maximum",
        status=Status.DEGENERATE,
        solver=solver,
        coordinates=coordinates.released(),
        frame=frame,
        k=k,
    )
