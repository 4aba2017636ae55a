"""How sets are searched for, by what a view is asked for of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairnepv.problem import Problem
from fairnepv.search.arena import Arena, DiverseArena, ExplainedArena
from fairnepv.search.branches import Algebra, Determinants, Variances
from fairnepv.search.explained.frontier import ExplainedFrontier
from fairnepv.search.explained.local import ExplainedLocal
from fairnepv.search.frontier import Frontier
from fairnepv.search.local import LocalSearch


class Kind(NamedTuple):
    """The parts of searches that know the formulas of a utility."""

    frontier: Any  # of greedy: what is known of all rows beside a set
    local: type[LocalSearch]  # one-swaps against the full pool
    arena: type[Arena]  # a set among few rows, of tabu search
    algebra: Callable[[Problem], Algebra]  # of branch and bound


KINDS: Mapping[str, Kind] = {
    "diverse": Kind(Frontier, LocalSearch, DiverseArena, Determinants),
    "representative": Kind(ExplainedFrontier, ExplainedLocal, ExplainedArena, Variances),
}


def kind_of(problem: Problem) -> Kind:
    return KINDS[problem.utility]
