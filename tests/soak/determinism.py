"""The same items, whoever computes: by one thread of BLAS or two, in blocks of any size, from
numbers of any width, by workers of Ray."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import fairnepv
from fairnepv import LocalEngine
from fairnepv.compute import Engine
from soak.clusters import cluster_of
from soak.runner import Group

LOCAL, COUNT = 300, 360  # the cases after the first need workers of Ray
REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"objective": "representative"},
    {"method": "nepv", "certify": False},
    {"method": "greedy", "center": True, "certify": False},
    {"effort": "fast", "calibration": "trace"},
)


class Way(NamedTuple):
    """How a selection is computed."""

    threads: int
    block_rows: int | None
    dtype: str
    workers: int = 0


def way_of(number: int) -> tuple[int, Way]:
    """A pool by its seed, and the way in which it is looked at."""
    if number >= LOCAL:
        cluster, at = divmod(number - LOCAL, 20)  # one after the other: each takes seconds to start
        return 1000 + at // 4, Way(1, (7, 41, 100, None)[at % 4], "float64", (1, 2, 4)[cluster])
    seed, at = divmod(number, 20)
    blocks = (1, 7, 33, 100, None)
    return seed, Way(1 + at % 2, blocks[at // 4], ("float64", "float32")[at // 2 % 2])


@functools.lru_cache(maxsize=2)
def pool(seed: int) -> dict[str, np.ndarray]:
    """Numbers that float16 holds, with copies and near copies; float64."""
    rng = np.random.default_rng([23, 4, seed])
    n = int(rng.integers(60, 220))
    views = {}
    for q in range(int(rng.integers(1, 4))):
        Phi = rng.standard_normal((n, int(rng.integers(2, 40)))).astype(np.float16)
        Phi[n // 2 : n // 2 + 5] = Phi[:5]
        views[f"view{q}"] = Phi.astype(np.float64)
    return views


def found(seed: int, way: Way, engine: Engine) -> fairnepv.Selection:
    request, rows = REQUESTS[seed % len(REQUESTS)], pool(seed)
    sparse = seed % 4 == 3
    data = {
        name: sp.csr_array(Phi.astype(way.dtype)) if sparse else Phi.astype(way.dtype)
        for name, Phi in rows.items()
    }
    with threadpool_limits(way.threads):
        return fairnepv.select(data, 3 + seed % 8, engine=engine, random_state=seed, **request)


@functools.lru_cache(maxsize=2)
def expected(seed: int) -> fairnepv.Selection:
    return found(seed, Way(1, None, "float64"), LocalEngine(threads=1))


@contextmanager
def engine_for(way: Way) -> Iterator[Engine]:
    blocks = LocalEngine(way.block_rows, threads=way.threads)
    if not way.workers:
        yield blocks
        return
    from dataclasses import replace

    yield replace(cluster_of(way.workers), blocks=blocks)


def case(number: int, folder: Path) -> None:
    seed, way = way_of(number)
    with engine_for(way) as engine:
        one, other = expected(seed), found(seed, way, engine)
    assert one.indices.tolist() == other.indices.tolist(), way
    assert one.status is other.status
    assert abs(one.fair_score - other.fair_score) < 1e-10
    if one.upper_bound is not None:
        assert other.upper_bound >= one.fair_score - 1e-9


GROUP = Group("determinism", case, COUNT, sample=(0, 47, 94, 141, 188, 235, 282))
