"""Competing selectors [FairNEPv, sections 2, 5 and 6.2], each from a problem to a subset."""

from fairnepv.baselines.catalogue import baselines
from fairnepv.baselines.limits import refuse
from fairnepv.baselines.refined import Baseline
from fairnepv.baselines.sampled import KDppSampler

__all__ = ["Baseline", "KDppSampler", "baselines", "refuse"]
