"""What a study asks for: study.toml as records, every value checked before any work is done.

Nothing here needs more than Python, so that the machine that trains can read it again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fairnepv.checks import brief, check_count, check_flag, check_share
from fairnepv.errors import InputError
from fairnepv_studies.downstream.fields import (
    check_below,
    check_keys,
    check_table,
    check_text,
    plain,
    read_fields,
    read_toml,
)
from fairnepv_studies.downstream.recipe import (
    RECIPE,
    ModelSource,
    Recipe,
    read_model,
    read_recipe,
    recipe_document,
    without_none,
)

MEDOIDS = "k-medoids"  # a method that only studies have
TUNABLE = ("learning_rate", "schedule", "warmup", "weight_decay", "epochs", "steps", "batch_size")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_ROUNDING = ("solver", "start", "tol", "max_steps", "alpha", "sigma", "oversampling")
_SEARCH = ("tau", "eps", "center", "calibration", "effort", "passes", "local", *_ROUNDING)


@dataclass(frozen=True)
class Selector:
    """Who chooses: a method of `fairnepv.select` with its options, k-means medoids, a selector of a
    finished `fairnepv uspto run`, or files of picks."""

    name: str  # as tables call it
    method: str = "auto"
    objective: str = "diverse"
    tau: float | None = None  # None, here and below: as the library has it
    eps: float | None = None
    center: bool | None = None
    calibration: str = "unit-diagonal"
    effort: str = "balanced"
    passes: int | None = None
    local: bool = False  # by local features of the views
    solver: str | None = None
    start: str | None = None
    tol: float | None = None
    max_steps: int | None = None
    alpha: float | None = None
    sigma: float | None = None
    oversampling: float | None = None
    seeds: int | None = None  # None: as many as the study has
    fixed: bool = False  # the picks of seed 0 for every seed
    run: str | None = None  # of the corpus
    picks: str | None = None  # a file for each size {k}, perhaps for each seed {seed}

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InputError(
                f"name must be letters, digits, dots and dashes, at most 60, not {brief(self.name)}"
            )
        for name in ("method", "objective", "calibration", "effort"):
            check_text(name, getattr(self, name))
        for name in ("run", "picks", "solver", "start"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        check_flag("local", self.local)
        check_flag("fixed", self.fixed)
        if self.seeds is not None:
            check_count("seeds", self.seeds)
        self._check_source()

    def _check_source(self) -> None:
        if self.run is not None and self.picks is not None:
            raise InputError("give run or picks, not both")
        searches = self.run is None and self.picks is None and self.method != MEDOIDS
        plainly = Selector.__dataclass_fields__
        changed = [n for n in _SEARCH if getattr(self, n) != plainly[n].default]
        changed += [n for n in ("objective",) if getattr(self, n) != plainly[n].default]
        if not searches and changed:
            source = "run" if self.run else "picks" if self.picks else MEDOIDS
            raise InputError(f"{changed[0]} means nothing with {source}; leave it out")
        if self.picks is not None and "{k}" not in self.picks:
            raise InputError("picks must have {k} in its name, which stands for the size")


@dataclass(frozen=True)
class Data:
    """Which items of the corpus's split are used."""

    validation: int | None = None  # at most so many of those that validate; None: all
    test: int | None = None
    pretrain: float = 0.0  # share of the selection pool that is set apart for pretraining
    seed: int = 0  # of the order in which these are taken

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_below("pretrain", self.pretrain, 1)
        check_count("seed", self.seed, 0)


@dataclass(frozen=True)
class Tuning:
    """One knob of the recipe, chosen by ROUGE-L on the validation items before anything is tested,
    as one selector at one size has it; the same value is then taken for all."""

    knob: str
    values: tuple[Any, ...]
    selector: str
    k: int
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.knob not in TUNABLE:
            raise InputError(f"knob must be one of {', '.join(TUNABLE)}, not {brief(self.knob)}")
        different = isinstance(self.values, tuple) and len(set(self.values)) == len(self.values)
        if not different or len(self.values) < 2:
            raise InputError(f"values must be two or more different ones, not {brief(self.values)}")
        check_text("selector", self.selector)
        check_count("k", self.k)
        check_count("seeds", self.seeds)


@dataclass(frozen=True)
class BertScore:
    """BERTScore-F1 by bert-score. Without a name the package's own model for the language."""

    model: str | None = None
    layers: int | None = None  # needed for a model that bert-score does not know
    language: str = "en"
    rescale: bool = True
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.model is not None:
            check_text("model", self.model)
        if self.layers is not None:
            check_count("layers", self.layers)
        check_text("language", self.language)
        check_flag("rescale", self.rescale)
        check_count("batch_size", self.batch_size)


@dataclass(frozen=True)
class Scoring:
    """Which scores, and how sure of differences."""

    bertscore: BertScore | None = None  # BLEU-4 and ROUGE-L are always there
    resamples: int = 2000  # of the bootstrap
    level: float = 0.95  # of its intervals
    rare_motif: float = 0.01  # a design code is rare if at most this share of the pool has it
    rare_wording: float = 0.25  # this share of the test items, those of the rarest words

    def __post_init__(self) -> None:
        check_count("resamples", self.resamples, 100)
        for name in ("level", "rare_motif", "rare_wording"):
            check_share(name, getattr(self, name))


