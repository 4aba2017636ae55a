"""The Ray engine: the contract of engines, the bits of the local one, deaths and bad addresses.

Clusters are started and ended here, each for the tests that need it.
"""

import contextlib
import inspect
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("ray", reason="Ray is not installed (fairnepv[ray])")

from test_engines import (  # noqa: F401 (the contract, which this module's fixtures hold Ray to)
    Recorder,
    _many_dense,
    _many_sparse,
    _pool,
    _run_everything,
    _tasks_in_source,
    blas_threads,
    float_sum,
    pair,
    refuse,
    test_combine_may_add_to_its_left,
    test_combine_may_be_a_partial,
    test_each_row_is_seen_once_and_in_order,
    test_gathered_rows_come_in_the_order_asked_for,
    test_map_equals_the_one_block_result,
    test_map_keeps_the_type_of_the_results,
    test_map_lays_rows_end_to_end,
    test_reduce_equals_the_one_block_result,
    test_reduce_is_the_tree_over_the_blocks_to_the_last_bit,
    test_reduce_sees_aligned_slices,
    test_results_may_take_the_place_of_what_they_came_from,
    test_the_state_and_the_rows_are_left_alone,
    test_what_a_task_raises_comes_through,
    threads_of,
)

import fairnepv
from cases import SMALL, openmoji, random_views, uci
from fairnepv import InputError, LocalEngine, Pool
from fairnepv.api.inputs import pose
from fairnepv.compute import Engine, portable
from fairnepv.compute.clock import Limit, limited, now
from fairnepv.compute.ray import join, private
from fairnepv.compute.ray.connection import ClusterConnection
from fairnepv.compute.ray.engine import RayEngine
from fairnepv.compute.ray.transport import Slices
from fairnepv.errors import ClusterError
from fairnepv.io.ranges import RangedRows
from fairnepv.io.read import read_features
from fairnepv.io.table_rows import TableRows
from fairnepv.problem import Problem
from fairnepv.search.local import best_swaps
from fairnepv.search.subset import Subset
from fairnepv.search.table import SwapTable
from fairnepv.stiefel import make_solver, relax
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned
from fairnepv.views import Calibration
from object_store import Bucket
from row_files import fixed_lists, table, write_parquet

pytestmark = pytest.mark.ray
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # Ray looks for 127.0.0.1 elsewhere without
SRC = Path(fairnepv.__file__).parents[1]


@pytest.fixture(scope="module", params=[2])
def cluster(request):
    """An engine of so many workers, 2 unless a test asks for others."""
    with RayEngine.local(request.param) as engine:
        yield engine


@pytest.fixture
def engine_of(cluster):
    return lambda rows: replace(cluster, blocks=LocalEngine(block_rows=rows))


@pytest.fixture(params=[7, 100, 231])
def pool(request, engine_of):
    return _pool(engine_of(request.param))


# --- every kind of pass ---------------------------------------------------------------------------


class Passes(Recorder):
    """Keeps how each task was called first; over all rows, if it ever was."""

    def __init__(self):
        super().__init__()
        self.first = {}

    def map(self, pass_, out=None):
        self._keep("map", pass_)
        return super().map(pass_, out)

    def reduce(self, pass_, combine):
        self._keep("reduce", pass_, combine)
        return super().reduce(pass_, combine)

    def _keep(self, verb, pass_, *combine):
        known = self.first.get(pass_.task.__name__)
        if known is None or known[1].rows is not None:
            aligned = tuple(x.copy() for x in pass_.aligned)  # some are written to later
            self.first[pass_.task.__name__] = verb, replace(pass_, aligned=aligned), *combine


@pytest.fixture(scope="module")
def passes():
    """One of every kind that the library makes."""
    recorder = Passes()
    _run_everything(_many_dense(), recorder)
    return recorder.first


TASKS = {name: getattr(import_module(module), name) for module, name in _tasks_in_source()}
PORTABLE = {name for name, task in TASKS.items() if getattr(task, "portable", False)}


# --- the same answers -----------------------------------------------------------------------------

BY_WORKERS = pytest.mark.parametrize(
    "cluster",  # each number is a cluster of its own
    [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)],
    indirect=True,
)


@pytest.mark.filterwarnings("ignore::fairnepv.errors.RankWarning")
@BY_WORKERS
def test_every_small_pool_gives_the_same(cluster):
    here = LocalEngine(block_rows=3)
    for case in SMALL:
        data = {f"v{q}": x for q, x in enumerate(case.views)}
        eps = {f"v{q}": value for q, value in enumerate(case.eps)}
        terms = {"tau": case.tau, "eps": eps, "calibration": "none"}
        found = [
            fairnepv.select(data, case.k, engine=engine, effort="fast", **terms)
            for engine in (here, replace(cluster, blocks=here))
        ]
        _same(*found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairnepv.errors.RankWarning")
@BY_WORKERS
@pytest.mark.parametrize("data", [uci, openmoji], ids=["uci", "openmoji"])
def test_real_pools_give_the_same(cluster, data):
    here = LocalEngine(block_numbers=1 << 18)
    found = [
        fairnepv.select(data(), 20, effort="fast", gap=0.02, engine=engine)
        for engine in (here, replace(cluster, blocks=here))
    ]
    _same(*found)


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["nepv", "averaged", "d-optimal", "k-dpp"])
def test_methods_give_the_same(cluster, method):
    here = LocalEngine(block_numbers=1 << 13)
    found = [
        fairnepv.select(_mixed(), 6, method=method, engine=engine)
        for engine in (here, replace(cluster, blocks=here))
    ]
    _same(*found)


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3, 7, 29])
def test_large_sums_are_folded_by_workers_in_the_same_tree(cluster, rows, monkeypatch):
    here = LocalEngine(block_rows=rows)
    one, other = (_pool(engine) for engine in (here, replace(cluster, blocks=here)))
    monkeypatch.setattr("fairnepv.compute.ray.engine._LARGE_SUM", 1)
    monkeypatch.setattr(cluster.connection, "workers", 20)  # so that there is something to fold
    monkeypatch.setattr("fairnepv.compute.ray.engine._FOLDED", 4)
    expected, got = (pool.reduce(float_sum, add_arrays, None, total=2) for pool in (one, other))
    np.testing.assert_array_equal(got, expected)
    assert other.reduce(nested, pair, None, total=2) == one.reduce(nested, pair, None, total=2)
    with pytest.raises(ZeroDivisionError, match="task failed on rows"):
        other.reduce(refuse, pair, None, total=2)


