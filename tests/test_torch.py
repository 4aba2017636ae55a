"""The PyTorch engine: the same answers as the local one, from wherever the rows are."""

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import fairnepv
from fairnepv import InputError, KernelView
from fairnepv.posing import pose

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from fairnepv.engines.device import TorchEngine  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fairnepv.RankWarning")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    return request.param


def rows(n: int, p: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((12, p))
    return centres[rng.integers(12, size=n)] + 0.5 * rng.standard_normal((n, p))


def words(n: int, p: int, seed: int) -> sp.csr_array:
    dense = sp.random_array((n, p), density=0.2, rng=seed).toarray()
    dense[:, 0] = 0.1  # so that no row is empty
    return sp.csr_array(dense)


POOLS = {
    "dense": lambda n: {"a": rows(n, 9, 1), "b": rows(n, 5, 2)},
    "float32": lambda n: {"a": rows(n, 9, 1).astype("f4"), "b": rows(n, 30, 2).astype("f4")},
    "float16": lambda n: {"a": rows(n, 9, 1).astype("f2"), "b": rows(n, 30, 2).astype("f2")},
    "big-endian": lambda n: {"a": rows(n, 9, 1).astype(">f4"), "b": rows(n, 5, 2)},
    "integers": lambda n: {"a": (10 * rows(n, 9, 1)).astype("i2"), "b": rows(n, 4, 2)},
    "one view": lambda n: {"a": rows(n, 9, 1)},
    "sparse beside": lambda n: {"a": rows(n, 9, 1), "b": words(n, 40, 3)},
    "a kernel beside": lambda n: {"a": rows(n, 9, 1), "b": KernelView(_kernel(n))},
    "duplicates": lambda n: {"a": np.repeat(rows(n // 2, 9, 1), 2, axis=0), "b": rows(n, 4, 2)},
}


def _kernel(n: int) -> np.ndarray:
    X = rows(n, 6, 4)
    return X @ X.T


def same(one: fairnepv.Selection, other: fairnepv.Selection) -> None:
    assert one.indices.tolist() == other.indices.tolist()
    assert one.fair_score == pytest.approx(other.fair_score, abs=1e-12)
    if one.certificate is not None:
        assert other.certificate is not None
        bounds = one.certificate.upper_bound, other.certificate.upper_bound
        assert bounds[0] == pytest.approx(bounds[1], abs=1e-2)


@pytest.mark.parametrize("effort", ["fast", "balanced"])
@pytest.mark.parametrize("name", POOLS)
def test_the_same_items_as_the_local_engine(name, effort, device):
    for n, k in ((40, 6), (150, 9)):
        data = POOLS[name](n)
        options = {"effort": effort, "certify": effort == "fast"}
        here = fairnepv.select(data, k, **options)
        same(here, fairnepv.select(data, k, engine=f"torch:{device}", **options))
        small = TorchEngine(device, block_rows=37)
        same(here, fairnepv.select(data, k, engine=small, **options))


@pytest.mark.parametrize("case", cases.SMALL, ids=lambda case: case.name)
def test_the_same_items_on_the_small_cases(case, device):
    data = {f"view{q}": view for q, view in enumerate(case.views)}
    ridges = dict(zip(data, case.eps, strict=True))
    options = {"tau": case.tau, "eps": ridges, "certify": False, "calibration": "none"}
    here = fairnepv.select(data, case.k, **options)
    same(here, fairnepv.select(data, case.k, engine=f"torch:{device}", **options))


def test_rows_that_do_not_fit_are_streamed(device):
    data = POOLS["float32"](300)
    engine = TorchEngine(device, block_rows=64, memory=0)
    problem = pose(data, 10, engine=engine)
    assert [view.resident_bytes for view in problem.pool.views] == [0, 0]
    same(fairnepv.select(data, 10), fairnepv.select(data, 10, engine=engine))


def test_as_many_views_stay_as_fit(device):
    data = POOLS["float32"](300)
    engine = TorchEngine(device, memory=data["a"].nbytes)
    views = pose(data, 10, engine=engine).pool.views
    assert [view.resident_bytes for view in views] == [data["a"].nbytes, 0]


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16", "int32"])
def test_tensors_are_rows(kind, device):
    data = {name: torch.from_numpy(10 * x).to(getattr(torch, kind)) for name, x in _pair(200)}
    there = {name: x.to(device) for name, x in data.items()}
    as_arrays = {name: x.double().numpy() for name, x in data.items()}
    here = fairnepv.select(as_arrays, 9)
    same(here, fairnepv.select(there, 9, engine=f"torch:{device}"))
    same(here, fairnepv.select(there, 9))  # wherever they are


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


def test_gradients_stay_behind(device):
    tensor = torch.from_numpy(rows(60, 5, 1)).requires_grad_()
    same(fairnepv.select([rows(60, 5, 1)], 5), fairnepv.select([tensor], 5))


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_gram_matrix_is_that_of_the_local_engine(order, device):
    data = {"a": np.asarray(rows(500, 9, 1), order=order), "b": words(500, 20, 2)}
    one, other = (pose(data, 5, engine=e).pool.gram for e in (None, f"torch:{device}"))
    np.testing.assert_allclose(one, other, atol=1e-10)


def test_a_full_device_is_said(device, monkeypatch):
    """Whatever it was that did not fit."""
    from fairnepv.engines import device as module

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 40.00 GiB")

    monkeypatch.setattr(module, "_free_bytes", lambda device: 3 << 30)
    pool = pose([rows(60, 5, 1)], 5, engine=f"torch:{device}").pool
    with pytest.raises(InputError, match=r"3\.0 GiB are free.* for a block of 60 rows"):
        pool.map(full, None)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("torch:tpu", "there is no such device"),
        ("torch:mps", "only cpu and cuda are supported"),
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


def test_what_is_no_matrix_is_refused():
    for tensor, words in (
        (torch.zeros(3), "must have two dimensions"),
        (torch.eye(4).to_sparse(), "is a sparse tensor; hand it in as a SciPy sparse array"),
        (torch.full((5, 2), float("nan")), "NaN or infinite"),
        (torch.zeros((5, 2), dtype=torch.complex64), "expected real numbers"),
    ):
        with pytest.raises(InputError, match=words):
            fairnepv.select({"a": tensor}, 2)
