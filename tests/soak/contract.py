"""One contract on every engine: checks of scikit-learn, the suites of views, utilities, methods and
engines, and each method and question on each kind of view, answered as a plain engine does.

A suite is run by pytest in a process of its own, once for all its checks, when the first of them is
asked for.
"""

import ast
import functools
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import fairnepv
from estimator_checks import Check, checks
from fairnepv import LocalEngine
from fairnepv.compute import Engine
from fairnepv.errors import InputError
from fairnepv.methods import OWN_METHODS
from fairnepv.methods.baselines import baselines
from soak.clusters import cluster_of
from soak.runner import Group

HERE = Path(__file__).parents[2]
N, K = 40, 5
ENGINES = ("local", "torch", "ray")
CLOSE = 1e-9  # how far engines may round from each other
BOUNDS = 1e-5  # the same of what is solved to a duality gap of 2e-3, by as many steps as that takes


# --- the same answers ----------------------------------------------------------------------------


@functools.cache
def engine_by(name: str) -> Engine:
    """In blocks of few rows; the plain one has them in one."""
    if name == "plain":
        return LocalEngine(threads=1)
    blocks = LocalEngine(block_rows=11, threads=2)
    if name == "local":
        return blocks
    if name == "torch":
        from fairnepv.compute.device import TorchEngine

        return TorchEngine("cpu", block_rows=11)
    return replace(cluster_of(2), blocks=blocks)


@functools.cache
def rows() -> dict[str, Any]:
    rng = np.random.default_rng([23, 8])
    return {name: rng.standard_normal((N, p)) for name, p in (("a", 7), ("b", 9))}


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "dense": rows,
    "float32": lambda: {name: Phi.astype(np.float32) for name, Phi in rows().items()},
    "sparse": lambda: {name: sp.csr_array(Phi * (Phi > -0.5)) for name, Phi in rows().items()},
    "kernel": lambda: {name: fairnepv.KernelView(Phi @ Phi.T) for name, Phi in rows().items()},
    "mixed": lambda: {
        "a": rows()["a"],
        "b": fairnepv.DiagonalView(1.0 + np.arange(N) % 7),
        "c": sp.csr_array(rows()["b"]),
    },
}
METHODS = (*OWN_METHODS, *baselines(("a", "b")))


def told(found: Any) -> tuple[Any, list[float]]:
    """What must be the same in an answer, and what may be rounded otherwise."""
    kept = getattr(found, "indices", np.empty(0)).tolist()
    return kept, np.hstack(list(found.scores.values())).tolist()


def told_of_all(found: dict[int, Any]) -> tuple[Any, list[float]]:
    parts = [told(one) for one in found.values()]
    return [kept for kept, _ in parts], [x for _, numbers in parts for x in numbers]


def _select(method: str) -> Callable[..., Any]:
    return lambda data, **asked: told(fairnepv.select(data, K, method=method, **asked))


def _searching(call: Callable[..., Any]) -> Callable[..., Any]:
    """A question about the default's picks."""

    def asked_of(data: Any, **asked: Any) -> Any:
        return call(fairnepv.select(data, K, effort="fast", **asked))

    return asked_of


def _verified(data: Any, **asked: Any) -> Any:
    found = fairnepv.select(data, K, effort="fast", **asked)
    verified = fairnepv.verify_bound(data, found, engine=asked["engine"])
    return verified.holds, [verified.upper_bound, *verified.by_view.values()]


QUESTIONS: dict[str, Callable[..., Any]] = {
    **{f"method {name}": _select(name) for name in METHODS},
    "score": lambda data, **asked: told(fairnepv.score(data, [1, 4, 7], **asked)),
    "certify": lambda data, **asked: (
        None,
        [(found := fairnepv.certify(data, K, **asked)).spectral_bound, *found.by_view.values()],
    ),
    "verify": _verified,
    "curve": lambda data, **asked: told(fairnepv.curve(data, K, **asked)),
    "sizes": lambda data, **asked: told_of_all(
        fairnepv.select(data, [2, K], effort="fast", **asked)
    ),
    "assign": _searching(lambda found: (fairnepv.assign(found).pick.tolist(), [])),
    "coverage": _searching(lambda found: (None, list(found.coverage.values()))),
    "explain": _searching(lambda found: (fairnepv.explain(found).rivals.tolist(), [])),
    "enumeration": lambda data, **asked: told(fairnepv.exhaustive(data, 3, **asked)),
}


# Any diagonal view of unit norms is the identity, so most eigenvalues of the average are equal, and
# which eigenvectors they have is up to rounding.
DRAWN_BY_ROUNDING = ("torch", "method k-dpp", "mixed", "diverse")


