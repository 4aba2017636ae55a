"""Plans: counted by hand on small shapes, without a look at the rows; limits are kept."""

import dataclasses
import inspect
import json
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import fairnepv
from fairnepv import DiagonalView, InputError, KernelView, LocalEngine, Pool
from fairnepv.api.inputs import pose, sketch
from fairnepv.compute import HOST
from fairnepv.compute.rates import UNTIMED, Rates, measure_device, measure_rates
from fairnepv.io.memory import check_memory_limit
from fairnepv.io.rows import RowFile
from fairnepv.loop import Context
from fairnepv.methods import find
from fairnepv.methods.baselines import relaxed
from fairnepv.methods.plan import Plan
from fairnepv.planning import PROGRAM, Forecast, fit, foresee
from fairnepv.planning.foresight import method_stages
from fairnepv.planning.stages import Count
from fairnepv.problem import Means, Problem
from fairnepv.report import forecast_record
from fairnepv.search import EFFORTS
from fairnepv.search.table import SwapTable
from fairnepv.views import Calibration
from search_problems import examples

GIB = 1 << 30


class Unread(RowFile):
    """A file of which nobody may see a row."""

    def __init__(self, n, p, dtype="float16", resident=False, random_access=True):
        self.shape, self.dtype, self.origin = (n, p), np.dtype(dtype), "unread"
        self.random_access = random_access
        self.file_bytes, self.resident = n * p * self.dtype.itemsize, resident

    def read(self, start, stop):
        raise AssertionError("a plan has read rows")

    def gather(self, indices):
        raise AssertionError("a plan has read rows")


@pytest.fixture
def run(command):
    return command


def problem(views, k, engine=None, means=None):
    pool = Pool.sketch(views, engine=engine or LocalEngine(threads=1))
    return Problem(pool, k, 0.05, Calibration("none"), means=means or Means())


def stages(posed, *methods, effort="balanced", **options):
    chosen = EFFORTS[effort]
    forecast = foresee(
        posed, [Plan(m, chosen) for m in methods], certify=False, rates=UNTIMED, **options
    )
    return {stage.name: stage for stage in forecast.stages}


# --- Counting -------------------------------------------------------------------------------------


def test_greedy_is_counted_by_the_letter():
    """n = 1000 rows of 40 float32 numbers and 60 rows of 8 bytes: too few for float32."""
    n, k, p, q = 1000, 30, 40, 5
    posed = problem([np.zeros((n, p), np.float32), np.zeros((n, q))], k)
    found = stages(posed, "greedy")["greedy"]
    assert found.operations == 2 * n * k * (p + q)
    assert found.passes == 3  # picks are made known 24 at a time, and once in the end
    assert found.bytes_read == 2 * 3 * n * (4 * p + 8 * q)
    by_row = 2 * (8 + 4 + 8 + 8 + 8 + 4) + 50  # two views; who knows what, heights, who is high
    small = 2 * 8 * k**2 + 16 * k * (p + q)
    block = n * ((8 + 4) * p + 24 * (2 * 24))  # float32 rows are widened, float64 ones are not
    assert found.memory == n * by_row + small + block


def test_a_swap_table_is_counted_where_it_is_kept():
    n, k, p = 20_000, 50, 300  # enough work for float32
    posed = problem([np.zeros((n, p), np.float32)], k)
    one = stages(posed, "nepv")["swaps"]
    tight = replace(posed, means=Means(table=n * k - 1))
    assert one.memory - stages(tight, "nepv")["swaps"].memory == 4 * n * (k + 1)
    assert "too large for a table" in stages(tight, "nepv")["swaps"].note


