"""How a selection is searched for."""

from dataclasses import dataclass, field, replace

from fairnepv.concave import GAP, Certificate
from fairnepv.methods.nepv import Nepv
from fairnepv.objective import UNITS
from fairnepv.problem import Problem
from fairnepv.search import Effort


@dataclass(frozen=True)
class Plan:
    """How a selection is searched for, so that the same search can be made again."""

    method: str
    effort: Effort
    nepv: Nepv = field(default_factory=Nepv)  # how that method goes, and such a start of others
    node_limit: int | None = None
    certificate: Certificate | None = None  # whose relaxed solution is a start
    shards: tuple[int, ...] = ()  # where each begins, and where the last one ends (`tiers`)
    target: float | None = None  # the certified efficiency that is good enough
    gap: float = GAP  # at which the bound is tight enough
    time_limit: float | None = None  # seconds
    memory_limit: int | None = None  # bytes, which the means of the problem keep to
    passes: int | None = None  # of one-swaps, which are then all that refines

    @property
    def refining(self) -> Effort:
        """The effort, or the passes of one-swaps that were asked for, without tabu search."""
        return self.refining_after(0)

    def refining_after(self, passes: int) -> Effort:
        """What is left of it after so many passes; an effort is for each search anew."""
        if self.passes is None:
            return self.effort
        return replace(self.effort, passes=self.passes - passes, floor=0.0, swaps=0)

    def goal(self, problem: Problem) -> float | None:
        """The fair score that is good enough."""
        if self.target is None or self.certificate is None:
            return None
        return UNITS[problem.utility].goal(self.certificate.upper_bound, self.target)
