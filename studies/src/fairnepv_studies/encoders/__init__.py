"""Frozen encoders behind one seam: `Encoder` (base.py), a module for each, `find` by name."""

from fairnepv_studies.encoders.base import Encoder, fingerprint
from fairnepv_studies.encoders.catalogue import NAMES, find

__all__ = ["NAMES", "Encoder", "find", "fingerprint"]
