"""The Stiefel relaxation (P-Fair): from a problem to a subspace that orders its candidates."""

from fairnepv.stiefel.solve import Relaxation, relax
from fairnepv.stiefel.solver import DUAL, SOLVERS, Solver, make_solver

__all__ = ["DUAL", "SOLVERS", "Relaxation", "Solver", "make_solver", "relax"]
