"""What every row promises beside a set: an `Arena` is made among those that promise most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairnepv.compute import Block, portable
from fairnepv.constraints import SwapRules
from fairnepv.views.base import Floats, Indices
from fairnepv.views.pool import Pool


class Promises(NamedTuple):
    """Of a set, by its utility.

    `look` makes the small state of a pass, coarse or not, whose `promised(block, *known)` is (b, k)
    a bound on what F_tau could rise by with each swap.
    """

    look: Callable[[bool], Any]
    known: tuple[Any, ...]  # arrays over all rows
    width: int  # numbers by row that a pass makes

    def highest(
        self, pool: Pool, rules: SwapRules, rows: Indices | None, *, coarse: bool
    ) -> Floats:
        """(m,) what each of these rows promises in its best slot, or each of all rows."""
        here = slice(None) if rows is None else rows
        found = pool.map(
            _highest,
            (self.look(coarse), rules.allowed),
            rules.groups[here],
            *(array[here] for array in self.known),
            width=self.width,
            fixed=True,
            rows=rows,
        )
        return np.asarray(pool.place.get(found), dtype=np.float64)


@portable
def _highest(block: Block, state: tuple[Any, Any], groups: Any, *known: Any) -> Any:
    look, allowed = state
    rise = look.promised(block, *known)
    if not allowed.all():
        rise[~block.put(allowed)[groups]] = -np.inf
    return block.xp.max(rise, axis=1)
