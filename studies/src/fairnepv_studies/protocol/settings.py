"""All that decides what a run finds, checked before anything is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack, cast

from fairnepv import __version__
from fairnepv.api.inputs import sketch
from fairnepv.checks import check_flag, check_positive, one_of
from fairnepv.errors import InputError
from fairnepv.methods import APART, Nepv, check_method, check_nepv, refusal
from fairnepv.objective import UNITS, Nats
from fairnepv.options import CALIBRATIONS as ALL_CALIBRATIONS
from fairnepv.options import DIVERSE, OBJECTIVES, STARTS, Budget, Rounding, default
from fairnepv.problem import Problem
from fairnepv.search import arena_rows, check_effort
from fairnepv.search.kinds import kind_of
from fairnepv.signatures import checked, options_of
from fairnepv_studies.protocol import SEEDS, default_methods
from fairnepv_studies.protocol.pool import SelectionPool
from fairnepv_studies.protocol.results import BOUND, Unit
from fairnepv_studies.protocol.tuning import GRID, tuned_shifts, with_shifted_solver

# Known before anything is selected or proven.
CALIBRATIONS = tuple(rule for rule in ALL_CALIBRATIONS if rule != "efficiency")
# What runs were about before there were several objectives, and before the paper's pipeline had
# knobs: their settings name none of these.
BEFORE_OBJECTIVES = {
    **{"objective": DIVERSE, "center": False},
    **{name: option.default for name, option in options_of(Rounding).items()},
    "passes": None,
    **{"shift_grid": [], "shifts": {}},
}
_DRAW = ("random", "k-dpp")


class Posing(TypedDict, total=False):
    """What poses the problem."""

    objective: str
    tau: float
    eps: float
    center: bool
    calibration: str


class Knobs(Posing, Budget, total=False):
    """And how hard and how tightly it is solved, and how the paper's pipeline goes."""

    gap: float


