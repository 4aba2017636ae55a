"""The resumable-state seam: one loop, and a contract that every solver and search keeps.

The second half is the contract suite. A new method joins by one line in METHODS.
"""

import io
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import cases
from fairnepv.compute import LocalEngine
from fairnepv.compute.clock import OutOfTime, check_time
from fairnepv.errors import NumericalError, Status, TimeLimitError
from fairnepv.loop import Budget, Context, Step, StoredRun, pack, run, unpack
from fairnepv.loop.journal import Journal
from fairnepv.objective import StiefelObjective
from fairnepv.problem import Problem
from fairnepv.search.greedy import Greedy, GreedyState
from fairnepv.search.local import LocalSearch, LocalState
from fairnepv.search.tabu import TabuSearch, TabuState
from fairnepv.stiefel.coordinates import Ambient, Reduced
from fairnepv.stiefel.lbfgs import Lbfgs, LbfgsState
from fairnepv.stiefel.scf import Scf, ScfState
from fairnepv.stiefel.trust_region import TrustRegion, TrustRegionState
from fairnepv.views import Calibration, Pool

# --- a method to drive the loop with --------------------------------------------------------------


@dataclass(frozen=True)
class CountState:
    count: int
    passes: int = 0
    note: str | None = None


class Count:
    """Counts up to `last`; the value of state c is `values(c)`, and `acts` run inside a step."""

    stage = "count"

    def __init__(
        self,
        last: int = 10,
        *,
        values: Callable[[int], float] = float,
        acts: dict[int, Callable[[], Any]] | None = None,
        passes: int = 2,
    ) -> None:
        self.last, self.values, self.acts, self.passes = last, values, acts or {}, passes
        self.reported: list[int] = []

    def init(self) -> CountState:
        return CountState(0, 1)

    def step(self, state: CountState) -> CountState:
        self.acts.get(state.count + 1, lambda: None)()
        return CountState(state.count + 1, state.passes + self.passes)

    def done(self, state: CountState) -> Status | None:
        return Status.COMPLETE if state.count == self.last else None

    def report(self, state: CountState) -> dict[str, Any]:
        self.reported.append(state.count)
        return {"objective": self.values(state.count), "half": state.count / 2}


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


# --- the loop -------------------------------------------------------------------------------------


def test_a_run_ends_when_the_method_is_done():
    outcome = run(Count(3))
    assert outcome.status is Status.COMPLETE
    assert outcome.state == CountState(3, 7)


def test_the_trace_has_a_row_for_every_state_with_what_the_method_reports():
    began = time.monotonic()
    outcome = run(Count(3))
    assert [row.step for row in outcome.trace] == [0, 1, 2, 3]
    assert [row.objective for row in outcome.trace] == [0.0, 1.0, 2.0, 3.0]
    assert [row.passes for row in outcome.trace] == [1, 3, 5, 7]
    assert [dict(row.details) for row in outcome.trace] == [{"half": c / 2} for c in range(4)]
    assert {row.stage for row in outcome.trace} == {"count"}
    seconds = [row.seconds for row in outcome.trace]
    assert seconds == sorted(seconds)
    assert 0 <= seconds[-1] <= time.monotonic() - began


def test_progress_receives_every_row_as_it_comes():
    heard: list[Step] = []
    method = Count(3)
    seen_before_step: list[int] = []
    method.acts = {c: lambda: seen_before_step.append(len(heard)) for c in (1, 2, 3)}
    outcome = run(method, progress=heard.append)
    assert tuple(heard) == outcome.trace
    assert seen_before_step == [1, 2, 3]  # not all at the end


def test_a_run_can_start_from_a_given_state():
    outcome = run(Count(5), state=CountState(3, 7))
    assert outcome.state == CountState(5, 11)
    assert [row.objective for row in outcome.trace] == [3.0, 4.0, 5.0]


