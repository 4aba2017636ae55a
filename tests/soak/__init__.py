"""Many cases of every kind, each determined by its number; `python -m soak` runs them."""

import sys
from pathlib import Path

# Whose suites some groups are made of.
sys.path += [str(Path(__file__).parents[1] / room) for room in ("contracts", "report")]
