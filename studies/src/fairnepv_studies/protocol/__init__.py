"""The protocol on real data [FairNEPv, section 6]: split a corpus, run every selector at every
size, publish what was found, and verify what others publish."""

SHARE = 0.1  # of a corpus that validates, and as much that tests
SEEDS = 5  # runs of a selector that depends on its seed
