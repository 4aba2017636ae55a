"""Whether Algorithm 1 contracts near a stationary frame, and how fast it did.

Theorem 2 of the paper leaves its constant C open. At a stationary frame the derivative of a step is
I + alpha h / delta on the eigenvectors of half the Hessian, with its eigenvalues h and
delta = 1/k + sigma (docs/method.md#local-convergence): the largest and the least of them say all.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairnepv.loop import Step

_LAST = 10  # steps at the end by which the observed rate is told
_FEWEST = 3


class Theorem2(NamedTuple):
    """Its quantities at a stationary frame, as far as Lanczos steps have seen the Hessian."""

    C: float  # of H_{tau,sigma}, in the chordal distance
    delta: float  # the eigengap, 1/k + sigma
    sufficient: float  # what C must be below for the theorem: delta over Davis and Kahan's 2 sqrt k
    rate: float  # by which errors shrink per step, damping included; above 1 they grow

    @classmethod
    def at(cls, curvatures: tuple[float, float], k: int, alpha: float, sigma: float) -> "Theorem2":
        """`curvatures` are k times the largest and the least eigenvalue of half the Hessian."""
        h, delta = np.array(curvatures) / k, 1.0 / k + sigma
        return cls(
            C=float(np.abs(delta + h).max()),
            delta=delta,
            sufficient=delta / (2.0 * k**0.5),
            rate=float(np.abs(1.0 + alpha * h / delta).max()),
        )


def observed_rate(trace: Sequence[Step]) -> float | None:
    """The factor by which the residual of Algorithm 1 shrank per step at the end, by the last ten
    steps or the later half of fewer; None where there were too few, or none."""
    residuals = [float(row.residual) for row in trace if row.stage == "scf"]  # type: ignore[arg-type]
    steps = min((len(residuals) - 1) // 2, _LAST)
    if steps < _FEWEST or not residuals[-1] > 0:
        return None
    return float((residuals[-1] / residuals[-1 - steps]) ** (1.0 / steps))