def test_the_stages_are_those_of_the_method():
    posed = problem([np.zeros((3000, 20), np.float32), np.zeros((3000, 10), np.float32)], 10)

    def names(method, effort="balanced", certify=False, efficiency=False, passes=None):
        plans = [Plan(method, EFFORTS[effort], passes=passes)]
        forecast = foresee(posed, plans, certify=certify, efficiency=efficiency, rates=UNTIMED)
        assert [s.optional for s in forecast.stages] == [False] * (len(forecast.stages) - 1) + [
            True
        ]
        return [stage.name for stage in forecast.stages][1:-1]

    assert names("greedy") == ["greedy"]
    assert names("auto", "fast") == ["greedy"]
    assert names("auto") == ["greedy", "tabu", "swaps", "order"]
    assert names("auto", "thorough") == ["greedy", "relaxation", "tabu", "swaps", "order"]
    assert names("nepv") == ["relaxation", "swaps", "order"]
    assert names("auto", certify=True)[0] == "bound"
    assert names("greedy", efficiency=True) == ["calibration", "greedy"]
    assert names("averaged") == ["greedy", "tabu", "swaps", "order"]
    assert names("averaged", passes=3) == ["greedy", "swaps", "order"]
    assert names("averaged", passes=0) == names("averaged", "fast") == ["greedy", "order"]
    assert names("greedy-swaps") == ["greedy", "swaps", "order"]
    assert names("softmax") == ["softmax", "tabu", "swaps", "order"]
    assert names("softmax", passes=3) == ["softmax", "swaps", "order"]
    assert names("softmax", "fast") == ["softmax", "order"]
    assert names("k-dpp") == ["k-dpp", "order"]
    assert names("random") == ["greedy", "order"]
    bare = foresee(posed, [], certify=True, rates=UNTIMED)
    assert [stage.name for stage in bare.stages] == ["check and norms", "bound"]


@pytest.mark.parametrize("options", [{}, {"hierarchical": 4}, {"objective": "representative"}])
@pytest.mark.parametrize("method", ["nepv", "greedy-swaps"])
def test_a_plan_has_the_passes_that_are_asked_for(method, options):
    data = rows(3000, 20)
    asked = {"method": method, "certify": False, **options}
    for passes in (2, 7):
        *_, last, _, _ = fairnepv.plan(data, 10, passes=passes, **asked).stages
        assert last.name == "swaps"
        assert f"at most {passes} passes per search" in last.note
    names = [stage.name for stage in fairnepv.plan(data, 10, passes=0, **asked).stages]
    assert "swaps" not in names
    assert "tabu" not in names


def test_totals_are_sums_and_the_peak_is_a_maximum():
    forecast = fairnepv.plan(np.zeros((5000, 30), np.float32), 20)
    needed = [stage for stage in forecast.stages if not stage.optional]
    for total in ("passes", "operations", "bytes_read", "seconds"):
        assert getattr(forecast, total) == sum(getattr(stage, total) for stage in needed)
    working = max(stage.memory for stage in needed)
    assert forecast.peak_memory == PROGRAM + forecast.loaded + forecast.kept + working
    assert forecast.memory == forecast.peak_memory + 5000 * 30 * 4
    everything = forecast.with_optional()
    assert everything.passes == forecast.passes + 1
    assert forecast.largest.name in str(forecast)


@examples(60)
@given(
    st.integers(100, 10**6),
    st.integers(1, 2000),
    st.integers(1, 90),
    st.sampled_from(["n", "p", "k"]),
    st.sampled_from(["auto", "greedy", "nepv"]),
    st.booleans(),
)
def test_more_of_anything_takes_more(n, p, k, what, method, certify):
    larger = {"n": (2 * n, p, k), "p": (n, 2 * p, k), "k": (n, p, k + 5)}[what]

    def forecast(n, p, k):
        plan = [Plan(method, EFFORTS["fast"])]
        posed = problem([Unread(n, p), Unread(n, 7)], k)
        return foresee(posed, plan, certify=certify, rates=Rates(1e9, 1e9, 1e8, 1e9, 1e9, 1e-8))

    one, other = forecast(n, p, k), forecast(*larger)
    assert other.operations > one.operations
    kinds = [[s.note for s in f.stages if s.name == "relaxation"] for f in (one, other)]
    if kinds[0] != kinds[1]:
        return  # in other coordinates frames may read rows less often
    assert other.bytes_read >= one.bytes_read
    assert other.seconds > one.seconds


