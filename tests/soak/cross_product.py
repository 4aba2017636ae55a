"""Any combination of options on pools small enough to enumerate, against a twin that shares no code
with the library: rules are kept, scores are right, and nothing is claimed that is not so."""

import math
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fairnepv
import reference
from cases import Array
from fairnepv import DiagonalView, InputError, KernelView, LocalEngine, Status
from soak.runner import Group

CLOSE = 1e-8  # how far scores may be from those of the twin
EXACT = 1e-6  # what float64 may cost a claim of optimality or a bound
SWAP = 1e-7
METHODS = ("auto",) * 6 + (
    *("exact", "exact", "nepv", "greedy", "greedy-swaps", "averaged", "fixed-weight"),
    *("concatenated", "softmax", "d-optimal", "saturate", "k-dpp", "random", "view0-only"),
)


@dataclass
class Asked:
    """What is asked of the library, and what the twin makes its own numbers of."""

    data: dict[str, Any]
    rows: dict[str, Array]  # as stored, float64; of kernels K itself
    kinds: dict[str, str]
    k: Any
    options: dict[str, Any] = field(default_factory=dict)
    eps: dict[str, float] = field(default_factory=dict)
    gone: dict[str, list[int]] = field(default_factory=dict)  # rows that lack the view

    @property
    def n(self) -> int:
        return len(next(iter(self.rows.values())))


# --- drawing what is asked ------------------------------------------------------------------------


def draw(number: int) -> Asked:
    rng = np.random.default_rng([23, 1, number])
    n = int(rng.integers(4, 10))
    M = int(rng.integers(1, 4))
    objective = str(rng.choice(["diverse", "diverse", "representative"]))
    mixed = rng.random() < 0.5
    kind = str(rng.choice(["dense", "sparse", "kernel", "diagonal"]))
    copies = rng.integers(n, size=(2, 2)) if rng.random() < 0.2 else np.empty((0, 2), int)
    asked = Asked({}, {}, {}, None)
    asked.options = {"objective": objective, "tau": float(10.0 ** rng.uniform(-2, 0.5))}
    for q in range(M):
        if mixed:
            kind = str(rng.choice(["dense", "sparse", "kernel", "diagonal"]))
        _draw_view(rng, asked, f"view{q}", n, kind, copies)
    _draw_scale(rng, asked)
    _draw_size(rng, asked)
    _draw_rules(rng, asked)
    _draw_search(rng, asked)
    return asked


def _draw_view(
    rng: np.random.Generator, asked: Asked, name: str, n: int, kind: str, copies: Any
) -> None:
    Phi = rng.standard_normal((n, int(rng.integers(1, 7)))) * 10.0 ** rng.uniform(-1, 1)
    if rng.random() < 0.3:
        Phi += rng.standard_normal(Phi.shape[1])
    for source, copy in copies:
        Phi[copy] = Phi[source]
    own = float(10.0 ** rng.uniform(-2, 0))
    asked.kinds[name] = kind
    if kind == "diagonal":
        values = 10.0 ** rng.uniform(-1, 1, size=n)
        brings = rng.random() < 0.3
        asked.data[name] = DiagonalView(values, own if brings else None)
        asked.rows[name] = np.diag(np.sqrt(values))
        asked.eps |= {name: own} if brings else {}
        return
    if kind == "kernel":
        brings = rng.random() < 0.3
        asked.data[name] = KernelView(Phi @ Phi.T, own if brings else None)
        asked.rows[name] = Phi
        asked.eps |= {name: own} if brings else {}
        return
    if kind == "sparse":
        Phi = np.where(rng.random(Phi.shape) < 0.7, Phi, 0.0)
        Phi[~Phi.any(axis=1), 0] = 1.0
        Phi = Phi.astype(rng.choice([np.float64, np.float32]))
        forms = (sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix)
        asked.data[name] = forms[rng.integers(len(forms))](Phi)
    else:
        stored = rng.choice(["float64", "float32", "float16", "int64", "fortran", "list"])
        if stored == "int64":
            Phi = np.rint(3 * Phi / np.abs(Phi).max()).astype(np.int64)
            Phi[~Phi.any(axis=1), 0] = 1
        elif stored in ("float32", "float16"):
            Phi = Phi.astype(stored)
        asked.data[name] = np.asfortranarray(Phi) if stored == "fortran" else Phi
        if stored == "list":
            asked.data[name] = Phi.tolist()
    asked.rows[name] = np.asarray(Phi, dtype=np.float64)


