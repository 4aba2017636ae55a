"""A run of the protocol: every selector at every size on the selection pool [FairNEPv, section 6].

    corpus/runs/NAME/
      settings.json     what was asked for, of which corpus, split and features
      environment.json  Python, packages and machine
      bounds/           per size the proof of its bound, as `fairnepv certify --out` writes it
      done/             one file per selection, written when it is done
      seconds/          the same for the clock
      unfinished/       the state of the selection at hand and its seconds so far, until it is done
      results.csv, results.tex, selections.csv, views.png, efficiency.png
      seconds.csv, seconds.tex

What is done is not done again, and a selection that was cut short goes on from its last state, so a
run that was killed goes on where it was. Every selector is `fairnepv.select` with one effort, as
`fairnepv.compare` does it, and all have the same scorer. A selector with an objective is greedy in
it and refined under it within the same passes, with the exceptions that every caption names
(`run_report.budget_sentence`).
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv import __version__
from fairnepv.api.inputs import sketch
from fairnepv.api.pipeline import certify, score, select
from fairnepv.api.selection import Score, Selection
from fairnepv.concave import Certificate, Proof, proof_arrays, read_proof
from fairnepv.errors import CheckpointError, InputError, Status
from fairnepv.io import read_archive, write_arrays
from fairnepv.io.documents import parse_document
from fairnepv.io.write import Output, to_json
from fairnepv.loop import Progress, Step
from fairnepv.methods import check_method
from fairnepv.problem import Problem, check_tau
from fairnepv.search import check_effort
from fairnepv.views.arrays import check_positive
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.feature_files import Description, feature_views, read_view
from fairnepv_studies.results import BOUND, Result, Unit, measures
from fairnepv_studies.run_clock import Clock
from fairnepv_studies.split import Split, read_split

FOLDER = "runs"
CALIBRATIONS = ("unit-diagonal", "trace", "none")  # known before anything is selected or proven
_DRAW = ("random", "k-dpp")
_PARTS = ("bounds", "done", "seconds", "unfinished")
_TORN = re.compile(r"\..+\.(json|npz|csv|tex|png|seconds)\.[a-z0-9_]{8}")  # see `Output.write`
_PACKAGES = ("fairnepv", "numpy", "scipy", "scikit-learn", "pyarrow", "matplotlib", "pillow")


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
    tau: float
    eps: float
    calibration: str
    effort: str
    gap: float
    version: str = __version__

    @property
    def views(self) -> list[str]:
        return list(self.features)

    @property
    def posing(self) -> dict[str, Any]:
        """The problem, as `select`, `certify` and `score` take it."""
        return {"tau": self.tau, "eps": self.eps, "calibration": self.calibration}

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
        """For tables and figures: simulated data is called that."""
        return (
            f"{self.corpus_name[:1].upper()}{self.corpus_name[1:]} corpus, selection pool of "
            f"{self.n:,} items, tau = {_digits(self.tau)}, eps = {_digits(self.eps)}, "
            f"{self.calibration}, effort {self.effort}"
        )

    @classmethod
    def read(cls, document: Any, where: str) -> Settings:
        try:
            return cls(**document)
        except TypeError as error:
            raise InputError(f"{where} holds no settings of a run ({error})") from error


def _digits(number: float) -> str:
    """As short as it can be said without saying another number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


@dataclass(frozen=True)
class Pool:
    """The rows that may be selected, with the features of every view."""

    corpus: Corpus
    split: Split
    views: dict[str, Any]
    descriptions: dict[str, Description]

    @classmethod
    def of(cls, corpus: Corpus, split: Split, views: Sequence[str]) -> Pool:
        if not views or len(set(views)) < len(views):
            raise InputError(f"views must be names, each once, not {', '.join(views) or 'none'}")
        read = {view: read_view(corpus, view) for view in views}
        return cls(
            corpus,
            split,
            {view: _rows(features, split.pool) for view, (features, _) in read.items()},
            {view: description for view, (_, description) in read.items()},
        )

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.split.pool


def _rows(features: Any, rows: NDArray[np.int64]) -> Any:
    """Half precision is exact in float32, and every product of it far quicker."""
    chosen = features[rows]
    return chosen.astype(np.float32) if chosen.dtype == np.float16 else chosen