def test_memory_grows_with_rows_and_picks():
    def peak(n, k):
        plan = [Plan("auto", EFFORTS["balanced"])]
        posed = problem([Unread(n, 64)], k)
        return foresee(posed, plan, certify=False, rates=UNTIMED).peak_memory

    assert peak(10**5, 20) < peak(2 * 10**5, 20) < peak(10**6, 20)
    assert peak(10**5, 20) < peak(10**5, 40) < peak(10**5, 80)


# --- What is looked at ----------------------------------------------------------------------------


def test_a_plan_reads_no_row():
    forecast = fairnepv.plan({"a": Unread(10**6, 512), "b": Unread(10**6, 64)}, 100)
    assert forecast.data_memory == 0
    assert forecast.n == 10**6
    assert forecast.stages[0].bytes_read == 10**6 * (512 + 64) * 2
    with pytest.raises(AssertionError, match="has read rows"):
        fairnepv.select({"a": Unread(10**6, 512)}, 100)


class Untouched(np.ndarray):
    def __getitem__(self, key):
        raise AssertionError("a plan has read rows")

    def __array_ufunc__(self, *args, **kwargs):
        raise AssertionError("a plan has computed with rows")


def test_a_plan_does_not_touch_arrays_either():
    X = np.zeros((500, 8)).view(Untouched)
    assert fairnepv.plan(X, 5).data_memory == X.nbytes
    with pytest.raises(AssertionError):
        X[:1]


def test_a_plan_factors_no_kernel(monkeypatch):
    monkeypatch.setattr("fairnepv.views.kernel.pivoted_cholesky", None)
    n = 200
    forecast = fairnepv.plan([KernelView(np.eye(n)), DiagonalView(-np.ones(n))], 5)
    assert forecast.stages[0].memory >= 40 * n**2
    assert forecast.stages[0].operations == n**2 + n


def test_what_is_in_memory_is_told_apart(tmp_path):
    n = 300
    np.save(tmp_path / "x.npy", np.zeros((n, 6)))
    words = sp.random_array((n, 40), density=0.1, format="csr", rng=np.random.default_rng(0))
    held = sum(a.nbytes for a in (words.data, words.indices, words.indptr))
    cases = [
        (np.zeros((n, 6), np.float32), n * 6 * 4, 0),
        (np.load(tmp_path / "x.npy", mmap_mode="r"), 0, 0),
        (np.load(tmp_path / "x.npy", mmap_mode="r")[:, :3], 0, 0),
        (fairnepv.open_rows(str(tmp_path / "x.npy")), 0, 0),
        (Unread(n, 6, resident=True), 0, n * 6 * 2),
        (Unread(10**7, 64, random_access=False), 0, 256 << 20),
        (words, held, 0),
        (words.tocoo(), 12 * words.nnz + 4 * n, 12 * words.nnz + 4 * n),
        (DiagonalView(np.ones(n)), 8 * n, 0),
        (KernelView(np.eye(n)), 8 * n * n, 0),
    ]
    for data, in_memory, loaded in cases:
        forecast = fairnepv.plan({"only": data}, 5)
        assert (forecast.data_memory, forecast.loaded) == (in_memory, loaded), data


@pytest.mark.parametrize(
    ("data", "k", "options", "complaint"),
    [
        (np.zeros((10, 3)), 10, {}, "k must be from 1 to n - 1"),
        (np.zeros(10), 3, {}, "two-dimensional"),
        (np.array([["a"]]), 3, {}, "dtype"),
        ([np.zeros((10, 3)), np.zeros((9, 3))], 3, {}, "same number of rows"),
        (np.zeros((10, 3)), 3, {"method": "best"}, "method must be one of"),
        (np.zeros((10, 3)), 3, {"effort": "great"}, "effort must be one of"),
        (np.zeros((10, 3)), 3, {"memory_limit": "much"}, "memory_limit must be"),
    ],
)
def test_nonsense_is_refused(data, k, options, complaint):
    with pytest.raises(InputError, match=complaint):
        fairnepv.plan(data, k, **options)


