"""Limits nest, the earliest counts, threads see them, and no handler of errors swallows the end."""

import gc
import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import fairnepv
from fairnepv.compute import block_threads, clock, in_order, local
from fairnepv.compute.clock import (
    Limit,
    OutOfTime,
    apart,
    by_the_wall,
    check_time,
    deadline_on_the_wall,
    expect,
    left,
    limited,
    unlimited,
)


@pytest.fixture
def at(monkeypatch):
    """The time, which passes when it is told to."""
    seconds = [100.0]
    monkeypatch.setattr(clock, "now", lambda: seconds[0])
    return seconds


def test_without_a_limit_there_is_time(at):
    assert left() == math.inf
    assert deadline_on_the_wall() is None
    check_time()


def test_the_earliest_of_nested_limits_counts(at):
    with limited(Limit(130.0)), limited(Limit(110.0)), limited(Limit(None)):
        assert left() == 10.0
        at[0] = 109.0
        check_time()
        at[0] = 110.0
        with pytest.raises(OutOfTime):
            check_time()
        with unlimited():
            check_time()
    with limited(Limit(130.0)):
        check_time()


def test_a_limit_may_move_while_it_is_armed(at):
    limit = Limit(None)
    with limited(limit):
        check_time()
        limit.deadline = 100.0
        with pytest.raises(OutOfTime):
            check_time()


def test_it_is_no_error():
    assert not issubclass(OutOfTime, Exception)


@pytest.mark.parametrize("threads", [1, 3])
def test_no_call_is_begun_when_time_is_up(at, threads):
    made = []

    def call(number):
        made.append(number)
        at[0] += 1.0
        return number

    with limited(Limit(102.0)), block_threads(1e12), pytest.raises(OutOfTime):
        list(in_order([partial(call, n) for n in range(50)], threads))
    assert len(made) <= 2 + 2 * threads


def test_threads_of_a_pass_know_the_limit(at):
    with limited(Limit(101.0)):
        seen = list(in_order([left] * 9, 3))
    assert seen == [1.0] * 9
    with ThreadPoolExecutor(1) as others:
        assert others.submit(left).result() == math.inf


# --- Ctrl-C -------------------------------------------------------------------------------------


def pressed(call, line):
    """Whether Ctrl-C came, in place of so many lines of `clock.py` as a call goes through."""
    gone, before = [0], sys.gettrace()

    def on_line(frame, event, _):
        if event == "line":
            gone[0] += 1
            if gone[0] == line:
                raise KeyboardInterrupt
        return on_line

    def on_call(frame, *_):
        return on_line if frame.f_code.co_filename == clock.__file__ else None

    sys.settrace(on_call)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return gone[0] >= line


def test_wherever_it_is_pressed_no_limit_outlives_a_call():
    @apart
    def call():
        with limited(Limit(200.0)), unlimited(), limited(Limit(150.0)):
            left()

    lines = next(line for line in itertools.count(1) if not pressed_and_unarmed(call, line))
    assert lines > 20


def pressed_and_unarmed(call, line):
    came = pressed(call, line)
    assert left() == math.inf, line
    gc.collect()
    assert left() == math.inf, line
    return came


def test_no_limit_outlives_a_selection_that_was_interrupted():
    """It used to be armed for ever in its thread, and ended any later call."""
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((12, 3)) for name in "ab"}

    def select():
        fairnepv.select(data, 3, time_limit=3600.0, effort="fast", certify=False)

    some = itertools.count(1, 4)
    lines = next(line for line in some if not pressed_and_unarmed(select, line))
    assert lines > 100


def test_a_block_ends_those_within_that_were_kept_from_ending(at):
    with limited(Limit(130.0)):
        with limited(Limit(120.0)):
            lost = limited(Limit(110.0))
            lost.__enter__()
        assert left() == 30.0
        lost.__exit__(None, None, None)  # too late
        assert left() == 30.0
    assert left() == math.inf


def test_a_call_from_outside_has_a_clock_of_its_own(at):
    with limited(Limit(110.0)):
        assert apart(left)() == math.inf
        assert left() == 10.0


def test_what_would_take_too_long_is_not_begun(at, monkeypatch):
    monkeypatch.setattr(clock, "_pace", lambda: 1e-9)
    with limited(Limit(103.0)):
        expect(2e9)
        with pytest.raises(OutOfTime):
            expect(4e9)
    expect(4e9)


def test_the_pace_of_factorisations_is_that_of_one_thread(monkeypatch):
    """Several that wait for each other on a busy machine tell nothing."""
    threads, eigh = [], np.linalg.eigh

    def watched(X):
        threads.extend(library.get_num_threads() for library in local._blas())
        return eigh(X)

    monkeypatch.setattr(np.linalg, "eigh", watched)
    assert 0.0 < clock._pace.__wrapped__() < 1e-6
    assert set(threads) == {1}


def test_another_machine_has_the_same_deadline(at):
    with limited(Limit(105.0)):
        deadline = deadline_on_the_wall()
    with by_the_wall(deadline):
        assert left() == pytest.approx(5.0, abs=0.5)
    with by_the_wall(None):
        assert left() == math.inf
