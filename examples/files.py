"""Rows that stay in their file: a pool may be larger than memory."""

import tempfile
from pathlib import Path

import numpy as np

import fairnepv

rng = np.random.default_rng(3)
with tempfile.TemporaryDirectory() as folder:
    for name, width in (("text", 32), ("vision", 48)):
        np.save(Path(folder) / f"{name}.npy", rng.standard_normal((5000, width), dtype=np.float32))
    data = {name: fairnepv.open_rows(f"{folder}/{name}.npy") for name in ("text", "vision")}
    print(fairnepv.plan(data, k=25, effort="fast").summary())
    chosen = fairnepv.select(data, k=25, effort="fast", memory_limit="256MiB")
    print(f"{len(chosen.indices)} of 5,000 rows, fair score {chosen.fair_score:.4f}")
