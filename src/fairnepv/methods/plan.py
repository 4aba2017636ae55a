"""How a selection is searched for."""

import math
from dataclasses import dataclass

from fairnepv.concave import GAP, Certificate
from fairnepv.options import default
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

    @property
    def goal(self) -> float | None:
        """The fair score that is good enough."""
        if self.target is None or self.certificate is None:
            return None
        return self.certificate.upper_bound + math.log(self.target)
