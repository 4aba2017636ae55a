"""The block map-reduce seam: one contract suite for every engine.

To hold a new engine to it, add a constructor from a number of rows per block to ENGINES. One that
computes elsewhere need not round as NumPy does; see `same`.
"""

import ast
import importlib
import importlib.util
import itertools
import math
import operator
import pickle
import pickletools
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

import fairnepv
from cases import random_views
from fairnepv import InputError, LocalEngine, Pool
from fairnepv.api import duplicates
from fairnepv.compute import (
    Engine,
    block_threads,
    end_to_end,
    few_threads,
    in_order,
    portable,
    tree_fold,
)
from fairnepv.concave import spectral
from fairnepv.concave.concave import Concave
from fairnepv.insight import plane
from fairnepv.io.rows import HeldRows
from fairnepv.loop import run
from fairnepv.problem import Problem
from fairnepv.search import LocalSearch
from fairnepv.stiefel import make_solver, relax
from fairnepv.stiefel.coordinates import Ambient, Reduced, Spanned
from fairnepv.views import Calibration, moments
from fairnepv.views.centering import centered

ENGINES: dict[str, Any] = {
    "local": lambda rows: LocalEngine(block_rows=rows),
    "threads": lambda rows: LocalEngine(block_rows=rows, threads=3),
}
if importlib.util.find_spec("torch") and importlib.util.find_spec("array_api_compat"):
    import torch

    from fairnepv.compute.device import TorchEngine

    ENGINES["torch:cpu"] = lambda rows: TorchEngine("cpu", block_rows=rows)
    if torch.cuda.is_available():
        ENGINES["torch:cuda"] = lambda rows: TorchEngine("cuda", block_rows=rows)
N = 230
SIZES = [1, 7, 100, N, N + 1]
DENSE, SPARSE = random_views(np.random.default_rng(0), N, [5, 4])
ALIGNED = np.arange(N) * 10.0
STATE = {"factor": 3.0, "anchor": np.arange(5.0)}


MARKS = {name: [pytest.mark.torch] if name.startswith("torch") else [] for name in ENGINES}


@pytest.fixture(params=[pytest.param(ENGINES[e], marks=MARKS[e], id=e) for e in ENGINES])
def engine_of(request):
    return request.param


@pytest.fixture(params=SIZES)
def pool(request, engine_of):
    return _pool(engine_of(request.param))


def _pool(engine):
    return Pool.of({"dense": DENSE, "sparse": sp.csr_array(SPARSE)}, engine=engine)


def same(found, expected, engine):
    """To the last bit where NumPy computes."""
    if isinstance(engine, LocalEngine):
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


# --- tasks, at module level as the seam demands ---------------------------------------------------


def rows_of(block, state, *aligned):
    """(b, p) what each row is: its number, its features, its aligned values, the state."""
    numbers = np.arange(block.start, block.stop)
    dense, sparse = (view.features() for view in block.views)
    columns = [numbers[:, None], dense, sparse.toarray(), *(x.reshape(len(x), -1) for x in aligned)]
    return np.hstack([*columns, np.full((len(numbers), 1), state["factor"])])


def weights_of(block, state):
    return block.views[0].features() @ state["anchor"]


def whole_sum(block, state, values):
    """Sums of integers: exact, so that any order of blocks gives the same."""
    return np.array([block.stop - block.start, values.sum()])


def span(block, state):
    """A list, so that `+` does not commute."""
    return [(block.start, block.stop)]


def float_sum(block, state):
    return block.views[0].features().sum(axis=0)


def block_gram(block, state):
    features = block.views[0].features()
    return features.T @ features


def refuse(block, state):
    raise ZeroDivisionError(f"task failed on rows {block.start} to {block.stop}")


def add(left, right):
    return left + right


# --- map ------------------------------------------------------------------------------------------


