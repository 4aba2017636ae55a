"""The Stiefel relaxation (P-Fair): from a problem to a subspace that orders its candidates."""

from fairnepv.stiefel.solve import Relaxation, relax
from fairnepv.stiefel.solver import DUAL, SOLVERS, VARIANTS, Solver, make_solver, refuse_dual
from fairnepv.stiefel.starts import check_start

__all__ = [
    "DUAL",
    "SOLVERS",
    "VARIANTS",
    "Relaxation",
    "Solver",
    "check_start",
    "make_solver",
    "refuse_dual",
    "relax",
]
