"""Results for people: the report shows what it is given and never computes."""

from fairnepv.report.terminal import comparison_table, selection_summary

__all__ = ["comparison_table", "selection_summary"]