def test_map_lays_rows_end_to_end(pool):
    two_columns = np.stack([ALIGNED, -ALIGNED], axis=1)
    result = pool.map(rows_of, STATE, ALIGNED, two_columns)
    expected = np.column_stack(
        [np.arange(N), DENSE, SPARSE, ALIGNED, two_columns, np.full(N, STATE["factor"])]
    )
    np.testing.assert_array_equal(result, expected)


def test_map_equals_the_one_block_result(pool, engine_of):
    whole = _pool(engine_of(N)).map(weights_of, STATE)
    np.testing.assert_allclose(pool.map(weights_of, STATE), whole, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(whole, DENSE @ STATE["anchor"], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float32])
def test_map_keeps_the_type_of_the_results(pool, dtype):
    values = (np.arange(N) % 3).astype(dtype)
    result = pool.map(pick_aligned, None, values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, values)


def pick_aligned(block, state, values):
    return values


# --- reduce ---------------------------------------------------------------------------------------


def test_each_row_is_seen_once_and_in_order(engine_of):
    for size in SIZES:
        spans = _pool(engine_of(size)).reduce(span, add, None)
        assert spans[0][0] == 0
        assert spans[-1][1] == N
        assert all(left[1] == right[0] for left, right in itertools.pairwise(spans))
        assert all(0 < stop - start <= size for start, stop in spans)


def test_reduce_sees_aligned_slices(pool):
    total = pool.reduce(whole_sum, np.add, None, ALIGNED)
    np.testing.assert_array_equal(total, [N, 10 * N * (N - 1) / 2])


