"""A limit is a limit: on a clock that moves by one second with every product, wherever the deadline
falls there is an answer, and nothing but the ending is still computed. So it is with Ctrl-C."""

import functools
import importlib.util
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
from fairnepv import FairnepvError, LocalEngine, Status
from fairnepv.api.inputs import pose
from fairnepv.compute import Engine, clock
from fairnepv.compute.base import Pass
from fairnepv.concave.topk import TopK
from fairnepv.errors import NumericalError, TimeLimitError
from fairnepv.methods import OWN_METHODS
from fairnepv.methods.baselines import baselines
from fairnepv.objective import StiefelObjective, subset_scores
from fairnepv.objective.subsets import subset_gains
from fairnepv.search import begins_at_once, enumeration
from fairnepv.search.exact import Tree
from fairnepv.views import dense
from fairnepv.views.sum import SumView

N, K = 40, 4
NAMES = [*OWN_METHODS, *baselines(("a", "b"))]
READING = 2  # products: the norms of every view
AFTER = 3  # products that may begin when time is up: the last point of a relaxation, and what
# greedy makes of a moment
ENGINES: dict[str, Callable[[], Engine]] = {"local": lambda: LocalEngine(block_rows=15)}
if importlib.util.find_spec("torch"):
    from fairnepv.compute.device import TorchEngine

    ENGINES["torch"] = lambda: TorchEngine("cpu", block_rows=15)


class Products:
    """Products of the whole pool, each of which takes a second; and when they began."""

    def __init__(self, monkeypatch):
        self.now, self.began = 100.0, []
        self.interrupted = None  # the product in whose place Ctrl-C is pressed
        told = {"monotonic": lambda: self.now, "time": lambda: self.now}
        told["perf_counter"] = time.perf_counter
        monkeypatch.setattr(clock, "time", SimpleNamespace(**told))
        self._count(monkeypatch, Pass, "run", lambda p, *_: p.source.n == N and p.rows is None)
        self._count(monkeypatch, TopK, "at", lambda topk, *_: topk.size == K)
        self._count(monkeypatch, StiefelObjective, "at", lambda *_: True)
        self._count(monkeypatch, Tree, "explore", lambda *_: True)
        self._count(monkeypatch, enumeration, "_scores", lambda *_: True)
        monkeypatch.setattr(enumeration, "_BATCH_NUMBERS", 1 << 17)
        self._count(monkeypatch, dense, "squared_norms", lambda rows, *_: len(rows) == N)

    def _count(self, monkeypatch, owner, name, counts):
        call = getattr(owner, name)

        @functools.wraps(call)
        def counted(*arguments, **options):
            if not counts(*arguments):
                return call(*arguments, **options)
            self.began.append(self.now)
            if len(self.began) == self.interrupted:
                raise KeyboardInterrupt
            result = call(*arguments, **options)
            self.now += 1.0
            return result

        monkeypatch.setattr(owner, name, counted)

    def of(self, call, limit=None):
        """The result of a call, or its error; and how many products it made after the limit."""
        start, self.began = self.now, []
        try:
            result = call()
        except FairnepvError as error:
            result = error
        self.late = 0 if limit is None else sum(b >= start + limit for b in self.began)
        return result


@pytest.fixture
def products(monkeypatch):
    return Products(monkeypatch)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((N, 5)), "b": rng.standard_normal((N, 6))}


def some_of(total):
    """Some numbers of products that cut a call of so many short, more of them at its beginning."""
    return sorted({3, 4, 6, 9, *np.geomspace(9, max(total - 1, 10), 5).astype(int)} - {total})


