"""`make bench-gate`: has anything become slower than when it was recorded last?

Every case is a ratio: of one thing of ours to g, the product of speed.py, or to a peer at the same
work. Both are measured in seconds of the processor, on one thread and in turns, so that what else
the machine does hardly shows; a case that seems slower is measured again before it fails. The
recorded ratios are in gate.json, which `--record` writes: after a change that is meant to cost
something, with its reason in the commit. Ratios of another processor differ somewhat from these.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

RECORDED = Path(__file__).with_name("gate.json")
ALLOWED = 1.25  # of what was recorded
REPEATS, AGAIN = 3, 5
N, P, K = 20_000, 256, 100
_OPERATIONS = 1.5e10  # of all products of one unit: a quarter of a second
_IMPORT = "import fairnepv; fairnepv.select"  # the rest is loaded when it is asked for

Call = Callable[[], Any]


class Pair(NamedTuple):
    """What is measured, and what it is measured by, so many times over that it is long enough."""

    ours: Call
    unit: Call
    times: int = 1
    clock: Callable[[], float] = time.process_time


# --- measuring ------------------------------------------------------------------------------------


def ratio(pair: Pair, repeats: int) -> float:
    """The median ratio of runs, each to the mean of the units just before and after it."""
    pair.ours()  # once for caches, imports and captured work
    ratios = []
    before = _seconds(pair, pair.unit, pair.times)
    for _ in range(repeats):
        taken = _seconds(pair, pair.ours)
        after = _seconds(pair, pair.unit, pair.times)
        ratios.append(2.0 * taken / (before + after))
        before = after
    return statistics.median(ratios)


def _seconds(pair: Pair, call: Call, times: int = 1) -> float:
    """Of one call."""
    began = pair.clock()
    for _ in range(times):
        call()
    return (pair.clock() - began) / times


def _children() -> float:
    """Seconds of the processor that programs took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- comparing ------------------------------------------------------------------------------------


def is_slower(measured: float, recorded: float) -> bool:
    return measured > ALLOWED * recorded


def judged(
    cases: Mapping[str, Callable[[], Pair]],
    recorded: Mapping[str, float],
    measure: Callable[[Pair, int], float] = ratio,
    say: Callable[[str], None] = print,
) -> tuple[dict[str, float], list[str]]:
    """What was measured, and a sentence for every case that is slower or cannot be compared."""
    found: dict[str, float] = {}
    bad = [f"{name} is recorded and is no case any more" for name in {*recorded} - {*cases}]
    for name, make in cases.items():
        try:
            pair = make()
        except ImportError as error:
            bad.append(f"{name} was not measured ({error}); `make bench-gate` installs all")
            continue
        before = recorded.get(name)
        found[name] = measure(pair, REPEATS)
        if before is not None and is_slower(found[name], before):
            found[name] = min(found[name], measure(pair, AGAIN))
        if before is None:
            bad.append(f"{name} is not recorded; add --record")
        elif is_slower(found[name], before):
            much = f"{found[name] / before:.2f} times the {before:.3g} recorded"
            bad.append(f"{name} takes {found[name]:.3g}, {much}")
        beside = "" if before is None else f" ({found[name] / before:.2f} of {before:.3g})"
        say(f"{name}: {found[name]:.3g}{beside}")
    return found, bad


# --- the cases ------------------------------------------------------------------------------------


def _in_g(ours: Call, data: dict[str, Any], k: int = K) -> Pair:
    """In units of the product of all features with k vectors, that of sparse ones among them."""
    from anytime import Unit

    unit = Unit(data, k)
    operations = unit.operations + sum(2.0 * X.nnz * k for X in unit.sparse)
    return Pair(ours, unit.multiply, max(1, round(_OPERATIONS / operations)))


def _selecting(**options: Any) -> Pair:
    import fairnepv
    from speed import pool

    data = pool(N, P)
    return _in_g(partial(fairnepv.select, data, K, **options), data)


def _sparse() -> Pair:
    import fairnepv
    from anytime import with_words

    data = with_words(5_000, 128)
    options: dict[str, Any] = {"objective": "representative", "certify": False}
    return _in_g(partial(fairnepv.select, data, 50, effort="fast", **options), data, 50)