def test_a_state_that_is_done_takes_no_step():
    outcome = run(Count(3, acts={4: raising(AssertionError("stepped"))}), state=CountState(3))
    assert outcome.status is Status.COMPLETE
    assert len(outcome.trace) == 1


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_step_budget(steps):
    outcome = run(Count(), budget=Budget(max_steps=steps))
    assert outcome.status is Status.STEP_LIMIT
    assert outcome.state.count == steps
    assert len(outcome.trace) == steps + 1


def test_step_budget_counts_the_steps_of_this_run():
    outcome = run(Count(), budget=Budget(max_steps=2), state=CountState(5))
    assert outcome.state.count == 7


@pytest.mark.parametrize(("passes", "count"), [(0, 0), (1, 0), (2, 1), (3, 1), (6, 3)])
def test_pass_budget(passes, count):
    """State c has seen 1 + 2 c passes; the first one at or above the budget is the last."""
    outcome = run(Count(), budget=Budget(max_passes=passes))
    assert outcome.status is Status.PASS_LIMIT
    assert outcome.state.count == count


def test_a_deadline_in_the_past_still_returns_the_start():
    outcome = run(Count(), budget=Budget(deadline=time.monotonic() - 1))
    assert outcome.status is Status.TIME_LIMIT
    assert outcome.state == CountState(0, 1)
    assert len(outcome.trace) == 1


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self) -> None:
        self.now += 10.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_deadline_ends_a_run_under_way(clock):
    method = Count(acts=dict.fromkeys(range(1, 11), clock.wait))
    outcome = run(method, budget=Budget(deadline=clock.now + 35))
    assert outcome.status is Status.TIME_LIMIT
    assert outcome.state.count == 4  # the first state that is seen after the deadline
    assert [row.seconds for row in outcome.trace] == [0, 10, 20, 30, 40]


def test_being_done_comes_before_an_empty_budget():
    budget = Budget(max_steps=0, max_passes=0, deadline=time.monotonic() - 1)
    assert run(Count(0), budget=budget).status is Status.COMPLETE


# --- interruption and numerical ends --------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_interrupted_step_returns_the_state_before_it(at):
    outcome = run(Count(acts={at: raising(KeyboardInterrupt())}))
    assert outcome.status is Status.INTERRUPTED
    assert outcome.state.count == at - 1
    assert [row.objective for row in outcome.trace] == [float(c) for c in range(at)]


def test_an_interruption_from_the_progress_callback():
    def stop(row: Step) -> None:
        if row.step == 2:
            raise KeyboardInterrupt

    outcome = run(Count(), progress=stop)
    assert outcome.status is Status.INTERRUPTED
    assert outcome.state.count == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_keeps_the_last_finite_state(value):
    outcome = run(Count(values=lambda c: value if c == 4 else float(c)))
    assert outcome.status is Status.NON_FINITE
    assert outcome.state.count == 3
    assert [row.objective for row in outcome.trace] == [0.0, 1.0, 2.0, 3.0]


def test_a_start_that_is_not_finite_is_said_to_be():
    outcome = run(Count(values=lambda c: math.nan))
    assert outcome.status is Status.NON_FINITE
    assert outcome.state.count == 0
    assert outcome.trace == ()


def test_lost_definiteness_keeps_the_last_sound_state():
    outcome = run(Count(acts={4: raising(np.linalg.LinAlgError("not positive definite"))}))
    assert outcome.status is Status.INDEFINITE
    assert outcome.state.count == 3
    assert len(outcome.trace) == 4


def test_lost_definiteness_seen_only_when_the_new_state_is_looked_at():
    def value(c: int) -> float:
        if c == 4:
            raise np.linalg.LinAlgError
        return float(c)

    outcome = run(Count(values=value))
    assert outcome.status is Status.INDEFINITE
    assert outcome.state.count == 3


def test_lost_definiteness_at_the_start_raises_one_of_ours():
    method = Count()
    method.init = raising(np.linalg.LinAlgError("not positive definite"))  # type: ignore[method-assign]
    with pytest.raises(NumericalError, match="positive definiteness"):
        run(method)