def nested(block, state):
    return str(block.start)


def add_arrays(left, right):
    left += right
    return left


def test_swap_tables_are_the_same(cluster):
    """They are made by one pass, changed in place by others, and read by a third kind."""
    data = dict(zip("ab", random_views(np.random.default_rng(5), 400, [9, 7]), strict=True))
    here = LocalEngine(block_numbers=1 << 11)
    found = []
    for engine in (here, replace(cluster, blocks=here)):
        problem = pose(data, 20, engine=engine)
        table = SwapTable.of(Subset.of(problem, np.arange(20)))
        move = table.subset.confirm(3, 77)
        moved = table.after([move], reuse=True)
        assert moved.age == 1
        found.append((moved.joined, *best_swaps(moved)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_kernel_gives_the_same(cluster):
    Phi = np.random.default_rng(3).standard_normal((300, 8))
    data = {"kernel": fairnepv.KernelView(Phi @ Phi.T), "x": Phi[:, :5] ** 2}
    here = LocalEngine(block_rows=50)
    found = [
        fairnepv.select(data, 4, engine=engine, effort="fast")
        for engine in (here, replace(cluster, blocks=here))
    ]
    _same(*found)


@pytest.mark.parametrize("kind", [Ambient, Reduced, Spanned])
def test_sparse_relaxations_are_the_same(cluster, kind):
    """To the last bit: frames, what they are judged by, and what orders the candidates."""
    here, found = LocalEngine(block_numbers=1 << 12), []
    for engine in (here, replace(cluster, blocks=here)):
        pool = Pool.of(_two_sparse(), engine=engine)
        problem = Problem(pool, 5, 0.05, Calibration("none"))
        solver = make_solver(k=5, tol=1e-2, max_steps=8)
        found.append(relax(problem, solver, start="random", coordinates=kind(pool)))
    one, other = found
    assert [x.objective for x in one.trace] == [x.objective for x in other.trace]
    assert one.residual == other.residual
    np.testing.assert_array_equal(one.basis, other.basis)
    np.testing.assert_array_equal(one.leverage, other.leverage)


@pytest.mark.parametrize("rules", [{}, {"include": [1100, 3], "groups": np.arange(1200) % 3}])
def test_tiers_give_the_same(cluster, rules):
    here, steps = LocalEngine(block_numbers=1 << 12), []
    options = {"effort": "fast", "certify": False, "progress": steps.append, **rules}
    found = [
        fairnepv.select(_mixed(), 6, hierarchical=5, engine=engine, **options)
        for engine in (here, replace(cluster, blocks=here))
    ]
    _same_indices(*found)
    values = [step.objective for step in steps if step.stage == "shards"]
    assert len(values) == 12
    assert values[:6] == values[6:]  # step by step


def test_shards_are_chosen_from_by_workers(cluster, tmp_path):
    """Who also read them, where they lie in files."""
    rows = np.random.default_rng(2).standard_normal((900, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    pool = Pool.of({"v": read_features(str(tmp_path / "rows.npy"))}, engine=cluster)
    seen = list(pool.each(reader, [(0, 10), (100, 300), (300, 900)]))
    assert os.getpid() not in {pid for pid, *_ in seen}
    assert [n for _, n, _ in seen] == [10, 200, 600]
    np.testing.assert_array_equal([first for *_, first in seen], rows[[0, 100, 300], 0])
    with pytest.raises(ZeroDivisionError):
        list(pool.each(refuse_all, [1]))


def reader(pool, span):
    part = pool.take(np.arange(*span))
    assert pool.engine.threads == blas_threads() == 1
    return os.getpid(), part.n, part.views[0].rows(np.array([0]))[0, 0]


def refuse_all(pool, state):
    raise ZeroDivisionError


def _two_sparse():
    (words,) = _many_sparse().values()
    return {"words": words, "others": sp.csr_array(words[::-1])}


def _mixed(n=1200):
    rng = np.random.default_rng(11)
    dense = rng.standard_normal((n, 12)).astype(np.float32)
    sparse = rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.4)
    sparse[:, 0] = 1.0
    return {"dense": dense, "sparse": sp.csr_array(sparse)}


def _same(one, other):
    assert one.indices.tolist() == other.indices.tolist()
    assert one.scores == other.scores
    assert one.upper_bound == other.upper_bound
    assert one.coverage == other.coverage


# --- what travels ---------------------------------------------------------------------------------


def pids(block, state):
    return np.full(block.stop - block.start, os.getpid())


def sleepy_pids(block, state):
    time.sleep(state)
    return pids(block, state)


def pids_that_met(block, folder):
    """Who works, once two have come to do so."""
    (folder / str(os.getpid())).touch()
    _wait_until(lambda: len(list(folder.iterdir())) >= 2)
    return pids(block, None)


def _wait_until(is_so):
    """For minutes, which only a test that fails takes."""
    ends = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_blocks_go_to_all_workers_and_never_to_the_driver(cluster, tmp_path):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=5)))
    seen = set(pool.map(pids_that_met, tmp_path).tolist())
    assert len(seen) == 2
    assert os.getpid() not in seen