def _certificate() -> Pair:
    import fairnepv
    from speed import GAP, pool

    data = pool(N, P)
    return _in_g(partial(fairnepv.certify, data, K, gap=GAP), data)


def _relaxation() -> Pair:
    import fairnepv
    from pools import openmoji_minilm

    data = openmoji_minilm()
    options: dict[str, Any] = {"solver": "plain", "max_steps": 20, "tol": 1e-12}
    return _in_g(partial(fairnepv.relax, data, 50, **options), data, 50)


def _default() -> Pair:
    import fairnepv
    from pools import openmoji_minilm

    data = openmoji_minilm()
    return _in_g(partial(fairnepv.select, data, 50), data, 50)


def _peer(name: str) -> Pair:
    import numpy as np

    import fairnepv
    from speed import pool

    data = pool(N, P)
    units = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in data.values()]
    ours = partial(fairnepv.select, data, K, effort="fast", certify=False)
    return Pair(ours, {"pyversity": _pyversity, "lightly-mundig": _mundig}[name](units))


def _pyversity(units: list[Any]) -> Call:
    import numpy as np
    import pyversity

    joined = np.hstack(units) / np.float32(np.sqrt(2.0))
    options: dict[str, Any] = {"strategy": "dpp", "diversity": 1.0}
    return partial(pyversity.diversify, joined, np.ones(len(joined)), K, **options)


def _mundig(units: list[Any]) -> Call:
    import lightly_mundig

    def run() -> Any:
        selection = lightly_mundig.Selection()
        for view in units:
            selection.add_diversifying_strategy(view, 1.0)
        return selection.run_selection([], len(units[0]), K)

    return run


def _start_up() -> Pair:
    def run(code: str) -> Call:
        line = [sys.executable, "-c", code]
        return lambda: subprocess.run(line, check=True)

    return Pair(run(_IMPORT), run("import numpy, scipy.linalg"), 3, _children)


CASES: dict[str, Callable[[], Pair]] = {
    "fast, in g": partial(_selecting, effort="fast", certify=False),
    "balanced without certificate, in g": partial(_selecting, effort="balanced", certify=False),
    "fast for representative picks, in g": partial(
        _selecting, effort="fast", certify=False, objective="representative"
    ),
    "fast for representative picks, sparse, in g": _sparse,
    "certificate, in g": _certificate,
    "twenty steps of Algorithm 1, in g": _relaxation,
    "default with certificate on OpenMoji, in g": _default,
    "fast beside pyversity": partial(_peer, "pyversity"),
    "fast beside lightly-mundig": partial(_peer, "lightly-mundig"),
    "import beside those of NumPy and SciPy": _start_up,
}


# --- the command ----------------------------------------------------------------------------------


def record_of(found: Mapping[str, float]) -> dict[str, Any]:
    packages = ("fairnepv", "numpy", "scipy", "pyversity", "lightly-mundig")
    return {
        "command": "python benchmarks/gate.py --record",
        "date": str(datetime.date.today()),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "ratios": {name: float(f"{value:.4g}") for name, value in found.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write gate.json")
    parser.add_argument("--only", action="append", choices=list(CASES), help="this case alone")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = {name: CASES[name] for name in asked.only or CASES}
    known = json.loads(RECORDED.read_text())["ratios"] if RECORDED.exists() else {}
    others = {name: v for name, v in known.items() if asked.only and name not in cases}
    compared = {} if asked.record else {n: v for n, v in known.items() if n not in others}
    found, bad = judged(cases, compared, say=partial(print, flush=True))
    if asked.record:
        unmeasured = [name for name in cases if name not in found]
        if unmeasured:
            print(*bad, sep="\n", file=sys.stderr)
            return 1
        RECORDED.write_text(json.dumps(record_of({**others, **found}), indent=1) + "\n")
        return 0
    print(*(f"SLOWER OR NOT COMPARED: {sentence}" for sentence in bad), sep="\n", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    # Before any library is loaded that reads it.
    os.environ.update(OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.exit(main())
