"""Plans for representative picks: stages as they are made, and memory that is never more."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fairnepv
from fairnepv import LocalEngine
from fairnepv.api.inputs import pose, sketch
from fairnepv.api.search import prove
from fairnepv.compute.rates import UNTIMED
from fairnepv.loop import Context
from fairnepv.planning.explained import ExplainedCount
from fairnepv.search import EFFORTS, Found, greedy, improve
from fairnepv.search.effort import roam
from fairnepv.views.moments import second_norms

ENGINE = LocalEngine(threads=1)
ASKED = {"objective": "representative", "engine": ENGINE}


def peak(work: Callable[[], Any]) -> tuple[Any, int]:
    """What it finds, and the bytes that it takes on its way."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def dense(n: int, p: int, dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, 9)) @ rng.standard_normal((9, p))).astype(dtype)


def words(n: int, p: int) -> Any:
    return sp.random_array((n, p), density=20 / p, format="csr", rng=0, dtype=np.float32)


POOLS: dict[str, tuple[dict[str, Any], int]] = {
    "small": ({"a": dense(1000, 40, "float64"), "b": dense(1000, 5, seed=1)}, 30),
    "tall": ({"a": dense(30_000, 24)}, 20),
    "wide": ({"a": dense(1500, 300)}, 20),
    "half": ({"a": dense(6000, 64, "float16")}, 60),
    "words": ({"a": words(3000, 400), "b": dense(3000, 16)}, 20),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", POOLS)
def test_no_stage_takes_more_than_is_planned(name):
    data, k = POOLS[name]
    count = ExplainedCount(sketch(data, k, ASKED), UNTIMED)
    effort = EFFORTS["balanced"]
    posed, taken = peak(lambda: pose(data, k, **ASKED))
    making = max(stage.memory for stage in count.posing())
    assert taken <= making + count.kept()
    assert peak(lambda: second_norms(posed.pool))[1] <= count.moments().memory
    found, taken = peak(lambda: greedy(posed, Context()))
    assert taken <= count.greedy().memory <= 20 * taken
    start = Found(np.arange(k), found.status)
    assert peak(lambda: improve(posed, start, effort, Context()))[1] <= count.swaps(effort).memory
    assert peak(lambda: roam(posed, found, effort, Context()))[1] <= count.tabu(effort).memory
    taken = peak(lambda: prove(posed, 5e-3, Context()))[1]
    assert taken <= count.bound("bound", joint=True).memory <= 6 * taken


def test_wide_views_act_through_rows():
    data = {"a": words(900, 5000)}
    count = ExplainedCount(sketch(data, 8, ASKED), UNTIMED)
    posed = pose(data, 8, **ASKED)
    assert peak(lambda: second_norms(posed.pool))[1] <= count.moments().memory
    assert peak(lambda: greedy(posed, Context()))[1] <= count.greedy().memory


def test_the_stages_are_those_of_representative_picks():
    forecast = fairnepv.plan(dense(3000, 30), 20, objective="representative")
    names = [stage.name for stage in forecast.stages if not stage.optional]
    start = ["check and norms", "second moments", "bound", "greedy", "tabu", "swaps"]
    assert names[:6] == start
    assert forecast.seconds is not None
    assert "second moments" in str(forecast)
    diverse = fairnepv.plan(dense(3000, 30), 20)
    assert forecast.operations > diverse.operations


def test_products_are_counted_by_the_letter():
    n, p, k = 5000, 40, 32
    count = ExplainedCount(sketch(dense(n, p), k, ASKED), UNTIMED)
    assert count.moments().operations == 1.5 * n * p**2  # G is symmetric: half of it is computed
    one = count.swaps(EFFORTS["balanced"], last=True)
    assert one.operations == 2 * (2 * k * n * p + 2 * n * k**2)  # two passes, two products each


def test_a_limit_is_kept_or_refused_in_a_sentence():
    data = dense(20_000, 32)
    with pytest.raises(fairnepv.InputError, match="the least that would work is"):
        fairnepv.select(data, 10, objective="representative", memory_limit="1MB")
    limit = int(fairnepv.plan(data, 10, objective="representative").with_optional().peak_memory)
    _, taken = peak(
        lambda: fairnepv.select(data, 10, objective="representative", memory_limit=limit)
    )
    assert taken <= limit