@pytest.mark.parametrize("eps", [0.1, 1e-9])
def test_a_set_in_hand_is_scored_though_time_is_up(eps):
    """Of every kind of view, or a search that is cut short would lose what it has found."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((N, 5))
    kernel = fairnepv.KernelView(features @ features.T)
    data = {"dense": features, "sparse": sp.csr_array(features), "kernel": kernel}
    pool, S = pose(data, K, eps=eps).pool, np.arange(K)
    together = SumView(pool.views, (0.5, 0.25, 0.25))
    for own in (pool, pool.with_views(("sum",), (together,))):
        expected = [subset_scores(own, S, "diverse"), *subset_gains(own, S, "diverse")]
        with clock.limited(clock.Limit(clock.now() - 1.0)):
            found = [subset_scores(own, S, "diverse"), *subset_gains(own, S, "diverse")]
        np.testing.assert_array_equal(np.stack(found), np.stack(expected))


@pytest.mark.sample
@pytest.mark.parametrize(
    ("method", "engine"),
    [
        *((name, "local") for name in NAMES),
        *((m, "torch") for m in ("nepv", "averaged", "softmax")),
    ],
)
def test_wherever_the_deadline_falls_there_is_a_set(products, method, engine):
    if engine not in ENGINES:
        pytest.skip("PyTorch is not installed")
    options = {"method": method, "engine": ENGINES[engine]()}
    whole = products.of(lambda: fairnepv.select(rows(), K, **options))
    assert whole.status.ok
    for limit in some_of(len(products.began)):
        limited = {**options, "time_limit": float(limit)}
        found = products.of(lambda o=limited: fairnepv.select(rows(), K, **o), limit)
        assert products.late <= AFTER, (limit, len(products.began))
        assert len(set(found.indices.tolist())) == K
        assert found.upper_bound >= found.fair_score - 1e-9
        assert found.status.ok or found.status is Status.TIME_LIMIT
    again = products.of(lambda: fairnepv.select(rows(), K, **options, time_limit=1e6))
    assert again.indices.tolist() == whole.indices.tolist()


def test_a_bound_of_a_calibration_that_time_has_cut_can_be_verified(products):
    """By whoever has all the time, and so comes to another calibration by the same rule."""
    asked = {"calibration": "efficiency", "effort": "fast"}
    data = {name: X * np.geomspace(9, 0.1, X.shape[1]) for name, X in rows().items()}
    scales = {}
    for limit in (4.0, 1e6):
        found = products.of(lambda at=limit: fairnepv.select(data, K, **asked, time_limit=at))
        scales[found.calibration.rule] = np.array(list(found.calibration.offsets.values()))
        assert fairnepv.verify_bound(data, found).holds
    assert list(scales) == ["efficiency, cut short", "efficiency"]
    assert (scales["efficiency, cut short"] < scales["efficiency"] - 0.01).all()


STAGES = {
    "efficiency": {"calibration": "efficiency", "effort": "fast"},
    "floors": {"floors": {"a": -2.0, "b": -2.0}, "effort": "fast"},
    "in tiers": {"hierarchical": 3, "certify": False},
    "included": {"include": [0], "effort": "fast"},
    "groups": {"groups": np.arange(N) % 3, "certify": False},
    "swaps": {"certify": False},
}


@pytest.mark.parametrize("stage", STAGES)
def test_in_every_stage_there_is_a_set(products, stage):
    options = STAGES[stage]
    products.of(lambda: fairnepv.select(rows(), K, **options))
    for limit in some_of(len(products.began)):
        limited = {**options, "time_limit": float(limit)}
        found = products.of(lambda o=limited: fairnepv.select(rows(), K, **o), limit)
        assert products.late <= AFTER, (limit, len(products.began))
        assert len(set(found.indices.tolist())) == K
        assert found.problem.constraints.is_met(found.indices)


@pytest.mark.sample
@pytest.mark.parametrize("method", NAMES)
def test_after_the_rows_are_read_an_interruption_returns_a_set(products, method):
    options = {"method": method, "calibration": "efficiency"}
    products.of(lambda: fairnepv.select(rows(), K, **options))
    for turn in some_of(len(products.began)):
        products.interrupted = turn
        found = products.of(lambda: fairnepv.select(rows(), K, **options))
        assert found.status is Status.INTERRUPTED
        assert len(set(found.indices.tolist())) == K
        assert found.upper_bound >= found.fair_score - 1e-9
        assert len(products.began) - turn <= AFTER + 1, turn  # as the clock stands still for one
    products.began, products.interrupted = [], 1
    with pytest.raises(KeyboardInterrupt):
        fairnepv.select(rows(), K, **options)


CALLS = {
    "certify": lambda o: fairnepv.certify(rows(), K, **o),
    "compare": lambda o: fairnepv.compare(rows(), K, methods=["greedy", "nepv", "averaged"], **o),
    "curve": lambda o: fairnepv.curve(rows(), K, bounds=True, **o),
    "tradeoff": lambda o: fairnepv.tradeoff(rows(), K, "a", points=3, effort="fast", **o),
    "sizes": lambda o: fairnepv.select(rows(), [2, K], effort="fast", **o),
    "relax": lambda o: fairnepv.relax(rows(), K, **o),
    "exhaustive": lambda o: fairnepv.exhaustive(rows(), K, **o),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends_in_time(products, name):
    """Those that make several selections read rows anew for each, and end each with a moment."""
    call, several = CALLS[name], name in ("tradeoff", "sizes", "compare")
    products.of(lambda: call({}))
    for limit in some_of(len(products.began)):
        found = products.of(lambda at=limit: call({"time_limit": float(at)}), limit)
        assert products.late <= (4 * AFTER if several else AFTER), (limit, len(products.began))
        assert isinstance(found, TimeLimitError) or not isinstance(found, FairnepvError)


LONG = {"time_limit": 1e6}  # so that the clock is asked wherever it may be
IN_HAND = {
    "select": lambda: fairnepv.select(rows(), K, effort="fast", **LONG),
    "certify": lambda: fairnepv.certify(rows(), K, **LONG),
    "compare": lambda: fairnepv.compare(rows(), K, methods=["greedy", "random"], **LONG),
    "curve": lambda: fairnepv.curve(rows(), K, bounds=True, **LONG),
    "relax": lambda: fairnepv.relax(rows(), K, **LONG),
    "sizes": lambda: fairnepv.select(rows(), [2, K], effort="fast", certify=False, **LONG),
    "tradeoff": lambda: fairnepv.tradeoff(rows(), K, "a", points=3, effort="fast", **LONG),
}


@pytest.mark.parametrize("name", IN_HAND)
def test_once_there_is_something_ctrl_c_never_loses_it(monkeypatch, name):
    """Wherever the clock is asked, also between two stages and while results are written down."""
    asked, turn = 0, 0

    def monotonic():
        nonlocal asked
        asked += 1
        if asked == turn:
            raise KeyboardInterrupt
        return 0.0

    told = {"monotonic": monotonic, "time": time.time, "perf_counter": time.perf_counter}
    monkeypatch.setattr(clock, "time", SimpleNamespace(**told))
    whole = IN_HAND[name]()
    total, lost = asked, []
    for turn in range(1, total + 1):
        asked = 0
        try:
            found = IN_HAND[name]()
        except KeyboardInterrupt:
            lost.append(turn)
            continue
        assert found is not None
    assert lost == list(range(1, len(lost) + 1))
    assert 0 < len(lost) < total
    assert type(found) is type(whole)


def test_of_several_sizes_those_that_there_was_time_for_are_returned(products):
    ask = functools.partial(fairnepv.select, rows(), [2, 3, K], effort="fast", certify=False)
    cut = []
    for limit in range(READING + 1, 30):
        found = products.of(functools.partial(ask, time_limit=float(limit)), limit)
        if isinstance(found, TimeLimitError) or len(found) == 3:
            continue
        cut.append(limit)
        assert list(found) == [2, 3][: len(found)]
        assert [*found.values()][-1].status is Status.TIME_LIMIT
        with pytest.raises((TimeLimitError, NumericalError)):
            ask(time_limit=float(limit), strict=True)
    assert cut


def test_stability_leaves_out_what_there_is_no_time_for(products):
    chosen = fairnepv.select(rows(), K, certify=False, effort="fast")
    asked = {"effort": "fast", "seeds": (1, 2, 3)}
    whole = products.of(lambda: fairnepv.stability(chosen, **asked))
    limit = len(products.began) / 3
    cut = products.of(lambda: fairnepv.stability(chosen, **asked, time_limit=limit))
    assert 0 < len(cut.variants) <= len(whole.variants)
    assert any(v.status is Status.TIME_LIMIT for v in cut.variants) or cut.notes


def test_a_limit_that_reading_takes_is_refused_in_a_sentence(products):
    error = products.of(lambda: fairnepv.select(rows(), K, time_limit=1.0), 1.0)
    assert isinstance(error, TimeLimitError)
    assert str(error) == (
        "time_limit = 1 s is over after 1 s, in which rows were read and checked, so that there is "
        "nothing to return yet; raise time_limit, or give fewer rows"
    )
    assert products.late == 0
    assert products.of(lambda: fairnepv.select(rows(), K, time_limit=float(READING))).indices.size


def test_an_optimum_is_all_or_nothing(products):
    """What is not looked at may be the best; and so it is with a calibration."""
    options = {"calibration": "efficiency"}
    whole = products.of(lambda: fairnepv.exhaustive(rows(), K, **options))
    total = len(products.began)
    again = products.of(lambda: fairnepv.exhaustive(rows(), K, **options, time_limit=1e6))
    assert again.fair_score == whole.fair_score
    for limit in range(1, total, 3):
        limited = {**options, "time_limit": float(limit)}
        error = products.of(lambda o=limited: fairnepv.exhaustive(rows(), K, **o), limit)
        assert isinstance(error, TimeLimitError), limit
        assert "in which not all subsets were looked at" in str(error)
        assert products.late <= AFTER


def test_no_optimum_by_a_calibration_that_was_not_begun(monkeypatch):
    """A factorisation that would take longer than what is left is not begun, with time left."""
    monkeypatch.setattr("fairnepv.compute.clock._pace", lambda: 1e-3)
    data = np.random.default_rng(0).standard_normal((300, 300)) + 4.0
    with pytest.raises(TimeLimitError, match="not all subsets were looked at"):
        fairnepv.exhaustive({"a": data}, 2, calibration="efficiency", time_limit=60.0)


def test_what_was_cut_short_says_so_in_words(products):
    found = products.of(lambda: fairnepv.select(rows(), K, method="greedy", time_limit=3.0))
    said = " ".join(found.notes)
    assert "time_limit ran out after" in said
    assert "items were chosen by greedy" in said
    assert "the lengths of the rows prove" in said


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "nepv", "greedy", "k-dpp", "softmax", "saturate"])
@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_on_a_clock_on_the_wall(method, limit):
    """Twice what is promised, as tests share their machine."""
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((20_000, 384)).astype(np.float32) for name in "ab"}
    began = time.monotonic()
    found = fairnepv.select(data, 50, method=method, time_limit=limit)
    assert time.monotonic() - began <= limit + 2 * max(0.3, 0.1 * limit)
    assert len(set(found.indices.tolist())) == 50


@pytest.mark.parametrize("method", ["nepv", "greedy", "auto"])
def test_where_greedy_cannot_begin_in_a_moment_a_lot_is_drawn(method, products, monkeypatch):
    """Second norms of wide views take as long as many products: these are not made after time."""
    monkeypatch.setitem(begins_at_once.__globals__, "_AT_ONCE", 0.0)
    call = functools.partial(fairnepv.select, rows(), K, method=method, certify=False)
    ask = functools.partial(call, objective="representative", engine=LocalEngine(block_rows=15))
    begun, lots = 0, 0
    for limit in range(1, 12):
        result = products.of(functools.partial(ask, time_limit=float(limit)), limit)
        assert products.late <= AFTER
        if isinstance(result, TimeLimitError):
            continue
        begun += 1
        assert len(set(result.indices)) == K
        lots += any("drawn by lot" in note and "before method" in note for note in result.notes)
    assert begun
    assert lots
