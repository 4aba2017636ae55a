"""The terms under which a bound holds, for whoever has to say whether they are the right ones.

Numbers have all their digits, and what is too long to be listed has a checksum: two problems that
differ in anything are told apart by these lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from fairnepv.api.calibration import described
from fairnepv.concave import Terms
from fairnepv.problem import Constraints
from fairnepv.views.base import Indices
from fairnepv.views.scales import SOLVED

_FEW = 8  # rows that are listed one by one
_ORIGINS = {
    "explicit": "of the certificate",
    "efficiency": f"of the certificate; computed again, the same to {SOLVED:g}",
}


def terms_lines(terms: Terms, sources: Mapping[str, str] | None = None) -> Iterator[str]:
    """A line per term, with where it comes from; `sources` says what a view was read from."""
    yield f"{terms.k} of {terms.n:,} items, tau = {terms.tau!r} (of the certificate)"
    for name, eps in terms.eps.items():
        source = f", {sources[name]}" if sources else ""
        yield f"view {name!r}{source}: eps = {eps!r} (of the certificate)"
    origin = _ORIGINS.get(terms.calibration.rule, "computed again")
    yield f"calibration: {described(terms.calibration)} ({origin})"
    if terms.priorities is not None:
        pairs = zip(terms.eps, terms.priorities.tolist(), strict=True)
        weights = ", ".join(f"{name!r} {weight!r}" for name, weight in pairs)
        yield f"priorities: {weights} (of the certificate)"
    if terms.quality:
        yield "quality: rows weighted as handed in now"
    if not terms.constraints:
        yield "constraints: none, so the bound is about all subsets of that size"
    else:
        yield from (f"{line} (of the certificate)" for line in _constraint_lines(terms.constraints))


def _constraint_lines(rules: Constraints) -> Iterator[str]:
    for words, rows in (("include", rules.fixed_in), ("exclude", rules.fixed_out)):
        if len(rows):
            yield f"{words}: {len(rows):,} row(s), {_listed(rows)}"
    if (quotas := rules.quotas) is not None:
        limits = zip(quotas.least.tolist(), quotas.most.tolist(), strict=True)
        each = ", ".join(f"{g}: {low} to {high}" for g, (low, high) in enumerate(limits))
        yield f"groups of the rows: {_listed(quotas.groups)}; quotas {each}"


def _listed(rows: Indices) -> str:
    """Whole numbers; of many of them the first, and what tells the others apart."""
    if len(rows) <= _FEW:
        return ", ".join(map(str, rows.tolist()))
    digest = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
    return f"{', '.join(map(str, rows[:_FEW].tolist()))}, ... (sha256 as int64 {digest})"