@dataclass(frozen=True)
class Settings:
    """All that decides what a run finds."""

    corpus: str  # checksum
    corpus_name: str
    simulated: bool
    split: str  # checksum of split.json
    split_seed: int
    n: int  # items in the selection pool
    features: dict[str, str]  # checksums by view, in the order of the views
    sizes: list[int]
    methods: list[str]
    seeds: int
    drawn: dict[str, list[int]]  # by method the sizes at which it depends on the seed
    objective: str = field(default=DIVERSE, kw_only=True)  # see BEFORE_OBJECTIVES
    tau: float
    eps: float
    center: bool = field(default=False, kw_only=True)
    calibration: str
    effort: str
    gap: float
    solver: str | None = field(default=None, kw_only=True)  # None: as rounding needs
    alpha: float | None = field(default=None, kw_only=True)
    sigma: float | None = field(default=None, kw_only=True)
    tol: float | None = field(default=None, kw_only=True)
    max_steps: int | None = field(default=None, kw_only=True)
    start: str = field(default=default("start"), kw_only=True)
    oversampling: float = field(default=default("oversampling"), kw_only=True)
    passes: int | None = field(default=None, kw_only=True)
    # Chosen on the validation split by size, in units of 1/k, from `tuning.GRID`; if at all.
    shift_grid: list[float] = field(default_factory=list, kw_only=True)
    shifts: dict[str, float] = field(default_factory=dict, kw_only=True)
    # By size the passes of one-swaps of every selector that is refined by them.
    budgets: dict[str, int] = field(default_factory=dict, kw_only=True)
    # By size what 'nepv' makes of these; runs from before it was told have none.
    nepv: dict[str, dict[str, Any]] = field(default_factory=dict, kw_only=True)
    version: str = __version__

    @property
    def views(self) -> list[str]:
        return list(self.features)

    @property
    def posing(self) -> Posing:
        return {
            "objective": self.objective,
            "tau": self.tau,
            "eps": self.eps,
            "center": self.center,
            "calibration": self.calibration,
        }

    @property
    def knobs(self) -> Knobs:
        return {
            **self.posing,
            **self.rounding,
            "effort": self.effort,
            "passes": self.passes,
            "gap": self.gap,
        }

    @property
    def rounding(self) -> Rounding:
        given: Any = {name: getattr(self, name) for name in options_of(Rounding)}
        return cast(Rounding, given)

    def asked(self, method: str, k: int) -> dict[str, Any]:
        """The options of `select` for a selector, besides those that pose the problem."""
        own: dict[str, Any] = {"oversampling": self.oversampling}
        if method == "nepv":
            own = {**self.rounding, **({"sigma": self.shifts[str(k)] / k} if self.shifts else {})}
        if method not in APART:
            own["passes"] = self.budgets.get(str(k), self.passes)
        return {"method": method, "effort": self.effort, "gap": self.gap, **own}

    @property
    def told_in(self) -> Nats:
        """In what scores are told."""
        return UNITS[self.objective]

    @property
    def units(self) -> list[Unit]:
        """All selections, in the order of the tables."""
        return [
            Unit(k, method, seed)
            for k in self.sizes
            for method in self.methods
            for seed in range(self.seeds if k in self.drawn.get(method, ()) else 1)
        ]

    @property
    def timed(self) -> list[Unit]:
        """What has seconds of its own: the bounds, then all selections."""
        return [Unit(k, BOUND, 0) for k in self.sizes] + self.units

    @property
    def count(self) -> int:
        """Of the units, without a list of them."""
        drawn = sum(len(sizes) for sizes in self.drawn.values())
        return len(self.sizes) * len(self.methods) + (self.seeds - 1) * drawn

    @property
    def caption(self) -> str:
        """For tables and figures: simulated data is called that.

        Where nothing is said of an objective or of centring, it is about diverse picks from views
        as they came: so were all publications once, whose tables are held against these words.
        """
        objective = "" if self.objective == DIVERSE else f"objective {self.objective}, "
        return (
            f"{self.corpus_name[:1].upper()}{self.corpus_name[1:]} corpus, selection pool of "
            f"{self.n:,} items, {objective}tau = {_digits(self.tau)}, eps = {_digits(self.eps)}, "
            f"{'centred, ' if self.center else ''}{self.calibration}, effort {self.effort}"
        )

    @classmethod
    def read(cls, document: Any, where: str) -> Settings:
        try:
            settings = cls(**document)
            check_objective(settings.objective)
        except (TypeError, InputError) as error:
            raise InputError(f"{where} holds no settings of a run ({error})") from error
        return settings


