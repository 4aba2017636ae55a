"""The old place of these functions; import them from `fairnepv`."""

from fairnepv.api.certify import certify, verify_bound
from fairnepv.api.compare import compare
from fairnepv.api.plan import plan
from fairnepv.api.relax import relax
from fairnepv.api.score import exhaustive, score
from fairnepv.api.select import select

__all__ = ["certify", "compare", "exhaustive", "plan", "relax", "score", "select", "verify_bound"]