def test_passes_over_one_block_or_few_rows_stay_here(cluster):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=50)))
    rows = np.arange(200)
    assert set(pool.map(pids, None, rows=rows)) == {os.getpid()}
    assert set(_pool(cluster).map(pids, None)) == {os.getpid()}


def gathered_rows(block, state, values):
    numbers, stops = np.arange(block.start, block.stop), np.full(len(values), block.stop)
    return np.column_stack([numbers, stops, block.views[0].features()[:, 0], values])


@pytest.mark.parametrize("count", [1500, 8800])
def test_many_gathered_rows_go_to_workers(cluster, monkeypatch, count):
    """In the blocks of the local engine, also in a last run of blocks that is not a full one."""
    monkeypatch.setattr("fairnepv.compute.ray.engine._GATHERED", 100)
    data, rng = {"v": np.arange(9000.0)[:, None] + 1.0}, np.random.default_rng(4)
    rows, values = rng.permutation(9000)[:count], rng.standard_normal(count)
    here, there = (Pool.of(data, engine=engine) for engine in (LocalEngine(), cluster))
    assert os.getpid() not in there.map(pids, None, rows=rows)
    expected = here.map(gathered_rows, None, values, rows=rows)
    np.testing.assert_array_equal(there.map(gathered_rows, None, values, rows=rows), expected)


def test_arrays_are_sent_once_and_let_go_with_the_pool(cluster, monkeypatch):
    sent = []
    sender = cluster.connection.sender
    put = sender._put
    monkeypatch.setattr(sender, "_put", lambda thing: sent.append(thing) or put(thing))
    data = {"v": np.random.default_rng(0).standard_normal((20_000, 8))}
    pool = Pool.of(data, engine=replace(cluster, blocks=LocalEngine(block_rows=5000)))
    for _ in range(3):
        pool.map(pids, None)
        replace(pool).map(pids, None)  # the same rows under other terms
    assert [thing.shape for thing in sent if isinstance(thing, np.ndarray)] == [(20_000, 8)]
    kept = len(sender._arrays), len(sender._sources)
    sent.clear()
    del pool, data
    assert (len(sender._arrays), len(sender._sources)) == (kept[0] - 1, kept[1] - 1)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_that_were_written_to_are_sent_again(cluster, order):
    rows = np.array(np.random.default_rng(0).standard_normal((9000, 4)), order=order)
    engine = replace(cluster, blocks=LocalEngine(block_rows=1000))
    before = Pool.of({"v": rows}, engine=engine)
    np.testing.assert_array_equal(before.map(first_column, None), rows[:, 0])
    rows[4000, 0] += 1.0  # as who scales the rows in place, and selects again
    after = Pool.of({"v": rows}, engine=engine)
    np.testing.assert_array_equal(after.map(first_column, None), rows[:, 0])


