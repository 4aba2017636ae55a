"""What is maximised: the soft-min over views, and apart from it what a view is asked for.

Carries sections 3.4 and 4.1 of the paper. `softmin` knows no utility, `subsets` and `frames` make
F_tau and f_tau of any, and `logdet` is the first.
"""

from fairnepv.objective.frames import FeatureMaps, Point, StiefelObjective
from fairnepv.objective.held import HeldRows
from fairnepv.objective.logdet import ViewFactor, gram, inverse_from_cholesky
from fairnepv.objective.majorant import ViewDual
from fairnepv.objective.softmin import (
    FLOOR_ROUNDING,
    entropy_price,
    fair_value,
    lifted_floors,
    merit,
    soft_min,
    soft_min_weights,
    steepness,
)
from fairnepv.objective.subsets import (
    Standing,
    fair_score,
    scores_and_gains,
    scoring_work,
    subset_gains,
    subset_merit,
    subset_scores,
)
from fairnepv.objective.units import UNITS, Nats, unsupported
from fairnepv.objective.utility import UTILITIES, Determinant, Utility, determinant_of, utility_of

__all__ = [
    "FLOOR_ROUNDING",
    "UNITS",
    "UTILITIES",
    "Determinant",
    "FeatureMaps",
    "HeldRows",
    "Nats",
    "Point",
    "Standing",
    "StiefelObjective",
    "Utility",
    "ViewDual",
    "ViewFactor",
    "determinant_of",
    "entropy_price",
    "fair_score",
    "fair_value",
    "gram",
    "inverse_from_cholesky",
    "lifted_floors",
    "merit",
    "scores_and_gains",
    "scoring_work",
    "soft_min",
    "soft_min_weights",
    "steepness",
    "subset_gains",
    "subset_merit",
    "subset_scores",
    "unsupported",
    "utility_of",
]
