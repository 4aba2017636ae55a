"""Competing selectors [FairNEPv, sections 2, 5 and 6.2], each from a problem to a subset."""

from fairnepv.methods.baselines.catalogue import OF_DETERMINANTS as OF_DETERMINANTS
from fairnepv.methods.baselines.catalogue import baselines as baselines
from fairnepv.methods.baselines.catalogue import refuse as refuse
from fairnepv.methods.baselines.sampled import KDppSampler as KDppSampler
