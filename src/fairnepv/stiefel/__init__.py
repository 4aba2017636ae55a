"""The Stiefel relaxation (P-Fair): from a problem to a subspace that orders its candidates."""

from fairnepv.stiefel.solve import SOLVERS, Relaxation, Solver, make_solver, relax

__all__ = ["SOLVERS", "Relaxation", "Solver", "make_solver", "relax"]