def _draw_scale(rng: np.random.Generator, asked: Asked) -> None:
    options, names = asked.options, list(asked.rows)
    shares = options["objective"] == "representative"
    common = float(10.0 ** rng.uniform(-3, 0.5))
    others = [name for name in names if name not in asked.eps]
    if rng.random() < 0.5 or len(others) < len(names):
        options["eps"] = {name: common * float(rng.uniform(0.5, 2)) for name in others}
    else:
        options["eps"] = common
    told = options["eps"]
    asked.eps |= told if isinstance(told, dict) else dict.fromkeys(others, told)
    plain = all(kind != "diagonal" for kind in asked.kinds.values())
    options["center"] = bool(rng.random() < (0.6 if shares else 0.3)) and plain
    rules = ["unit-diagonal", "trace", "none"] + ([] if shares else ["efficiency", "explicit"])
    rule = str(rng.choice(rules))
    factors = {name: float(np.exp(rng.standard_normal())) for name in names}
    options["calibration"] = factors if rule == "explicit" else rule
    if rng.random() < 0.3:
        weights = rng.uniform(0.2, 2.0, asked.n)
        by_view = {name: rng.uniform(0.2, 2.0, asked.n) for name in names}
        options["quality"] = weights if rng.random() < 0.5 else by_view
    if rng.random() < 0.35:
        pi = rng.dirichlet(np.ones(len(names))) * 0.9 + 0.1 / len(names)
        options["priorities"] = dict(zip(names, (pi / pi.sum()).tolist(), strict=True))
    holed = [name for name, kind in asked.kinds.items() if kind in ("dense", "sparse")]
    if holed and rng.random() < 0.25:
        options["missing"] = str(rng.choice(["drop", "neutral"]))
        for name in holed:
            _hole(rng, asked, name)


def _hole(rng: np.random.Generator, asked: Asked, name: str) -> None:
    gone = sorted(set(rng.integers(asked.n, size=int(rng.integers(0, 2))).tolist()))
    rows = np.array(asked.rows[name])
    rows[gone, -1] = np.nan
    dtype = getattr(asked.data[name], "dtype", np.dtype(float))
    rows = rows if np.dtype(dtype).kind == "i" else rows.astype(dtype)
    asked.data[name] = sp.csr_array(rows) if asked.kinds[name] == "sparse" else rows
    asked.rows[name][gone] = 0.0
    asked.gone[name] = gone


def _draw_size(rng: np.random.Generator, asked: Asked) -> None:
    left = asked.n - len(lost(asked))
    sizes = [1, left - 1, *rng.integers(1, left, size=3).tolist()]
    asked.k = int(rng.choice(sizes))
    if rng.random() < 0.15:
        asked.k = sorted({int(k) for k in rng.integers(1, left, size=3)})
        asked.options["nested"] = bool(rng.random() < 0.5)


def _draw_rules(rng: np.random.Generator, asked: Asked) -> None:
    """Rules that at least one set of the size meets; of several sizes, none but exclusions."""
    options, n = asked.options, asked.n
    some = np.setdiff1d(np.arange(n), lost(asked))
    largest = max(asked.k) if isinstance(asked.k, list) else asked.k
    goal = rng.permutation(some)[:largest]
    others = np.setdiff1d(some, goal)
    if rng.random() < 0.4 and len(others):
        options["exclude"] = others[: int(rng.integers(1, min(3, len(others)) + 1))].tolist()
    if isinstance(asked.k, list):
        return
    if rng.random() < 0.35:
        options["include"] = goal[: int(rng.integers(1, min(2, len(goal)) + 1))].tolist()
    if rng.random() < 0.35:
        groups = rng.integers(int(rng.integers(1, 4)), size=n)
        counts = np.bincount(groups[goal], minlength=groups.max() + 1)
        labels = np.array(["red", "green", "blue"])[groups]
        options["groups"] = labels.tolist() if rng.random() < 0.5 else labels
        options["quotas"] = {
            str(label): (max(int(c) - int(rng.integers(2)), 0), int(c) + int(rng.integers(2)))
            for label, c in zip(np.array(["red", "green", "blue"]), counts, strict=False)
            if label in labels
        }
    if rng.random() < 0.2:
        d = Twin(asked).scores([tuple(sorted(goal.tolist()))], None)[0]
        slack = float(rng.uniform(-0.1, 0.5))
        chosen = rng.random(len(d)) < 0.7
        floors = {
            name: float(value - slack)
            for name, value, is_chosen in zip(asked.rows, d, chosen, strict=True)
            if is_chosen
        }
        if options["objective"] == "representative":
            floors = {name: min(max(value, 0.0), 1.0) for name, value in floors.items()}
        if options["calibration"] != "efficiency" and floors:
            options["floors"] = floors