def test_rows_in_files_are_read_by_the_workers(cluster, tmp_path, monkeypatch):
    """Nothing of their size goes through the object store, and relative names find them."""
    rows = np.random.default_rng(0).standard_normal((30_000, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    monkeypatch.chdir(tmp_path)
    blocks = LocalEngine(block_rows=5000)
    sent = []
    sender = cluster.connection.sender
    put = sender._put
    monkeypatch.setattr(sender, "_put", lambda thing: sent.append(thing) or put(thing))
    expected = Pool.of({"v": rows}, engine=blocks).map(first_column, None)
    mapped = np.load("rows.npy", mmap_mode="r")
    for data in (read_features("rows.npy"), mapped, mapped[:, 2:]):
        pool = Pool.of({"v": data}, engine=replace(cluster, blocks=blocks))
        column = expected if data.shape[1] == 8 else rows[:, 2].astype(np.float64)
        np.testing.assert_array_equal(pool.map(first_column, None), column)
        assert set(pool.map(pids, None)).isdisjoint({os.getpid()})
    assert sent
    assert not any(isinstance(thing, np.ndarray) for thing in sent)
    assert sum(len(thing) for thing in sent) < 20_000


def test_a_pool_of_files_is_checked_by_the_workers(cluster, tmp_path, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)
    rows[1234] *= 1e3
    np.save(tmp_path / "rows.npy", rows)
    here = LocalEngine(block_rows=500)
    expected = Pool.of({"v": rows}, engine=here).squared_norms
    file = read_features(str(tmp_path / "rows.npy"))
    with monkeypatch.context() as patched:
        patched.setattr(type(file), "read", lambda *_: pytest.fail("the driver reads all rows"))
        pool = Pool.of({"v": file}, engine=replace(cluster, blocks=here))
    np.testing.assert_array_equal(pool.squared_norms, expected)
    rows[77, 3] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    bad = {"v": read_features(str(tmp_path / "bad.npy"))}
    with pytest.raises(InputError, match="row 77"):
        Pool.of(bad, engine=replace(cluster, blocks=here))


def first_column(block, state):
    return block.views[0].features()[:, 0].copy()


def test_shards_and_parquet_give_the_same(cluster, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(2)
    rows = rng.standard_normal((900, 6)).astype(np.float32)
    (tmp_path / "shards").mkdir()
    for s, part in enumerate(np.array_split(rows, 4)):
        np.save(tmp_path / "shards" / f"part-{s}.npy", part)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 6)
    pq.write_table(pa.table({"e": column}), tmp_path / "rows.parquet", row_group_size=100)
    here = LocalEngine(block_rows=70)
    expected = fairnepv.select({"v": rows}, 5, engine=here, effort="fast")
    for name in ("shards", "rows.parquet"):
        data = {"v": read_features(str(tmp_path / name))}
        engine = replace(cluster, blocks=here)
        _same(expected, fairnepv.select(data, 5, engine=engine, effort="fast"))


@pytest.mark.parametrize("name", ["shards", "rows.parquet"])
def test_rows_in_a_bucket_are_read_by_the_workers(cluster, name, tmp_path, monkeypatch):
    """The driver opens them, and never reads them in a pass; nothing of their size travels."""
    rows = np.random.default_rng(2).standard_normal((6000, 8)).astype(np.float32)
    (tmp_path / "shards").mkdir()
    for s, part in enumerate(np.array_split(rows, 4)):
        np.save(tmp_path / "shards" / f"part-{s}.npy", part)
    write_parquet(tmp_path / "rows.parquet", table(fixed_lists(rows), "e"), 500)
    here = LocalEngine(block_rows=700)
    engine = replace(cluster, blocks=here)
    expected = fairnepv.select({"v": rows}, 5, engine=here, effort="fast")
    sender, sent = cluster.connection.sender, []
    put = sender._put
    monkeypatch.setattr(sender, "_put", lambda thing: sent.append(thing) or put(thing))
    with Bucket() as bucket:
        bucket.upload(tmp_path / name)
        uri = bucket.uri(name, "e" if "." in name else None)
        with monkeypatch.context() as patched:
            patched.setattr(RangedRows, "_fill", lambda *_: pytest.fail("the driver reads rows"))
            patched.setattr(TableRows, "part", lambda *_: pytest.fail("the driver reads rows"))
            pool = Pool.of({"v": read_features(uri)}, engine=engine)
            before = len(bucket.requests)
            column = pool.map(first_column, None)
        np.testing.assert_array_equal(column, rows[:, 0].astype(np.float64))
        assert any(verb == "GET" for verb, *_ in bucket.requests[before:])  # by the workers, then
        data = {"v": read_features(uri)}
        _same(expected, fairnepv.select(data, 5, engine=here, effort="fast"))
        sent.clear()
        _same(expected, fairnepv.select(data, 5, engine=engine, effort="fast"))
    assert sent
    assert not any(getattr(thing, "nbytes", len(thing)) > rows.nbytes / 2 for thing in sent)


def test_a_bucket_that_is_gone_is_said_by_a_worker(cluster, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((900, 3)))
    with Bucket() as bucket:
        rows = read_features(bucket.upload(tmp_path / "rows.npy"))
        bucket.refusing = 403
        engine = replace(cluster, blocks=LocalEngine(block_rows=100))
        with pytest.raises(InputError, match=r"may not be read .*said by a worker on"):
            Pool.of({"v": rows}, engine=engine)


def test_slices_lie_in_memory_as_they_did():
    table = np.arange(60.0).reshape(10, 6)
    v, c, plain = table[:, :4].reshape(10, 2, 2), table[:, 4:], np.arange(10)
    slices = Slices((v, c, plain, np.asfortranarray(table)))
    parts = slices.cut(3, 7)
    assert [part.nbytes for part in parts] == [4 * 6 * 8, 4 * 8, 4 * 6 * 8]
    found = [layout.restored(parts) for layout in slices.layouts]
    for x, part in zip((v, c, plain), found, strict=False):
        np.testing.assert_array_equal(part, x[3:7])
        assert part.strides == x.strides
    np.testing.assert_array_equal(found[3], table[3:7])
    assert found[3].flags.f_contiguous


# --- what tasks compute with ----------------------------------------------------------------------


def test_tasks_have_one_thread(cluster):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=50)))
    assert set(pool.map(threads_of, None)[:, 1]) == {1.0}


@portable
def torch_threads(block, state):
    import torch

    there = block.put(np.ones(block.stop - block.start))
    assert isinstance(there, torch.Tensor)
    return there * torch.get_num_threads()


@pytest.fixture
def with_torch(cluster):
    pytest.importorskip("torch", reason="PyTorch is not installed (fairnepv[torch])")
    return replace(cluster, device="cpu")


def test_torch_has_one_thread_whatever_the_environment_says(with_torch):
    """Ray tells its workers to have one; a user may have told them otherwise."""
    code = (
        "import pickle, numpy as np\n"
        "from fairnepv import Pool\n"
        "from fairnepv.compute import portable\n"
        "from fairnepv.compute.ray import worker\n"
        "@portable\n"
        "def threads(block, state):\n"
        "    import torch\n"
        "    return block.put(np.ones(60)) * torch.get_num_threads()\n"
        "pool = Pool.of({'a': np.ones((60, 2))})\n"
        "order = pickle.dumps(worker.Order(threads, None, None, 60, (), 'cpu'))\n"
        "made = worker.work(order, (0, 60), [], None, 'key', pickle.dumps(pool.lean()))\n"
        "print(set(made.tolist()))\n"
    )
    assert _python(code, OMP_NUM_THREADS=2, MKL_NUM_THREADS=2).strip() == "{1.0}"


@pytest.mark.slow
def test_portable_tasks_compute_with_torch_on_one_thread(with_torch):
    there = replace(with_torch, blocks=LocalEngine(block_rows=50))
    assert set(_pool(there).map(torch_threads, None)) == {1.0}
    assert set(_pool(there).map(pids, None)) != {os.getpid()}  # who knows NumPy alone gets it


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(PORTABLE))
def test_torch_in_a_worker_makes_the_same_of_a_pass(with_torch, passes, monkeypatch, name):
    monkeypatch.setattr("fairnepv.compute.ray.engine._GATHERED", 0)
    verb, *arguments = passes[name]
    here = LocalEngine(block_numbers=1 << 10)
    one, other = (
        getattr(engine, verb)(*arguments) for engine in (here, replace(with_torch, blocks=here))
    )
    if isinstance(one, np.ndarray):
        assert type(other) is np.ndarray
        size = np.abs(one[np.isfinite(one)]).max()  # what is blocked is infinite
        np.testing.assert_allclose(other, one, atol=1e-5 * size)
    else:
        assert one.rungs["row"].tolist() == other.rungs["row"].tolist()


