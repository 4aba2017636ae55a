"""The protocol on real data [FairNEPv, section 6]: split a corpus, run every selector at every
size, publish what was found, and verify what others publish."""

from collections.abc import Sequence

SHARE = 0.1  # of a corpus that validates, and as much that tests
SEEDS = 5  # runs of a selector that depends on its seed


def default_methods(views: Sequence[str]) -> list[str]:
    """The paper's pipeline and our default, then what they are held against."""
    return [
        *("nepv", "greedy-swaps", "auto", *(f"{view}-only" for view in views)),
        *("averaged", "fixed-weight", "concatenated", "random"),
    ]
