"""How a selection is searched for."""

from dataclasses import dataclass

from fairnepv.concave import GAP, Certificate
from fairnepv.objective import UNITS
from fairnepv.options import default
from fairnepv.problem import Problem
from fairnepv.search import Effort


@dataclass(frozen=True)
class Plan:
    """How a selection is searched for, so that the same search can be made again."""

    method: str
    effort: Effort
    oversampling: float = default("oversampling")
    node_limit: int | None = None
    certificate: Certificate | None = None  # whose relaxed solution is a start
    shards: tuple[int, ...] = ()  # where each begins, and where the last one ends (`tiers`)
    target: float | None = None  # the certified efficiency that is good enough
    gap: float = GAP  # at which the bound is tight enough
    time_limit: float | None = None  # seconds

    def goal(self, problem: Problem) -> float | None:
        """The fair score that is good enough."""
        if self.target is None or self.certificate is None:
            return None
        return UNITS[problem.utility].goal(self.certificate.upper_bound, self.target)
