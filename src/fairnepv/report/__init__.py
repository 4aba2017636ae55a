"""Results for people and machines: the report shows what it is given and never computes."""

from fairnepv.report.figures import (
    contact_sheet,
    draw_comparison,
    draw_traces,
)
from fairnepv.report.records import (
    assignment_table,
    certificate_record,
    comparison_columns,
    comparison_record,
    explanation_table,
    forecast_record,
    relaxation_record,
    score_record,
    selection_record,
    selection_table,
    trace_table,
    verified_record,
)
from fairnepv.report.terminal import (
    certificate_summary,
    certificate_table,
    comparison_table,
    forecast_summary,
    forecast_table,
    relaxation_summary,
    score_table,
    selection_summary,
    trace_lines,
    verified_summary,
)
from fairnepv.report.words import left_behind

__all__ = [
    "assignment_table",
    "certificate_record",
    "certificate_summary",
    "certificate_table",
    "comparison_columns",
    "comparison_record",
    "comparison_table",
    "contact_sheet",
    "draw_comparison",
    "draw_traces",
    "explanation_table",
    "forecast_record",
    "forecast_summary",
    "forecast_table",
    "left_behind",
    "relaxation_record",
    "relaxation_summary",
    "score_record",
    "score_table",
    "selection_record",
    "selection_summary",
    "selection_table",
    "trace_lines",
    "trace_table",
    "verified_record",
    "verified_summary",
]