@pytest.mark.parametrize("n", [400, 1200])
def test_torch_in_workers_finds_the_same(with_torch, n):
    here = LocalEngine(block_numbers=1 << 12)
    dense, sparse = _mixed(n).values()
    half = sparse.toarray().astype(np.float16)
    for data in ({"a": dense, "b": sparse}, {"a": dense}, {"a": dense, "b": half}):
        found = [
            fairnepv.select(data, 6, engine=engine, effort="fast")
            for engine in (here, replace(with_torch, blocks=here))
        ]
        assert found[0].indices.tolist() == found[1].indices.tolist()
        assert found[0].fair_score == pytest.approx(found[1].fair_score, abs=1e-12)


def test_torch_reads_files_in_workers(with_torch, tmp_path):
    rows = np.random.default_rng(2).standard_normal((900, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    here = LocalEngine(block_rows=70)
    data = {"v": read_features(str(tmp_path / "rows.npy"))}
    found = fairnepv.select(data, 5, engine=replace(with_torch, blocks=here), effort="fast")
    expected = fairnepv.select({"v": rows}, 5, engine=here, effort="fast")
    assert found.indices.tolist() == expected.indices.tolist()


def test_devices_that_are_not_there_are_refused(cluster):
    with pytest.raises(InputError, match="device must be 'cuda' or 'cpu'"):
        RayEngine.local(device="tpu")
    if not cluster.connection.gpus:
        with pytest.raises(InputError, match=r"the Ray cluster at \S+ has no GPU"):
            RayEngine.local(device="cuda")
    assert cluster.connection.alive


def test_a_gpu_is_asked_for_where_there_is_one(cluster, monkeypatch):
    """By portable tasks alone, which come in larger blocks."""
    connection, asked = cluster.connection, []
    submit = connection.submit
    monkeypatch.setattr(connection, "gpus", 1)
    monkeypatch.setattr(
        connection,
        "submit",
        lambda work, gpu, *rest: asked.append(gpu) or submit(work, False, *rest),
    )
    engine = RayEngine.local(device="cuda")
    assert engine.blocks.block_numbers > LocalEngine().block_numbers
    pool = _pool(replace(engine, blocks=LocalEngine(block_rows=100)))
    pool.map(pids, None)
    assert not any(asked)
    with contextlib.suppress(InputError):  # which says that PyTorch finds none here
        pool.map(torch_threads, None)
    assert any(asked)


# --- what goes wrong ------------------------------------------------------------------------------


class DiesOnce:
    """A task that takes its worker with it, the first time that a worker tries it."""

    def __init__(self, task, marks):
        self.task, self.marks = task, marks

    def __call__(self, block, state, *aligned):
        mark = self.marks / self.task.__name__
        if os.getpid() != int(self.marks.name) and block.start > 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task(block, state, *aligned)


class Killing(Engine):
    """An engine that loses a worker in passes of these kinds."""

    def __init__(self, engine, marks, kinds):
        self.engine, self.marks, self.kinds = engine, marks, kinds

    def map(self, pass_, out=None):
        return self.engine.map(self._dying(pass_), out)

    def reduce(self, pass_, combine):
        return self.engine.reduce(self._dying(pass_), combine)

    def _dying(self, pass_):
        dies = pass_.task.__name__ in self.kinds
        return replace(pass_, task=DiesOnce(pass_.task, self.marks)) if dies else pass_

    def each(self, task, source, states):
        return self.engine.each(DiesOnceApart(task, self.marks), source, states)


class DiesOnceApart(DiesOnce):
    def __call__(self, source, state):
        mark = self.marks / self.task.__name__
        if os.getpid() != int(self.marks.name) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task(source, state)


@pytest.fixture
def marks(tmp_path):
    """A folder that says who was killed, named after who must not be."""
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    return folder


@pytest.mark.kill
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_worker_killed_in_a_pass_changes_nothing(cluster, passes, marks, monkeypatch, name):
    monkeypatch.setattr("fairnepv.compute.ray.engine._GATHERED", 0)
    verb, *arguments = passes[name]
    here = LocalEngine(block_numbers=1 << 10)
    expected = getattr(here, verb)(*arguments)
    killing = Killing(replace(cluster, blocks=here), marks, {name})
    found = getattr(killing, verb)(*arguments)
    assert [mark.name for mark in marks.iterdir()] == [name]
    np.testing.assert_equal(found, expected)


@pytest.mark.slow
@pytest.mark.kill
def test_workers_killed_during_a_selection_change_nothing(cluster, marks):
    here, kinds = LocalEngine(block_numbers=1 << 12), {"_explained", "_price_rows"}
    killing = Killing(replace(cluster, blocks=here), marks, kinds)
    found = [
        fairnepv.select(_mixed(), 6, effort="fast", engine=engine) for engine in (here, killing)
    ]
    _same(*found)
    assert {mark.name for mark in marks.iterdir()} == kinds


@pytest.mark.slow
@pytest.mark.kill
def test_a_worker_killed_in_a_shard_changes_nothing(cluster, marks):
    engines = LocalEngine(), Killing(cluster, marks, ())
    found = [
        fairnepv.select(_mixed(), 6, hierarchical=5, certify=False, effort="fast", engine=engine)
        for engine in engines
    ]
    _same_indices(*found)
    assert [mark.name for mark in marks.iterdir()] == ["_winners"]


def _same_indices(one, other):
    assert one.indices.tolist() == other.indices.tolist()
    assert one.scores == other.scores


def die(block, state):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.kill
def test_a_task_that_always_dies_ends(cluster):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=200)))
    with pytest.raises(ClusterError, match="died 3 times, each time with its worker"):
        pool.map(die, None)
    assert pool.map(pids, None).shape == (230,)  # the cluster is still of use


def exhaust(block, state):
    return np.ones(1 << 50)


def test_a_worker_without_memory_is_said_to_be_one(cluster):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=200)))
    with pytest.raises(ClusterError, match="workers ran out of memory; give a worker more"):
        pool.map(exhaust, None)
    assert pool.map(pids, None).shape == (230,)