def test_other_options_are_refused():
    with pytest.raises(TypeError, match=r"plan\(\) got an unexpected keyword argument 'colour'"):
        fairnepv.plan(np.zeros((10, 3)), 3, colour=1)  # type: ignore[call-arg]


def test_every_option_of_select_is_taken():
    parameters = inspect.signature(fairnepv.select).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert defaults
    assert isinstance(fairnepv.plan(np.zeros((20, 3)), 4, **defaults), Forecast)
    more = fairnepv.plan(np.zeros((20, 3)), 4, include=[1, 2], include_counts=False)
    assert more.k == 6


def test_rates_are_sensible():
    rates = measure_rates(True)
    assert rates.single > rates.sparse > 0
    assert 0 < rates.copied < np.inf


# --- Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * GIB),
        ("1.5 GB", 1_500_000_000),
        ("500 mb", 500_000_000),
        (" 64KiB ", 65536),
        ("100", 100),
        ("7 B", 7),
        (4096, 4096),
        (np.int64(5), 5),
        (None, None),
    ],
)
def test_sizes_are_read(text, size):
    assert check_memory_limit(text) == size


@pytest.mark.parametrize(
    "value", [0, -1, "0", "-1GB", "abc", "GiB", "1 XB", "", 1.5, True, float("nan"), [], "1e9"]
)
def test_what_is_no_size_is_refused(value):
    with pytest.raises(InputError, match="memory_limit must be a positive number of bytes"):
        check_memory_limit(value)


def rows(n=3000, p=24, seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((n, p)), "b": rng.standard_normal((n, 16))}


def test_a_limit_gives_up_the_table_first_and_finds_the_same(monkeypatch):
    data, kept = rows(40_000, 12), []
    options = {"method": "fixed-weight", "certify": False}
    options["engine"] = LocalEngine(threads=1, block_numbers=1 << 16)
    make = SwapTable.of.__func__  # type: ignore[attr-defined]

    def noted(cls, subset, **keywords):
        kept.append(make(cls, subset, **keywords))
        return kept[-1]

    monkeypatch.setattr(SwapTable, "of", classmethod(noted))
    free = fairnepv.select(data, 12, **options)
    assert all(table.joined is not None for table in kept)
    limit = int(fairnepv.plan(data, 12, **options).with_optional().peak_memory) - 1
    tight = fairnepv.plan(data, 12, **options, memory_limit=limit)
    assert (tight.means, tight.block_numbers) == (Means(table=0), 1 << 16)
    kept.clear()
    bounded = fairnepv.select(data, 12, **options, memory_limit=limit)
    assert kept
    assert all(table.joined is None for table in kept)
    assert bounded.indices.tolist() == free.indices.tolist()


@pytest.mark.slow
def test_the_least_that_is_said_to_work_works():
    data = rows()
    with pytest.raises(InputError, match="the least that would work is") as refused:
        fairnepv.select(data, 12, memory_limit="1MB")
    least = int(str(refused.value).split("would work is ")[1].split()[0])
    assert "memory_limit is 976.6 KiB" in str(refused.value)
    assert len(fairnepv.select(data, 12, memory_limit=f"{least}MiB").indices) == 12
    with pytest.raises(InputError, match="least that would work"):
        fairnepv.select(data, 12, memory_limit=f"{least - 1}MiB")


def test_a_limit_bounds_what_is_allocated():
    """Beside the program itself, which is there before."""
    data, options = rows(40_000, 64), {"method": "fixed-weight", "certify": False}
    limit = int(0.75 * fairnepv.plan(data, 15, **options).with_optional().peak_memory)
    fairnepv.select(rows(), 12, **options)  # whatever is loaded once

    def peak(memory_limit):
        tracemalloc.start()
        selection = fairnepv.select(data, 15, **options, memory_limit=memory_limit)
        assert selection.coverage
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(limit) < limit - PROGRAM < peak(None)


