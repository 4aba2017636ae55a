"""How good any answer can be: bounds that are proven, and that anybody can check."""

from fairnepv.certificate.bounds import (
    GAP,
    Certificate,
    certify,
    refuse_unreachable_floors,
    view_bound,
)
from fairnepv.certificate.dual import Dual, ViewDual, price
from fairnepv.certificate.proof import Proof, Verified, check_proof, proof_arrays, read_proof
from fairnepv.certificate.spectral import diagonal_bound, spectral_bound
from fairnepv.certificate.terms import Terms

__all__ = [
    "GAP",
    "Certificate",
    "Dual",
    "Proof",
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