TOO_LITTLE = """
import os, time
os.environ |= {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
import numpy as np
from dataclasses import replace
from fairnepv import LocalEngine, Pool
from fairnepv.compute.ray.engine import RayEngine
from fairnepv.errors import ClusterError
def sleep(block, state):
    time.sleep(5)
    return np.zeros(block.stop - block.start)
with RayEngine.local(1) as engine:
    assert "RAY_task_oom_retries" not in os.environ
    pool = Pool.of({"x": np.ones((30, 2))}, engine=replace(engine, blocks=LocalEngine(10)))
    try:
        pool.map(sleep, None)
    except ClusterError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.kill
def test_tasks_that_ray_ends_for_want_of_memory_are_given_up():
    """By itself Ray tries them again without an end. Here it takes any memory for too much."""
    line = [sys.executable, "-c", TOO_LITTLE]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert "workers ran out of memory, and Ray ended them" in ended.stdout, ended.stderr[-2000:]


def refuse_input(block, state):
    raise InputError(f"rows {block.start} to {block.stop} are bad")


def test_errors_of_tasks_are_themselves(cluster):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=100)))
    with pytest.raises(InputError, match="rows 0 to 100 are bad") as raised:
        pool.map(refuse_input, None)
    assert str(raised.value) == "rows 0 to 100 are bad"
    assert type(raised.value) is InputError
    assert "refuse_input" in raised.value.__notes__[0]  # where in the worker


def test_a_file_that_workers_cannot_see_is_named_with_their_host(cluster, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((300, 4)))
    data = {"v": read_features(str(tmp_path / "rows.npy"))}
    pool = Pool.of(data, engine=replace(cluster, blocks=LocalEngine(block_rows=100)))
    (tmp_path / "rows.npy").rename(tmp_path / "elsewhere.npy")
    with pytest.raises(InputError) as raised:
        pool.map(first_column, None)
    message = str(raised.value)
    assert str(tmp_path / "rows.npy") in message
    assert f"a worker on {socket.gethostname()}" in message


@pytest.mark.parametrize("rows", [300, 8000])
def test_a_mapped_file_that_was_replaced_is_refused(cluster, tmp_path, rows):
    """Workers would read the new rows, and this process has the old ones."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", rng.standard_normal((8000, 4)))
    np.save(tmp_path / "others.npy", rng.standard_normal((rows, 4)))
    data = {"v": np.load(tmp_path / "rows.npy", mmap_mode="r")}
    pool = Pool.of(data, engine=replace(cluster, blocks=LocalEngine(block_rows=1000)))
    (tmp_path / "others.npy").replace(tmp_path / "rows.npy")
    with pytest.raises(InputError, match=r"rows\.npy was replaced since it was mapped"):
        pool.map(first_column, None)


@pytest.mark.parametrize("verb", ["get", "put"])
def test_a_lost_connection_is_said(cluster, monkeypatch, verb):
    """By the client of Ray, 43 seconds after its head was killed."""
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=100)))

    def lost(*_, **__):
        raise ConnectionError("Client is shutting down.")

    monkeypatch.setattr(f"ray.{verb}", lost)
    with pytest.raises(ClusterError, match=r"was lost \(Client is shutting down\.\)"):
        pool.map(pids, None)


def test_an_interruption_cancels_what_is_left(cluster, monkeypatch):
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=20)))
    connection, cancelled = cluster.connection, []

    def interrupted(promise):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(connection, "get", interrupted)
        patched.setattr(
            connection, "cancel", lambda p, f=connection.cancel: (cancelled.extend(p), f(p))
        )
        with pytest.raises(KeyboardInterrupt):
            pool.map(sleepy_pids, 600.0)
    assert len(cancelled) == 2 * connection.workers + 1  # that which was waited for, too
    began = time.monotonic()
    assert len(pool.map(pids, None)) == 230  # the workers are free again
    assert time.monotonic() - began < 300


@pytest.mark.parametrize(("seconds", "expected"), [(60.0, [1, 2]), (-1.0, [])])
def test_what_workers_do_ahead_is_cancelled_unless_they_know_that_time_is_up(seconds, expected):
    cancelled = []
    connection = SimpleNamespace(workers=1, get=lambda job: job, cancel=cancelled.extend)
    coming = RayEngine(connection)._in_order(iter(range(9)))
    assert next(coming) == 0
    with limited(Limit(now() + seconds)):
        coming.close()
    assert cancelled == expected


def test_nothing_is_cancelled_in_a_cluster_that_was_closed():
    """Ray would start another one to be asked, which kept the interpreter from ending."""
    asked = []
    ray = SimpleNamespace(
        cluster_resources=dict,
        is_initialized=lambda: True,
        shutdown=lambda: None,
        cancel=lambda promise, force: asked.append(promise),
        wait=lambda promises, **_: (promises, []),
    )
    connection = ClusterConnection(ray, "somewhere")
    connection.cancel(["one"])
    connection.close()
    connection.cancel(["another"])
    assert asked == ["one"]


SLOW = """
import os, pathlib, time
part = pathlib.Path(__file__).with_suffix(".part")
if not part.with_suffix(".pid").exists():
    part.write_text(str(os.getpid()))
    part.rename(part.with_suffix(".pid"))
    time.sleep(600)
"""


def importing(block, state):
    sys.path.insert(0, state)
    __import__("slow_to_import")
    return np.zeros(block.stop - block.start)


@pytest.mark.slow
@pytest.mark.kill
def test_workers_whose_import_is_cut_are_replaced(cluster, monkeypatch, tmp_path):
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    pool = _pool(replace(cluster, blocks=LocalEngine(block_rows=20)))
    begun = tmp_path / "slow_to_import.pid"

    def interrupted(promise):
        _wait_until(begun.exists)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cluster.connection, "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.map(importing, str(tmp_path))
    _wait_until(lambda: not _runs(int(begun.read_text())))
    assert len(pool.map(pids, None)) == 230


