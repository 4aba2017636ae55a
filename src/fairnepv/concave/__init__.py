"""How good any answer can be: bounds that are proven, and that anybody can check."""

from fairnepv.concave.bounds import (
    GAP,
    Certificate,
    Solved,
    certify,
    refuse_unreachable_floors,
    view_bound,
)
from fairnepv.concave.dual import Dual, ViewDual, price
from fairnepv.concave.proof import Proof, Verified, check_proof, proof_arrays, read_proof
from fairnepv.concave.spectral import diagonal_bound, spectral_bound
from fairnepv.concave.terms import Terms

__all__ = [
    "GAP",
    "Certificate",
    "Dual",
    "Proof",
    "Solved",
    "Terms",
    "Verified",
    "ViewDual",
    "certify",
    "check_proof",
    "diagonal_bound",
    "price",
    "proof_arrays",
    "read_proof",
    "refuse_unreachable_floors",
    "spectral_bound",
    "view_bound",
]