@dataclass(frozen=True)
class Study:
    corpus: str  # folder; empty where a study is read from a prepared folder
    sizes: tuple[int, ...]
    selectors: tuple[Selector, ...]
    recipe: Recipe = RECIPE
    model: ModelSource = field(default_factory=ModelSource)
    seeds: int = 5
    views: tuple[str, ...] = ("text", "vision")
    baselines: tuple[str, ...] | None = None  # None: all selectors but the first
    data: Data = field(default_factory=Data)
    tuning: Tuning | None = None
    scoring: Scoring = field(default_factory=Scoring)

    def __post_init__(self) -> None:
        check_count("seeds", self.seeds)
        for k in _different("sizes", self.sizes):
            check_count("one of sizes", k)
        for view in _different("views", self.views):
            check_text("one of views", view)
        names = [selector.name for selector in self.selectors]
        _different("names of selectors", names)
        self._check_seeds()
        self._check_names(names)
        self._check_tuning()

    def _check_seeds(self) -> None:
        for selector in self.selectors:
            if selector.seeds is not None and selector.seeds < self.seeds:
                raise InputError(
                    f"selector {selector.name!r} has {selector.seeds} seeds and the study "
                    f"{self.seeds}: seeds are matched, so a selector may have more, not fewer"
                )

    def _check_names(self, names: Sequence[str]) -> None:
        if self.baselines is None:
            return
        for name in _different("baselines", self.baselines):
            if name not in names:
                raise InputError(
                    f"baseline {brief(name)} is none of the selectors, which are {', '.join(names)}"
                )
        if set(self.baselines) == set(names):
            raise InputError("every selector is a baseline; leave out what is compared with them")

    def _check_tuning(self) -> None:
        tuning = self.tuning
        if tuning is None:
            return
        if tuning.selector not in [selector.name for selector in self.selectors]:
            raise InputError(f"[tuning]: there is no selector {brief(tuning.selector)}")
        if tuning.k not in self.sizes:
            raise InputError(f"[tuning]: k = {tuning.k} is none of sizes")
        if tuning.seeds > self.seeds_of(tuning.selector):
            raise InputError(f"[tuning]: {tuning.selector!r} has fewer than {tuning.seeds} seeds")
        for value in tuning.values:
            try:
                self.recipe_with(value)
            except InputError as error:
                raise InputError(f"[tuning], one of values: {error}") from error

    def recipe_with(self, value: Any) -> Recipe:
        """The recipe with this value of the knob that is tuned."""
        assert self.tuning is not None
        knob = self.tuning.knob
        other = {"epochs": "steps", "steps": "epochs"}.get(knob)
        changed: dict[str, Any] = {knob: value, **({other: None} if other else {})}
        return replace(self.recipe, **changed)

    def selector(self, name: str) -> Selector:
        return next(selector for selector in self.selectors if selector.name == name)

    def seeds_of(self, name: str) -> int:
        return self.selector(name).seeds or self.seeds

    @property
    def against(self) -> tuple[str, ...]:
        """The baselines."""
        names = tuple(selector.name for selector in self.selectors)
        return names[1:] if self.baselines is None else self.baselines

    @property
    def challengers(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.selectors if s.name not in self.against)


def _different(what: str, values: Any) -> Any:
    if not isinstance(values, tuple | list) or not values or len(set(values)) < len(values):
        raise InputError(f"{what} must be a list, each once, not {brief(values)}")
    return values


# --- reading and writing --------------------------------------------------------------------------

_TABLES = ("selectors", "recipe", "model", "data", "tuning", "scoring")


def read_study(path: Path) -> Study:
    """The study of a file; paths in it are relative to its folder."""
    return study_of(read_toml(path), str(path))


def study_of(document: Any, where: str) -> Study:
    """From the tables of a study file or from `study_document`."""
    said = check_table(document, where)
    check_keys(said, [field.name for field in fields(Study)], where)
    for name in ("corpus", "sizes", "selectors"):
        if name not in said:
            raise InputError(f"{where} must say {name}, and does not")
    if not isinstance(said["corpus"], str):
        raise InputError(f"{where}: corpus must be the folder of a corpus")
    selectors = said["selectors"]
    if not isinstance(selectors, list) or not selectors:
        raise InputError(f"{where} needs at least one [[selectors]]")
    given: dict[str, Any] = {n: plain(value) for n, value in said.items() if n not in _TABLES}
    given["selectors"] = tuple(
        read_fields(Selector, table, f"{where}, selector {number}")
        for number, table in enumerate(selectors, 1)
    )
    readers: dict[str, Any] = {
        "recipe": lambda table: read_recipe(table, "[recipe]"),
        "model": read_model,
        "data": lambda table: read_fields(Data, table, "[data]"),
        "tuning": lambda table: read_fields(Tuning, table, "[tuning]"),
        "scoring": _read_scoring,
    }
    given |= {name: read(said[name]) for name, read in readers.items() if name in said}
    try:
        return Study(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _read_scoring(table: Any) -> Scoring:
    given = dict(check_table(table, "[scoring]"))
    if "bertscore" in given:
        asked = given["bertscore"]
        given["bertscore"] = (
            None if asked is False else read_fields(BertScore, asked, "[scoring.bertscore]")
        )
    return read_fields(Scoring, given, "[scoring]")


def study_document(study: Study) -> dict[str, Any]:
    """All of it that a prepared folder says, so that `study_of` gives it again; where files lay on
    the machine that prepared it is nobody's business."""
    document = without_none(asdict(study))
    document["corpus"] = ""
    document["recipe"] = recipe_document(study.recipe)
    document["model"]["name"] = _without_place(study.model.name)
    for selector in document["selectors"]:
        if "picks" in selector:
            selector["picks"] = _without_place(selector["picks"])
    return document


def _without_place(name: str) -> str:
    path = Path(name)
    return path.name if path.is_absolute() or ".." in path.parts else name
