"""The old place of these names; they live in `fairnepv.api.selection`."""

from fairnepv.api.selection import Comparison, Optimum, Score, Selection

__all__ = ["Comparison", "Optimum", "Score", "Selection"]
