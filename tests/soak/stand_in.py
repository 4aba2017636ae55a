"""An encoder without weights: the last bytes of a picture as numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WIDTH = 5


@dataclass
class StandIn:
    name: str = "hf:org/last-bytes"
    version: str = "1"
    kind: Any = "image"
    width: int = WIDTH
    at_once: int = 1 << 20
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, batch: Sequence[bytes]) -> Any:
        tails = [np.frombuffer(content[-4 * WIDTH :], "<u4") % 997 for content in batch]
        return np.array(tails, dtype=np.float32)
