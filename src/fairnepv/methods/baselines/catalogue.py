"""All baselines by name, and what each cannot do, in one sentence."""

from functools import partial

from fairnepv.methods.baselines import refined
from fairnepv.methods.baselines.refined import Baseline
from fairnepv.methods.baselines.relaxed import DesignPoint, SoftmaxPoint, largest_memberships
from fairnepv.methods.baselines.sampled import k_dpp, uniform
from fairnepv.methods.baselines.saturate import saturate
from fairnepv.objective import unsupported
from fairnepv.options import DIVERSE
from fairnepv.problem import WIDEST_GRAM, Problem

FACTOR_THE_AVERAGE = ("k-dpp", "softmax", "d-optimal")
_DIVIDE_BY_THE_RIDGE = ("softmax", "d-optimal", "saturate")
# Whatever the objective is.
OF_DETERMINANTS = tuple(dict.fromkeys((*FACTOR_THE_AVERAGE, *_DIVIDE_BY_THE_RIDGE)))


def baselines(names: tuple[str, ...]) -> dict[str, Baseline]:
    """All baselines for views of these names, by their own name."""
    return {
        **{f"{name}-only": partial(refined.single_view, name) for name in names},
        "averaged": refined.averaged_kernel,
        "fixed-weight": refined.fixed_weight,
        "concatenated": refined.concatenated,
        "softmax": partial(largest_memberships, SoftmaxPoint),
        "d-optimal": partial(largest_memberships, DesignPoint),
        "saturate": saturate,
        "k-dpp": k_dpp,
        "random": uniform,
    }


def refuse(problem: Problem, name: str) -> str | None:
    """Why a baseline cannot be run on this problem, or None if it can."""
    if problem.utility != DIVERSE and name in OF_DETERMINANTS:
        return str(unsupported(f"method '{name}', which is about determinants", "use another one"))
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
