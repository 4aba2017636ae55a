"""How scores are told: in nats per item, and in shares of variance."""

import math

import pytest

from fairnepv.errors import UnsupportedError
from fairnepv.objective.units import UNITS, unsupported

NATS, SHARES = UNITS["diverse"], UNITS["representative"]


def test_digits():
    assert (NATS.shown(-0.123456), NATS.short(-0.123456)) == ("-0.1235", "-0.123")
    assert (NATS.tick(1.25), NATS.tick(-1234.56)) == ("1.25", "-1235")
    assert (SHARES.shown(0.123456), SHARES.short(0.123456)) == ("12.35%", "12.3%")
    assert (SHARES.tick(0.25), SHARES.tick(0.123456)) == ("25%", "12.35%")


@pytest.mark.parametrize("bound", [0.00001, 1.23451, -1.23459, 0.5, 1e9 - 0.5])
def test_a_printed_bound_still_holds(bound):
    shown = float(NATS.rounded_up(bound))
    assert bound <= shown < bound + 1.0001e-4
    assert NATS.rounded_up(0.5) == "0.5000"


def test_bounds_without_digits_to_round_are_told_as_they_are():
    assert NATS.rounded_up(1e9) == "1000000000.0000"
    assert NATS.rounded_up(1.5e9) == "1500000000.0"
    assert NATS.rounded_up(-2.5e300) == "-2.5e+300"
    assert NATS.rounded_up(math.inf) == NATS.rounded_up(math.nan) == "nothing"


def test_no_share_is_above_the_whole_by_rounding_alone():
    assert SHARES.rounded_up(1.0 + 9e-10) == SHARES.rounded_up(1.0) == "100.00%"
    assert SHARES.rounded_up(1.0 + 1.1e-9) == "100.01%"
    assert SHARES.rounded_up(0.12341) == "12.35%"


def test_what_share_of_the_best_a_score_is_sure_to_have():
    assert NATS.efficiency(-1.5, -1.0) == pytest.approx(math.exp(-0.5))
    assert NATS.efficiency(-1.0 + 1e-12, -1.0) == 1.0  # a bound that rounding has lowered
    assert SHARES.efficiency(0.3, 0.4) == pytest.approx(0.75)
    assert SHARES.efficiency(0.4 + 1e-12, 0.4) == 1.0
    assert SHARES.efficiency(-1e-12, 0.4) == 0.0
    assert SHARES.efficiency(0.0, 0.0) == SHARES.efficiency(0.0, -1e-12) == 1.0
    assert SHARES.efficiency(0.5, 1.5) == pytest.approx(1 / 3)


@pytest.mark.parametrize("units", [NATS, SHARES], ids=["nats", "shares"])
def test_a_goal_has_its_efficiency(units):
    assert units.efficiency(units.goal(0.8, 0.9), 0.8) == pytest.approx(0.9)


def test_bars_are_positive_and_longer_when_better():
    assert NATS.length(-1.0) == pytest.approx(math.exp(-1.0))
    assert SHARES.length(0.25) == 0.25


def test_the_refusal_names_the_objective_and_the_remedy():
    error = unsupported("shards", "leave them out")
    assert isinstance(error, UnsupportedError)
    assert str(error) == "objective 'representative' does not support shards; leave them out"