def default_methods(views: Sequence[str]) -> list[str]:
    """The paper's pipeline and our default, then what they are held against."""
    return [
        *("nepv", "auto", *(f"{view}-only" for view in views)),
        *("averaged", "fixed-weight", "concatenated", "random"),
    ]


def default_views(corpus: Corpus) -> list[str]:
    """Text and vision, as in the paper, or whatever else there is."""
    known = feature_views(corpus)
    if not known:
        raise InputError(
            f"{corpus.folder} has no features yet; make them with fairnepv uspto features "
            f"{corpus.folder}"
        )
    return ["text", "vision"] if {"text", "vision"} <= set(known) else known


def make_settings(
    pool: Pool,
    sizes: Sequence[int],
    *,
    methods: Sequence[str] | None = None,
    seeds: int = 5,
    tau: float = 0.05,
    eps: float = 0.1,
    calibration: str = "unit-diagonal",
    effort: str = "balanced",
    gap: float = 2e-3,
) -> Settings:
    """Everything is checked here, before anything is run."""
    _check_problem(tau, eps, calibration, effort, gap)
    views, n = list(pool.views), len(pool.rows)
    chosen = default_methods(views) if methods is None else list(methods)
    _check_lists(sizes, chosen, seeds, n)
    sketches = {k: sketch(pool.views, k, {"eps": eps, "calibration": calibration}) for k in sizes}
    for problem in sketches.values():
        for method in chosen:
            check_method(problem, method)
    drawn = {m: [k for k in sizes if draws(m, effort, sketches[k])] for m in chosen}
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
        tau=tau,
        eps=eps,
        calibration=calibration,
        effort=effort,
        gap=gap,
    )


def _check_problem(tau: Any, eps: Any, calibration: Any, effort: Any, gap: Any) -> None:
    check_tau(tau)
    check_positive("eps", eps)
    check_positive("gap", gap)
    check_effort(effort)
    if calibration not in CALIBRATIONS:
        raise InputError(
            f"calibration must be one of {', '.join(CALIBRATIONS)}, not {calibration!r}"
        )


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


def draws(method: str, effort: str, problem: Problem) -> bool:
    """Whether a selector depends on the seed: some sample, and so does the default where its effort
    leaves room for restarts and drawn starts. The paper's pipeline starts from the spectral frame.
    """
    if method in _DRAW:
        return True
    spent = check_effort(effort).for_size(problem)
    if method not in ("auto", "exact") or spent.max_passes == 0:
        return False
    return not spent.limited or spent.name == "thorough"


