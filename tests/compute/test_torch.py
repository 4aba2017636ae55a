"""The PyTorch engine: the same answers as the local one, from wherever the rows are."""

import copy
import operator
import pickle
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import fairnepv
import search_problems
from fairnepv import InputError, KernelView
from fairnepv.api.inputs import pose
from fairnepv.compute import portable
from fairnepv.compute.tensors import to_device, whole_float32
from fairnepv.loop import Context
from fairnepv.methods import find
from fairnepv.methods.plan import Plan
from fairnepv.search import check_effort, greedy
from fairnepv.views import DenseView, SparseView, sparse
from fairnepv.views.pool import settled
from fairnepv.views.tensor_rows import SparseRows, TensorRows

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from fairnepv.compute import device as module  # noqa: E402
from fairnepv.compute.device import TorchEngine  # noqa: E402
from torch_pools import DEVICES, POOLS, kernel, rows, words  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::fairnepv.RankWarning"),
]
FAST = {"effort": "fast", "certify": False}


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    return request.param


def same(one: fairnepv.Selection, other: fairnepv.Selection) -> None:
    assert one.indices.tolist() == other.indices.tolist()
    assert one.fair_score == pytest.approx(other.fair_score, abs=1e-12)
    if one.certificate is not None:
        assert other.certificate is not None
        bounds = one.certificate.upper_bound, other.certificate.upper_bound
        assert bounds[0] == pytest.approx(bounds[1], abs=1e-2)


def test_few_rows_of_a_tensor_stay_where_they_are(device):
    tensor = torch.from_numpy(rows(90, 7, 1)).bfloat16().to(device)
    pool = pose({"a": tensor}, 5, engine=f"torch:{device}").pool
    few = np.array([3, 80, 7])
    there, here = pool.take(few, there=True), pool.take(few)
    for taken, kind in ((there, TensorRows), (here, np.ndarray)):
        (view,) = taken.views
        assert isinstance(view, DenseView)
        assert isinstance(view.data, kind)
    for taken in (there, here):
        np.testing.assert_array_equal(taken.views[0].rows(slice(None)), pool.views[0].rows(few))
        np.testing.assert_allclose(taken.squared_norms, pool.squared_norms[few], rtol=1e-12)


BALANCED = ("dense", "float32", "sparse beside")