@pytest.mark.sample
@pytest.mark.parametrize("method", ["k-dpp", "softmax", "d-optimal"])
@pytest.mark.parametrize(("n", "p", "k"), [(20_000, 30, 80), (400, 600, 40), (1200, 700, 10)])
def test_baselines_that_factor_the_average_are_counted(method, n, p, k, monkeypatch):
    monkeypatch.setattr(relaxed, "_MAX_STEPS", 2)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((n, p)).astype(np.float32) for _ in range(2)]
    posed = pose(data, k)
    plan = Plan(method, EFFORTS["fast"])
    tracemalloc.start()
    find(posed, plan, Context())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    [stage] = method_stages(Count(posed, UNTIMED), plan, certify=False)
    assert peak <= stage.memory <= 4 * peak
    with pytest.raises(InputError, match=f"memory_limit is.*for {method}"):
        fairnepv.select(data, k, method=method, certify=False, memory_limit=PROGRAM + (2 << 20))


def test_the_certificate_keeps_to_fewer_rows():
    data = rows(4000, 300)
    usual = sketch(data, 5, {})

    def foretell(p):
        return foresee(p, [], certify=True, rates=UNTIMED)

    limit = int(0.8 * foretell(usual).peak_memory)
    tight, forecast = fit(usual, limit, foretell)
    assert tight.means.support is not None
    assert forecast.peak_memory <= limit
    assert f"{tight.means.support:,} rows" in " ".join(forecast.notes)
    certificate = fairnepv.certify(data, 5, memory_limit=limit)
    whole = fairnepv.certify(data, 5)
    most = tight.means.support + 5  # whom the rules would choose is among the first rows, too
    assert len(certificate.support) <= most < len(whole.support)
    assert certificate.upper_bound >= whole.upper_bound - whole.duality_gap


def test_compare_takes_a_limit_too():
    with pytest.raises(InputError, match="least that would work"):
        fairnepv.compare(rows(), 5, memory_limit=1000)


def test_what_a_comparison_is_foretold_has_tabu_search_for_the_default_alone(monkeypatch):
    """Its rivals are refined by one-swaps: a limit that those keep to leaves all of them in."""
    seen = {}

    def noting(posed, plans, **options):
        forecast = foresee(posed, plans, **options)
        if len(plans) == 1:
            seen[plans[0].method] = [stage.name for stage in forecast.stages]
        return forecast

    monkeypatch.setattr("fairnepv.api.plan.foresee", noting)
    data = rows(200)
    fairnepv.compare(data, 5, memory_limit="4GiB", time_limit=20)
    assert {"averaged", "concatenated", "fixed-weight"} <= set(seen)
    assert not any("tabu" in stages for stages in seen.values())
    fairnepv.plan(data, 5, method="averaged")
    assert "tabu" in seen["averaged"]  # which searches so where nobody is compared


# --- The command ----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    data = rows(200)
    for name, X in data.items():
        np.save(tmp_path / f"{name}.npy", X)
    return [f"--view={name}={tmp_path / name}.npy" for name in data]


def test_the_command_prints_a_plan_and_runs_nothing(run, files, tmp_path, monkeypatch):
    for name in ("select", "certify"):
        monkeypatch.setattr(f"fairnepv.{name}", None)
    out = tmp_path / "picks.csv"
    told = run("select", *files, "-k", "5", "--plan", "--out", str(out))
    assert told.code == 0
    assert "greedy" in told.out
    assert "neighbours" in told.out
    assert not out.exists()
    told = run("certify", *files, "-k", "5", "--plan")
    assert told.code == 0
    assert "bound" in told.out
    assert "greedy" not in told.out
    record = json.loads(run("select", *files, "-k", "5", "--plan", "--json").out)
    assert record["peak_memory"] > PROGRAM
    assert record["stages"][0]["name"] == "check and norms"
    several = json.loads(run("select", *files, "-k", "5,9", "--plan", "--json").out)
    assert [record["k"] for record in several] == [5, 9]


