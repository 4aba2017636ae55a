"""The seam between the soft-min and what a view is asked for.

A `Utility` says what a set of rows is worth in one view, and answers the questions that searches,
frames and bounds ask about it. The log-determinant is the first; another joins as a sibling of
`logdet.py` with a name in `UTILITIES`, and `tests/contracts/test_utility.py` holds it to this page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fairnepv.compute import Block
from fairnepv.objective.explained import Explained
from fairnepv.objective.held import Each
from fairnepv.objective.logdet import LogDet
from fairnepv.problem import Problem
from fairnepv.views import Calibration, Pool, View
from fairnepv.views.base import Floats, Indices


class Utility(Protocol):
    """A view gives a set S the total t(S), and with it the score t(S) / divisor(|S|) + offset.

    Totals leave out the factor on L, which is the offset. Each formula below is that of the
    log-determinant, as the example.
    """

    def divisor(self, size: int) -> float:
        """What totals of sets of this size are divided by: |S|."""

    # --- pools ---

    def asked_about(self, pool: Pool, calibration: Calibration) -> Pool:
        """The pool as searches and bounds take it: calibrated, rows longer by their quality."""

    def along_frames(self, pool: Pool) -> Pool:
        """That pool as frames take it: as it is, for quality is in its rows already."""

    # --- sets ---

    def total(self, view: View, indices: Indices) -> float:
        """t(S), in float64 from the original rows: log det (K[S, S] + eps I)."""

    def totals(self, view: View, sets: NDArray[np.int64]) -> Floats:
        """(m,) t of sets (m, k) of the same size, from kernels; nan where rounding leaves none."""

    def contributions(self, view: View, indices: Indices) -> Floats:
        """(k,) t(s_1 .. s_j) - t(s_1 .. s_{j-1}): what each item in turn adds."""

    def removals(self, view: View, indices: Indices, pivots: Floats) -> Floats:
        """(k,) t(S) - t(S - s_j): what leaves with each item; -log B_jj of the `pivots` B_jj."""

    # --- frames ---

    linear_on_frames: bool
    """Whether totals are linear in V V^T: then A = H V for an H that depends on V through the
    weights of the views alone, and a dual in these solves the relaxation globally. Not here."""

    def on_frame(self, Z: Floats, eps: float, trace: float) -> OnFrame:
        """The total of a frame V, for Z = Phi^T V (p, k) and the trace of Phi Phi^T:
        log det (Z^T Z + eps I)."""

    def on_range(self, Z: Floats, eps: float, trace: float, k: int) -> float:
        """The same for a frame of at most k columns that holds the whole range of Phi."""

    def along_frame(self, X: Floats, terms: Sequence[OnFrame], shares: Floats) -> Floats:
        """X (V^T A), for the A that these terms of the views add up to by their shares: X / k."""

    def unit(self, terms: Sequence[OnFrame], shares: Floats) -> float:
        """What lengths of A are multiplied by to be relative, k / tr (V^T A): k."""

    def across_frame(
        self,
        terms: Sequence[OnFrame],
        weights: Floats,
        squares: Iterable[Floats],
        traces: Floats,
        room: int,
    ) -> Floats:
        """D (k, k), for which x D is about what the negative Hessian makes of a horizontal x, in
        units of 2 / divisor and apart from the change of the weights: with what views have off V
        replaced by its mean over `room` directions. `squares` are (Phi J)^T Phi J by view."""

    # --- bounds ---

    dual_type: type[Any]  # of the variables of one view, such as `majorant.ViewDual`

    def norm_bound(self, view: View, k: int) -> float:
        """No k rows have a score above this, for their norms alone."""

    def spectral_gram(self, view: View) -> Any:
        """The matrix whose eigenvalues bound scores, if it is held; None: that of all features."""

    def spectral_bound(self, lam: Floats, view: View, k: int) -> float:
        """No k rows have a score above this, by those eigenvalues, descending."""

    # --- the concave majorant ---

    factored: float
    """Multiply-adds of what is factored of a view, times the cube of its smaller side: 4."""

    by_columns: bool
    """Whether those are matrices of all columns in every view, whatever it weighs and however few
    the rows. Not here: of light views little is looked at."""

    may_be_rough: bool
    """Whether values may be made roughly, to within a `rough` that is told. They may here."""

    exact: bool
    """Whether values that are not rough are those of the function, and not above it. They are."""

    def held(
        self, view: View, rows: Indices, k: int, shift: float, dtype: DTypeLike, rough: float
    ) -> Any:
        """Few rows as `majorant` takes them; see `majorant.HeldRows.of`."""

    def majorant(self, rows: Any, x: Floats, k: int, each: Each, basis: Any = None) -> Tangent:
        """A concave function of 0 <= x <= 1 with sum k that is t(S) at the indicator of S; where
        rows may be rough, it may be too large by that. `basis` is that of a point like x."""

    def least_majorant(self, rows: Any, x: Floats, k: int, near: Any) -> float:
        """At most that function, in float64 and next to it; `near` is a rough one at x."""

    def bound_by_norms(self, view: View, k: int, shift: float) -> Any:
        """As `Tangent.dual`, on a single row and from the norms of all rows alone: no product."""


class Determinant(Utility, Protocol):
    """What the search for diverse sets asks besides; `search.explained` has formulas of its own."""

    def gains(self, changes: Any, xp: Any = np) -> Any:
        """t(S + i) - t(S) from what greedy knows of row i: log c of its conditional variance c."""

    def swap_changes(self, c: Any, pivots: Any, v: Any) -> Any:
        """What decides swaps, where the arrays are: the ratio r = c pivot + v^2 of determinants,
        for c and v of the row that comes (see `search.table`) and B_jj of the slot."""

    def swap_gains(self, changes: Floats) -> Floats:
        """t(S - j + i) - t(S) from those, in float64: log r."""

    def swap_ceiling(self, block: Block, w: Floats, c: Any, pivots: Floats, v: Any) -> Any:
        """(b, k) in place of a bound on sum_q w_q gain_q: sum_q w_q r_q, as log r <= r - 1."""

    def needed_ceiling(self, gain: float) -> float:
        """What those must reach for sum_q w_q gain_q to reach `gain`: 1 + gain."""


class OnFrame(Protocol):
    """The total of one view at a frame, with half of its first and second derivative."""

    rounding: float  # how unsure the total is

    @property
    def total(self) -> float: ...

    @property
    def J(self) -> Floats:
        """(p, k), and N (k, k): half the Euclidean gradient is Phi J + V N."""

    @property
    def N(self) -> Floats: ...

    @property
    def along(self) -> Floats:
        """(k, k) V^T Phi J, up to a matrix that all views have in common: -N."""

    def hessian(self, Y: Floats) -> Floats:
        """(p, k) change of J along a horizontal xi with Phi^T xi = Y."""


class Tangent(Protocol):
    """The majorant at a point x of few rows T; `objective.majorant` has the formulas."""

    @property
    def value(self) -> float: ...

    @property
    def basis(self) -> Any:
        """Leading vectors that the tangent at a point nearby may begin with, if there are any."""

    @property
    def prices(self) -> Floats:
        """(m,) the gradient in x."""

    def dual(self, shift: float) -> Any:
        """What bounds t(S) by a constant and prices of all rows, small enough to be stored; the
        kernel less `shift` I is what it is about, see `majorant.ViewDual`."""


UTILITIES: Mapping[str, Utility] = {"diverse": LogDet(), "representative": Explained()}


def utility_of(problem: Problem) -> Utility:
    return UTILITIES[problem.utility]


def determinant_of(problem: Problem) -> Determinant:
    """The utility of a problem that asks for diverse sets."""
    utility = utility_of(problem)
    assert isinstance(utility, LogDet)
    return utility
