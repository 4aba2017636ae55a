"""What a baseline cannot do, each in one sentence."""

from __future__ import annotations

from fairnepv.errors import UnsupportedError
from fairnepv.problem import WIDEST_GRAM, Problem

FACTOR_THE_AVERAGE = ("k-dpp", "softmax", "d-optimal")
_DIVIDE_BY_THE_RIDGE = ("softmax", "d-optimal", "saturate")


def refuse(problem: Problem, name: str) -> str | None:
    """Why a baseline cannot be run on this problem, or None if it can."""
    if name in _DIVIDE_BY_THE_RIDGE and not problem.pool.eps.all():
        return f"method '{name}' needs a ridge eps above zero in every view; use another one"
    if name not in FACTOR_THE_AVERAGE:
        return None
    if problem.constraints:
        return f"method '{name}' does not support include, exclude or groups; use 'auto'"
    smaller = min(problem.n, problem.pool.width)
    if smaller > WIDEST_GRAM:
        return (
            f"method '{name}' factors the averaged kernel, whose smaller side is {smaller} (rows "
            f"or feature columns in all), more than {WIDEST_GRAM}; use another one"
        )
    return None


def insist(problem: Problem, name: str) -> None:
    """Raise what `refuse` says, for those who call a baseline directly."""
    reason = refuse(problem, name)
    if reason:
        raise UnsupportedError(reason)
