"""What the stages of a search for representative picks allocate and multiply."""

from dataclasses import replace

from fairnepv.compute.rates import Rates
from fairnepv.planning.facts import ViewFacts
from fairnepv.planning.forecast import Stage
from fairnepv.planning.stages import LAST_PASSES, SUPPORTED, Count, Work
from fairnepv.problem import Problem
from fairnepv.search.arena import ExplainedArena
from fairnepv.search.effort import Effort
from fairnepv.search.explained.frontier import MOST, TOLD, field_sizes
from fairnepv.views import Pool
from fairnepv.views.moments import SAMPLE, TARGETS, WIDEST_MOMENTS

_TOLD_TWICE = 1.1  # times the columns of greedy's picks: some do not hold, and are made again
_FIRST_PASSES = 6  # of greedy, which trusts few picks at first
_HEIGHTS = 70  # numbers that are moved in one of its passes, by row and view
_ON_THE_WAY = 12  # numbers that tell what a row had to gain in a view before each of some picks
_RACES = 6  # picks that are made among the same few rows
_TARGETED = 48.0  # bytes that are moved for a row and a row that the moments of a view act through
_PICK_CALLS = 14  # of a pick among few rows
_RUNGS = 4  # rows that a slot may be exchanged for, of those that one pass has found
_ARENA = 8  # arrays (m, k) of a view among few rows
_SWAP_CALLS = 25  # of a swap among them
_MATRICES = 16  # (r, r) of a view that are there in an evaluation of the bound
_FACTORED = 62.0  # multiply-adds, times r^3, of its eigenvectors
_EVALUATIONS, _BOUND_PASSES = 16, 6
_BEYOND = 0.3  # of these for a view alone: mostly the joint proof is good enough for it
_MOVED, _CLIMBING = 24.0, 800.0  # bytes by row of T in an evaluation: by axis, and to climb
_EVALUATION_CALLS = 100
_SWAP_SEARCH = 8  # passes of a local search that begins at greedy's picks
_SWAP_MOVES = 12.0  # sweeps over the arrays of few rows for each swap that is made