def test_reduce_equals_the_one_block_result(pool):
    np.testing.assert_allclose(
        pool.reduce(block_gram, np.add, None), DENSE.T @ DENSE, rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("size", SIZES)
def test_reduce_is_the_tree_over_the_blocks_to_the_last_bit(engine_of, size):
    """The result depends on the partition into blocks and on nothing else."""
    pool, here = _pool(engine_of(size)), _pool(LocalEngine())
    blocks = [here.block(a, min(a + size, N)) for a in range(0, N, size)]
    expected = tree_fold([float_sum(block, None) for block in blocks], np.add)
    np.testing.assert_array_equal(pool.reduce(float_sum, np.add, None), expected)
    np.testing.assert_array_equal(pool.reduce(float_sum, np.add, None), expected)


@pytest.mark.parametrize("size", SIZES)
def test_portable_tasks_compute_where_the_rows_are(engine_of, size):
    pool, here = _pool(engine_of(size)), _pool(LocalEngine(block_rows=size))
    vectors = np.arange(5.0), np.arange(4.0) - 1.5
    products, expected = (p.place.get(p.map(portable_products, vectors)) for p in (pool, here))
    assert products.dtype == np.float64
    same(products, expected, pool.engine)
    gram = pool.place.get(pool.reduce(portable_gram, operator.add, None))
    np.testing.assert_allclose(gram, SPARSE.T @ SPARSE, rtol=1e-12, atol=1e-12)


@portable
def portable_products(block, vectors):
    columns = [v.features() @ block.put(r) for v, r in zip(block.views, vectors, strict=True)]
    return block.xp.stack(columns, axis=1)


@portable
def portable_gram(block, state):
    Phi = block.place.dense(block.views[1].features())
    return Phi.T @ Phi


def test_combine_may_be_a_partial(pool):
    spans = pool.reduce(span, partial(tagged, 0), None)
    assert spans[0][0] == 0
    assert spans[-1][1] == N


def tagged(tag, left, right):
    return left + right


def test_combine_may_add_to_its_left(pool):
    """Partial results belong to nobody else."""
    counts, sums = pool.reduce(two_sums, add_to_left, None, ALIGNED)
    np.testing.assert_array_equal([counts, sums], [[N] * 2000, [10 * N * (N - 1) / 2] * 2000])


def two_sums(block, state, values):
    return np.full(2000, float(len(values))), np.full(2000, values.sum())


def add_to_left(left, right):
    for mine, other in zip(left, right, strict=True):
        mine += other
    return left


# --- what else an engine promises -----------------------------------------------------------------


def test_what_a_task_raises_comes_through(pool):
    with pytest.raises(ZeroDivisionError, match="task failed on rows"):
        pool.map(refuse, None)
    with pytest.raises(ZeroDivisionError, match="task failed on rows"):
        pool.reduce(refuse, add, None)


def test_the_state_and_the_rows_are_left_alone(pool):
    state, values = {"factor": 3.0, "anchor": np.arange(5.0)}, ALIGNED.copy()
    before = pickle.dumps((state, values, DENSE))
    pool.map(rows_of, state, values)
    pool.reduce(whole_sum, np.add, state, values)
    assert pickle.dumps((state, values, DENSE)) == before


def test_width_keeps_the_memory_of_a_block_in_bounds():
    pool = Pool.of({"v": np.ones((5000, 3))})
    assert pool.reduce(span, add, None) == [(0, 5000)]
    spans = pool.reduce(span, add, None, width=100_000)
    largest = max(stop - start for start, stop in spans)
    assert largest < 100
    assert [spans[0][0], spans[-1][1]] == [0, 5000]
    assert pool.map(row_numbers, None, width=100_000).tolist() == list(range(5000))


def row_numbers(block, state):
    return np.arange(block.start, block.stop)


def test_a_wide_pool_comes_in_small_blocks():
    wide = np.broadcast_to(np.float32(1.0), (500, 20_000))  # ten million numbers, none stored
    spans = Pool.of({"v": wide}).reduce(span, add, None)
    assert len(spans) > 1
    assert max(stop - start for start, stop in spans) * 20_000 <= 2**22


@pytest.mark.parametrize("rows", [0, -1])
def test_block_rows_are_positive(rows):
    with pytest.raises(InputError, match=f"block_rows.*{rows}"):
        LocalEngine(block_rows=rows)


@pytest.mark.parametrize(
    "method", ["greedy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nepv", "auto"))]
)
def test_a_selection_does_not_depend_on_the_blocks(engine_of, method):
    data = {"dense": DENSE, "sparse": sp.csr_array(SPARSE)}
    found = [
        fairnepv.select(data, 4, method=method, engine=engine_of(size)) for size in (7, 100, N)
    ]
    assert len({tuple(result.indices.tolist()) for result in found}) == 1
    here = fairnepv.select(data, 4, method=method)
    assert found[0].indices.tolist() == here.indices.tolist()
    for result in found:
        same(result.upper_bound, here.upper_bound, engine_of(7))
        same(result.fair_score, here.fair_score, engine_of(7))


def threads_of(block, state):
    """Which thread works, how many BLAS has, and that it takes a moment."""
    time.sleep(0.002)
    return np.full((block.stop - block.start, 2), [threading.get_ident() % 10**9, blas_threads()])


def blas_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_blocks_are_shared_by_threads_that_each_have_one_of_blas():
    with threadpool_limits(2):
        pool = _pool(LocalEngine(block_rows=10, threads=3))
        seen = pool.map(threads_of, None)
        assert blas_threads() == 2
    assert len(np.unique(seen[:, 0])) > 1
    assert set(seen[:, 1]) == {1.0}


def test_small_work_is_not_shared():
    with threadpool_limits(2):
        with block_threads(10.0):
            one = _pool(LocalEngine(block_rows=10)).map(threads_of, None)
        with block_threads(1e15):
            assert blas_threads() == 1  # between passes as well
            two = _pool(LocalEngine(block_rows=10)).map(threads_of, None)
        assert blas_threads() == 2
    assert len(np.unique(one[:, 0])) == 1
    assert len(np.unique(two[:, 0])) == 2


