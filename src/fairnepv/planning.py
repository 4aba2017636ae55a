"""What a run will take, before anything is run: passes, operations, bytes, memory, time.

`foresee` goes through the stages of a selection as `methods` and `pipeline` would run them and
counts what each of them allocates and multiplies, from shapes and types alone: no row is read.
What depends on the data (how long a local search lasts, how many rows a bound needs) is an estimate
and says so. `fit` chooses what may be kept so that a limit on memory holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairnepv.certificate.concave import evaluation_cost, first_size, most_rows
from fairnepv.engines import LocalEngine
from fairnepv.engines.rates import UNTIMED, Rates, measure_rates
from fairnepv.errors import InputError
from fairnepv.io.memory import size_in_words
from fairnepv.io.rows import HeldRows, RowFile
from fairnepv.methods import Plan
from fairnepv.problem import Means, Problem
from fairnepv.relaxation.coordinates import WIDEST_GRAM, coordinate_work
from fairnepv.relaxation.frames import affordable_count
from fairnepv.search.effort import Effort
from fairnepv.search.exact import DEEPEST, MOST_ROWS
from fairnepv.views import DenseView, DiagonalView, KernelView, SparseView, View

PROGRAM = 42 << 20  # bytes of Python and the libraries that every run has loaded
_THREAD = 6 << 20  # bytes that the allocator of a further thread keeps for itself
_KEPT = 24  # bytes by row and view: norms as given, calibrated, and scales
_LATE = 24  # directions of greedy in one pass
_SWAP_PASSES = 15  # of a typical local search
_MADE, _SWEEPS = 0.3, 40.0  # of them with a table made anew; sweeps over a table in each
_STEPS = 60  # of a relaxation that is only to order candidates
_BOUND_PASSES, _EVALUATIONS = 5, 10  # of one bound, as if all were on its last rows
_GROWN, _ROWS_PER_PICK = 1.7, 25  # T when the bound is tight, beside its first size and beside k
_RANK = 0.4  # of k: columns of dual variables
_LEFT = 64 << 20  # bytes that the allocator keeps, at most, of what a stage has freed
_SPARSE_ENTRY = 40  # bytes by entry of a sparse block: a slice of it, and its copy in float64
_SAMPLE = 64
_DECODED = 256 << 20  # bytes of a large table that stay in memory once they are decoded
_HALF = 16.0  # times as long as a copy takes what makes float32 of float16
_SHARED = 0.8  # exponent of what further threads bring
_CALL = 1e-3  # seconds of a pass over however few rows
_SMALL_BLOCKS = 1 << 18


@dataclass(frozen=True)
class Stage:
    """What one part of a run takes; `memory` is what it adds to what is there already."""

    name: str
    passes: float
    operations: float  # multiply-adds
    bytes_read: float  # of rows, from memory or from files
    memory: float
    seconds: float
    note: str = ""
    optional: bool = False  # only made when asked for


@dataclass(frozen=True)
class Forecast:
    """What a run will take: expected on this machine as it is now, not promised.

    `str()` gives it as text; `peak_memory` is what a limit is held against.
    """

    n: int
    k: int
    stages: tuple[Stage, ...]
    data_memory: float  # arrays that were handed in, which are there whatever we do
    loaded: float  # rows of files that will be decoded and kept
    kept: float  # from the first stage to the last
    means: Means
    block_numbers: int
    notes: tuple[str, ...] = ()

    @property
    def peak_memory(self) -> float:
        """Bytes of anonymous memory that are added to the data; mapped files do not count."""
        return PROGRAM + self.loaded + self.kept + self.largest.memory

    @property
    def memory(self) -> float:
        """The same with the arrays that were handed in: all of the process."""
        return self.data_memory + self.peak_memory

    @property
    def largest(self) -> Stage:
        """The stage that takes the most memory."""
        return max(self._certain, key=lambda stage: stage.memory)

    @property
    def passes(self) -> float:
        return sum(stage.passes for stage in self._certain)

    @property
    def operations(self) -> float:
        return sum(stage.operations for stage in self._certain)

    @property
    def bytes_read(self) -> float:
        return sum(stage.bytes_read for stage in self._certain)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self._certain)

    @property
    def _certain(self) -> Iterator[Stage]:
        return (stage for stage in self.stages if not stage.optional)

    def with_optional(self) -> Forecast:
        """The same where everything is asked for, as the command line does."""
        return replace(self, stages=tuple(replace(s, optional=False) for s in self.stages))

    def summary(self) -> str:
        """The totals in two sentences."""
        return (
            f"Choosing {self.k:,} of {self.n:,}: about {self.passes:.0f} passes over the rows, "
            f"{self.operations:.2g} multiply-adds, {size_in_words(int(self.bytes_read))} read, "
            f"{self.seconds:.2g} s expected on this machine as it is now.\n"
            f"Memory: at most {size_in_words(int(self.peak_memory))}, in {self.largest.name}, "
            f"besides {size_in_words(int(self.data_memory))} of data that is in memory already."
        )

    def __str__(self) -> str:
        lines = [
            f"  {stage.name}: {stage.passes:.0f} passes, {stage.operations:.2g} multiply-adds, "
            f"{size_in_words(int(stage.memory))}, {stage.seconds:.2g} s"
            + (f" ({stage.note})" if stage.note else "")
            for stage in self.stages
        ]
        return "\n".join([self.summary(), *lines, *(f"Note: {note}." for note in self.notes)])


def foresee(
    problem: Problem,
    plans: Sequence[Plan],
    *,
    certify: bool,
    efficiency: bool = False,
    rates: Rates | None = None,
) -> Forecast:
    """What these methods take, one after another, on a problem of which only shapes are looked at.

    `certify`: whether a bound is proven first; `efficiency`: whether calibration needs bounds.
    """
    rates = rates or measure_rates(any(map(_is_sparse, problem.pool.views)))
    count = _Count(problem, rates)
    stages = [count.check()]
    if efficiency:
        stages.append(count.bound("calibration", joint=False))
    if certify:
        stages.append(count.bound("bound", joint=True))
    later = [stage for plan in plans for stage in count.method(plan, certify)]
    if plans:
        later.append(count.neighbours())
    left = min(_LEFT, max([stage.memory for stage in stages[1:]], default=0.0) / 4)
    stages += [replace(stage, memory=stage.memory + left) for stage in later]
    kept = count.kept() + (count.proof() if certify or efficiency else 0)
    views = problem.pool.views
    return Forecast(
        problem.n,
        problem.k,
        tuple(stages),
        sum(map(_held, views)),
        sum(map(_loaded, views)),
        kept,
        problem.means,
        count.engine.block_numbers,
        tuple(_notes(problem)),
    )


def fit(
    problem: Problem, limit: int | None, foretell: Callable[[Problem], Forecast]
) -> tuple[Problem, Forecast]:
    """The problem with means such that its forecast keeps to the limit, and that forecast.

    What costs nothing but time is given up first, then tightness of the bound, then a start.
    """
    least: Forecast | None = None
    for candidate in _ladder(problem):
        promised = foretell(candidate)
        forecast = promised.with_optional()  # for somebody may ask
        if limit is None or forecast.peak_memory <= limit:
            return candidate, promised
        if least is None or forecast.peak_memory < least.peak_memory:
            least = forecast
    assert least is not None
    enough = -(-int(least.peak_memory) // (1 << 20))
    raise InputError(
        f"memory_limit is {size_in_words(limit or 0)}, but the least that would work is {enough} "
        f"MiB: {size_in_words(PROGRAM)} for the program, {size_in_words(int(least.kept))} for "
        f"norms and scales, {size_in_words(int(least.largest.memory))} for {least.largest.name}"
        + (f", {size_in_words(int(least.loaded))} for decoded rows" if least.loaded else "")
        + "; raise the limit, lower k, or leave stages out (effort='fast', certify=False)"
    )


def _ladder(problem: Problem) -> Iterator[Problem]:
    yield problem
    means = replace(problem.means, table=0)
    yield replace(problem, means=means)
    engine = problem.pool.engine
    if isinstance(engine, LocalEngine) and engine.block_numbers > _SMALL_BLOCKS:
        pool = replace(problem.pool, engine=replace(engine, block_numbers=_SMALL_BLOCKS))
        problem, means = replace(problem, pool=pool), replace(means, confirmed=2 * _SMALL_BLOCKS)
        yield replace(problem, means=means)
    for multiple in (16, 4):
        means = replace(means, support=max(500, multiple * problem.k))
        yield replace(problem, means=means)
    yield replace(problem, means=replace(means, relaxation=False))


def _notes(problem: Problem) -> Iterator[str]:
    means, usual = problem.means, Means()
    if means.table < usual.table:
        yield "no swap table is kept, so that swaps take longer"
    if means.support is not None:
        yield f"the bound is solved on at most {means.support:,} rows, and may be less tight"
    if not means.relaxation:
        yield "frames are not relaxed for a further start"


# --- what there is --------------------------------------------------------------------------------


def _is_sparse(view: View) -> bool:
    return isinstance(view, SparseView)


def _held(view: View) -> int:
    """Bytes of a view that are in memory already, and belong to the user."""
    if isinstance(view, DiagonalView):
        return int(view.values.nbytes)
    if isinstance(view, SparseView):
        return _sparse_bytes(view.data)
    data = view.kernel if isinstance(view, KernelView) else getattr(view, "data", None)
    if isinstance(data, HeldRows):
        return int(data.array.nbytes)
    return 0 if data is None or isinstance(data, RowFile) or _is_mapped(data) else int(data.nbytes)


def _sparse_bytes(matrix: Any) -> int:
    """Of a compressed matrix as it is, of others as if they were."""
    if matrix.format in ("csr", "csc"):
        return sum(int(a.nbytes) for a in (matrix.data, matrix.indices, matrix.indptr))
    return int(matrix.nnz * (matrix.dtype.itemsize + 4) + 4 * matrix.shape[0])


def _is_mapped(array: Any) -> bool:
    """Whether an array lies in a memory map."""
    import mmap

    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def _loaded(view: View) -> int:
    """Bytes of rows that will be decoded or converted, and kept; of large tables some."""
    if isinstance(view, DiagonalView):
        return 0
    if isinstance(view, SparseView):  # what is not CSR becomes it
        return 0 if view.data.format == "csr" else _sparse_bytes(view.data)
    data = getattr(view, "data", None)
    if not isinstance(data, RowFile) or isinstance(data, HeldRows):
        return 0
    whole = int(data.shape[0] * data.shape[1] * data.dtype.itemsize)
    if data.resident:
        return whole
    return 0 if data.random_access else min(whole, _DECODED)


def _row_bytes(view: View) -> float:
    """What one row weighs where it is read from."""
    if isinstance(view, DiagonalView):
        return 8.0
    if isinstance(view, KernelView):
        return float(view.kernel.nbytes / view.n)
    if isinstance(view, DenseView):
        data = view.data
        whole = data.file_bytes if isinstance(data, RowFile) else data.nbytes
        return float(whole / view.n)
    if isinstance(view, SparseView):
        return float(_held(view) / view.n)
    return float(8.0 * view.stored / view.n)


def _reading(view: View) -> float:
    """How much longer rows take to read than to copy: NumPy converts float16 number by number."""
    half = isinstance(view, DenseView) and view.data.dtype == "float16"
    return _HALF if half else 1.0


# --- what stages do -------------------------------------------------------------------------------


class _Count:
    """The arithmetic of all stages of one problem."""

    def __init__(self, problem: Problem, rates: Rates) -> None:
        self.problem, self.rates = problem, rates
        pool, engine = problem.pool, problem.pool.engine
        self.n, self.k, self.M = problem.n, problem.k, len(pool.views)
        self.views = pool.views
        self.P = sum(map(_width, self.views))
        self.engine = engine if isinstance(engine, LocalEngine) else LocalEngine()
        self.threads = self.engine.threads_for(problem.work())
        self.single = _float32_likely(problem)
        self.row_bytes = sum(map(_row_bytes, self.views))
        costs = sum(_row_bytes(view) * _reading(view) for view in self.views)
        self.reading = costs / self.row_bytes  # bytes that are moved for each that is read
        self.dense = float(sum(v.stored for v in self.views if not _is_sparse(v)))
        self.sparse = float(sum(v.stored for v in self.views if _is_sparse(v)))

    # The stages, in the order in which they run.

    def check(self) -> Stage:
        """One pass: are values finite, and how long are rows."""
        memory = 16.0 * self.n * (self.M + 1)  # what calibration makes on its way to `kept`
        memory += sum(2.0 * v.stored for v in self.views if _is_sparse(v))  # finite or not
        return self._stage("check and norms", 1, memory, columns=1)

    def kept(self) -> float:
        return float(_KEPT * self.n * self.M + _THREAD * self.threads)

    def greedy(self) -> Stage:
        """All rows hear of every pick once, in passes of some picks each; promising ones sooner."""
        n, M, k = self.n, self.M, self.k
        # Variances, logarithms and what a pass makes of them; who knows what, heights, and who is
        # high: at the first pick that may be everybody.
        memory = float(n * (M * (12 + 28) + 50))
        memory += M * 8 * k**2 + 16 * k * self.P_dense
        width = _LATE * M
        memory += self._blocks(width, self._look() + (12 if self.single else 24) * width)
        # Who might win is looked at again, about as often as there are rows.
        passes = math.ceil(k / _LATE) + 1
        moved = 24.0 * n * M * k  # the tangent that rules rows out, at every pick
        return self._stage("greedy", passes, memory, columns=2 * k, reads=2 * passes, moved=moved)

    def swaps(self, effort: Effort, searches: float = 1.0) -> Stage:
        """Local searches, all against the full pool."""
        n, M, k, means = self.n, self.M, self.k, self.problem.means
        number = 4 if self.single else 8
        keeps = n * M * k <= means.table
        # A pair exchange looks from a second table, the first one being kept.
        tables = (2 if effort.pairs else 1) * number * n * M * (k + 1) if keeps else 0
        memory = tables + 17.0 * n + M * 32 * k**2
        memory += self._blocks(4 * (M + 2) * k, self._look() + 2 * number * (M + 2) * k)
        if self.single:  # swaps that are looked at again in float64
            memory += 12.0 * min(means.confirmed, n * (self.problem.pool.row_width + M * k))
        most = effort.max_passes
        passes = searches * min(most, _SWAP_PASSES + effort.pairs)
        made = (_MADE if keeps else 1.0) * passes  # others are updated
        note = f"at most {most:,} passes per search, typically {min(most, _SWAP_PASSES)}"
        return self._stage(
            "swaps",
            passes,
            memory,
            columns=made * k,
            between=made * n * M * float(k) ** 2,
            moved=passes * _SWEEPS * number * n * M * k,
            note=note if keeps else f"{note}; too large for a table",
        )

    def relaxation(self, starts: int = 1) -> Stage:
        """Frames, in the coordinates that `choose_coordinates` will take."""
        n, M, k, P = self.n, self.M, self.k, self.P
        works = self._coordinate_work()
        kind = min(works, key=lambda name: works[name])
        size = {"reduced": min(n, P), "spanned": 2 * P, "ambient": n}[kind] * k
        frames = affordable_count(size, 20) + affordable_count(size, 30) + 14 + 2 * M
        memory, steps = 8.0 * size * frames + 8.0 * n, starts * _STEPS
        passes, columns, between = 2.0 * steps, 2.0 * steps * k, steps * 15.0 * size * k
        if kind == "reduced":
            memory = max(memory + 40.0 * P**2, self._gram(P, self.row_features())) + 8.0 * P**2
            passes, columns = 2.0 * starts, float(k)
            between += steps * 2.0 * P**2 * k + n * P**2 / 2
        elif kind == "spanned":
            total = M * k * P
            rows = min(self.engine.rows_of_block(self.problem.pool, 2 * M * k, True, total), n)
            memory += 8.0 * total * (self._levels(rows) + self.threads + 1)
            memory += self.threads * rows * (self.row_features() + 8 * M * k)
        else:
            memory += self._blocks(2 * M * k, self.row_features() + 16 * M * k)
        return self._stage(
            "relaxation",
            passes,
            memory,
            columns=columns,
            between=between,
            double=True,
            note=f"{kind} coordinates, typically {_STEPS} steps of at most 300",
        )

    def bound(self, name: str, *, joint: bool) -> Stage:
        """The concave relaxation on T, for the pool and for every view alone."""
        n, M, k = self.n, self.M, self.k
        solves = self.solves(joint=joint)
        between = sum(_EVALUATIONS * evaluation_cost(posed, m) for posed, m in solves)
        memory = max(self._solving(posed.pool.views, m) for posed, m in solves) + 48.0 * n
        memory += self._blocks(k * M, self._look() + 8 * k * M + 8 * k)
        narrow = [_width(v) for v in self.views if min(v.n, _width(v)) <= WIDEST_GRAM]
        if joint and narrow:  # the spectral bound beside it
            between += sum(n * min(p, n) ** 2 for p in narrow) / 2
            memory = max(memory, self._gram(min(max(narrow), n), 16 * max(narrow)))
        every = (1 if joint else 0) + (1 if len(solves) > 1 or not joint else 0)  # view is priced
        return self._stage(
            name,
            len(solves) * _BOUND_PASSES + (M if joint else 0),
            memory,
            columns=every * _BOUND_PASSES * _RANK * k,
            between=between,
            note=f"on about {max(m for _, m in solves):,} rows, an estimate: hard pools need more",
        )

    def solves(self, *, joint: bool) -> list[tuple[Problem, int]]:
        """The relaxations that are solved, and on how many rows each is in the end."""
        problem, found = self.problem, []
        m = self._support(problem, first_size(problem))
        if joint:
            found.append((problem, m))
        if self.M > 1 or not joint:
            for name in problem.pool.names:
                alone = problem.over(problem.pool.only(name))
                first = first_size(alone)
                found.append(
                    (alone, self._support(alone, m if joint and first < self.n else first))
                )
        return found

    def _support(self, problem: Problem, first: int) -> int:
        if first >= self.n:
            return self.n
        return min(max(int(_GROWN * first), _ROWS_PER_PICK * self.k), most_rows(problem))

    def _solving(self, views: tuple[View, ...], m: int) -> float:
        held = sum(self._held_rows(view, m) for view in views)
        images = (16.0 + 8.0) * m * _RANK * self.k * len(views)  # of some points; dual variables
        return held + max(self._making(view, m) for view in views) + images

    def proof(self) -> float:
        """Dual variables that a certificate keeps, its own and those of every view."""
        sizes = sum(m * len(posed.pool.views) for posed, m in self.solves(joint=True))
        return 8.0 * sizes * _RANK * self.k

    def neighbours(self) -> Stage:
        width = 2 * (self.k + _SAMPLE)
        memory = 24.0 * self.n * self.M + self._blocks(width, self.row_features() + 12 * width)
        note = "coverage and isolated picks, when asked for"
        stage = self._stage(
            "neighbours", 1, memory, columns=self.k + _SAMPLE, double=True, note=note
        )
        return replace(stage, optional=True)

    def method(self, plan: Plan, certify: bool) -> list[Stage]:
        """What a method by name goes through."""
        effort, limited = plan.effort, plan.effort.limited
        if plan.method == "greedy":
            return [self.greedy()]
        if plan.method == "nepv":
            stages = [self.relaxation()]
            return stages + ([self.swaps(effort.one_swaps)] if effort.max_passes else [])
        if plan.method not in ("auto", "exact"):
            return self._baseline(plan)
        stages = [self.greedy()]
        if effort.max_passes == 0:
            return stages
        if self.problem.means.relaxation and (not limited or effort.name == "thorough"):
            stages.append(self.relaxation(1 + (effort.name == "thorough")))
        starts = 1 + (2 + effort.samples if certify else 1)
        searches = 1.0 if limited else starts + effort.restarts_for(self.problem) / 5
        stages.append(self.swaps(effort, searches))
        small = self.n <= MOST_ROWS and self.k <= DEEPEST
        if plan.method == "exact" or (certify and small):
            note = "small pools only; how long a proof takes depends on the data"
            stages.append(self._stage("branch and bound", 0, 1e6, note=note))
        return stages

    def _baseline(self, plan: Plan) -> list[Stage]:
        stages = [self.greedy()]
        if plan.method in ("softmax", "d-optimal", "k-dpp"):
            stages.append(self.relaxation())
        if plan.effort.max_passes:
            stages.append(self.swaps(plan.effort))
        return [replace(s, note=f"{plan.method}, roughly") for s in stages]

    # What blocks and matrices take.

    @property
    def P_dense(self) -> int:
        return sum(_width(v) for v in self.views if not _is_sparse(v))

    def _look(self) -> float:
        """Bytes by row of a block that is looked at, in float32 where that is good enough."""
        total = 0.0
        for view in self.views:
            if isinstance(view, DenseView):
                wanted = 4 if self.single else 8
                stays = view.data.dtype.itemsize == wanted and not isinstance(view.data, RowFile)
                total += 0 if stays else (wanted + view.data.dtype.itemsize) * view.p
            elif _is_sparse(view):
                total += _SPARSE_ENTRY * view.stored / self.n + 20 * self.k
            else:
                total += 8 * self.k
        return total

    def row_features(self) -> float:
        """Bytes by row of calibrated features in float64."""
        return float(
            sum(
                _SPARSE_ENTRY * v.stored / self.n if _is_sparse(v) else 16 * _width(v)
                for v in self.views
            )
        )

    def _blocks(self, width: int, row: float) -> float:
        """Bytes of the blocks that are worked on at once."""
        rows = min(self.engine.rows_of_block(self.problem.pool, width), self.n)
        return float(self.threads * rows * row)

    def _levels(self, rows: int) -> int:
        """Partial results that a sum over blocks keeps."""
        return 1 + int(math.log2(max(1, -(-self.n // rows))))

    def _gram(self, P: int, row: float) -> float:
        rows = min(self.engine.rows_of_block(self.problem.pool, P, True), self.n)
        partial = 8.0 * P**2 * (self._levels(rows) + self.threads + 1)
        return partial + self.threads * rows * (row + 8.0 * P)

    def _held_rows(self, view: View, m: int) -> float:
        """T of one view in float32, as features or as a kernel."""
        return 4.0 * m * min(_width(view), m)

    def _making(self, view: View, m: int) -> float:
        """What is there while T is made in float64 for a last look, besides."""
        if _width(view) >= m:  # a kernel, or what its eigenvectors are found with
            return 16.0 * m**2 + (0 if _is_sparse(view) else 16.0 * m * _width(view))
        if _is_sparse(view):
            return 16.0 * m * _width(view)
        return (16.0 + _row_bytes(view) / _width(view)) * m * _width(view)

    def _coordinate_work(self) -> dict[str, float]:
        if any(isinstance(view, KernelView) for view in self.views):  # their rank is not known
            return {"reduced": 0.0} if self.P <= WIDEST_GRAM else {"ambient": 0.0}
        return coordinate_work(self.problem)

    def _stage(
        self,
        name: str,
        passes: float,
        memory: float,
        *,
        columns: float = 0.0,
        between: float = 0.0,
        reads: float | None = None,
        moved: float = 0.0,
        double: bool = False,
        note: str = "",
    ) -> Stage:
        """`columns` that all rows are multiplied by, multiply-adds `between` passes, and bytes
        that are `moved` besides the rows that are read."""
        rates = self.rates
        read = (passes if reads is None else reads) * self.row_bytes * self.n
        rate = rates.single if self.single and not double else rates.double
        seconds = (columns * self.dense + between) / rate + columns * self.sparse / rates.sparse
        moved += read * self.reading
        seconds = (seconds + moved / rates.copied) / self.threads**_SHARED
        seconds += _CALL * passes if rates != UNTIMED else 0.0
        work = columns * (self.dense + self.sparse) + between
        return Stage(name, passes, work, read, memory, seconds, note)


def _width(view: View) -> int:
    """p, of a kernel as if its rank were full: to know that takes a factorisation."""
    return view.n if isinstance(view, KernelView) else view.p


def _float32_likely(problem: Problem) -> bool:
    """Whether searches will look in float32, as far as ridges tell (rows of unit length)."""
    dense = [view for view in problem.pool.views if isinstance(view, DenseView)]
    ratio = 1.0 / min((view.ridge for view in problem.pool.views if view.ridge > 0), default=1.0)
    width = max([problem.k, *(view.p for view in dense)])
    error = 16.0 * math.sqrt(width) * 2.0**-24 * ratio * (1.0 + math.sqrt(ratio))
    return bool(dense) and problem.work() > 1e8 and error <= 0.02
