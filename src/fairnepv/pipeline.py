"""The old place of these names; they live in `fairnepv.api.pipeline`."""

from fairnepv.api.pipeline import (
    certify,
    compare,
    exhaustive,
    plan,
    relax,
    score,
    select,
    verify_bound,
)

__all__ = ["certify", "compare", "exhaustive", "plan", "relax", "score", "select", "verify_bound"]
