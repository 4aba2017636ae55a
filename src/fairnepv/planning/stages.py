"""What every stage allocates and multiplies.

What depends on the data (how long a local search lasts, how many rows a bound needs) is an estimate
from the pools of `benchmarks/scale.py`, and its note says so.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from fairnepv.compute import LocalEngine
from fairnepv.compute.rates import UNTIMED, Rates
from fairnepv.concave.concave import evaluation_cost, first_size, most_rows
from fairnepv.io.rows import RowFile
from fairnepv.methods.baselines.limits import FACTOR_THE_AVERAGE
from fairnepv.methods.baselines.sampled import K_DPP_SAMPLES
from fairnepv.methods.plan import Plan
from fairnepv.planning.facts import is_sparse, reading_cost, row_bytes
from fairnepv.planning.forecast import Stage
from fairnepv.problem import WIDEST_GRAM, Problem
from fairnepv.search.effort import Effort, check_effort
from fairnepv.search.exact import DEEPEST, MOST_ROWS
from fairnepv.stiefel.coordinates import coordinate_work
from fairnepv.stiefel.iteration import affordable
from fairnepv.views import DenseView, KernelView, Pool, View

_THREAD = 6 << 20  # bytes that the allocator of a further thread keeps for itself
_KEPT = 24  # bytes by row and view: norms as given, calibrated, and scales
_LATE = 24  # directions of greedy in one pass
_SWAP_PASSES = 15  # of a typical local search
_MADE, _SWEEPS = 0.3, 40.0  # of them with a table made anew; sweeps over a table in each
_LOOKS = 8.0  # the same without a table, which nobody updates
_ASCENT = 60  # steps of a baseline that ascends on memberships
_STEPS = 60  # of a relaxation that is only to order candidates
_BOUND_PASSES, _EVALUATIONS = 5, 10  # of one bound, as if all were on its last rows
_GROWN, _ROWS_PER_PICK = 1.7, 25  # T when the bound is tight, beside its first size and beside k
_RANK = 0.3  # of k: columns of dual variables
_SPARSE_ENTRY = 40  # bytes by entry of a sparse block: a slice of it, and its copy in float64
_SAMPLE = 64
_SHARED = 0.8  # exponent of what further threads bring
_CALL = 1e-3  # seconds of a pass over however few rows


class Count:
    """The arithmetic of all stages of one problem, or of them on some of its `rows`."""

    def __init__(self, problem: Problem, rates: Rates, rows: int | None = None) -> None:
        self.problem, self.rates = problem, rates
        pool, engine = problem.pool, problem.pool.engine
        self.n, self.k, self.M = rows or problem.n, problem.k, len(pool.views)
        share = self.n / problem.n
        self.work = share * problem.work()
        self.views = pool.views
        self.P = sum(view.p for view in self.views)
        self.engine = engine if isinstance(engine, LocalEngine) else LocalEngine()
        self.threads = self.engine.threads_for(self.work)
        self.single = _float32_likely(problem)
        self.row_bytes = sum(map(row_bytes, self.views))
        costs = sum(row_bytes(view) * reading_cost(view) for view in self.views)
        self.reading = costs / self.row_bytes  # bytes that are moved for each that is read
        self.dense = share * sum(v.stored for v in self.views if not is_sparse(v))
        self.sparse = share * sum(v.stored for v in self.views if is_sparse(v))

    # The stages, in the order in which they run.

    def check(self) -> Stage:
        """One pass: are values finite, and how long are rows."""
        memory = 16.0 * self.n * (self.M + 1)  # what calibration makes on its way to `kept`
        memory += sum(2.0 * v.stored for v in self.views if is_sparse(v))  # finite or not
        # A kernel is factored, and held against the product of its factors.
        memory += sum(40.0 * v.n**2 for v in self.views if isinstance(v, KernelView))
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
            moved=passes * (_SWEEPS if keeps else _LOOKS) * number * n * M * k,
            note=note if keeps else f"{note}; too large for a table",
        )

    def relaxation(self, starts: int = 1) -> Stage:
        """Frames, in the coordinates that `choose_coordinates` will take."""
        n, M, k, P = self.n, self.M, self.k, self.P
        works = coordinate_work(self.problem)
        kind = min(works, key=lambda name: works[name])
        size = {"reduced": min(n, P), "spanned": 2 * P, "ambient": n}[kind] * k
        frames = affordable(size, 20) + affordable(size, 30) + 14 + 2 * M
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
        memory = max(self._solving(posed.pool, m) for posed, m in solves) + 48.0 * n
        narrow = [v.p for v in self.views if min(v.n, v.p) <= WIDEST_GRAM]
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

    def _solving(self, pool: Pool, m: int) -> float:
        views, width = pool.views, self.k * len(pool.views)
        held_rows = sum(self._held_rows(view, m) for view in views)
        images = (8.0 + 8.0) * m * _RANK * width  # of two points; dual variables
        rows = min(self.engine.rows_of_block(pool, width), self.n)
        priced = self.threads * rows * (self._look(views) + 8 * width + 8 * self.k)
        making = max(self._making(view, m) for view in views)
        return held_rows + images + max(making, priced)

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
        if len(plan.shards) > 2:
            return self._tiers(plan)
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
        searches = 1.0 if limited else starts + effort.restarts_for(self.work) / 5
        stages.append(self.swaps(effort, searches))
        small = self.n <= MOST_ROWS and self.k <= DEEPEST
        if plan.method == "exact" or (certify and small):
            note = "small pools only; how long a proof takes depends on the data"
            stages.append(self._stage("branch and bound", 0, 1e6, note=note))
        return stages

    def _tiers(self, plan: Plan) -> list[Stage]:
        """Greedy within shards, of which one is held at a time, then a method among the winners."""
        sizes = [stop - start for start, stop in itertools.pairwise(plan.shards)]
        largest = Count(self.problem, self.rates, max(sizes))
        each, whole = largest.greedy(), self.greedy()
        note = f"{len(sizes):,} shards of up to {max(sizes):,} rows, one at a time"
        memory = each.memory + largest.copied(array=False)
        first = replace(whole, name="shards", memory=memory, note=note)
        second = Count(self.problem, self.rates, sum(min(self.k, size) for size in sizes))
        effort = check_effort(plan.effort.name).for_work(second.work)
        stages = second.method(replace(plan, effort=effort, shards=()), False)
        return [first, *(second.as_second_tier(stage, self.n) for stage in stages)]

    def as_second_tier(self, stage: Stage, n: int) -> Stage:
        """A stage on these rows as one of a pool of n: its passes count as shares of one."""
        among = f"among {self.n:,} winners"
        return replace(
            stage,
            passes=stage.passes * self.n / n,
            memory=stage.memory + self.copied(),
            note=f"{among}; {stage.note}" if stage.note else among,
        )

    def copied(self, array: bool = True) -> float:
        """Bytes of these rows in memory; those of an `array` need not be copied to be a shard."""
        dense = [v for v in self.views if isinstance(v, DenseView)]
        apart = [v for v in dense if array or isinstance(v.data, RowFile)]
        others = [v for v in self.views if not isinstance(v, DenseView)]
        wide = sum(v.p * v.data.dtype.itemsize for v in apart)
        return float(self.n * (wide + sum(map(row_bytes, others))))

    def _averaged(self, method: str) -> Stage:
        """What factors the averaged kernel: of the rows all at once, or of the columns in passes
        over blocks in which the views lie side by side."""
        n, k, P, steps = self.n, self.k, self.P, _ASCENT
        by_rows = n <= min(2 * P, WIDEST_GRAM)
        if method == "k-dpp":
            by_rows, steps = n < P, K_DPP_SAMPLES
        side, beside = n if by_rows else P, self.row_features() + 16.0 * P
        widest = max(self.row_features((view,)) for view in self.views)
        making = 2.0 * n * widest + 24.0 * n**2 if by_rows else self._gram(P, beside + 8.0 * P)
        factoring = 80.0 * side**2  # a matrix, its factor and products with it, at two points
        drawn = min(k, side)  # eigenvectors of a sample, which are reflected in copies
        drawing = (48.0 * n + 16.0 * side) * drawn if method == "k-dpp" else 0.0
        return self._stage(
            method,
            1.0 if by_rows else 1.0 + steps,
            max(making + 8.0 * side**2, factoring + drawing) + 32.0 * k * P,
            columns=0.0 if by_rows else float(steps * drawn),
            between=n * P * side / 2 + (10.0 + steps / 3) * side**3 + 40.0 * n * drawn**2,
            double=True,
            note="factors of the averaged kernel, roughly",
        )

    def _baseline(self, plan: Plan) -> list[Stage]:
        if plan.method in FACTOR_THE_AVERAGE:
            return [self._averaged(plan.method)]
        stages = [self.greedy()]
        if plan.effort.max_passes:
            stages.append(self.swaps(plan.effort))
        return [replace(s, note=f"{plan.method}, roughly") for s in stages]

    # What blocks and matrices take.

    @property
    def P_dense(self) -> int:
        return sum(v.p for v in self.views if not is_sparse(v))

    def _look(self, views: tuple[View, ...] | None = None) -> float:
        """Bytes by row of a block that is looked at, in float32 where that is good enough."""
        total = 0.0
        for view in views or self.views:
            if isinstance(view, DenseView):
                wanted = 4 if self.single else 8
                stays = view.data.dtype.itemsize == wanted and not isinstance(view.data, RowFile)
                total += 0 if stays else (wanted + view.data.dtype.itemsize) * view.p
            elif is_sparse(view):
                total += _SPARSE_ENTRY * view.stored / view.n + 20 * self.k
            else:
                total += 8 * self.k
        return total

    def row_features(self, views: tuple[View, ...] | None = None) -> float:
        """Bytes by row of calibrated features in float64."""
        views = views or self.views
        return float(
            sum(_SPARSE_ENTRY * v.stored / v.n if is_sparse(v) else 16 * v.p for v in views)
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
        return 4.0 * m * min(view.p, m)

    def _making(self, view: View, m: int) -> float:
        """What is there while T is made in float64 for a last look, besides."""
        if view.p >= m:  # a kernel, or what its eigenvectors are found with
            return 16.0 * m**2 + (0 if is_sparse(view) else 16.0 * m * view.p)
        if is_sparse(view):
            return 16.0 * m * view.p
        return (16.0 + row_bytes(view) / view.p) * m * view.p

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


def _float32_likely(problem: Problem) -> bool:
    """Whether searches will look in float32, as far as ridges tell (rows of unit length)."""
    dense = [view for view in problem.pool.views if isinstance(view, DenseView)]
    ratio = 1.0 / min((view.ridge for view in problem.pool.views if view.ridge > 0), default=1.0)
    width = max([problem.k, *(view.p for view in dense)])
    error = 16.0 * math.sqrt(width) * 2.0**-24 * ratio * (1.0 + math.sqrt(ratio))
    return bool(dense) and problem.work() > 1e8 and error <= 0.02