def test_an_error_on_a_thread_is_raised_and_the_rest_not_begun():
    begun = []

    def call(i):
        begun.append(i)
        if i == 3:
            raise InputError("row 3 is bad")
        return i

    results = in_order([partial(call, i) for i in range(100)], 2)
    with pytest.raises(InputError, match="row 3 is bad"):
        list(results)
    assert len(begun) < 10
    assert list(in_order([partial(call, i) for i in (1, 2)], 2)) == [1, 2]


def test_gathered_rows_come_in_the_order_asked_for(engine_of):
    pool = _pool(engine_of(7))
    rows = np.random.default_rng(1).permutation(N)[:40]
    features = pool.map(features_of, None, rows=rows)
    np.testing.assert_array_equal(features, np.hstack([DENSE, SPARSE])[rows])
    aligned = pool.map(aligned_of, None, ALIGNED[rows], rows=rows)
    np.testing.assert_array_equal(aligned, ALIGNED[rows])


def test_results_may_take_the_place_of_what_they_came_from(engine_of):
    pool, values = _pool(engine_of(7)), ALIGNED.copy()
    result = pool.map(aligned_of, None, values, out=values)
    assert result is values
    np.testing.assert_array_equal(values, ALIGNED)
    doubled = pool.map(doubled_of, None, values, out=values)
    np.testing.assert_array_equal(doubled, 2.0 * ALIGNED)


def features_of(block, state):
    dense, sparse = (view.features() for view in block.views)
    return np.hstack([dense, sparse.toarray()])


def aligned_of(block, state, values):
    return values


def doubled_of(block, state, values):
    return 2.0 * values


def test_few_threads_limits_small_work_only():
    def blas_threads():
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        with few_threads(10.0):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
        with few_threads(1e15):
            assert blas_threads() == {2}


class Toy(Engine):
    """The least that an engine must have."""

    def map(self, pass_, out=None):
        return end_to_end(self._results(pass_), pass_.n, out)

    def reduce(self, pass_, combine):
        return tree_fold(self._results(pass_), combine)

    def _results(self, pass_):
        return (pass_.run(start, stop) for start, stop in pass_.spans(50))


def test_an_engine_needs_two_methods():
    data, here = {"dense": DENSE, "sparse": sp.csr_array(SPARSE)}, LocalEngine(block_rows=50)
    toy, expected = (fairnepv.select(data, 4, effort="fast", engine=e) for e in (Toy(), here))
    assert toy.indices.tolist() == expected.indices.tolist()
    assert toy.upper_bound == expected.upper_bound
    assert fairnepv.plan(data, 4, engine=Toy()).passes > 0
    assert list(_pool(Toy()).each(rows_from, [3, 5])) == [N - 3, N - 5]


def rows_from(pool, start):
    return pool.n - start


@pytest.mark.parametrize("other", [object(), Toy, {"map": 1}])
def test_what_is_no_engine_is_refused(other):
    with pytest.raises(InputError, match="or an engine such as LocalEngine"):
        Pool.of({"v": DENSE}, engine=other)


# --- tree_fold ------------------------------------------------------------------------------------


def pair(left, right):
    return (left, right)


@pytest.mark.parametrize(
    ("count", "tree"),
    [
        (1, 0),
        (2, (0, 1)),
        (3, ((0, 1), 2)),
        (4, ((0, 1), (2, 3))),
        (5, (((0, 1), (2, 3)), 4)),
        (6, (((0, 1), (2, 3)), (4, 5))),
        (7, (((0, 1), (2, 3)), ((4, 5), 6))),
        (8, (((0, 1), (2, 3)), ((4, 5), (6, 7)))),
    ],
)
def test_the_tree_is_fixed(count, tree):
    assert tree_fold(range(count), pair) == tree
    assert tree_fold(iter(range(count)), pair) == tree


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers()), min_size=1, max_size=70))
def test_tree_fold_is_the_sequential_fold_for_associative_operations(parts):
    """Concatenation is associative and does not commute: order is kept, nothing is lost."""
    assert tree_fold(parts, add) == [x for part in parts for x in part]


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-9, 9)] * 4), min_size=1, max_size=40))
def test_tree_fold_of_matrix_products(entries):
    matrices = [np.array(four, dtype=object).reshape(2, 2) for four in entries]
    expected = matrices[0]
    for matrix in matrices[1:]:
        expected = expected @ matrix
    assert (tree_fold(matrices, np.matmul) == expected).all()


