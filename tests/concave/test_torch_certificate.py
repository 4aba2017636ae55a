"""Certificates on a device: bounds that hold, and that whoever has no device can check."""

import pickle

import numpy as np
import pytest

import fairnepv
from fairnepv.api.inputs import pose
from fairnepv.concave import concave as concave_module
from fairnepv.concave import costs, proof_arrays, read_proof
from fairnepv.concave.concave import Concave
from fairnepv.concave.state import ConcaveState
from fairnepv.loop import Budget, pack, run, unpack
from fairnepv.objective import HeldRows
from fairnepv.objective.logdet import LogDet

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from fairnepv.compute.device import TorchEngine  # noqa: E402
from torch_pools import DEVICES, POOLS, rows  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::fairnepv.RankWarning"),
]


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    return request.param


def exactly(monkeypatch) -> None:
    """In float64 from the first step on: rounding then decides no step."""
    monkeypatch.setattr(concave_module, "_float32_suffices", lambda *_: False)


def few_rows(monkeypatch) -> None:
    """T starts with a handful of rows and grows."""
    monkeypatch.setattr(costs, "_FIRST_ROWS", 12)
    monkeypatch.setattr(costs, "_DENSE_COST", 0.0)


@pytest.mark.sample(6)
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
    one, other = HeldRows.of(here, T, dtype=dtype), HeldRows.of(there, T, dtype=dtype)
    assert one.exact == other.exact == (dtype is np.float64)
    held = other.features if m > 9 else other.kernel
    assert isinstance(held, torch.Tensor)
    assert held.device.type == device
    small = 1e-12 if dtype is np.float64 else 1e-4
    one_slope, other_slope = (LogDet().majorant(rows, x, 5) for rows in (one, other))
    assert other_slope.value == pytest.approx(one_slope.value, abs=small)
    assert type(other_slope.prices) is np.ndarray
    np.testing.assert_allclose(other_slope.prices, one_slope.prices, atol=small)
    W = [B @ B.T for B in (one_slope.combination(), other_slope.combination().cpu().numpy())]
    np.testing.assert_allclose(W[1], W[0], atol=small)


def test_what_is_not_finite_has_no_eigenvalues(device):
    place = TorchEngine(device).place
    matrix = torch.full((4, 4), float("nan"), dtype=torch.float64, device=device)
    lam, Y = place.leading(matrix, 2)
    assert np.isnan(lam).all()
    assert lam.shape == (2,)
    assert Y.shape == (4, 2)
    assert np.isnan(place.eigenvalues(matrix)).all()