def _draw_search(rng: np.random.Generator, asked: Asked) -> None:
    options = asked.options
    options["method"] = str(rng.choice(METHODS))
    options["effort"] = str(rng.choice(["fast", "balanced", "thorough"]))
    options["random_state"] = int(rng.integers(4))
    options["certify"] = bool(rng.random() < 0.8)
    engines = [None, "local", LocalEngine(3), LocalEngine(1), "torch:cpu"]
    options["engine"] = engines[rng.integers(len(engines))]
    if rng.random() < 0.2:
        options["ids"] = [f"item {i}" for i in range(asked.n)]
        for name in ("include", "exclude"):
            if name in options:
                options[name] = [options["ids"][i] for i in options[name]]


# --- the twin -------------------------------------------------------------------------------------


def lost(asked: Asked) -> list[int]:
    """Rows that are left out."""
    if asked.options.get("missing") != "drop":
        return []
    return sorted(set().union(*asked.gone.values()))


class Twin:
    """Views, scores and sets of what is asked, from the formulas of `reference` alone."""

    def __init__(self, asked: Asked) -> None:
        self.asked, self.names = asked, list(asked.rows)
        self.out = lost(asked)

    def views(self) -> list[Array]:
        """Rows as the objective takes them, without quality."""
        made = []
        for name in self.names:
            gone = sorted({*self.asked.gone.get(name, []), *self.out})
            there = [i for i in range(self.asked.n) if i not in gone]
            Phi = np.zeros_like(self.asked.rows[name])
            own = self.asked.rows[name][there]
            own = reference.centered(own) if self.asked.options["center"] else own
            rule = self.asked.options["calibration"]
            if rule in ("unit-diagonal", "efficiency"):
                own = reference.unit_diagonal(own)
            if rule == "trace":
                own = reference.trace_normalized(own)
            Phi[there] = own
            made.append(Phi)
        return made

    def offsets(self, found: Any) -> Array:
        rule = self.asked.options["calibration"]
        if isinstance(rule, dict):
            return np.log([rule[name] for name in self.names])
        if rule == "efficiency" and found is not None:
            return np.array([found.calibration.offsets[name] for name in self.names])
        return np.zeros(len(self.names))

    def quality(self) -> list[Array | None]:
        given = self.asked.options.get("quality")
        if isinstance(given, dict):
            return [given[name] for name in self.names]
        return [given] * len(self.names)

    def scores(self, subsets: list[tuple[int, ...]], found: Any) -> Array:
        """(m, M) d_q of every set."""
        views, eps = self.views(), [self.asked.eps[name] for name in self.names]
        if self.asked.options["objective"] == "diverse":
            Ls = [
                reference.kernel(Phi, e, w)
                for Phi, e, w in zip(views, eps, self.quality(), strict=True)
            ]
            return reference.view_scores(Ls, subsets) + self.offsets(found)
        parts = list(zip(views, eps, self.quality(), strict=True))
        return np.array(
            [[reference.explained(*part[:2], S, part[2]) for part in parts] for S in subsets]
        )

    def fair(self, d: Array) -> Array:
        M, tau = len(self.names), self.asked.options["tau"]
        pi = self.asked.options.get("priorities")
        weights = np.full(M, 1 / M) if pi is None else np.array([pi[n] for n in self.names])
        return np.array([reference.prioritized(row, tau, weights) for row in d])

    def rows_of(self, option: str) -> set[int]:
        given, ids = self.asked.options.get(option, []), self.asked.options.get("ids")
        return {ids.index(item) if ids else item for item in given}

    def obeys(self, S: tuple[int, ...]) -> bool:
        options, chosen = self.asked.options, set(S)
        if self.rows_of("include") - chosen or self.rows_of("exclude") & chosen:
            return False
        if chosen & set(self.out):
            return False
        for label, (least, most) in options.get("quotas", {}).items():
            if not least <= sum(str(options["groups"][i]) == label for i in S) <= most:
                return False
        return True

    def allowed(self, k: int) -> list[tuple[int, ...]]:
        return [S for S in combinations(range(self.asked.n), k) if self.obeys(S)]

    def meets_floors(self, d: Array) -> Any:
        floors = self.asked.options.get("floors", {})
        least = np.array([floors.get(name, -math.inf) for name in self.names])
        return (d >= least - 1e-9).all(axis=1)