@pytest.mark.parametrize("count", [1, 2, 3, 9, 64, 65, 1000])
def test_tree_fold_is_shallow_and_keeps_few_results_alive(count):
    alive = largest = 0

    def results():
        nonlocal alive, largest
        for _ in range(count):
            alive += 1
            largest = max(largest, alive)
            yield 0  # depth of a leaf

    def combine(left, right):
        nonlocal alive
        alive -= 1
        return max(left, right) + 1

    assert tree_fold(results(), combine) == math.ceil(math.log2(count))
    assert largest <= math.log2(count) + 2
    assert alive == 1


def test_pairwise_sums_round_little():
    """A million tenths: sequential summation is off by 1e-6, the tree by almost nothing."""
    tenths = np.full(2**20, 0.1)
    assert abs(tree_fold(tenths, add) - 0.1 * 2**20) < 1e-10
    assert abs(sum(tenths.tolist()) - 0.1 * 2**20) > 1e-7


def test_nothing_to_fold_is_refused():
    with pytest.raises(ValueError, match="at least one block"):
        tree_fold([], add)


def _sum_of_rows(block, state):
    return block.views[0].features().sum(axis=0)


def _products(block, state):
    return block.views[0].features() @ state


@pytest.mark.parametrize("rows", [1, 7, 100, None])
def test_a_fixed_partition_gives_the_same_bits_at_any_block_size(rows):
    """What the relaxation is made of: a last bit there may decide a step, and then a shortlist."""
    rng = np.random.default_rng(7)
    data, B = rng.standard_normal((5000, 700)), rng.standard_normal((700, 3))
    expected, given = (
        Pool.of({"a": data}, engine=LocalEngine(block_rows=size)) for size in (None, rows)
    )
    total = given.reduce(_sum_of_rows, np.add, None, fixed=True)
    np.testing.assert_array_equal(total, expected.reduce(_sum_of_rows, np.add, None, fixed=True))
    products = given.map(_products, B, fixed=True)
    np.testing.assert_array_equal(products, expected.map(_products, B, fixed=True))
    np.testing.assert_array_equal(given.gram, expected.gram)


# --- tasks and states travel ----------------------------------------------------------------------


class Recorder(Engine):
    """Runs a local engine and keeps what would have to travel to a worker."""

    def __init__(self):
        self.engine = LocalEngine(block_rows=1000)
        self.calls = []  # (task, combine, pickled state)

    def map(self, pass_, out=None):
        self.calls.append((pass_.task, None, pickle.dumps(pass_.state)))
        return self.engine.map(pass_, out)

    def reduce(self, pass_, combine):
        self.calls.append((pass_.task, combine, pickle.dumps(pass_.state)))
        return self.engine.reduce(pass_, combine)


MANY, K = 5000, 5


def _many_dense():
    return dict(
        zip(["a", "b"], random_views(np.random.default_rng(1), MANY, [20, 30]), strict=True)
    )


def _many_sparse():
    """Two nonzeros a row."""
    rng = np.random.default_rng(2)
    columns = np.stack([rng.choice(200, 2, replace=False) for _ in range(MANY)])
    indptr = np.arange(0, 2 * MANY + 1, 2)
    return {"s": sp.csr_array((rng.random(2 * MANY) + 0.5, columns.ravel(), indptr), (MANY, 200))}


