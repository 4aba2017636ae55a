"""Embedded pools, small and real, and the paper's instance; see NOTICE.md for their licences."""

from __future__ import annotations

import hashlib
from importlib import resources
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import FairnepvError
from fairnepv.views import DiagonalView

_OPENMOJI_SHA256 = "8cc8b58b1b36b5ff"  # its first 16 hex digits


def openmoji() -> dict[str, NDArray[Any]]:
    """2,297 pictograms: `text` (384, MiniLM of keywords), `vision` (1280, EfficientNet), `id`,
    `label`. CC-BY-SA-4.0, see NOTICE.md."""
    content = resources.files("fairnepv.data").joinpath("openmoji.npz").read_bytes()
    if not hashlib.sha256(content).hexdigest().startswith(_OPENMOJI_SHA256):
        raise FairnepvError("the embedded pool openmoji.npz is damaged: install fairnepv again")
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("id", "label", "text", "vision")}


def paper_instance() -> dict[str, DiagonalView]:
    """The quality-conflict instance [FairNEPv, section 5]: five text specialists (100, 0.1), five
    vision specialists (0.1, 100), five balanced items (3, 3); its kernels are diagonal."""
    text = np.repeat([100.0, 0.1, 3.0], 5)
    vision = np.repeat([0.1, 100.0, 3.0], 5)
    return {"text": DiagonalView(text, eps=0), "vision": DiagonalView(vision, eps=0)}