# --- one case -------------------------------------------------------------------------------------


def case(number: int, folder: Path) -> None:
    asked = draw(number)
    twin = Twin(asked)
    try:
        chosen = fairnepv.select(asked.data, asked.k, **asked.options)
    except InputError as error:
        _check_refusal(twin, str(error))
        return
    several = chosen if isinstance(chosen, dict) else {asked.k: chosen}
    assert list(several) == (asked.k if isinstance(asked.k, list) else [asked.k])
    for k, found in several.items():
        _check(twin, found, k)
    if asked.options.get("nested"):
        sizes = [set(found.indices.tolist()) for _, found in sorted(several.items())]
        assert all(a <= b for a, b in pairwise(sizes))


def _check_refusal(twin: Twin, said: str) -> None:
    """What may be refused is what the twin finds to be so."""
    options = twin.asked.options
    if "all-zero row" in said:
        zero = [not Phi[i].any() for Phi in _raw(twin) for i in range(len(Phi))]
        assert any(zero), said
        return
    if "no variance" in said or "all zeros" in said:
        assert any(np.ptp(Phi, axis=0).max() < 1e-9 or not Phi.any() for Phi in _raw(twin)), said
        return
    if "does not support" in said and options["method"] not in ("auto", "exact", "greedy"):
        return
    if "is a KernelView, which cannot be centred where rows are left out" in said:
        assert twin.out
        return
    if "floor" in said:
        d = twin.scores(twin.allowed(twin.asked.k), None)
        assert not twin.meets_floors(d).any(), said
        return
    raise AssertionError(said)


def _raw(twin: Twin) -> list[Array]:
    made = []
    for name in twin.names:
        gone = {*twin.asked.gone.get(name, []), *twin.out}
        own = twin.asked.rows[name][[i for i in range(twin.asked.n) if i not in gone]]
        own = reference.centered(own) if twin.asked.options["center"] else own
        made.append(np.where(np.abs(own) < 1e-12 * max(np.abs(own).max(), 1e-300), 0.0, own))
    return made


def _check(twin: Twin, found: Any, k: int) -> None:
    options = twin.asked.options
    S = tuple(found.indices.tolist())
    assert len(set(S)) == len(S) == k
    nested = bool(options.get("nested"))
    assert twin.obeys(S), f"{S} breaks a rule"
    if "ids" in options:
        assert found.ids.tolist() == [options["ids"][i] for i in S]
    d = twin.scores([S], found)[0]
    np.testing.assert_allclose(list(found.scores.values()), d, atol=CLOSE, rtol=CLOSE)
    F = twin.fair(d[None])[0]
    np.testing.assert_allclose(found.fair_score, F, atol=CLOSE, rtol=CLOSE)
    subsets = twin.allowed(k)
    all_d = twin.scores(subsets, found)
    all_F = twin.fair(all_d)
    meets = twin.meets_floors(all_d)
    free = not nested or k == min(twin.asked.k)  # larger ones hold the smaller
    best = all_F[meets].max(initial=-math.inf)
    if found.status is Status.FLOORS_MISSED:
        assert not twin.meets_floors(d[None])[0]
    else:
        assert twin.meets_floors(d[None])[0], f"a floor is missed, but {found.status}"
    if found.upper_bound is not None and free:
        assert found.upper_bound >= best - EXACT, "a bound below the optimum"
    if found.status is Status.OPTIMAL and free:
        assert best - EXACT <= F, f"not optimal: {best} by {subsets[int(np.argmax(all_F))]}"
    own = options["method"] in ("auto", "exact", "nepv", "greedy-swaps")
    if found.status is Status.LOCAL_OPTIMUM and own and "floors" not in options and free:
        near = np.array([len(set(S) & set(T)) == k - 1 for T in subsets])
        assert all_F[near].max(initial=-math.inf) <= F + SWAP, "a swap improves a local optimum"
    _check_proof(twin, found)


def _check_proof(twin: Twin, found: Any) -> None:
    """The bound is verified on the data, and the picks are scored as they were."""
    options = twin.asked.options
    own = ("quality", "missing", "ids", "engine")  # what belongs to the data, and who computes
    data = {name: options[name] for name in own if name in options}
    if found.certificate is not None:
        assert fairnepv.verify_bound(twin.asked.data, found, **data).holds
    again = fairnepv.score(twin.asked.data, found, **data)
    np.testing.assert_allclose(again.fair_score, found.fair_score, atol=CLOSE, rtol=CLOSE)


GROUP = Group("cross-product", case, 5000, sample=range(0, 5000, 200))
