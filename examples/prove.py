"""A bound that somebody else can check: store it, read it again, verify it from the data alone."""

import tempfile
from pathlib import Path

import numpy as np

import fairnepv
from fairnepv.concave import proof_arrays, read_proof

rng = np.random.default_rng(1)
data = {"text": rng.standard_normal((200, 16)), "vision": rng.standard_normal((200, 24))}
bound = fairnepv.certify(data, k=10)
print(f"no 10 items score above {bound.upper_bound:.4f} (duality gap {bound.duality_gap:.1g})")

with tempfile.TemporaryDirectory() as folder:
    stored = Path(folder) / "bound.npz"
    np.savez(stored, **proof_arrays(bound.proof))
    with np.load(stored, allow_pickle=False) as arrays:
        proof = read_proof(dict(arrays))

verified = fairnepv.verify_bound(data, proof, k=10)  # what you name is compared with its terms
assert verified.holds
print(f"computed again from the rows: {verified.upper_bound:.4f}; it holds")