def test_other_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        run(Count(acts={2: raising(ZeroDivisionError())}))


# --- contexts -------------------------------------------------------------------------------------


def test_a_context_accumulates_trace_and_progress():
    heard: list[Step] = []
    context = Context(progress=heard.append)
    first = context.run(Count(2))
    second = context.run(Count(3), max_steps=1)
    assert second.status is Status.STEP_LIMIT
    assert tuple(context.trace) == first.trace + second.trace == tuple(heard)
    assert context.stopped is None


def test_a_context_passes_budgets_and_states_on():
    context = Context()
    assert context.run(Count(), max_passes=3).status is Status.PASS_LIMIT
    assert context.stopped is None


def test_a_context_has_one_deadline_for_all_runs(clock):
    context = Context(time_limit=25)
    slow = dict.fromkeys((1, 2), clock.wait)
    assert context.run(Count(2, acts=slow)).status is Status.COMPLETE
    assert context.stopped is None
    second = context.run(Count(acts=slow))
    assert second.status is Status.TIME_LIMIT
    assert second.state.count == 1
    assert context.stopped is Status.TIME_LIMIT


def ask(clock: Clock) -> Callable[[], None]:
    """A step of one product, which takes ten seconds."""

    def act() -> None:
        check_time()
        clock.wait()

    return act


def test_a_step_that_is_out_of_time_leaves_the_state_before_it(clock):
    def two_products() -> None:
        ask(clock)()
        ask(clock)()

    outcome = run(Count(acts={2: two_products}), budget=Budget(deadline=clock.now + 5))
    assert outcome.status is Status.TIME_LIMIT
    assert outcome.state.count == 1
    assert clock.now == 110.0  # of two products one was begun


def test_a_start_that_is_out_of_time_says_so(clock):
    method = Count()
    method.init = check_time  # type: ignore[method-assign,assignment]
    context = Context(time_limit=5)
    clock.wait()
    with pytest.raises(OutOfTime):
        context.run(method)
    assert context.stopped is Status.TIME_LIMIT


def test_a_share_ends_without_ending_the_rest(clock):
    context = Context(time_limit=100)
    slow = dict.fromkeys(range(1, 20), clock.wait)
    with context.share(0.4):
        first = context.run(Count(acts=slow))
    assert (first.status, first.state.count) == (Status.TIME_LIMIT, 4)
    assert context.stopped is None
    with context.share(0.5):  # of what is left
        assert context.run(Count(acts=slow)).state.count == 3
        check_time()
    assert context.left == 30.0
    second = context.run(Count(acts=slow))
    assert (second.state.count, context.stopped) == (3, Status.TIME_LIMIT)


def test_a_share_absorbs_its_own_end_and_no_error(clock):
    context = Context(time_limit=100)
    with context.share(0.1):
        clock.wait()
        check_time()
    assert context.stopped is None
    with pytest.raises(ZeroDivisionError), context.share(0.1):
        raise ZeroDivisionError


def test_what_is_kept_back_is_not_spent(clock):
    context = Context(time_limit=50)
    context.keep_back(15)
    assert context.run(Count(acts=dict.fromkeys(range(1, 20), clock.wait))).state.count == 4
    assert Context().left is Context().part(3) is None
    assert Context(time_limit=30).part(3) == 10.0


def test_work_outside_of_the_loop_is_absorbed_alike(clock):
    context = Context(time_limit=5)
    clock.wait()
    with context.absorbing_interruption():
        check_time()
    assert context.stopped is Status.TIME_LIMIT
    with context.absorbing_interruption():
        raise KeyboardInterrupt
    assert context.stopped is Status.INTERRUPTED
    with context.absorbing_interruption():
        check_time()
    assert context.stopped is Status.INTERRUPTED  # which is not forgotten


def test_when_time_is_up_a_run_has_a_moment(clock):
    context = Context(time_limit=5)
    clock.wait()
    with context.absorbing_interruption():
        check_time()
    with context.absorbing_interruption():
        late = context.run(Count(acts=dict.fromkeys(range(1, 20), ask(clock))))
    assert late.state.count == 1


