"""The PyTorch engine: the same answers as the local one, from wherever the rows are."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import fairnepv
from fairnepv import InputError, KernelView
from fairnepv.certificate import concave as concave_module
from fairnepv.certificate import proof_arrays, read_proof
from fairnepv.certificate.concave import Concave, ConcaveState
from fairnepv.loop import Budget, pack, run, unpack
from fairnepv.posing import pose
from fairnepv.relaxation.topk import held_rows

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


# --- the certificate ------------------------------------------------------------------------------


def exactly(monkeypatch) -> None:
    """In float64 from the first step on: rounding then decides no step."""
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: False)


def few_rows(monkeypatch) -> None:
    """T starts with a handful of rows and grows."""
    monkeypatch.setattr(concave_module, "_FIRST_ROWS", 12)
    monkeypatch.setattr(concave_module, "_DENSE_COST", 0.0)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_the_same_bound_as_the_local_engine(name, grows, device, monkeypatch):
    exactly(monkeypatch)
    if grows:
        few_rows(monkeypatch)
    data = POOLS[name](150)
    here = fairnepv.certify(data, 12, gap=1e-4)
    there = fairnepv.certify(data, 12, gap=1e-4, engine=f"torch:{device}")
    assert there.status is here.status is fairnepv.Status.CONVERGED
    assert there.upper_bound == pytest.approx(here.upper_bound, abs=1e-8)
    assert there.by_view == pytest.approx(dict(here.by_view), abs=1e-8)
    assert there.spectral == pytest.approx(dict(here.spectral), abs=1e-8)
    assert there.support.tolist() == here.support.tolist()


@pytest.mark.parametrize("name", POOLS)
def test_its_bound_is_proven_for_whoever_has_no_device(name, device, monkeypatch):
    few_rows(monkeypatch)
    data = POOLS[name](150)
    certificate = fairnepv.certify(data, 12, gap=5e-3, engine=f"torch:{device}")
    stored = pickle.loads(pickle.dumps(certificate))
    for dual in (stored.proof.dual, *stored.proof.alone.values()):
        assert all(type(view.combine) is np.ndarray for view in dual.views)
    read = read_proof(proof_arrays(stored.proof))
    assert fairnepv.verify_bound(data, read).holds
    assert fairnepv.verify_bound(data, read, engine=f"torch:{device}").holds


@pytest.mark.parametrize("name", POOLS)
def test_no_bound_is_below_the_enumerated_optimum(name, device, monkeypatch):
    few_rows(monkeypatch)
    for n, k, gap in ((16, 3, 5e-3), (14, 6, 1e-5)):
        data = POOLS[name](n)
        best = fairnepv.exhaustive(data, k)
        certificate = fairnepv.certify(data, k, gap=gap, engine=f"torch:{device}")
        assert best.fair_score <= certificate.upper_bound
        for view, bound in certificate.by_view.items():
            alone = fairnepv.exhaustive({view: data[view]}, k)
            assert alone.fair_score <= bound


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_resumed_solve_goes_where_the_uninterrupted_one_went(steps, device, monkeypatch):
    few_rows(monkeypatch)
    problem = pose(POOLS["float32"](400), 12, engine=f"torch:{device}")
    whole = run(Concave(problem, gap=1e-3))
    assert whole.steps > 3
    half = run(Concave(problem, gap=1e-3), budget=Budget(max_steps=steps))
    state = unpack(ConcaveState, pack(half.state))
    resumed = run(Concave(problem, gap=1e-3), state=state, steps=half.steps)
    assert resumed.state.bound == whole.state.bound
    assert resumed.state.rows.tolist() == whole.state.rows.tolist()


def test_a_selection_goes_on_from_its_checkpoint(device, tmp_path, monkeypatch):
    few_rows(monkeypatch)
    data, steps = POOLS["float32"](200), []
    options = {"engine": f"torch:{device}", "effort": "fast"}

    def stop(step):
        steps.append(step)
        if len(steps) == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        fairnepv.select(data, 6, checkpoint=tmp_path / "kept", progress=stop, **options)
    assert {step.stage for step in steps} == {"bound"}
    resumed = fairnepv.select(data, 6, checkpoint=tmp_path / "kept", **options)
    whole = fairnepv.select(data, 6, **options)
    assert resumed.indices.tolist() == whole.indices.tolist()
    assert resumed.certificate.upper_bound == whole.certificate.upper_bound


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [40, 7])  # more rows than columns, and fewer
def test_rows_are_held_where_they_are(m, dtype, device):
    data = {"a": rows(60, 9, 1)}
    (here,), (there,) = (
        pose(data, 5, engine=e).pool.views for e in (None, TorchEngine(device, block_rows=16))
    )
    T, x = np.arange(m), np.full(m, 5 / m)
    one, other = held_rows(here, T, dtype=dtype), held_rows(there, T, dtype=dtype)
    assert one.exact == other.exact == (dtype is np.float64)
    held = other.features if m > 9 else other.kernel
    assert isinstance(held, torch.Tensor)
    assert held.device.type == device
    small = 1e-12 if dtype is np.float64 else 1e-4
    one_slope, other_slope = one.at(x, 5), other.at(x, 5)
    assert other_slope.value == pytest.approx(one_slope.value, abs=small)
    assert type(other_slope.prices) is np.ndarray
    np.testing.assert_allclose(other_slope.prices, one_slope.prices, atol=small)
    W = [B @ B.T for B in (one_slope.combine, other_slope.combine.cpu().numpy())]
    np.testing.assert_allclose(W[1], W[0], atol=small)


def test_what_is_not_finite_has_no_eigenvalues(device):
    place = TorchEngine(device).place
    matrix = torch.full((4, 4), float("nan"), dtype=torch.float64, device=device)
    lam, Y = place.leading(matrix, 2)
    assert np.isnan(lam).all()
    assert lam.shape == (2,)
    assert Y.shape == (4, 2)
    assert np.isnan(place.eigenvalues(matrix)).all()