class Asked(NamedTuple):
    """A question about a kind of view, answered by an engine."""

    engine: str
    question: str
    kind: str
    objective: str

    def carry_out(self) -> None:
        kept, numbers = self._answer(self.engine)
        expected, others = _expected(self)
        assert kept == expected
        near = BOUNDS if self.question in ("certify", "verify") else CLOSE
        np.testing.assert_allclose(numbers, others, atol=near, rtol=0)

    def _answer(self, engine: str) -> tuple[Any, list[float]]:
        """Or in what words it is refused, which are the same everywhere."""
        asked = {"objective": self.objective, "engine": engine_by(engine)}
        data = KINDS[self.kind]()
        if any(isinstance(view, fairnepv.KernelView) for view in data.values()):
            asked["center"] = False
        try:
            found: tuple[Any, list[float]] = QUESTIONS[self.question](data, **asked)
        except InputError as error:
            return str(error), []
        return found


@functools.lru_cache(maxsize=400)
def _expected(asked: Asked) -> tuple[Any, list[float]]:
    return asked._answer("plain")


# --- the suites ----------------------------------------------------------------------------------


class Suite(NamedTuple):
    """The tests of a file that are about an engine."""

    file: str
    engine: str
    wanted: str  # as pytest's -k has it

    @property
    def tests(self) -> list[str]:
        """By name: for local all of them, otherwise those that are made for every engine."""
        tree = ast.parse((HERE / self.file).read_text())
        if self.engine == "ray":
            lines = [line for line in tree.body if isinstance(line, ast.ImportFrom)]
            shared = next(line for line in lines if line.module == "test_engines")
            names = [alias.name for alias in shared.names]
        else:
            functions = [line for line in tree.body if isinstance(line, ast.FunctionDef)]
            names = [one.name for one in functions if self.engine == "local" or _for_each(one)]
        return [name for name in names if name.startswith("test_")]


def _for_each(function: ast.FunctionDef) -> bool:
    return bool({"engine_of", "pool"} & {argument.arg for argument in function.args.args})


SUITES = (
    Suite("tests/contracts/test_engines.py", "local", "not torch"),
    Suite("tests/contracts/test_views.py", "local", "not torch"),
    Suite("tests/contracts/test_utility.py", "local", ""),
    Suite("tests/contracts/test_methods.py", "local", ""),
    Suite("tests/contracts/test_engines.py", "torch", "torch"),
    Suite("tests/compute/test_ray.py", "ray", ""),
)


@functools.cache
def failures_of(suite: Suite) -> dict[str, list[str]]:
    """By test, what failed in its cases; a test that is missing has not been run."""
    chosen = [f"{suite.file}::{name}" for name in suite.tests]
    with tempfile.NamedTemporaryFile(suffix=".xml") as told_in:
        options = ["-q", "-p", "no:cacheprovider", "--junitxml", told_in.name]
        wanted = ["-k", suite.wanted] if suite.wanted else []
        here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *wanted, *chosen],
            cwd=HERE,
            env={**os.environ, **here},
            capture_output=True,
            text=True,
        )
        assert ended.returncode in (0, 1), ended.stdout[-2000:] + ended.stderr[-2000:]
        found: dict[str, list[str]] = {}
        for ran in ElementTree.parse(told_in.name).iter("testcase"):
            wrong = [part.text or "" for part in ran if part.tag in ("failure", "error")]
            if not any(part.tag == "skipped" for part in ran):
                found.setdefault(ran.attrib["name"].partition("[")[0], []).extend(wrong)
    return found


class Run(NamedTuple):
    """A test of a suite, with all its cases on this engine."""

    suite: Suite
    test: str

    def carry_out(self) -> None:
        found = failures_of(self.suite)
        assert self.test in found, f"{self.test} of {self.suite.file} was not run"
        assert not found[self.test], "\n".join(found[self.test])[-4000:]


# --- one case ------------------------------------------------------------------------------------


def _cases() -> Iterator[Check | Asked | Run]:
    """Engine by engine; scikit-learn's are about the local one."""
    yield from checks()
    for suite in SUITES:
        yield from (Run(suite, name) for name in suite.tests)
    for engine in ENGINES:
        for question in QUESTIONS:
            for kind in KINDS:
                for objective in ("diverse", "representative"):
                    asked = Asked(engine, question, kind, objective)
                    if asked != DRAWN_BY_ROUNDING:
                        yield asked


CASES = list(_cases())


def case(number: int, folder: Path) -> None:
    CASES[number].carry_out()


IN_PROCESS = [at for at, one in enumerate(CASES) if isinstance(one, Asked) and one.engine != "ray"]
GROUP = Group("contract", case, len(CASES), sample=IN_PROCESS[::31], patience=900.0)