def test_what_is_needed_has_a_moment_and_then_an_error_in_words(clock):
    context = Context(time_limit=1e-9)
    with context.needed("nothing was done"):
        check_time()
    said = r"time_limit = 1e-09 s is over after 10 s, in which nothing was done"

    def two_products() -> None:
        ask(clock)()
        ask(clock)()

    with pytest.raises(TimeLimitError, match=said), context.needed("nothing was done"):
        two_products()


class Memory(Journal):
    """A journal of what is known already, which takes its time to say so."""

    def __init__(self, *known: StoredRun, wait: Callable[[], None] = lambda: None) -> None:
        self.notes = ["a note"]
        self.known, self.wait, self.kept = list(known), wait, []

    def resume(self, method: Any) -> StoredRun | None:
        self.wait()
        return self.known.pop(0) if self.known else None

    def keep(self, state: Any, row: Step, status: Status | None = None) -> None:
        self.kept.append((state.count, status))


def test_what_a_journal_knows_takes_no_time(clock):
    ended = StoredRun(CountState(2), 2, 2.0, Status.COMPLETE)
    memory = Memory(ended, ended, StoredRun(CountState(3), 3, 3.0, None), wait=clock.wait)
    context = Context(time_limit=25, journal=memory)
    for _ in range(2):
        assert context.run(Count(2)).status is Status.COMPLETE
    third = context.run(Count(acts=dict.fromkeys(range(1, 11), clock.wait)))
    assert third.status is Status.TIME_LIMIT
    assert third.state.count == 6  # three new steps of ten seconds
    assert context.notes is memory.notes


@pytest.mark.parametrize("known", [(), (StoredRun(CountState(3), 3, 3.0, None),)])
def test_with_a_journal_every_context_makes_a_step(clock, known):
    """Or one that takes longer to begin than its limit would never come to its end."""
    memory = Memory(*known)
    context = Context(time_limit=5, journal=memory)
    clock.wait()
    first = context.run(Count(acts=dict.fromkeys(range(1, 11), clock.wait)))
    assert first.status is Status.TIME_LIMIT
    assert first.steps == first.state.count == (4 if known else 1)
    assert memory.kept[-1] == (first.state.count, Status.TIME_LIMIT)
    assert context.run(Count()).state.count == 0  # but one is enough


def test_a_context_remembers_an_interruption():
    context = Context()
    context.run(Count(acts={1: raising(KeyboardInterrupt())}))
    assert context.stopped is Status.INTERRUPTED
    context.run(Count(2))
    assert context.stopped is Status.INTERRUPTED


def test_a_failed_run_does_not_stop_a_context():
    context = Context()
    context.run(Count(values=lambda c: math.nan))
    context.run(Count(acts={1: raising(np.linalg.LinAlgError())}))
    assert context.stopped is None


# --- pack and unpack ------------------------------------------------------------------------------


def through_a_file(state: Any) -> Any:
    """What a checkpoint does: arrays into an archive without pickles, and out again."""
    buffer = io.BytesIO()
    np.savez(buffer, **pack(state))
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as archive:
        return unpack(type(state), archive)


def test_pack_leaves_none_out_and_unpack_puts_it_back():
    state = CountState(3, 4)
    assert set(pack(state)) == {"count", "passes"}
    assert through_a_file(state) == state
    assert through_a_file(replace(state, note="half-way")) == replace(state, note="half-way")


def test_plain_numbers_come_back_plain():
    state = LocalState(np.array([3, 1]), 0.5, 7, 2, True, False)
    back = through_a_file(state)
    assert [type(getattr(back, f.name)) for f in fields(back)] == [
        np.ndarray,
        float,
        int,
        int,
        bool,
        bool,
    ]
    assert_same(back, state)


