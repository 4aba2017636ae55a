"""The paper's pipeline: relax, screen by leverage, greedy, one-swaps [FairNEPv, section 4.4].

Which solver relaxes, where it begins and ends and how long the shortlist is is a record, so that a
plan carries it and a result tells it; one-swaps follow as the budget of the plan has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import brief
from fairnepv.errors import InputError, Status
from fairnepv.loop import Context
from fairnepv.objective import UTILITIES
from fairnepv.options import STARTS, Rounding, default
from fairnepv.problem import DEFAULT_UTILITY, Problem
from fairnepv.search import Found, greedy, shortlist
from fairnepv.signatures import options_of
from fairnepv.stiefel import DUAL, VARIANTS, Relaxation, Solver, make_solver, refuse_dual
from fairnepv.stiefel import relax as solve_relaxation

_ROUGH, _ROUGHEST = 0.01, (0.1, 1.0)  # residual of a relaxation that is rounded, by k; its range
_ROUGH_SHARE = 1e-4  # of the variance, by which a relaxation that is rounded may miss its bound
_ROUGH_STEPS = 300
_SPECTRAL: str = default("start")
_LANCZOS = 4  # steps of the look for directions of ascent
_RELAXING = 0.6  # of the time that is left, for a relaxation that is to be rounded
_A_FRAME = "a frame"
_OF_OTHERS = ("oversampling",)  # which further starts of other methods have, too


@dataclass(frozen=True)
class Nepv:
    """The knobs of the pipeline by the names of the options; None: as rounding needs."""

    solver: str | None = None
    tol: float | None = None
    max_steps: int | None = None
    alpha: float | None = None
    sigma: float | None = None
    start: Any = _SPECTRAL
    oversampling: float = default("oversampling")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Nepv:
        return cls(**{field.name: options[field.name] for field in fields(cls)})

    def solver_for(self, k: int, utility: str) -> Solver:
        """Rough is plenty for an ordering of candidates (docs/method.md#the-papers-pipeline): from
        0.1 to 3 the tolerance changed what swaps made of them by chance only. Where the relaxation
        has a dual, that is as quick, and says what it leaves. A solver that is named has the
        defaults of `relax`."""
        name, tol, steps = self.solver, self.tol, self.max_steps
        if name is None:
            dual = UTILITIES[utility].linear_on_frames
            rough = _ROUGH_SHARE if dual else float(np.clip(_ROUGH * k, *_ROUGHEST))
            name, tol, steps = DUAL if dual else None, tol or rough, steps or _ROUGH_STEPS
        knobs: Any = {"tol": tol, "max_steps": steps, "alpha": self.alpha, "sigma": self.sigma}
        return replace(make_solver(name, k=k, **knobs), lanczos_steps=_LANCZOS)

    @property
    def most_steps(self) -> int | None:
        """Of a solver that is named, which may take all of them; None: few, as rounding needs."""
        return None if self.solver is None else self.solver_for(1, DEFAULT_UTILITY).max_steps

    @property
    def drawn(self) -> bool:
        """Whether the start is drawn. Another one names a subspace: what is drawn on the way there
        and to see whether the end is a maximum is the same whatever the seed, or a comparison over
        seeds would show the spread of an aid."""
        return isinstance(self.start, str) and self.start != _SPECTRAL

    def start_from(self, problem: Problem, context: Context) -> Found:
        """Relax, screen by leverage, fair greedy within the shortlist.

        The relaxation gets a part of the time, so that what it has by then can be rounded.
        """
        relaxation, solver = None, self.solver_for(problem.k, problem.utility)
        relaxed = problem if self.drawn else replace(problem, random_state=default("random_state"))
        with context.share(_RELAXING):
            relaxation = solve_relaxation(relaxed, solver, start=self.start, session=context)
        if relaxation is None:
            context.notes.append(
                "time_limit left too little for the relaxation of 'nepv', so that items were "
                "chosen by greedy from all rows"
            )
            return greedy(problem, context)
        if relaxation.status not in (Status.CONVERGED, Status.GLOBAL):
            context.notes.append(f"relaxation: {relaxation.status.value}")
        return round_by_leverage(problem, relaxation, self.oversampling, context)

    def settings(self, k: int, utility: str) -> dict[str, Any]:
        """What is run, by the names of the options: given again, they run the same. A frame is too
        large to be told, so that it has to be given again."""
        solver = self.solver_for(k, utility)
        varied = solver.name in VARIANTS
        named = isinstance(self.start, str)
        return {
            "solver": solver.name,
            "tol": solver.tol,
            "max_steps": solver.max_steps,
            "alpha": solver.alpha if varied else None,
            "sigma": solver.sigma if varied else None,
            "start": self.start if named else _told(self.start),
        }


def _told(start: NDArray[Any]) -> str | list[int]:
    if start.ndim > 1:
        return _A_FRAME
    rows: list[int] = start.tolist()
    return rows


def check_nepv(options: Mapping[str, Any], methods: tuple[str, ...]) -> None:
    """Refuse, before any data is looked at, what no pipeline takes, and what none of the methods
    does: these options are for 'nepv' alone."""
    objective, start = options["objective"], options["start"]
    if "nepv" in methods:
        solver = Nepv.of(options).solver_for(1, objective)
        refuse_dual(solver, UTILITIES[objective].linear_on_frames)
        if options["hierarchical"] and not isinstance(start, str):
            raise InputError(
                f"start must be one of {', '.join(STARTS)} with hierarchical, whose relaxation is "
                f"about the winners of the shards, not {brief(start)}"
            )
        return
    for name, option in options_of(Rounding).items():
        value, usual = options[name], option.default
        if name in _OF_OTHERS or value is usual or (isinstance(value, str) and value == usual):
            continue
        raise InputError(
            f"{name} is for method 'nepv', not {', '.join(map(brief, methods))}; drop it"
        )


def round_by_leverage(
    problem: Problem, relaxation: Relaxation, oversampling: float, context: Context
) -> Found:
    """The subset that fair greedy finds among the items of highest leverage."""
    rows = shortlist(problem, relaxation.leverage, oversampling)
    found = greedy(problem.take(rows), context)
    return replace(found, indices=rows[found.indices])
