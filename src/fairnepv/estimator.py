"""The old place of these names; they live in `fairnepv.api.estimator`."""

from fairnepv.api.estimator import FairSelector

__all__ = ["FairSelector"]