def test_the_command_refuses_a_limit_that_is_too_small(run, files):
    for command in ("select", "certify", "compare"):
        told = run(command, *files, "-k", "5", "--memory-limit", "1MB")
        assert told.code == 2
        assert "the least that would work is" in told.err
    assert run("select", *files, "-k", "5", "--memory-limit", "4GiB").code == 0


# --- Devices --------------------------------------------------------------------------------------


def on_device(views, k, **options):
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    from fairnepv.compute.device import TorchEngine

    return fairnepv.plan(views, k, engine=TorchEngine("cpu", **options), effort="fast")


def test_a_device_holds_rows_what_is_known_of_them_and_a_block():
    n, k, p = 3000, 20, 50
    words = sp.random_array((n, 400), density=0.01, format="csr", rng=0)
    forecast = on_device({"a": np.zeros((n, p), np.float32), "b": words}, k, block_rows=100)
    needs, sparse = (
        forecast.device,
        sum(x.nbytes for x in (words.data, words.indices, words.indptr)),
    )
    assert needs.resident == 4 * n * p + sparse
    assert needs.streamed == 0
    assert needs.known == 2 * n * (8 + 4 + 8 + 8) + 4 * n * 2 * (k + 1)
    row = -(-(n * p + words.nnz) // n)
    assert needs.block == 8 * 100 * (row + 4 * 4 * k)
    assert needs.memory == needs.resident + needs.known + needs.block
    assert str(needs) in str(forecast)


@pytest.mark.slow
def test_rows_that_do_not_fit_are_sent_with_every_pass():
    first, second = np.zeros((3000, 50), np.float32), np.zeros((3000, 10))
    needs = on_device({"a": first, "b": second}, 20, memory=second.nbytes).device
    assert (needs.resident, needs.streamed) == (second.nbytes, first.nbytes)
    assert "sent with every pass" in str(needs)


def test_kernels_are_read_by_the_host():
    needs = on_device({"a": np.zeros((300, 5)), "b": KernelView(np.eye(300))}, 20).device
    assert (needs.resident, needs.streamed) == (8 * 300 * 5, 8 * 300 * 300)


@pytest.mark.slow
def test_the_time_of_a_device():
    """PyTorch on the host is timed as the host is, and no row is read for it."""
    forecast = on_device({"a": Unread(100_000, 300)}, 50)
    assert forecast.seconds > 0
    assert all(stage.seconds > 0 for stage in forecast.stages)
    assert forecast_record(forecast)["device"]["device"] == "cpu"
    assert on_device({"a": np.zeros((100, 3))}, 5).passes > 0


def test_a_place_can_be_timed():
    """As a GPU is, whose rates are measured with arrays that lie there."""
    rates = measure_device(HOST)
    assert all(0 < rate < math.inf for rate in dataclasses.astuple(rates))


def test_the_time_of_a_cluster_is_not_known_and_none_is_started():
    data = {"a": np.zeros((1000, 30))}
    forecast = fairnepv.plan(data, 5, engine="ray://nowhere:1", effort="fast")
    assert forecast.seconds is None
    assert "a time that is not known for this engine" in forecast.summary()
    assert forecast_record(forecast)["seconds"] is None
    assert forecast.device is None
    assert fairnepv.plan(data, 5, engine="local", effort="fast").seconds > 0


@pytest.mark.torch
def test_a_plan_of_a_device_on_the_command_line(run, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    np.save(tmp_path / "a.npy", np.zeros((500, 8), np.float32))
    arguments = ["select", "--view", f"a={tmp_path / 'a.npy'}", "-k", "5", "--plan"]
    shown = run(*arguments, "--engine", "torch:cpu")
    assert "On cpu: about" in shown.out
    record = json.loads(run(*arguments, "--engine", "torch:cpu", "--json").out)
    assert record["seconds"] > 0
    assert record["device"]["streamed"] == 500 * 8 * 4