# --- the folder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    folder: Path
    settings: Settings

    @classmethod
    def start(cls, corpus: Corpus, name: str, settings: Settings) -> Run:
        """A folder for these settings, or the one where they were begun; others are refused."""
        folder = corpus.folder / FOLDER / _check_name(name)
        run = cls(folder, settings)
        file = folder / "settings.json"
        if file.is_file():
            begun = asdict(cls.open(corpus, name).settings)
            other = [key for key, value in asdict(settings).items() if begun[key] != value]
            if other:
                raise InputError(
                    f"{folder} was begun with another {other[0]} ({short(begun[other[0]])}, now "
                    f"{short(asdict(settings)[other[0]])}); give this run another --name"
                )
        for part in _PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
        _remove_torn(folder)
        run.write("settings.json", to_json(asdict(settings)) + "\n")
        return run

    @classmethod
    def open(cls, corpus: Corpus, name: str) -> Run:
        folder = corpus.folder / FOLDER / _check_name(name)
        file = folder / "settings.json"
        if not file.is_file():
            known = sorted(f.parent.name for f in (corpus.folder / FOLDER).glob("*/settings.json"))
            raise InputError(
                f"{corpus.folder} has no run {name!r} (there are: {', '.join(known) or 'none'}); "
                "make it with fairnepv uspto run"
            )
        return cls(folder, Settings.read(_read_json(file), str(file)))

    def write(self, name: str, content: str | bytes) -> None:
        data = content.encode("utf-8") if isinstance(content, str) else content
        Output(self.folder / name).write(data)

    def note_environment(self, engine: str | None) -> None:
        """Every one that had a part in the run."""
        file = self.folder / "environment.json"
        seen = _read_json(file) if file.is_file() else []
        here = environment(engine)
        self.write("environment.json", to_json(seen if here in seen else [*seen, here]) + "\n")

    def bound_file(self, k: int) -> Path:
        return self.folder / "bounds" / f"k{k}.npz"

    def proof(self, k: int) -> Proof:
        return read_proof(read_archive(str(self.bound_file(k))))

    def has_bound(self, k: int) -> bool:
        return self.bound_file(k).is_file() and self._seconds_file(Unit(k, BOUND, 0)).is_file()

    def has(self, unit: Unit) -> bool:
        return self._result_file(unit).is_file() and self._seconds_file(unit).is_file()

    def keep_bound(self, k: int, certificate: Certificate, seconds: float) -> None:
        if certificate.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        self._keep_seconds(Unit(k, BOUND, 0), seconds)
        if not self.bound_file(k).is_file():  # only its seconds were lost: results stand on it
            write_arrays(Output(self.bound_file(k)), proof_arrays(certificate.proof))

    def keep(self, unit: Unit, result: Result, seconds: float) -> None:
        """The clock first: a result that is there has its seconds."""
        self._keep_seconds(unit, seconds)
        self.write(f"done/{unit.name}.json", to_json(result.record) + "\n")
        self.clear_unfinished()

    def clear_unfinished(self) -> None:
        for state in self.unfinished.glob("k*"):
            state.unlink()

    @property
    def unfinished(self) -> Path:
        return self.folder / "unfinished"

    def _keep_seconds(self, unit: Unit, seconds: float) -> None:
        self.write(f"seconds/{self._seconds_file(unit).name}", f"{seconds!r}\n")

    def _seconds_file(self, unit: Unit) -> Path:
        name = f"k{unit.k}-bound" if unit.method == BOUND else unit.name
        return self.folder / "seconds" / f"{name}.json"

    def _result_file(self, unit: Unit) -> Path:
        return self.folder / "done" / f"{unit.name}.json"

    def check_complete(self) -> None:
        """An `InputError` names what is missing, which starting the run again makes anew."""
        bounds = [Unit(k, BOUND, 0) for k in self.settings.sizes]
        files = {str(unit): self._result_file(unit) for unit in self.settings.units}
        files |= {f"the bound for k = {unit.k}": self.bound_file(unit.k) for unit in bounds}
        for unit in (*bounds, *self.settings.units):
            files[f"the time of {unit}"] = self._seconds_file(unit)
        files["what it ran on"] = self.folder / "environment.json"
        for what, file in files.items():
            if not file.is_file():
                raise InputError(
                    f"the run in {self.folder} is not complete: {what} is missing "
                    f"({file.relative_to(self.folder)}); start it again, and it goes on"
                )

    @functools.cached_property
    def results(self) -> list[Result]:
        self.check_complete()
        files = map(self._result_file, self.settings.units)
        return [Result.read(_read_json(file), str(file)) for file in files]

    @functools.cached_property
    def seconds(self) -> dict[Unit, float]:
        self.check_complete()
        return {unit: _read_number(self._seconds_file(unit)) for unit in self.settings.timed}

    @property
    def environments(self) -> list[Any]:
        self.check_complete()
        seen: list[Any] = _read_json(self.folder / "environment.json")
        return seen


def _remove_torn(folder: Path) -> None:
    """What a kill left of files of ours; whatever else is hidden here is not ours."""
    for part in (folder, *(folder / part for part in _PARTS)):
        for file in part.iterdir():
            if _TORN.fullmatch(file.name) and file.is_file():
                file.unlink()


def environment(engine: str | None = None) -> dict[str, Any]:
    """What computed; neither host nor paths."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = __version__ if package == "fairnepv" else "not installed"
    return {
        "python": platform.python_version(),
        "packages": versions,
        "machine": f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores",
        "engine": (engine or "local").partition("://")[0],
    }


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(
            f"a run cannot be called {name!r}; use letters, digits, dots, dashes and underscores"
        )
    return name


def _read_json(file: Path) -> Any:
    try:
        return parse_document(file.read_bytes())
    except ValueError as error:
        raise InputError(f"{file} cannot be read ({error}); remove it and run again") from error


def _read_number(file: Path) -> float:
    number = _read_json(file)
    if not isinstance(number, float):
        raise InputError(f"{file} holds no number of seconds; remove it and run again")
    return number


def short(value: Any) -> str:
    """For a sentence."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- the work -------------------------------------------------------------------------------------


