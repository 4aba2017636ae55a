"""Competing selectors [FairNEPv, sections 2, 5 and 6.2], each from a problem to a subset."""

from fairnepv.methods.baselines.catalogue import baselines
from fairnepv.methods.baselines.limits import refuse
from fairnepv.methods.baselines.refined import Baseline
from fairnepv.methods.baselines.sampled import KDppSampler

__all__ = ["Baseline", "KDppSampler", "baselines", "refuse"]