def _run_everything(data, recorder=None):
    """All that the library does with rows, through one recording engine."""
    recorder = recorder or Recorder()
    fairnepv.compare(data, K, effort="fast", engine=recorder)
    picks = fairnepv.select(data, K, calibration="efficiency", engine=recorder)
    fairnepv.verify_bound(data, picks.certificate, engine=recorder)
    fairnepv.certify(data, 19, gap=0.1, engine=recorder)  # that of few items is flat
    with mock.patch.object(spectral, "WIDEST_GRAM", 0):  # as of views wide in both directions
        fairnepv.certify(data, K, gap=1.0, engine=recorder)
    fairnepv.select(data, K, method="nepv", certify=False, engine=recorder)
    fairnepv.score(data, picks.indices, engine=recorder)
    fairnepv.assign(picks)
    fairnepv.explain(picks)
    fairnepv.typicality(data, sample=20, engine=recorder)
    fairnepv.local_features(data, landmarks=20, engine=recorder)
    with mock.patch.object(duplicates, "_AT_ONCE", 20):
        fairnepv.near_duplicates({n: x[:200] for n, x in data.items()}, 0.9, engine=recorder)
    with mock.patch.object(plane, "LANDMARKS", 20):
        plane.planes(picks.problem, picks.indices)
    shares = {"objective": "representative", "engine": recorder}
    picks = fairnepv.select(data, K, **shares)
    fairnepv.verify_bound(data, picks.certificate, engine=recorder)
    dense = np.random.default_rng(3).standard_normal((MANY, 4))  # which are looked at in float32
    fairnepv.select({"v": dense}, K, effort="fast", **shares)
    with mock.patch.multiple(moments, WIDEST_MOMENTS=0, TARGETS=9, SAMPLE=9):  # as of wide views
        few = {name: x[:300] for name, x in data.items()}
        fairnepv.select(few, K, effort="fast", **shares)
    fairnepv.relax(data, K, start=picks.indices, solver="damped", max_steps=2, engine=recorder)
    problem = Problem(Pool.of(data, engine=recorder), K, 0.05, Calibration("none"))
    for kind in (Ambient, Reduced, Spanned):
        solver = make_solver(k=K, tol=1e-2, max_steps=5)
        relaxed = relax(problem, solver, coordinates=kind(problem.pool))
        assert relaxed.basis.shape == (MANY, K)
        assert relaxed.leverage.shape == (MANY,)
    run(LocalSearch(problem, np.arange(K)))
    dual = Concave(problem, gap=1e-2)
    dual.step(dual.init())
    fairnepv.exhaustive({name: x[:12] for name, x in data.items()}, 3, engine=recorder)
    recorder.remote = True  # as on a cluster, where workers read files
    rows = np.arange(3.0 * MANY).reshape(MANY, 3)
    centered(Pool.of({"v": HeldRows(rows, "rows")}, engine=recorder))
    recorder.remote = False
    with tempfile.TemporaryDirectory() as folder:
        options = {"effort": "fast", "certify": False, "checkpoint": Path(folder) / "state"}
        fairnepv.select(data, 3, engine=recorder, **options)
    return recorder


@pytest.fixture(scope="module", params=["dense", pytest.param("sparse", marks=pytest.mark.slow)])
def recorded(request):
    data = {"dense": _many_dense, "sparse": _many_sparse}[request.param]()
    return data, _run_everything(data)