@pytest.mark.parametrize(
    ("name", "effort"),
    [
        *((n, "fast") for n in POOLS),
        ("duplicates", "balanced"),
        *(pytest.param(n, "balanced", marks=pytest.mark.slow) for n in BALANCED),
    ],
)
def test_the_same_items_as_the_local_engine(name, effort, device):
    for n, k in ((40, 6), (150, 9)) if effort == "fast" else ((60, 7),):
        data = POOLS[name](n)
        options = {"effort": effort, "certify": effort == "fast"}
        here = fairnepv.select(data, k, **options)
        same(here, fairnepv.select(data, k, engine=f"torch:{device}", **options))
        small = TorchEngine(device, block_rows=37, memory=0)
        same(here, fairnepv.select(data, k, engine=small, **options))


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_the_same_items_on_the_small_cases(case, device):
    data = {f"view{q}": view for q, view in enumerate(case.views)}
    ridges = dict(zip(data, case.eps, strict=True))
    options = {"tau": case.tau, "eps": ridges, "certify": False, "calibration": "none"}
    here = fairnepv.select(data, case.k, **options)
    same(here, fairnepv.select(data, case.k, engine=f"torch:{device}", **options))


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(40))
def test_the_same_items_on_hostile_pools(seed, device):
    """Every storage, repeated rows and views, k above p, rules, priorities."""
    posed = search_problems.hostile(seed).problem
    engine = TorchEngine(device, block_rows=(None, 3)[seed % 2], memory=(None, 0)[seed // 2 % 2])
    views = settled(posed.pool.views, engine)
    there = replace(posed, pool=replace(posed.pool, engine=engine, views=views))
    plan = Plan("auto", check_effort("fast"))
    one, other = (find(p, plan, Context()).indices.tolist() for p in (posed, there))
    assert one == other


@pytest.mark.parametrize("load", [cases.uci, cases.openmoji])
def test_the_same_items_on_real_pools(load, device):
    here = fairnepv.select(load(), 25, **FAST)
    same(here, fairnepv.select(load(), 25, engine=f"torch:{device}", **FAST))


@pytest.mark.parametrize("method", ["averaged", "concatenated"])
@pytest.mark.parametrize("stored", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("center", [False, True])
def test_a_sum_of_views_is_where_its_parts_are(method, stored, center, device):
    """Directions of picks are multiplied with its rows, and both on the device."""
    data = {name: stored(rows(30, 5, seed)) for seed, name in enumerate("ab")}
    asked = {"objective": "representative", "method": method, "center": center, **FAST}
    there = fairnepv.select(data, 4, engine=f"torch:{device}", **asked)
    same(fairnepv.select(data, 4, **asked), there)


@pytest.mark.parametrize("name", ["float32", "sparse"])
def test_rows_that_do_not_fit_are_streamed(name, device):
    data = POOLS[name](300)
    engine = TorchEngine(device, block_rows=64, memory=0)
    problem = pose(data, 10, engine=engine)
    assert [view.resident_bytes for view in search_problems.views_of(problem.pool)] == [0, 0]
    here = fairnepv.select(data, 10, effort="fast")
    same(here, fairnepv.select(data, 10, effort="fast", engine=engine))


def test_as_many_views_stay_as_fit(device):
    data = POOLS["float32"](300)
    engine = TorchEngine(device, memory=data["a"].nbytes)
    views = search_problems.views_of(pose(data, 10, engine=engine).pool)
    assert [view.resident_bytes for view in views] == [data["a"].nbytes, 0]


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_tensors_are_rows(kind, device):
    data = {name: torch.from_numpy(10 * x).to(getattr(torch, kind)) for name, x in _pair(200)}
    there = {name: x.to(device) for name, x in data.items()}
    as_arrays = {name: x.double().numpy() for name, x in data.items()}
    here = fairnepv.select(as_arrays, 9, **FAST)
    for engine in (f"torch:{device}", "torch:cpu", "local", None):  # wherever they are
        same(here, fairnepv.select(there, 9, engine=engine, **FAST))


LAYOUTS = {
    "csr": lambda x: x.to_sparse_csr(),
    "coo": lambda x: x.to_sparse(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
}


@pytest.mark.sample
@pytest.mark.filterwarnings("ignore:Sparse (invariant checks|CSR tensor support|C|B)")
@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "int32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_are_rows(layout, kind, device):
    dense = torch.from_numpy(np.ceil(9 * words(120, 20, 1).toarray())).to(getattr(torch, kind))
    if kind == "bfloat16" and layout == "bsr":
        pytest.skip("PyTorch makes none")
    there = {"a": LAYOUTS[layout](dense).to(device), "b": rows(120, 7, 2)}
    as_scipy = {"a": sp.csr_array(dense.double().numpy()), "b": rows(120, 7, 2)}
    here = fairnepv.select(as_scipy, 6, **FAST)
    for engine in (None, "local", f"torch:{device}", "torch:cpu"):
        same(here, fairnepv.select(there, 6, engine=engine, **FAST))


def test_sparse_rows_on_a_device_answer_as_scipy_does(device):
    """What becomes of a CSR tensor on a GPU, wherever it is."""
    there = torch.device(device)
    matrix = words(90, 25, 4).astype("f4")
    held = SparseRows(to_device(matrix, TorchEngine(there).device))
    assert (held.shape, held.nnz, held.dtype) == (matrix.shape, matrix.nnz, matrix.dtype)
    for key in (slice(None), slice(3, 70, 2), [5, 0, 5], np.array([], dtype=np.int64)):
        assert (held[key] != matrix[key]).nnz == 0
    norms = matrix.astype("f8").power(2).sum(axis=1)
    np.testing.assert_allclose(held.squared_norms(), norms, rtol=1e-15)
    assert (pickle.loads(pickle.dumps(held)) != matrix).nnz == 0
    here = fairnepv.select([matrix], 7, **FAST)
    for engine in ("local", f"torch:{device}", "torch:cpu"):
        same(here, fairnepv.select([held], 7, engine=engine, **FAST))
    assert fairnepv.plan([held], 7, engine="local").data_memory == 0
    assert fairnepv.plan([held], 7, engine=f"torch:{device}").device.resident == held.nbytes
    matrix.data[40:50] = np.nan
    row = int(np.searchsorted(matrix.indptr, 40, side="right")) - 1
    held = SparseRows(to_device(matrix, TorchEngine(there).device))
    with pytest.raises(InputError, match=rf"10 value\(s\).*the first in row {row}"):
        fairnepv.select([held], 7)


def test_no_matrix_has_more_entries_than_places(device, monkeypatch):
    """CUDA refuses it, though PyTorch's own products on a processor do not mind."""
    made, made_places = sparse.csr_tensor, []  # type: ignore[attr-defined]

    def checked(crow, col, values, shape):
        made_places.append(shape[0] * shape[1] - len(values))
        return made(crow, col, values, shape)

    monkeypatch.setattr(sparse, "csr_tensor", checked)
    full = words(60, 40, 3).toarray() + 0.01
    full[0, 1:] = 0.0  # the first pick has one word, all others have every one
    data = {"a": sp.csr_array(full)}
    there = fairnepv.select(data, 4, engine=f"torch:{device}", **FAST)
    same(fairnepv.select(data, 4, **FAST), there)
    assert made_places
    assert min(made_places) >= 0


def test_items_of_a_sparse_tensor_in_any_order(device):
    """Repeated ones are summed, as SciPy sums them."""
    csr = _csr([0, 2, 5, 6, 8, 9], [2, 0, 1, 1, 0, 2, 1, 0, 2]).to(device)
    coo = _coo([4, 0, 0, 1, 1, 1, 2, 3, 3], [2, 2, 0, 1, 1, 0, 2, 1, 0]).to(device)
    expected = [[1, 0, 1], [1, 2, 0], [0, 0, 1], [1, 1, 0], [0, 0, 1]]
    for tensor in (csr, coo):
        view = pose([tensor], 2, engine=f"torch:{device}", calibration="none").pool.views[0]
        assert view.rows(np.arange(5)).toarray().tolist() == expected
        there = view.block(0, 5).features()
        assert there.to_dense().tolist() == expected


def test_columns_of_a_sparse_tensor_are_views(device):
    both = words(80, 12, 1)
    columns = {"a": slice(0, 5), "b": slice(5, 12)}
    options = {"views": columns, "calibration": "trace", **FAST}
    here = fairnepv.select(both, 4, **options)
    tensor = torch.from_numpy(both.toarray()).to_sparse().to(device)
    same(here, fairnepv.select(tensor, 4, engine=f"torch:{device}", **options))


def test_an_anchor_has_the_columns_of_its_items_alone(device):
    """A million columns, of which a product sees some dozens."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(1_000_000, size=(400, 4)), axis=1)
    data = sp.csr_array(
        (rng.random(1600) + 0.5, columns.ravel(), np.arange(0, 1601, 4)), (400, 1_000_000)
    )
    (view,) = search_problems.views_of(pose([data], 5, engine=f"torch:{device}").pool)
    assert view.anchor(np.arange(9)).table.shape == (37, 9)
    product = view.block(3, 300).cross(view.anchor(np.arange(9))).cpu().numpy()
    unit = data / np.sqrt(data.multiply(data).sum(axis=1))[:, None]
    np.testing.assert_allclose(product, (unit[3:300] @ unit[:9].T).toarray(), atol=1e-15)
    options = {"method": "greedy", "certify": False}
    here = fairnepv.select([data], 30, **options)
    same(here, fairnepv.select([data], 30, engine=f"torch:{device}", **options))


def _pair(n: int) -> list[tuple[str, np.ndarray]]:
    return [("a", rows(n, 8, 1)), ("b", rows(n, 6, 2))]


def test_columns_of_a_tensor_are_views(device):
    both = torch.from_numpy(np.hstack([rows(80, 5, 1), rows(80, 4, 2)])).bfloat16().to(device)
    columns = {"a": slice(0, 5), "b": slice(5, 9)}
    here = fairnepv.select(both.double().cpu().numpy(), 4, views=columns)
    same(here, fairnepv.select(both, 4, views=columns, engine=f"torch:{device}"))


@pytest.mark.parametrize("options", [{"block_rows": 0}, {"block_rows": 2.5}, {"memory": -1}])
def test_sizes_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError, match="must be a whole number from"):
        TorchEngine("cpu", **options)


@pytest.mark.slow
def test_gradients_stay_behind(device):
    tensor = torch.from_numpy(rows(60, 5, 1)).requires_grad_()
    same(fairnepv.select([rows(60, 5, 1)], 5), fairnepv.select([tensor], 5))


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_gram_matrix_is_that_of_the_local_engine(order, device):
    data = {"a": np.asarray(rows(500, 9, 1), order=order), "b": words(500, 20, 2)}
    one, other = (pose(data, 5, engine=e).pool.gram for e in (None, f"torch:{device}"))
    np.testing.assert_allclose(one, other, atol=1e-10)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 40.00 GiB. GPU 0 has")
LIBRARY = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")


@pytest.mark.parametrize("error", [FULL, LIBRARY], ids=["PyTorch", "cuBLAS"])
def test_blocks_that_do_not_fit_are_made_smaller(error, device):
    """In halves, and those that follow as well; the results are the same."""
    seen = []

    def numbers(block, state):
        seen.append(block.stop - block.start)
        if block.stop - block.start > 150:
            raise error
        return np.arange(block.start, block.stop)

    pool = pose([rows(1000, 5, 1)], 5, engine=f"torch:{device}").pool
    assert pool.map(numbers, None).tolist() == list(range(1000))
    assert seen == [1000, 500, 250, 125, 125, 125, 125, 125, 125, 125, 125]
    seen.clear()
    total = pool.reduce(lambda block, state: numbers(block, state).sum(), operator.add, None)
    assert total == 499_500
    assert max(seen) == 125


def test_a_full_device_is_said(device, monkeypatch):
    """Whatever it was that did not fit, once blocks are as small as they get."""
    sizes = []

    def full(block, *_):
        sizes.append(block.stop - block.start)
        raise FULL

    monkeypatch.setattr(module, "_free_bytes", lambda device: 3 << 30)
    pool = pose([rows(200, 5, 1)], 5, engine=f"torch:{device}").pool
    with pytest.raises(InputError, match=r"3\.0 GiB are free.* for a block of 64 rows") as caught:
        pool.map(full, None)
    assert sizes == [200, 100, 64]
    least = re.search(r"the least that would do is (\d+\.\d) GiB in all", str(caught.value))
    assert least is not None
    assert 40.0 <= float(least[1]) <= 42.0  # with what is there already


def test_errors_that_are_no_lack_of_memory_come_through(device):
    def wrong(*_):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    pool = pose([rows(60, 5, 1)], 5, engine=f"torch:{device}").pool
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        pool.map(wrong, None)


def test_results_that_do_not_fit_are_said(device, monkeypatch):
    class Large(np.ndarray):
        def new_empty(self, shape):
            raise FULL

    pool = pose([rows(60, 5, 1)], 5, engine=TorchEngine(device, block_rows=40)).pool
    monkeypatch.setattr(module, "_free_bytes", lambda device: 3 << 30)
    with pytest.raises(InputError, match="for what 60 rows come to"):
        pool.map(lambda block, state: np.zeros(block.stop - block.start).view(Large), None)


@pytest.mark.parametrize("allow", ["high", "medium"])
def test_coarse_products_are_as_good_as_we_count_on(allow, device):
    """What a user allows PyTorch to round away elsewhere is not allowed here, and allowed again."""
    pool = pose([rows(500, 64, 1).astype("f4")], 5, engine=f"torch:{device}").pool
    view, before = pool.views[0], torch.get_float32_matmul_precision()
    anchor = view.anchor(np.arange(40))
    torch.set_float32_matmul_precision(allow)
    try:
        coarse = pool.place.get(pool.map(_coarse, anchor))
        assert torch.get_float32_matmul_precision() == allow
    finally:
        torch.set_float32_matmul_precision(before)
    exact = pool.place.get(pool.map(_cross, anchor))
    assert coarse.dtype == np.float32
    assert np.abs(coarse - exact).max() <= 1e-6  # TF32 would leave 1e-3


@portable
def _coarse(block, anchor):
    assert all(knob.fp32_precision in ("ieee", "none") for knob in KNOBS)
    return block.views[0].coarse(anchor)


@portable
def _cross(block, anchor):
    return block.views[0].cross(anchor)


KNOBS = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_hold_nothing_of_the_device(copied, device):
    """Rows come back to the host, whoever had them; answers stay what they were."""
    data = {
        "a": torch.from_numpy(rows(90, 7, 1)).bfloat16().to(device),
        "b": rows(90, 5, 2).astype("f4"),
        "c": torch.from_numpy(words(90, 20, 3).toarray()).to_sparse().to(device),
    }
    found = fairnepv.select(data, 6, engine=f"torch:{device}", **FAST)
    again = copied(found)
    assert again.indices.tolist() == found.indices.tolist()
    assert again.coverage == found.coverage
    problem = copied(found.problem)
    assert isinstance(problem.pool.engine, fairnepv.LocalEngine)
    assert [type(view) for view in problem.pool.views] == [DenseView, DenseView, SparseView]
    assert b"cuda" not in pickle.dumps(problem)
    for one, other in zip(problem.pool.views, found.problem.pool.views, strict=True):
        np.testing.assert_allclose(one.squared_norms, other.squared_norms, rtol=1e-15)
    assert greedy(problem, Context()).indices.tolist() == (
        greedy(found.problem, Context()).indices.tolist()
    )


def test_an_engine_can_be_copied(device):
    engine = TorchEngine(device, block_rows=9)
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert other == engine
        found = fairnepv.select([rows(60, 5, 1)], 4, engine=other, **FAST)
        same(fairnepv.select([rows(60, 5, 1)], 4, **FAST), found)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("torch:tpu", "there is no such device"),
        ("torch:mps", "only cpu and cuda are supported"),
        ("torch:meta", "only cpu and cuda are supported"),
        ("torch:cpu:3", "'torch:cpu:3': the processor has no numbers; name cpu"),
        ("torch:cuda:-1", "there is no such device"),
        ("gpu", "there is no engine 'gpu'; name 'local', 'torch'"),
        (3, "engine must be 'local', 'torch'"),
        (["local"], "or an engine such as LocalEngine"),
    ],
)
def test_engines_that_are_not_there(named, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        fairnepv.select([rows(30, 4, 1)], 3, engine=named)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    with pytest.raises(InputError, match=r"needs a GPU, but PyTorch .* finds none"):
        fairnepv.select([rows(30, 4, 1)], 3, engine="torch:cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gpus_are_counted():
    with pytest.raises(
        InputError, match=r"'torch:cuda:99': there are \d+ GPU\(s\), counted from 0"
    ):
        fairnepv.select([rows(30, 4, 1)], 3, engine="torch:cuda:99")


@pytest.mark.parametrize("wrong", [2.5, [1]])
def test_devices_that_are_none(wrong):
    with pytest.raises(InputError, match="there is no such device; name cpu or cuda"):
        TorchEngine(wrong)


def test_the_first_processor_is_the_processor():
    assert TorchEngine("cpu:0") == TorchEngine("cpu")


def _quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(5, 2), 0.1, 0, torch.quint8)


def _nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def _csr(crow, col, shape=(5, 3)):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = torch.ones(len(col))
        return torch.sparse_csr_tensor(
            torch.tensor(crow), torch.tensor(col), values, shape, check_invariants=False
        )


def _coo(i, j, shape=(5, 3)):
    values = torch.ones(len(i))
    return torch.sparse_coo_tensor(torch.tensor([i, j]), values, shape, check_invariants=False)


BROKEN = r"'a' is a broken sparse tensor: its index tensors do not fit its shape \(5, 3\)"
REFUSED = {
    "a vector": (lambda: torch.zeros(3), r"'a' must have two dimensions, not shape \(3,\)"),
    "a cube": (lambda: torch.zeros((3, 2, 2)), r"two dimensions, not shape \(3, 2, 2\)"),
    "a scalar": (lambda: torch.tensor(1.0), r"must have two dimensions, not shape \(\)"),
    "no columns": (lambda: torch.zeros((3, 0)), "'a' has no columns"),
    "no rows": (lambda: torch.zeros((0, 3)), "'a' has no rows"),
    "NaN": (lambda: torch.full((5, 2), float("nan")), "'a' has 10 .* NaN or infinite"),
    "complex": (lambda: torch.zeros((5, 2), dtype=torch.complex64), "expected real numbers"),
    "float8": (
        lambda: torch.ones((5, 2)).to(torch.float8_e4m3fn),
        "'a' has dtype torch.float8_e4m3fn, which nothing can be computed with; hand in tensor.flo",
    ),
    "bits": (lambda: torch.empty((5, 2), dtype=torch.bits8), "dtype torch.bits8, which nothing"),
    "quantized": (_quantized, r"'a' is quantized \(torch.quint8\); hand in tensor.dequantize"),
    "meta": (lambda: torch.ones((5, 2), device="meta"), "'meta', where tensors have no values"),
    "nested": (_nested, "'a' is a nested tensor; give all rows the same length"),
    "sparse NaN": (lambda: (torch.eye(5) * torch.nan).to_sparse(), "NaN or infinite"),
    "columns outside": (lambda: _csr([0, 1, 2, 2, 2, 2], [0, 7]), BROKEN),
    "rows backwards": (lambda: _csr([0, 2, 1, 2, 2, 2], [0, 1]), BROKEN),
    "rows too long": (lambda: _csr([0, 2, 2, 2, 2, 9], [0, 1]), BROKEN),
    "items outside": (lambda: _coo([0, 9], [1, 1]), BROKEN),
    "negative items": (lambda: _coo([0, -1], [1, 1]), BROKEN),
}


@pytest.mark.parametrize("function", [fairnepv.select, fairnepv.plan])
@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_cannot_be_used(name, function, device):
    make, words = REFUSED[name]
    tensor = make()
    if name == "NaN" or (name == "sparse NaN" and function is fairnepv.plan):
        function = fairnepv.select  # a plan looks at no values
    if name not in ("meta", "nested", "quantized", "bits"):
        tensor = tensor.to(device)
    with pytest.raises(InputError, match=words) as caught:
        function({"a": tensor}, 2)
    assert "\n" not in str(caught.value)


def test_a_kernel_may_be_a_tensor(device):
    """With a gradient, wherever it is."""
    K = kernel(40)
    tensor = torch.from_numpy(K).to(device).requires_grad_()
    here = fairnepv.select([KernelView(K)], 4, **FAST)
    same(here, fairnepv.select([KernelView(tensor)], 4, **FAST))


class Elsewhere:
    """An array of a library whose device PyTorch cannot read."""

    def __dlpack_device__(self):
        return (8, 0)

    def __dlpack__(self, **_):
        raise BufferError("data on this device cannot be exported")


def test_devices_of_other_libraries():
    with pytest.raises(InputError, match=r"'a' cannot be read by PyTorch \(data on this device"):
        fairnepv.select({"a": Elsewhere()}, 2)


def test_a_pytorch_that_knows_no_precision_by_backend_is_told_in_its_way(monkeypatch):
    """Those before 2.9 have neither `fp32_precision` nor `mkldnn.matmul`."""
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace())
    monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with whole_float32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
