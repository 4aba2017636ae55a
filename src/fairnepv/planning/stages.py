"""What every stage allocates and multiplies.

What depends on the data (how long a local search lasts, how many rows a bound needs) is an estimate
from the pools of `benchmarks/scale.py`, and its note says so.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from fairnepv.compute import LocalEngine
from fairnepv.compute.rates import Rates
from fairnepv.concave.costs import evaluation_work, first_size, most_rows
from fairnepv.concave.spectral import affordable_spectrum, knows_spectrum, spectral_work
from fairnepv.methods.baselines.sampled import K_DPP_SAMPLES
from fairnepv.planning.facts import ViewFacts
from fairnepv.planning.forecast import Stage
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.search.effort import Effort, arena_rows
from fairnepv.stiefel.coordinates import coordinate_work
from fairnepv.stiefel.iteration import affordable
from fairnepv.stiefel.rows import converts_rows
from fairnepv.views import Pool

_THREAD = 6 << 20  # bytes that the allocator of a further thread keeps for itself
_KEPT = 24  # bytes by row and view: norms as given, calibrated, and scales
_LATE = 24  # directions of greedy in one pass
_SWAP_PASSES, LAST_PASSES = 15, 2  # of a typical local search, and of one after tabu search
_MADE, _SWEEPS = 0.3, 40.0  # of them with a table made anew; sweeps over a table in each
_LOOKS = 8.0  # the same where no table is kept
_TABU_SWEEPS = 6.0  # over what a tabu search keeps, by swap
# Of those that a tabu search may take, typically: most rounds fail.
_ROUNDS, _SWAPS_TAKEN = 0.3, 0.6
SUPPORTED = 1.6  # times as long as greedy: that, and greedy among the rows that a bound uses
_ASCENT = 60  # steps of a baseline that ascends on memberships
_STEPS = 12  # of a relaxation that is only to order candidates
_AROUND = 18  # products of its start, its rank and its check
_SPARSE_ROW = 16  # bytes by entry of sparse rows that are converted once
_BOUND_PASSES, _EVALUATIONS = 6, 25  # of one bound, as if all were on its last rows
_GROWN, _ROWS_BY_ROOT = 1.7, 250  # T in the end, beside its first size and the root of k
_RANK = 0.3  # of k: columns of dual variables
_SAMPLE = 64  # rows that isolation is judged by
_SHARED = 0.8  # exponent of what further threads bring
_PASS_CALLS = 30  # calls of a pass over however few rows
_PICK_CALLS, _SWAP_CALLS = 15, 12  # of a pick, and of a swap of few items


@dataclass(frozen=True)
class Work:
    """What is computed and read in a stage."""

    passes: float
    columns: float = 0.0  # that all rows are multiplied by
    between: float = 0.0  # multiply-adds besides
    moved: float = 0.0  # bytes besides the rows that are read
    reads: float = 1.0  # of all rows, in every pass
    double: bool = False  # whether float64 is needed
    factored: float = 0.0  # multiply-adds of factorisations
    calls: float = 0.0  # that wait for each other, besides those of passes


class Count:
    """The arithmetic of all stages of one problem, or of them on some of its `rows`."""

    def __init__(self, problem: Problem, rates: Rates, rows: int | None = None) -> None:
        self.problem, self.rates = problem, rates
        pool, engine = problem.pool, problem.pool.engine
        self.n, self.k, self.M = rows or problem.n, problem.k, len(pool.views)
        share = self.n / problem.n
        self.work = share * problem.work()
        self.views = [ViewFacts(view, pool.centered) for view in pool.views]
        self.P = pool.width
        self.engine = engine if isinstance(engine, LocalEngine) else LocalEngine()
        self.threads = self.engine.threads_for(self.work)
        self.shared = self.threads**_SHARED if self.engine is engine else 1.0
        self.single = _float32_likely(problem, self.views)
        self.number = 4.0 if self.single else 8.0  # bytes of a number that searches look at
        self.row_bytes = sum(view.row_bytes for view in self.views)
        costs = sum(view.row_bytes * view.reading_cost for view in self.views)
        # Bytes that are moved for each that is read; rows on a device are not.
        self.reading = costs / self.row_bytes if self.row_bytes else 1.0
        self.dense = share * sum(v.stored for v in self.views if not v.sparse)
        self.sparse = share * sum(v.stored for v in self.views if v.sparse)
        self.block_bytes = sum(view.block_bytes(self.single, self.k) for view in self.views)
        self.feature_bytes = sum(view.feature_bytes for view in self.views)

    def over(self, rows: int) -> Self:
        """The same among so many of the rows."""
        return type(self)(self.problem, self.rates, rows)

    # The stages, in the order in which they run.

    def posing(self) -> list[Stage]:
        """What is made before anything else."""
        return [self.check()]

    def check(self) -> Stage:
        """One pass: are values finite, and how long are rows; two more where these are centred, for
        the means and for what is left."""
        memory = 16.0 * self.n * (self.M + 1)  # what calibration makes on its way to `kept`
        memory += sum(2.0 * v.stored for v in self.views if v.sparse)  # finite or not
        # A kernel is factored, and held against the product of its factors.
        memory += sum(40.0 * v.n**2 for v in self.views if v.kernel)
        passes = 3 if self.problem.pool.centered else 1
        return self.stage("check and norms", memory, Work(passes, columns=passes))

    def kept(self) -> float:
        """Bytes from the first stage to the last."""
        copies = sum(8.0 * v.n**2 for v in self.views if v.kernel and v.centered)
        return float(_KEPT * self.n * self.M + _THREAD * self.threads) + copies

    def greedy(self, *, supported: bool = False) -> Stage:
        """All rows hear of every pick once, in passes of some picks each; promising ones sooner.
        `supported`: once more among the rows that a bound uses."""
        n, M, k = self.n, self.M, self.k
        # Variances, logarithms and what a pass makes of them; which rows know what, heights, and
        # which are high: at the first pick that may be all.
        memory = float(n * (M * (12 + 28) + 50))
        memory += M * 8 * k**2 + 16 * k * sum(v.p for v in self.views if not v.sparse)
        width = _LATE * M
        memory += self._blocks(width, self.block_bytes + 3 * self.number * width)
        runs = SUPPORTED if supported else 1.0
        passes = runs * (math.ceil(k / _LATE) + 1)
        moved = runs * 24.0 * n * M * k  # the tangent that rules rows out, at every pick
        # Rows that might win are looked at again, about as often as there are rows.
        calls = runs * _PICK_CALLS * k
        work = Work(passes, columns=runs * 2 * k, moved=moved, reads=2, calls=calls)
        return self.stage("greedy", memory, work)

    def swaps(self, effort: Effort, searches: float = 1.0, *, last: bool = False) -> Stage:
        """Local searches, all against the full pool; the `last` begins where little is left."""
        n, M, k, number, means = self.n, self.M, self.k, self.number, self.problem.means
        keeps = n * M * k <= means.table
        memory = (number * n * M * (k + 1) if keeps else 0) + 17.0 * n + M * 32 * k**2
        memory += self._blocks(4 * (M + 2) * k, self.block_bytes + 2 * number * (M + 2) * k)
        if self.single:  # swaps that are looked at again in float64
            memory += 12.0 * min(means.confirmed, n * (self.problem.pool.row_width + M * k))
        usual, note = self._usual(effort, self._last_passes(effort) if last else _SWAP_PASSES)
        passes = searches * usual
        made = (_MADE if keeps else 1.0) * passes  # others are updated
        moved = passes * (_SWEEPS if keeps else _LOOKS) * number * n * M * k
        work = Work(passes, columns=made * k, between=made * n * M * float(k) ** 2, moved=moved)
        return self.stage(
            "swaps", memory, work, note + ("" if keeps else "; too large for a table")
        )

    def _usual(self, effort: Effort, typical: int) -> tuple[int, str]:
        """The passes of a local search, which typically has so many, and a note that says so."""
        most = effort.passes_for(self.work)
        usual = min(most, typical)
        return usual, f"at most {most:,} passes per search, typically {usual}"

    def _last_passes(self, effort: Effort) -> int:
        """The passes of a local search after tabu search: few where that could take a swap for
        every item, and more where it could take fewer swaps."""
        entries = self.M * arena_rows(self.problem, self.n) * self.k
        missing = max(0.0, 1.0 - effort.swaps_for(self.work, entries) / self.k)
        return LAST_PASSES + round(missing * (_SWAP_PASSES - LAST_PASSES))

    def tabu(self, effort: Effort) -> Stage:
        """Rounds of tabu search among few rows, before each a look at what all rows promise."""
        n, M, k = self.n, self.M, self.k
        m, usual, rounds, note = self._tabu(effort)
        memory = 8.0 * M * (m**2 + 3 * m * k + 2 * k**2) + 8.0 * m * self.P
        memory += self._blocks(4 * (M + 2) * k, self.block_bytes + 16 * (M + 2) * k)
        between = rounds * n * M * float(k) ** 2 + rounds * m * m * self.P
        moved = _TABU_SWEEPS * 8.0 * usual * M * m * k + rounds * _LOOKS * self.number * n * M * k
        calls = usual * _SWAP_CALLS * (1.0 + k / 30)
        work = Work(rounds, columns=rounds * k, between=between, moved=moved, calls=calls)
        return self.stage("tabu", memory, work, note)

    def _tabu(self, effort: Effort, arrays: int = 1) -> tuple[int, float, int, str]:
        """Rows of a tabu search that keeps so many `arrays` (m, k) of a view, typical swaps and
        rounds of it, and a note."""
        n, k = self.n, self.k
        m = arena_rows(self.problem, n)
        swaps = effort.swaps_for(self.work, arrays * self.M * m * k)
        rounds = math.ceil(_ROUNDS * swaps / effort.round_of(k, m)) if m < n else 0
        return m, _SWAPS_TAKEN * swaps, rounds, f"at most {swaps:,} swaps among {m:,} rows"

    def order(self) -> Stage:
        """Greedy once more, among the k items that were found, which says which come first."""
        among = self.over(self.k).greedy()
        return replace(among, name="order", passes=among.passes * self.k / self.n)

    def relaxation(self, starts: int = 1, steps: int | None = None) -> Stage:
        """Frames, in the coordinates that `choose_coordinates` will take; at most so many steps, or
        what rounding needs."""
        n, M, k, P = self.n, self.M, self.k, self.P
        works = coordinate_work(self.problem)
        kind = min(works, key=works.__getitem__)
        size = {"reduced": min(n, P), "spanned": 2 * P, "ambient": n}[kind] * k
        frames = affordable(size, 6) + affordable(size, 30) + 14 + 6 * M
        memory = 8.0 * size * frames + 8.0 * n
        said = f"typically {_STEPS} steps of at most 300" if steps is None else f"{steps:,} steps"
        steps = starts * (steps or _STEPS)
        passes = 2.0 * steps + starts * _AROUND
        columns, between = passes * k, steps * 10.0 * size * k
        if kind == "reduced":
            memory = max(memory + 40.0 * P**2, self._gram(P, self.feature_bytes)) + 8.0 * P**2
            between += passes * P**2 * k + n * P**2 / 2
            passes, columns = 2.0 * starts, float(k)
        elif kind == "spanned":
            total = M * k * P
            rows = min(self.engine.rows_of_block(self.problem.pool, 2 * M * k, True, total), n)
            memory += 8.0 * total * (self._levels(rows) + self.threads + 1)
            memory += self.threads * rows * (self.feature_bytes + 8 * M * k)
        else:
            memory += self._blocks(2 * M * k, self.feature_bytes + 16 * M * k)
        if kind != "reduced" and converts_rows(self.problem):
            memory += 8.0 * self.dense + _SPARSE_ROW * self.sparse
        work = Work(passes, columns=columns, between=between, double=True)
        note = f"{kind} coordinates, {said}"
        return self.stage("relaxation", memory, work, note)

    def bound(self, name: str, *, joint: bool) -> Stage:
        """The concave relaxation on T, for the pool and for every view alone."""
        n, M, k = self.n, self.M, self.k
        solves = self.solves(joint=joint)
        factored = sum(_EVALUATIONS * evaluation_work(posed, m) for posed, m in solves)
        memory = max(self._solving(posed.pool, m) for posed, m in solves) + 48.0 * n
        narrow = [v for v in self.problem.pool.views if min(v.n, v.p) <= WIDEST_GRAM]
        if joint and narrow:  # the spectral bound beside it, or less where that would take longer
            most = affordable_spectrum(self.problem)
            factored += sum(min(spectral_work(view), most) for view in narrow)
            wide = [v.p for v in narrow if knows_spectrum(self.problem, v)]
            memory = max([memory, *(self._gram(min(p, n), 16 * p) for p in wide)])
        # How often every view is priced in a pass: together, and alone.
        priced = (1 if joint else 0) + (1 if len(solves) > 1 or not joint else 0)
        work = Work(
            len(solves) * _BOUND_PASSES + (M if joint else 0),
            columns=priced * _BOUND_PASSES * _RANK * k,
            factored=factored,
        )
        most = max(m for _, m in solves)
        note = f"on about {most:,} rows, an estimate: hard pools need more"
        return self.stage(name, memory, work, note)

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
                rows = self._support(alone, m if joint and first < self.n else first)
                found.append((alone, rows))
        return found

    def _support(self, problem: Problem, first: int) -> int:
        if first >= self.n:
            return self.n
        return min(
            max(int(_GROWN * first), int(_ROWS_BY_ROOT * math.sqrt(self.k))), most_rows(problem)
        )

    def _solving(self, pool: Pool, m: int) -> float:
        """Bytes of one relaxation that is solved on m rows."""
        views, width = [ViewFacts(v, pool.centered) for v in pool.views], self.k * len(pool.views)
        images = (8.0 + 8.0) * m * _RANK * width  # of two points; dual variables
        rows = min(self.engine.rows_of_block(pool, width), self.n)
        looked_at = sum(view.block_bytes(self.single, self.k) for view in views)
        priced = self.threads * rows * (looked_at + 8 * width + 8 * self.k)
        making = max(view.making_bytes(m) for view in views)
        # T of every view stays in float32, as features or as a kernel.
        return sum(4.0 * m * min(view.p, m) for view in views) + images + max(making, priced)

    def proof(self) -> float:
        """Dual variables that a certificate keeps, its own and those of every view."""
        sizes = sum(m * len(posed.pool.views) for posed, m in self.solves(joint=True))
        return 8.0 * sizes * _RANK * self.k

    def neighbours(self) -> Stage:
        """Coverage and isolated picks."""
        width = 2 * (self.k + _SAMPLE)
        memory = 24.0 * self.n * self.M + self._blocks(width, self.feature_bytes + 12 * width)
        work = Work(1, columns=self.k + _SAMPLE, double=True)
        note = "coverage and isolated picks, when asked for"
        return replace(self.stage("neighbours", memory, work, note), optional=True)

    def averaged(self, method: str) -> Stage:
        """A method that factors the averaged kernel: of the rows all at once, or of the columns in
        passes over blocks in which the views lie side by side."""
        n, k, P, steps = self.n, self.k, self.P, _ASCENT
        by_rows = n <= min(2 * P, WIDEST_GRAM)
        if method == "k-dpp":
            by_rows, steps = n < P, K_DPP_SAMPLES
        side, beside = n if by_rows else P, self.feature_bytes + 16.0 * P
        widest = max(view.feature_bytes for view in self.views)
        making = 2.0 * n * widest + 24.0 * n**2 if by_rows else self._gram(P, beside + 8.0 * P)
        factoring = 80.0 * side**2  # a matrix, its factor and products with it, at two points
        drawn = min(k, side)  # eigenvectors of a sample, which are reflected in copies
        drawing = (48.0 * n + 16.0 * side) * drawn if method == "k-dpp" else 0.0
        memory = max(making + 8.0 * side**2, factoring + drawing) + 32.0 * k * P
        work = Work(
            1.0 if by_rows else 1.0 + steps,
            columns=0.0 if by_rows else float(steps * drawn),
            between=n * P * side / 2 + (10.0 + steps / 3) * side**3 + 40.0 * n * drawn**2,
            double=True,
        )
        return self.stage(method, memory, work, "factors of the averaged kernel, roughly")

    def copied(self, array: bool = True) -> float:
        """Bytes of these rows in memory; those of an `array` need not be copied to be a shard."""
        return self.n * sum(view.copied(array) for view in self.views)

    # What blocks and matrices take.

    def _blocks(self, width: int, row: float) -> float:
        """Bytes of the blocks that are worked on at once."""
        rows = min(self.engine.rows_of_block(self.problem.pool, width), self.n)
        return float(self.threads * rows * row)

    def _levels(self, rows: int) -> int:
        """Partial results that a sum over blocks keeps."""
        return 1 + int(math.log2(max(1, -(-self.n // rows))))

    def _gram(self, P: int, row: float) -> float:
        """Bytes of a (P, P) Gram matrix in the making."""
        rows = min(self.engine.rows_of_block(self.problem.pool, P, True), self.n)
        partial = 8.0 * P**2 * (self._levels(rows) + self.threads + 1)
        return partial + self.threads * rows * (row + 8.0 * P)

    def stage(self, name: str, memory: float, work: Work, note: str = "") -> Stage:
        """The record of a stage: operations and time follow from its work."""
        rates, passes, columns = self.rates, work.passes, work.columns
        read = passes * work.reads * self.row_bytes * self.n
        rate = rates.single if self.single and not work.double else rates.double
        seconds = (columns * self.dense + work.between) / rate
        seconds += columns * self.sparse / rates.sparse
        moved = work.moved + read * self.reading
        seconds += work.factored / rates.factored + moved / rates.copied
        seconds = seconds / self.shared + (_PASS_CALLS * passes + work.calls) * rates.call
        operations = columns * (self.dense + self.sparse) + work.between + work.factored
        return Stage(name, passes, operations, read, memory, seconds, note)


def _float32_likely(problem: Problem, views: list[ViewFacts]) -> bool:
    """Whether searches will look in float32, as far as ridges tell (rows of unit length)."""
    dense = [view.p for view in views if view.dense]
    ratio = 1.0 / min((view.ridge for view in problem.pool.views if view.ridge > 0), default=1.0)
    width = max([problem.k, *dense])
    error = 16.0 * math.sqrt(width) * 2.0**-24 * ratio * (1.0 + math.sqrt(ratio))
    return bool(dense) and problem.work() > 1e8 and error <= 0.02