def _tasks_in_source():
    """(module, function) of every `x.map(f, ...)`, `x.reduce(f, ...)` and `Pass(f, ...)` in the
    package."""
    root = Path(fairnepv.__file__).parent
    found = set()
    for path in sorted(root.rglob("*.py")):
        parts = ("fairnepv", *path.relative_to(root).with_suffix("").parts)
        if "compute" in parts:
            continue  # there `task` is an argument
        module = ".".join(parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _makes_a_pass(node.func):
                found.add((module, ast.unparse(node.args[0])))
    return found - {("fairnepv.views.pool", "task")}  # an argument there, too


def _makes_a_pass(function):
    if not isinstance(function, ast.Attribute):
        return isinstance(function, ast.Name) and function.id == "Pass"
    owner = ast.unparse(function.value)  # an engine takes a pass that was made before
    others = "engine", "self.engine", "functools", "threads"
    return function.attr in ("map", "reduce") and owner not in others


def test_tasks_are_module_level_functions():
    tasks = _tasks_in_source()
    assert len(tasks) >= 8
    for module, name in tasks:
        task = getattr(importlib.import_module(module), name)
        assert pickle.loads(pickle.dumps(task)) is task


def test_the_runs_below_use_every_task(recorded):
    """So that what is asserted of recorded states holds for all of them."""
    names = {task.__name__ for task, *_ in recorded[1].calls}
    assert {name for _, name in _tasks_in_source()} <= names


def test_tasks_and_combinations_can_be_pickled(recorded):
    for task, combine, _ in recorded[1].calls:
        assert pickle.loads(pickle.dumps(task)) is task
        assert callable(pickle.loads(pickle.dumps(combine))) or combine is None


def test_states_are_small(recorded):
    """Never a column of n numbers: some (P, k) and (k, k) matrices, 64 sampled rows, no more.

    A baseline that factors a Gram matrix sends a root of it, (P, P), whatever n is.
    """
    data, recorder = recorded
    P = sum(x.shape[1] for x in data.values())
    row = sum(2 * x.nnz // MANY if sp.issparse(x) else x.shape[1] for x in data.values())
    columns = max(2 * K, K + 10)  # the latter of a Krylov space
    limit = 8 * (columns * (P + K * len(data)) + 64 * (row + 2 * len(data))) + 4096
    assert limit < 8 * MANY
    limits = {"_row_norms_in": 8 * P * P + 4096, "_held_norms": 8 * P * P + 4096}
    limits["_price_rows"] = limits["_held_norms"]  # of the second objective, whose matrix is (P, P)
    limits["_price_by_targets"] = 8 * 4096 * P  # the rows that a bound is made of, and targets
    for task, _, state in recorder.calls:
        name = task.__name__
        assert len(state) <= limits.get(name, limit), f"{name}: {len(state)} bytes"


def test_states_do_not_hold_the_pool(recorded):
    for task, _, state in recorded[1].calls:
        names = {arg for op, arg, _ in pickletools.genops(state) if isinstance(arg, str)}
        modules = {name for name in names if name.startswith("fairnepv.")}
        assert not modules & {"fairnepv.views.pool", "fairnepv.problem", "fairnepv.compute.local"}
        assert not names & {"Pool", "Problem", "DenseView", "SparseView", "Recorder"}, task


def test_states_of_a_kernel_view_do_not_hold_the_kernel():
    rng = np.random.default_rng(3)
    Phi = rng.standard_normal((1200, 8))
    data = {"kernel": fairnepv.KernelView(Phi @ Phi.T), "x": rng.standard_normal((1200, 8))}
    recorder = Recorder()
    picks = fairnepv.select(data, 3, method="greedy", engine=recorder, certify=False)
    fairnepv.select(data, 3, method="fixed-weight", engine=recorder, certify=False)
    fairnepv.score(data, picks.indices, engine=recorder)
    assert {task.__name__ for task, *_ in recorder.calls} >= {"_rank_swaps", "_look_around"}
    assert max(len(state) for *_, state in recorder.calls) < 8 * 1200


@pytest.mark.slow
def test_a_state_comes_back_whole():
    """The task gives the same with a state that has travelled."""

    class Travels(Recorder):
        def map(self, pass_, out=None):
            state = pickle.loads(pickle.dumps(pass_.state))
            return super().map(replace(pass_, state=state), out)

        def reduce(self, pass_, combine):
            state, combine = pickle.loads(pickle.dumps((pass_.state, combine)))
            return super().reduce(replace(pass_, state=state), combine)

    data = {"dense": DENSE, "sparse": sp.csr_array(SPARSE)}
    here = fairnepv.select(data, 4)
    there = fairnepv.select(data, 4, engine=Travels())
    assert here.indices.tolist() == there.indices.tolist()
    assert here.scores == there.scores
