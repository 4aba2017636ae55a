"""Leverage-score screening [FairNEPv, section 4.4, steps 1 and 2]."""

from __future__ import annotations

import math

import numpy as np

from fairnepv.options import default
from fairnepv.problem import Problem
from fairnepv.search.ties import ranked
from fairnepv.views.base import Floats, Indices

_TIE = 1e-10  # leverage scores closer than this are tied; the lowest index goes first


def shortlist(
    problem: Problem, leverage: Floats, oversampling: float = default("oversampling")
) -> Indices:
    """The min(n, ceil(c k)) rows of largest leverage, sorted by row.

    Items fixed in are added and items fixed out left out; with groups, enough of each group is
    added that every quota can be met from the shortlist alone.
    """
    rules, k = problem.constraints, problem.k
    order = ranked(leverage, _TIE)
    order = order[~np.isin(order, rules.fixed_out)]
    chosen = [rules.fixed_in, order[: min(problem.n, math.ceil(oversampling * k))]]
    if rules.quotas is not None:
        for group, most in enumerate(rules.quotas.most):
            members = order[rules.quotas.groups[order] == group]
            chosen.append(members[: min(int(most), k)])
    return np.unique(np.concatenate(chosen)).astype(np.int64)