class ExplainedCount(Count):
    """The same stages for explained variance; `search.explained` has the letters."""

    def __init__(self, problem: Problem, rates: Rates, rows: int | None = None) -> None:
        super().__init__(problem, rates, rows)
        self.narrow = [v for v in self.views if v.p <= WIDEST_MOMENTS]
        self.wide = [v for v in self.views if v.p > WIDEST_MOMENTS]
        # Rows that the moments of wide views act through.
        n = problem.n
        self.targets = n if n <= TARGETS else SAMPLE

    def posing(self) -> list[Stage]:
        return [self.check(), self.moments()]

    def kept(self) -> float:
        """Second moments, their eigenvectors and the norms of second order beside the rest; rows
        that those of wide views act through, and the features of kernels."""
        held = 8.0 * self.n * self.M + sum(8.0 * v.n**2 for v in self.views if v.kernel)
        held += sum(16.0 * v.p**2 for v in self.narrow)
        held += sum(16.0 * v.stored * self.targets / v.n for v in self.wide)
        return super().kept() + held

    def moments(self) -> Stage:
        """Second moments of the views, and with them the norms of second order: two passes."""
        making = [self._gram(v.p, 16.0 * v.p) for v in self.narrow]
        making += [self._blocks(2 * v.p, v.feature_bytes + 24.0 * v.p) for v in self.narrow]
        t = self.targets
        making += [self._blocks(2 * t, v.feature_bytes + 40.0 * t) for v in self.wide]
        # A product of rows with themselves, which takes half, and one of rows with that.
        between = 1.5 * self.n * sum(float(v.p) ** 2 for v in self.narrow)
        between += sum(float(v.stored) for v in self.wide) * t
        moved = _TARGETED * self.n * t * len(self.wide)
        work = Work(2, between=between, moved=moved, double=True)
        return self.stage("second moments", max(making) + 32.0 * self.n, work)

    # Searches.

    def greedy(self, *, supported: bool = False) -> Stage:
        """Picks among few rows, and passes that tell all rows of some at a time, by two columns
        each. `supported`: once more among the rows that a bound uses."""
        n, M, k, P, number = self.n, self.M, self.k, self.P, self.number
        most = max(1, min(MOST, k, TOLD // (2 * n * M)))
        told = number * (2 * M * most + 2 * M + 1)  # of every row; and while few hold of many
        beside = 3 * number * most
        some, few = field_sizes(n, self.problem.pool.row_width)
        held = 4.0 * n * P if n > few and n * P <= self.problem.means.table else 0.0
        widest = max(v.p for v in self.views)
        runners = 8.0 * few * (P + 3 * widest) + 8.0 * few * k * (M + 4) + 48.0 * k * P
        runners += 24.0 * few * self.targets if self.wide else 0.0
        near = 8.0 * most * (_ON_THE_WAY + 3 * M)
        field = some * (self.feature_bytes + 4.0 * P * bool(held) + told + near)
        converting = held + self._blocks(P, self.feature_bytes + 16.0 * P)
        width = 4 * M * most
        telling = n * (told + beside) + self._blocks(width, self.block_bytes + 2 * told + near)
        memory = float(n * (72 * M + 64)) + held + max(converting, telling) + runners + field
        runs = SUPPORTED if supported else 1.0
        passes = runs * (_TOLD_TWICE * k / most + (_FIRST_PASSES if n > few else 1))
        told_of = _TOLD_TWICE * 2 * k
        # Rows are converted once where they are held; each pick goes through the few.
        moved = runs * _TOLD_TWICE * 6 * number * n * M * k + 6.0 * held
        moved += passes * 8.0 * _HEIGHTS * n * (M + 1)
        moved += runs * 12.0 * float(k) ** 2 * P  # directions, each against those before
        between = runs * k * float(few) * (2 * P + M * k)
        races = 1.0 + k / _RACES
        between += runs * (k + few * races) * sum(float(v.p) ** 2 for v in self.narrow)
        between += runs * told_of * float(some) * sum(v.p for v in self.narrow)
        work = Work(
            passes,
            columns=runs * told_of,
            between=between,
            moved=moved,
            calls=runs * _PICK_CALLS * M * k,
        )
        return self.stage("greedy", memory, work)

    def swaps(self, effort: Effort, searches: float = 1.0, *, last: bool = False) -> Stage:
        """Local searches, all against the full pool: two products of k columns for every view."""
        n, M, k = self.n, self.M, self.k
        means = self.problem.means
        few = min(n, (1 + 2 * _RUNGS) * k)  # that swaps are made among after a pass
        memory = 40.0 * n * M + self._arena(few) + self._looking()
        memory += 12.0 * min(means.confirmed, n * (self.problem.pool.row_width + 6 * M * k))
        usual, note = self._usual(effort, LAST_PASSES if last else _SWAP_SEARCH)
        passes = searches * usual
        looks, made = self._looks(passes), passes * k / _SWAP_SEARCH
        moved = made * 8.0 * _SWAP_MOVES * M * k * min(n, 3 * k)
        calls = made * _SWAP_CALLS * M
        work = replace(looks, moved=looks.moved + moved, calls=calls)
        return self.stage("swaps", memory, work, note)

    def tabu(self, effort: Effort) -> Stage:
        """Rounds among few rows, of which two kernels are held for every view."""
        M, k = self.M, self.k
        m, usual, rounds, note = self._tabu(effort, ExplainedArena.arrays)
        looks = self._looks(float(rounds))
        entries = ExplainedArena.arrays * M * m * k
        making = max(rounds, 1) * sum(m * m * float(min(v.p, self.targets)) for v in self.wide)
        making += max(rounds, 1) * sum(m * v.p * float(2 * m + v.p) for v in self.narrow)
        work = Work(
            rounds,
            columns=looks.columns,
            between=looks.between + making,
            moved=looks.moved + 8.0 * 4.0 * usual * entries,
            calls=usual * _SWAP_CALLS * M * (1.0 + k / 60),
        )
        memory = self._arena(m) + self._looking()
        return self.stage("tabu", memory, work, note)

    def _looks(self, passes: float) -> Work:
        """Looks at all swaps with all rows."""
        n, M, k = self.n, self.M, self.k
        return Work(
            passes,
            columns=2.0 * passes * k,
            between=passes * 2.0 * n * M * float(k) ** 2,
            moved=passes * 12.0 * self.number * n * M * k,
        )

    def _looking(self) -> float:
        """Bytes of one look: the set in every view, and blocks."""
        M, k = self.M, self.k
        row = self.block_bytes + 8.0 * (M + 10) * k
        small = 8.0 * (6 * k * self.P + 8 * M * k**2)
        return self._blocks(8 * M * k, row) + small + 16.0 * self.n * self.M

    def _arena(self, m: int) -> float:
        """Bytes of m rows whose kernels are held, and of their making."""
        M, k = self.M, self.k
        held = 8.0 * M * (2.0 * m**2 + _ARENA * m * k + 6.0 * k**2)
        making = [8.0 * m * (4 * v.p + m) for v in self.narrow]
        making += [8.0 * m * (4 * self.targets + 2 * v.p + m) for v in self.wide]
        return held + max(making)

    # The bound.

    def bound(self, name: str, *, joint: bool) -> Stage:
        """The concave relaxation on T, for the pool and for every view alone."""
        solves = self.solves(joint=joint)
        memory = max(self._solving(posed.pool, m) for posed, m in solves) + 64.0 * self.n
        # Eigenvectors of the moments, which are kept; those of second order are the spectral bound.
        factored = sum(12.0 * float(v.p) ** 3 for v in self.narrow)
        between = moved = calls = 0.0
        for posed, m in solves:
            times = _EVALUATIONS * (_BEYOND if joint and len(posed.pool.views) < self.M else 1.0)
            calls += times * _EVALUATION_CALLS
            moved += times * _CLIMBING * m
            for view in posed.pool.views:
                narrow = view.p <= WIDEST_MOMENTS
                side = float(view.p if narrow else m)
                factored += times * _FACTORED * side**3
                between += times * 2.0 * m * side**2
                moved += times * _MOVED * m * side
                own = view.p if narrow else self.targets + m
                between += times / _EVALUATIONS * _BOUND_PASSES * view.stored * float(own)
        passes = len(solves) * _BOUND_PASSES
        work = Work(passes, between=between, moved=moved, factored=factored, calls=calls)
        most = max(m for _, m in solves)
        return self.stage(name, memory, work, f"on about {most:,} rows, an estimate")

    def _solving(self, pool: Pool, m: int) -> float:
        """Bytes of one relaxation that is solved on m rows: their coordinates on the axes, matrices
        of an evaluation, and columns that price rows."""
        views = [ViewFacts(v, pool.centered) for v in pool.views]
        held, making, width, looked_at = 0.0, 0.0, 0, 0.0
        for v in views:
            narrow = v.p <= WIDEST_MOMENTS
            side = v.p if narrow else m
            held += 8.0 * m * side + 8.0 * _MATRICES * side**2
            making = max(making, 24.0 * m * v.p if narrow else 8.0 * m * (4 * self.targets + v.p))
            width += side if narrow else 2 * self.targets + m
            looked_at += v.block_bytes(False, self.k) + (v.feature_bytes if v.sparse else 0.0)
            held += 16.0 * v.p * side if narrow else 8.0 * m * self.targets
        rows = min(self.engine.rows_of_block(pool, width), self.n)
        return held + max(making, self.threads * rows * (looked_at + 16.0 * width))

    def proof(self) -> float:
        """Weights of the rows T, and what was made of them once it was asked for."""
        kept = 0.0
        for posed, m in self.solves(joint=True):
            sides = [v.p if v.p <= WIDEST_MOMENTS else m for v in posed.pool.views]
            kept += sum(8.0 * (m + side**2) for side in sides)
        return kept