def _runs(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_nobody_else_may_look_into_the_folder_of_a_local_cluster(cluster):
    folder = Path(cluster.connection._folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    sockets = list(folder.rglob("plasma_store*"))
    assert sockets
    assert max(len(str(socket)) for socket in sockets) < 100  # of 107


def test_a_local_cluster_listens_to_this_machine_alone(cluster):
    import ray

    node = ray.nodes()[0]
    ports = [int(cluster.connection.address.rpartition(":")[2])]
    ports += [node["NodeManagerPort"], node["ObjectManagerPort"]]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, but says which address would
        outside = probe.getsockname()[0]
    for port in ports:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        if not outside.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((outside, port), timeout=60)


def test_a_second_local_cluster_is_the_first_or_refused(cluster):
    assert RayEngine.local().connection is cluster.connection
    assert RayEngine.local(cluster.connection.workers).connection is cluster.connection
    with pytest.raises(InputError, match="runs with 2 workers already, not 3"):
        RayEngine.local(3)


@pytest.mark.slow
def test_a_pass_after_the_end_is_refused():
    """In a process of its own, for this one has its cluster."""
    code = (
        "import numpy as np, fairnepv\n"
        "from fairnepv.compute.ray.engine import RayEngine\n"
        "engine = RayEngine.local(1)\n"
        "engine.close()\n"
        "x = np.ones((3_000_000, 2))\n"
        "try:\n    fairnepv.Pool.of({'a': x}, engine=engine).gram\n"
        "except fairnepv.FairnepvError as error:\n    print(error)\n"
    )
    assert "was closed; make the engine anew" in _python(code)


def _python(code, **environment):
    path = os.pathsep.join([str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **{k: str(v) for k, v in environment.items()}},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_process_joins_a_cluster_and_leaves_it_running(cluster):
    code = (
        "import numpy as np, fairnepv\n"
        "from fairnepv import LocalEngine\n"
        "from dataclasses import replace\n"
        "from fairnepv.compute import engine_of\n"
        "engine = replace(engine_of('ray'), blocks=LocalEngine(block_rows=100))\n"
        "x = np.random.default_rng(0).standard_normal((300, 5))\n"
        "print(fairnepv.select({'a': x}, 4, engine=engine, effort='fast').indices.tolist())\n"
        "engine.close()\n"
    )
    x = np.random.default_rng(0).standard_normal((300, 5))
    printed = _python(code, RAY_ADDRESS=cluster.connection.address, **LOOPBACK)
    expected = fairnepv.select({"a": x}, 4, effort="fast").indices.tolist()
    assert printed.strip() == str(expected)
    assert len(_pool(cluster).map(pids, None)) == 230


@pytest.mark.slow
@pytest.mark.parametrize(("cpus", "words"), [(1, "has no GPU"), (0, "has no CPU for tasks")])
def test_a_connection_of_the_caller_is_left_to_the_caller(cpus, words):
    code = (
        "import ray, fairnepv\n"
        "from fairnepv.compute import engine_of\n"
        f"ray.init(num_cpus={cpus}, num_gpus=0, include_dashboard=False, log_to_driver=False,"
        " _node_ip_address='127.0.0.1')\n"
        "try:\n    engine_of('ray', device='cuda')\n"
        "except fairnepv.FairnepvError as error:\n    print(error, ray.is_initialized())\n"
        f"if {cpus}:\n    engine_of('ray').close()\n"
        "print(ray.is_initialized())\n"
    )
    refused, left = _python(code, **LOOPBACK).splitlines()
    assert words in refused
    assert (refused.split()[-1], left) == ("True", "True")


@pytest.fixture
def unconnected(monkeypatch):
    monkeypatch.setattr(ClusterConnection, "current", None)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_addresses_that_do_not_answer_are_refused(unconnected, monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = f"ray://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match=f"cluster at {address} does not answer"):
            RayEngine.connect(address)
        monkeypatch.setenv("RAY_ADDRESS", address.removeprefix("ray://"))
        with pytest.raises(InputError, match="does not answer"):
            RayEngine.connect()
    for bad in ("ray://", "ray://host", "ray://host:x", "ray://:1"):
        with pytest.raises(InputError, match="write the address as"):
            RayEngine.connect(bad)


def test_no_cluster_is_started_where_none_is(unconnected, monkeypatch):
    monkeypatch.setattr("ray._private.utils.read_ray_address", lambda *_: None)
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("started"))
    with pytest.raises(InputError, match="belongs to no Ray cluster; start one"):
        RayEngine.connect()


UNPROMISED = {
    "ray._private.ray_constants": ["ENABLE_RAY_CLUSTER"],
    "ray._private.utils": ["read_ray_address"],
    "ray._private.services": ["canonicalize_bootstrap_address"],
    "ray._raylet": ["GcsClient"],
}


def test_what_ray_does_not_promise_is_still_there():
    """After an upgrade of Ray this says what compute/ray/private.py has to do otherwise."""
    import ray

    mend = f"is gone from Ray {ray.__version__}: see compute/ray/private.py for what it was for"
    for module, names in UNPROMISED.items():
        for name in names:
            assert hasattr(import_module(module), name), f"{module}.{name} {mend}"
    variable = import_module("ray._private.ray_constants").ENABLE_RAY_CLUSTERS_ENV_VAR
    assert [variable] == list(LOOPBACK), f"the variable for the loopback interface {mend}"
    code = inspect.getsource(inspect.unwrap(ray.init))
    for option in private.start_options("folder"):
        assert f'"{option}"' in code, f"the option {option} of ray.init {mend}"


def test_one_file_alone_uses_what_ray_does_not_promise():
    for path in (SRC / "fairnepv").rglob("*.py"):
        used = re.findall(r"\bray\._[a-z]\w*|from ray import _\w*", path.read_text())
        assert not used or path.name == "private.py", f"{path} uses {used}"


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_workers_are_counted(workers):
    with pytest.raises(InputError, match="workers must be a whole number of at least 1"):
        RayEngine.local(workers)


def test_versions_must_be_the_same(cluster, monkeypatch):
    join.check_versions(cluster.connection)
    ours = {**join.versions(), "numpy": "0.9"}
    monkeypatch.setattr(join, "versions", lambda: ours)
    with pytest.raises(InputError, match=r"worker \S+ has numpy 2\S* and this process has 0.9"):
        join.check_versions(cluster.connection)


def test_machines_of_one_name_are_all_asked(cluster, monkeypatch):
    found = [("box", {**join.versions(), "numpy": "0.9"}), ("box", join.versions())]
    monkeypatch.setattr(cluster.connection, "ask_everywhere", lambda question: found)
    with pytest.raises(InputError, match=r"worker box has numpy 0\.9"):
        join.check_versions(cluster.connection)


@pytest.mark.slow
def test_the_command_starts_a_cluster_and_ends_it(tmp_path):
    rows = np.random.default_rng(0).standard_normal((3000, 800)).astype(np.float32)  # two blocks
    np.save(tmp_path / "rows.npy", rows)
    line = ["select", "--view", f"v={tmp_path / 'rows.npy'}", "-k", "4", "--effort", "fast"]
    here = _python(f"from fairnepv.cli import commands; commands({line})")
    line += ["--engine", "local-ray", "--workers", "2"]
    there = _python(
        "from fairnepv.cli import commands\n"
        "from fairnepv.compute.ray.connection import ClusterConnection\n"
        f"commands({line}, standalone_mode=False)\n"
        "print('Folder:', ClusterConnection.current._folder)\n"
    )
    picks = [re.search("Picks in order: (.*)", text)[1] for text in (here, there)]
    assert picks[0] == picks[1]
    assert not Path(re.search("Folder: (.*)", there)[1]).exists()  # what Ray wrote went with it


DRIVER = """
import sys, numpy as np, fairnepv
from dataclasses import replace
from fairnepv import LocalEngine
from fairnepv.compute import engine_of
engine = engine_of('local-ray', 1)
print(engine.connection._folder, flush=True)
blocks = LocalEngine(block_numbers=1 << 12)
data = {'x': np.random.default_rng(1).standard_normal((900, 12))}
def tell(step):
    print(step.stage, flush=True)
fairnepv.select(data, 8, method='nepv', engine=replace(engine, blocks=blocks), progress=tell,
                checkpoint=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.kill
def test_a_driver_that_was_killed_goes_on(cluster, tmp_path):
    state = tmp_path / "state"
    path = os.pathsep.join([str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(state)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    folder = Path(driver.stdout.readline().strip())
    told = [driver.stdout.readline().strip() for _ in range(8)]
    driver.kill()
    driver.communicate()
    shutil.rmtree(folder, ignore_errors=True)
    assert all(told)
    here = LocalEngine(block_numbers=1 << 12)
    data = {"x": np.random.default_rng(1).standard_normal((900, 12))}
    steps = {"whole": [], "rest": []}
    expected = fairnepv.select(data, 8, method="nepv", engine=here, progress=steps["whole"].append)
    found = fairnepv.select(
        data,
        8,
        method="nepv",
        engine=replace(cluster, blocks=here),
        progress=steps["rest"].append,
        checkpoint=state,
    )
    _same(expected, found)
    assert len(steps["rest"]) < len(steps["whole"])


# --- the client -----------------------------------------------------------------------------------


@pytest.fixture
def client_address(monkeypatch):
    """Of a cluster that was started as an administrator would, on the loopback interface.

    With a token: a head that finds one asks for it, and the client sends it when it is told to.
    Where gRPC looks after forks, the process that a head starts for its client died now and then.
    """
    pytest.importorskip("grpc", reason="the client of Ray is not installed (fairnepv[ray])")
    settings = {
        **LOOPBACK,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        "RAY_USAGE_STATS_ENABLED": "0",
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        "PYTHONPATH": os.pathsep.join([str(SRC), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    folder = tempfile.mkdtemp(prefix="fairnepv-", dir="/tmp")
    gcs, client, agent = _free_ports(3)
    options = {
        "node-ip-address": "127.0.0.1",
        "port": gcs,
        "ray-client-server-port": client,
        "dashboard-agent-listen-port": agent,
        "include-dashboard": "false",
        "min-worker-port": 0,
        "max-worker-port": 0,
        "num-cpus": 2,
        "temp-dir": folder,
    }
    line = [f"--{name}={value}" for name, value in options.items()]
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *line],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until(lambda: _listens(client))
        yield f"ray://127.0.0.1:{client}"
    finally:
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in held]


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 60):
        return True
    return False


@pytest.mark.slow
def test_a_client_gets_the_same(client_address, tmp_path):
    rows = np.random.default_rng(0).standard_normal((900, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    code = (
        "import sys, fairnepv\n"
        "from dataclasses import replace\n"
        "from fairnepv import LocalEngine\n"
        "from fairnepv.compute import engine_of\n"
        f"engine = replace(engine_of({client_address!r}), blocks=LocalEngine(block_rows=70))\n"
        f"data = {{'a': fairnepv.open_rows({str(tmp_path / 'rows.npy')!r})}}\n"
        "found = fairnepv.select(data, 5, engine=engine, effort='fast')\n"
        "print(engine.connection.workers, found.indices.tolist(), found.fair_score.hex())\n"
        "engine.close()\n"
    )
    here = LocalEngine(block_rows=70)
    expected = fairnepv.select({"a": rows}, 5, engine=here, effort="fast")
    printed = _python(code)
    assert printed.split("\n")[-2] == (f"2 {expected.indices.tolist()} {expected.fair_score.hex()}")