def assert_same(left: Any, right: Any) -> None:
    """Field by field, to the last bit; but for the running score of greedy, whose picks are made
    several at once or one by one, which rounds otherwise."""
    assert type(left) is type(right)
    for f in fields(left):
        one, other = getattr(left, f.name), getattr(right, f.name)
        assert (one is None) == (other is None), f.name
        if isinstance(left, GreedyState) and f.name == "value":
            assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
        elif one is not None:
            assert np.asarray(one).dtype == np.asarray(other).dtype, f.name
            np.testing.assert_array_equal(one, other, err_msg=f.name)


# --- the contract of every method -----------------------------------------------------------------


def make_problem(k: int = 5, n: int = 40, **engine: int) -> Problem:
    rng = np.random.default_rng(0)
    views = cases.clustered_views(rng, n, [6, 5], 8)
    pool = Pool.of({"a": views[0], "b": views[1]}, eps=0.05, engine=LocalEngine(**engine))
    return Problem(pool, k, 0.1, Calibration("none"))


PROBLEM = make_problem()
START = cases.random_frame(np.random.default_rng(1), PROBLEM.n, PROBLEM.k)


def objective(problem: Problem = PROBLEM) -> StiefelObjective:
    pool = problem.pool
    return StiefelObjective(Ambient(pool).maps, pool.eps, pool.offsets, problem.tau, problem.k)


class Contract(NamedTuple):
    make: Callable[[], Any]
    state: type
    ends: Status
    rising: bool  # whether the value never falls


METHODS = {
    "scf": Contract(
        lambda: Scf(objective(), START, alpha=0.7, sigma=1.0, tol=1e-4),
        ScfState,
        Status.CONVERGED,
        False,
    ),
    "lbfgs": Contract(
        lambda: Lbfgs(objective(), START, tol=1e-7), LbfgsState, Status.CONVERGED, True
    ),
    "trust region": Contract(
        lambda: TrustRegion(objective(), START, tol=1e-9),
        TrustRegionState,
        Status.CONVERGED,
        True,
    ),
    "greedy": Contract(lambda: Greedy(make_problem(k=9)), GreedyState, Status.COMPLETE, False),
    "local": Contract(
        lambda: LocalSearch(make_problem(), np.arange(5)),
        LocalState,
        Status.LOCAL_OPTIMUM,
        True,
    ),
    "tabu": Contract(
        lambda: TabuSearch(make_problem(), np.arange(5), swaps=110),
        TabuState,
        Status.COMPLETE,
        True,
    ),
}


@pytest.fixture(params=METHODS)
def contract(request) -> Contract:
    return METHODS[request.param]


def path(method: Any) -> list[Any]:
    """All states of an uninterrupted run."""
    states = [method.init()]
    while method.done(states[-1]) is None:
        assert len(states) < 500, "does not end"
        states.append(method.step(states[-1]))
    return states


def test_a_method_ends_as_it_should(contract):
    outcome = run(contract.make(), budget=Budget(max_steps=2000))
    assert outcome.status is contract.ends
    assert isinstance(outcome.state, contract.state)
    assert len(outcome.trace) > 3  # else the tests below say little


def test_the_loop_adds_nothing_to_the_methods_own_path(contract):
    states = path(contract.make())
    outcome = run(contract.make())
    assert_same(outcome.state, states[-1])
    assert len(outcome.trace) == len(states)