def carry_out(
    run: Run, pool: Pool, progress: Progress | None = None, *, engine: str | None = None
) -> Run:
    """Everything that is not done yet; the default first, whose certificate serves all.

    All engines find the same items, so a run may go on with another.
    """
    run.note_environment(engine)
    left = [unit for unit in run.settings.units if not run.has(unit)]
    began, done = time.monotonic(), 0
    for k in run.settings.sizes:
        units = [unit for unit in left if unit.k == k]
        for unit in sorted(units, key=lambda unit: unit.method != "auto"):
            if progress is not None:
                progress(_turn(unit, done, len(left), time.monotonic() - began))
            _select(run, pool, unit, progress, engine)
            done += 1
        if not run.has_bound(k):  # its file was lost
            _certify(run, pool, k, progress, engine)
    run.clear_unfinished()  # a kill may have come between the last result and this
    return run


def _select(
    run: Run, pool: Pool, unit: Unit, progress: Progress | None, engine: str | None
) -> None:
    settings = run.settings
    proves = unit.method in ("auto", "exact")  # these start from the relaxed solution
    if not proves and not run.has_bound(unit.k):
        _certify(run, pool, unit.k, progress, engine)
    local = engine in (None, "local")  # the states of others have other last bits
    state = run.unfinished / f"{unit.name}.state" if local else None
    clock = Clock(state, progress)
    options = {
        "method": unit.method,
        "effort": settings.effort,
        "certify": proves,
        "gap": settings.gap,
        "random_state": unit.seed,
        "engine": engine,
        "progress": clock,
        **settings.posing,
    }
    found = _resumed(pool, unit.k, state, options)
    spent, found = clock.spent(found.seconds), found.looked_around()
    if found.status is Status.INTERRUPTED:
        clock.write()
        raise KeyboardInterrupt
    if found.certificate is not None and not run.has_bound(unit.k):
        run.keep_bound(unit.k, found.certificate, spent.bound)
    scored = found if local else score(pool.views, found.indices, **settings.posing)
    run.keep(unit, _result(run, pool, unit, found, scored), spent.search)


def _resumed(pool: Pool, k: int, state: Path | None, options: dict[str, Any]) -> Selection:
    """From a state that another user or machine left, or that is damaged, nothing can go on: the
    selection begins anew, and where no key can be kept for a state, without one."""
    for checkpoint in (state, state):
        try:
            return select(pool.views, k, checkpoint=checkpoint, **options)
        except CheckpointError:
            assert checkpoint is not None
            checkpoint.unlink(missing_ok=True)
    return select(pool.views, k, **options)


def _result(run: Run, pool: Pool, unit: Unit, found: Selection, scored: Score) -> Result:
    rows = pool.rows[found.indices].tolist()
    return Result(
        **unit._asdict(),
        **measures(scored, run.proof(unit.k).upper_bound),
        status=found.status.name,
        notes=list(found.run_notes),
        rows=rows,
        ids=[pool.corpus.ids[row] for row in rows],
    )


def _certify(run: Run, pool: Pool, k: int, progress: Progress | None, engine: str | None) -> None:
    settings, began = run.settings, time.monotonic()
    posing = {**settings.posing, "engine": engine}
    certificate = certify(pool.views, k, gap=settings.gap, progress=progress, **posing)
    run.keep_bound(k, certificate, time.monotonic() - began)


def _turn(unit: Unit, done: int, of: int, seconds: float) -> Step:
    """What a listener hears before a selector takes its turn."""
    details: Mapping[str, Any] = {
        "selector": f"{unit.method}, k {unit.k}",
        "size": done,
        "of": of,
    }
    return Step("compare", done, 0, seconds, 0.0, details=details)


def open_pool(corpus: Corpus, views: Sequence[str] | None = None) -> Pool:
    """The selection pool of a corpus that is split and has features."""
    return Pool.of(corpus, read_split(corpus), views or default_views(corpus))
