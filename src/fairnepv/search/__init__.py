"""From an ordering of candidates to a subset: screening, greedy, swaps, enumeration.

Nothing here learns which relaxation, if any, produced the ordering.
"""

from fairnepv.search.effort import (
    EFFORTS,
    Effort,
    Found,
    arena_rows,
    better,
    check_effort,
    greedy,
    improve,
    refine,
)
from fairnepv.search.enumeration import (
    Enumeration,
    enumerate_subsets,
    misses_floors,
    refuse_missed_floors,
)
from fairnepv.search.exact import Exact
from fairnepv.search.greedy import Greedy, begins_at_once, complete, fair_order, shortlist
from fairnepv.search.local import LocalSearch

__all__ = [
    "EFFORTS",
    "Effort",
    "Enumeration",
    "Exact",
    "Found",
    "Greedy",
    "LocalSearch",
    "arena_rows",
    "begins_at_once",
    "better",
    "check_effort",
    "complete",
    "enumerate_subsets",
    "fair_order",
    "greedy",
    "improve",
    "misses_floors",
    "refine",
    "refuse_missed_floors",
    "shortlist",
]