def test_a_run_continued_from_a_file_goes_where_the_uninterrupted_one_went(contract):
    """A fresh method, as after a restart, from every state of the way."""
    states = path(contract.make())
    last = len(states) - 1
    for j in sorted({*range(min(last, 6)), last // 2, last - 1, last}):
        state = states[j]
        resumed = run(contract.make(), state=through_a_file(state))
        assert_same(resumed.state, states[-1])
        assert len(resumed.trace) == len(states) - j


def test_a_run_in_pieces_of_one_step_is_the_whole_run(contract):
    whole = run(contract.make())
    state = None
    for _ in range(len(whole.trace)):
        outcome = run(contract.make(), budget=Budget(max_steps=1), state=state)
        state = through_a_file(outcome.state)
    assert outcome.status is contract.ends
    assert_same(state, whole.state)


def test_states_are_arrays_and_plain_numbers(contract):
    for state in path(contract.make()):
        for f in fields(state):
            value = getattr(state, f.name)
            parts = value if isinstance(value, tuple) else (value,)
            assert all(x is None or type(x) in (np.ndarray, float, int, bool) for x in parts)
        packed = pack(state)
        assert all(array.dtype.kind in "fib" for array in packed.values())
        assert_same(through_a_file(state), state)


def freeze(state: Any) -> Any:
    for f in fields(state):
        value = getattr(state, f.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, np.ndarray):
                part.setflags(write=False)
    return state


def test_step_done_and_report_do_not_touch_their_state(contract):
    """Arrays are read-only here: whoever writes into one fails at once."""
    method = contract.make()
    state = freeze(method.init())
    while method.done(state) is None:
        before = through_a_file(state)
        successor = method.step(state)
        method.report(state)
        assert_same(state, before)
        state = freeze(successor)


def test_steps_do_not_depend_on_what_the_method_did_before(contract):
    """The same object, asked out of order: no hidden memory."""
    states = path(contract.make())
    method = contract.make()
    order = np.random.default_rng(2).permutation(len(states) - 1)
    for j in order[:25]:
        assert_same(method.step(states[j]), states[j + 1])
        assert method.report(states[j]) == contract.make().report(states[j])


def test_methods_made_alike_go_alike(contract):
    for one, other in itertools.zip_longest(path(contract.make()), path(contract.make())):
        assert_same(one, other)


def test_passes_never_fall_and_values_rise_where_they_should(contract):
    outcome = run(contract.make())
    passes = [row.passes for row in outcome.trace]
    assert passes == sorted(passes)
    assert passes[-1] == outcome.state.passes
    if contract.rising:
        values = [row.objective for row in outcome.trace]
        assert min(np.diff(values)) >= -1e-12


def test_the_pass_budget_holds_for_every_method(contract):
    """In n dimensions every product is a pass; the search counts them anyway."""
    outcome = run(contract.make(), budget=Budget(max_passes=3))
    if contract.state in (GreedyState, TabuState):  # which need no whole pass for so few rows
        assert outcome.status is Status.COMPLETE
        return
    assert outcome.status is Status.PASS_LIMIT
    if contract.state is LocalState:
        assert outcome.state.passes == 3
    else:  # a step of a solver makes several
        assert outcome.state.passes >= 3
        assert outcome.trace[-2].passes < 3


@pytest.mark.parametrize("at", [1, 3])
def test_an_interruption_inside_a_step_costs_that_step_only(contract, at):
    states = path(contract.make())
    method = contract.make()
    honest, calls = method.step, itertools.count(1)

    def step(state: Any) -> Any:
        successor = honest(state)  # all of its work is done, then the key is hit
        if next(calls) == at:
            raise KeyboardInterrupt
        return successor

    method.step = step
    outcome = run(method)
    assert outcome.status is Status.INTERRUPTED
    assert_same(outcome.state, states[at - 1])
    assert_same(run(method, state=outcome.state).state, states[-1])  # the same object goes on


# --- interruption, NaN and lost definiteness from deep inside -------------------------------------


class Faulty:
    """Feature maps that do something bad at their N-th product, and ever after if it is lasting."""

    def __init__(self, maps: Any, at: int, act: Callable[[Any], Any], lasting: bool) -> None:
        self._maps, self._at, self._act, self._lasting = maps, at, act, lasting
        self.calls = 0

    def _watch(self, result: Any) -> Any:
        self.calls += 1
        bad = self.calls == self._at or (self._lasting and self.calls > self._at)
        return self._act(result) if bad else result

    def adjoint(self, V: Any) -> Any:
        return self._watch(self._maps.adjoint(V))

    def combine(self, Y: Any) -> Any:
        return self._watch(self._maps.combine(Y))

    def images(self, Y: Any) -> Any:
        return self._watch(self._maps.images(Y))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._maps, name)


SOLVERS = {
    "scf": lambda f: Scf(f, START, alpha=0.7, sigma=1.0, tol=1e-4),
    "lbfgs": lambda f: Lbfgs(f, START, tol=1e-7),
    "trust region": lambda f: TrustRegion(f, START, tol=1e-9),
}


def faulty(name: str, at: int, act: Callable[[Any], Any], *, lasting: bool = False) -> Any:
    f = objective()
    return SOLVERS[name](replace(f, maps=Faulty(f.maps, at, act, lasting)))


@pytest.mark.sample
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("at", [3, 4, 7, 10, 25])
def test_an_interruption_inside_a_product_leaves_a_state_to_go_on_from(name, at):
    def interrupt(result: Any) -> Any:
        raise KeyboardInterrupt

    whole = run(SOLVERS[name](objective()))
    method = faulty(name, at, interrupt)
    outcome = run(method)
    assert outcome.status is Status.INTERRUPTED
    for again in (method, SOLVERS[name](objective())):  # the same object, and after a restart
        np.testing.assert_array_equal(run(again, state=outcome.state).state.V, whole.state.V)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("at", [3, 7, 10])
def test_values_that_turn_nan_leave_the_last_finite_state(name, at):
    def spoil(result: Any) -> Any:
        if isinstance(result, tuple):  # Phi_q^T V, of which the value is made
            return tuple(np.full_like(part, np.nan) for part in result)
        return result

    states = path(SOLVERS[name](objective()))
    with np.errstate(invalid="ignore"):
        outcome = run(faulty(name, at, spoil, lasting=True))
    ends = {Status.NON_FINITE, Status.INDEFINITE}
    if name == "lbfgs":  # it backtracks from a NaN as from any value that is not better
        ends.add(Status.STAGNATED)
    assert outcome.status in ends
    assert any(np.array_equal(outcome.state.V, state.V) for state in states[:at])
    assert all(math.isfinite(row.objective) for row in outcome.trace)


# --- what a pass is -------------------------------------------------------------------------------


class Counting(LocalEngine):
    """Counts how often the rows were walked over."""

    def map(self, *args: Any, **kwargs: Any) -> Any:
        counter[0] += 1
        return super().map(*args, **kwargs)

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        counter[0] += 1
        return super().reduce(*args, **kwargs)


counter = [0]
ITERATIONS = {"scf": partial(Scf, alpha=1.0, sigma=0.0), "ascent": Lbfgs, "newton": TrustRegion}


@pytest.mark.parametrize("kind", ITERATIONS.values(), ids=ITERATIONS.keys())
def test_solvers_count_the_passes_that_they_make(kind):
    """In n dimensions `passes` is what the engine saw, give or take the last look at a state."""
    problem = make_problem()
    pool = replace(problem.pool, engine=Counting())
    coordinates = Ambient(pool)
    f = StiefelObjective(coordinates.maps, pool.eps, pool.offsets, problem.tau, problem.k)
    counter[0] = 0
    method = kind(f, START, tol=1e-6)
    outcome = run(method, budget=Budget(max_steps=8))
    assert outcome.state.passes == pytest.approx(counter[0], abs=2)
    assert counter[0] >= 16


@pytest.mark.parametrize("kind", ITERATIONS.values(), ids=ITERATIONS.keys())
def test_solvers_make_no_passes_in_reduced_coordinates(kind):
    problem = make_problem()
    pool = replace(problem.pool, engine=Counting())
    coordinates = Reduced(pool)
    frame = coordinates.lower(START)
    f = StiefelObjective(coordinates.maps, pool.eps, pool.offsets, problem.tau, problem.k)
    counter[0] = 0
    method = kind(f, frame, tol=1e-6)
    assert run(method, budget=Budget(max_steps=8)).state.passes == counter[0] == 0