def _digits(number: float) -> str:
    """As short as it can be said without saying another number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def make_settings(
    pool: SelectionPool,
    sizes: Sequence[int],
    *,
    methods: Sequence[str] | None = None,
    seeds: int = SEEDS,
    tune_shift: bool = False,
    **knobs: Unpack[Knobs],
) -> Settings:
    """Everything is checked here, before anything is run.

    knobs: as `select` takes them, and with its defaults.
    tune_shift: choose sigma on the items that validate, which takes a relaxation for every size and
        shift of the grid.
    """
    given = _checked(knobs)
    views, n = list(pool.views), len(pool.rows)
    chosen = default_methods(views) if methods is None else list(methods)
    _check_lists(sizes, chosen, seeds, n)
    given = with_shifted_solver(given, chosen) if tune_shift else given
    posing = {name: given[name] for name in ("objective", "eps", "center", "calibration")}
    sketches = {k: sketch(pool.views, k, posing) for k in sizes}
    if methods is None:  # nobody asked for those that this problem does not support
        chosen = [m for m in chosen if not any(refusal(p, m) for p in sketches.values())]
    for problem in sketches.values():
        for method in chosen:
            check_method(problem, method)
    pipeline = _check_pipeline(given, chosen)
    shifts = tuned_shifts(pool, sizes, given) if tune_shift else {}
    budgets = {str(k): _passes(given, sketches[k]) for k in sizes}
    told = {
        k: {**_told(pipeline, shifts.get(k), sketches[int(k)]), "passes": passes}
        for k, passes in budgets.items()
        if pipeline
    }
    drawn = {m: [k for k in sizes if draws(m, given, sketches[k])] for m in chosen}
    return Settings(
        corpus=pool.corpus.about.checksum,
        corpus_name=pool.corpus.about.name,
        simulated=pool.corpus.about.simulated,
        split=pool.split.checksum,
        split_seed=pool.split.seed,
        n=n,
        features={view: pool.descriptions[view].checksum for view in views},
        sizes=list(sizes),
        methods=chosen,
        seeds=seeds,
        drawn={method: sizes for method, sizes in drawn.items() if sizes},
        shift_grid=list(GRID) if tune_shift else [],
        shifts=shifts,
        budgets=budgets,
        nepv=told,
        **given,
    )


def _check_pipeline(given: Mapping[str, Any], methods: Sequence[str]) -> Nepv | None:
    """How 'nepv' goes, if it is among the selectors; else its knobs are refused."""
    one_of(*STARTS)("start", given["start"])
    check_nepv({**given, "hierarchical": False}, tuple(methods))
    return Nepv.of(given) if "nepv" in methods else None


def _passes(given: Mapping[str, Any], problem: Problem) -> int:
    """Of one-swaps: those that were asked for, or as many as a comparison has."""
    asked: int | None = given["passes"]
    equal = check_effort(given["effort"]).equal_passes(problem.work())
    return equal if asked is None else asked


def _told(pipeline: Nepv, shift: float | None, problem: Problem) -> dict[str, Any]:
    """What stands behind the name 'nepv' at this size."""
    if shift is not None:
        pipeline = replace(pipeline, sigma=shift / problem.k)
    own = pipeline.settings(problem.k, problem.utility)
    return {**own, "oversampling": pipeline.oversampling}


def check_objective(name: Any) -> str:
    checked: str = one_of(*OBJECTIVES)("objective", name)
    return checked


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of a run, with the defaults of the library for those that were not given."""
    if unknown := sorted({*given} - {*Knobs.__annotations__}):
        raise TypeError(f"make_settings() got an unexpected keyword argument {unknown[0]!r}")
    named = {name: value for name, value in given.items() if value is not None}
    objective = check_objective(named.get("objective", DIVERSE))
    knobs = {name: named.get(name, default(name, objective)) for name in Knobs.__annotations__}
    budget = {name: knobs[name] for name in options_of(Budget)}
    knobs |= dict(checked("make_settings", Budget, budget))
    check_flag("center", knobs["center"])
    for name in ("tau", "eps", "gap"):
        check_positive(name, knobs[name])
    check_effort(knobs["effort"])
    if knobs["calibration"] not in CALIBRATIONS:
        raise InputError(
            f"calibration must be one of {', '.join(CALIBRATIONS)}, not {knobs['calibration']!r}"
        )
    return knobs


def _check_lists(sizes: Sequence[Any], methods: Sequence[Any], seeds: Any, n: int) -> None:
    for what, given in (("sizes", list(sizes)), ("methods", list(methods))):
        if not given or len(set(given)) < len(given):
            raise InputError(f"{what} must be named, each once, not {given!r}")
    for k in sizes:
        if type(k) is not int or not 1 <= k < n:
            raise InputError(
                f"k = {k} does not fit the selection pool of {n:,} items; give whole numbers from "
                f"1 to {n - 1:,}, as in --k 100,500"
            )
    if type(seeds) is not int or seeds < 1:
        raise InputError(f"seeds must be a whole number from 1 on, not {seeds!r}")


def draws(method: str, knobs: Mapping[str, Any], problem: Problem) -> bool:
    """Whether a selector depends on the seed: some sample, and so does the default where its effort
    leaves room for tabu search, and the paper's pipeline unless it starts from the spectral frame.
    """
    if method in _DRAW or (method == "nepv" and knobs["start"] != default("start")):
        return True
    spent = check_effort(knobs["effort"])
    arrays = kind_of(problem).arena.arrays * len(problem.pool.views)
    entries = arrays * arena_rows(problem) * problem.k
    return method in ("auto", "exact") and spent.swaps_for(problem.work(), entries) > 0
