"""Limits nest, the earliest counts, threads see them, and no handler of errors swallows the end."""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fairnepv.compute import block_threads, clock, in_order
from fairnepv.compute.clock import (
    Limit,
    OutOfTime,
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


def test_what_would_take_too_long_is_not_begun(at, monkeypatch):
    monkeypatch.setattr(clock, "_pace", lambda: 1e-9)
    with limited(Limit(103.0)):
        expect(2e9)
        with pytest.raises(OutOfTime):
            expect(4e9)
    expect(4e9)


def test_another_machine_has_the_same_deadline(at):
    with limited(Limit(105.0)):
        deadline = deadline_on_the_wall()
    with by_the_wall(deadline):
        assert left() == pytest.approx(5.0, abs=0.5)
    with by_the_wall(None):
        assert left() == math.inf
