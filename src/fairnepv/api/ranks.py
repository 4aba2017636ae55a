"""Views whose rank is below k: what a result notes of them, and a caller is warned of."""

from __future__ import annotations

import warnings

from fairnepv.concave import Certificate
from fairnepv.errors import RankWarning
from fairnepv.problem import Problem


def rank_notes(problem: Problem, certificate: Certificate | None = None) -> tuple[str, ...]:
    """By the ranks that a certificate has found, else by the widths of the views."""
    ranks = {name: min(view.n, view.p) for name, view in problem.pool.items()}
    if certificate is not None:
        ranks |= {name: rank for name, rank in certificate.ranks.items() if rank is not None}
    k = problem.k
    return tuple(
        f"k = {k} exceeds the rank {rank} of view {name!r}, so its score fills with log eps "
        f"({k - rank} of {k} terms); lower k or drop the view"
        for name, rank in ranks.items()
        if k > rank
    )


def warn(notes: tuple[str, ...], depth: int = 3) -> None:
    """Seen from the caller of the front door, `depth` calls up."""
    for note in notes:
        warnings.warn(note, RankWarning, stacklevel=depth)
