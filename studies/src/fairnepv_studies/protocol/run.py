"""The folder of a run.

    corpus/runs/NAME/
      settings.json     what was asked for, of which corpus, split and features
      environment.json  Python, packages and machine
      bounds/           per size the proof of its bound, as `fairnepv certify --out` writes it
      done/             one file per selection, written when it is done
      seconds/          the same for the clock
      unfinished/       the state of the selection at hand and its seconds so far, until it is done
      results.csv, results.tex, selections.csv, views.png, efficiency.png
      seconds.csv, seconds.tex

A run that was killed goes on where it was (`execution.carry_out`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairnepv import __version__
from fairnepv.checks import brief
from fairnepv.concave import Certificate, Proof, proof_arrays, read_proof
from fairnepv.errors import InputError, Status
from fairnepv.io.documents import read_json
from fairnepv.io.numpy_files import read_archive
from fairnepv.io.write import Output, to_json, write_arrays
from fairnepv_studies.corpus import Corpus
from fairnepv_studies.files import LARGEST, write_whole
from fairnepv_studies.protocol.results import BOUND, Result, Unit
from fairnepv_studies.protocol.settings import Settings

FOLDER = "runs"
_PARTS = ("bounds", "done", "seconds", "unfinished")
_TORN = re.compile(
    r"\..+\.(json|npz|csv|tex|png|seconds)\.([a-z0-9_]{8}|([a-z0-9_]{8}\.)?part)"
)  # see `io.atomic`
_PACKAGES = ("fairnepv", "numpy", "scipy", "scikit-learn", "pyarrow", "matplotlib", "pillow")
_REMEDY = "remove it and run again"


@dataclass(frozen=True)
class Run:
    folder: Path
    settings: Settings

    @classmethod
    def folder_of(cls, corpus: Corpus, name: str) -> Path:
        """Where the run of this name is, or will be, for whoever takes its lock."""
        folder = corpus.folder / FOLDER / _check_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @classmethod
    def start(cls, corpus: Corpus, name: str, settings: Settings) -> Run:
        """A folder for these settings, or the one where they were begun; others are refused."""
        folder = corpus.folder / FOLDER / _check_name(name)
        run = cls(folder, settings)
        file = folder / "settings.json"
        if file.is_file():
            begun = asdict(cls.open(corpus, name).settings)
            untold = {"nepv"} if not begun["nepv"] else set()  # see `Settings`
            if not begun["budgets"] and not any(settings.budgets.values()):
                untold.add("budgets")  # nor did anything have swaps then
            now = {key: value for key, value in asdict(settings).items() if key not in untold}
            other = [key for key, value in now.items() if begun[key] != value]
            if other:
                raise InputError(
                    f"{folder} was begun with another {other[0]} ({brief(begun[other[0]])}, now "
                    f"{brief(now[other[0]])}); give this run another --name"
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
        write_whole(self.folder / name, data)

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

    def finish(self) -> None:
        """Nothing is unfinished any more; a kill may have come between the last result and this."""
        self.clear_unfinished()
        with contextlib.suppress(OSError):  # somebody has put something there, or removed it
            self.unfinished.rmdir()

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
    return read_json(file, _REMEDY, most=LARGEST)


def _read_number(file: Path) -> float:
    number = _read_json(file)
    if not isinstance(number, float):
        raise InputError(f"{file} holds no number of seconds; {_REMEDY}")
    return number
