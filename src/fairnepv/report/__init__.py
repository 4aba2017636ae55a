"""Results for people and machines: the report shows what it is given and never computes."""

from fairnepv.report.figures import contact_sheet as contact_sheet
from fairnepv.report.figures import draw_comparison as draw_comparison
from fairnepv.report.figures import draw_traces as draw_traces
from fairnepv.report.records import assignment_table as assignment_table
from fairnepv.report.records import certificate_record as certificate_record
from fairnepv.report.records import comparison_columns as comparison_columns
from fairnepv.report.records import comparison_record as comparison_record
from fairnepv.report.records import explanation_table as explanation_table
from fairnepv.report.records import forecast_record as forecast_record
from fairnepv.report.records import relaxation_record as relaxation_record
from fairnepv.report.records import score_record as score_record
from fairnepv.report.records import selection_record as selection_record
from fairnepv.report.records import selection_table as selection_table
from fairnepv.report.records import trace_table as trace_table
from fairnepv.report.records import verified_record as verified_record
from fairnepv.report.terminal import certificate_table as certificate_table
from fairnepv.report.terminal import comparison_table as comparison_table
from fairnepv.report.terminal import forecast_table as forecast_table
from fairnepv.report.terminal import score_table as score_table
from fairnepv.report.words import certificate_summary as certificate_summary
from fairnepv.report.words import forecast_summary as forecast_summary
from fairnepv.report.words import left_behind as left_behind
from fairnepv.report.words import relaxation_summary as relaxation_summary
from fairnepv.report.words import selection_summary as selection_summary
from fairnepv.report.words import trace_lines as trace_lines
from fairnepv.report.words import verified_summary as verified_summary
