"""What selections from large pools take in memory and time, beside what their plans foretold.

Every case runs in a process of its own, whose anonymous memory (RssAnon of /proc/PID/status:
mapped files do not count) is looked at every 20 ms from the moment on that its data is at hand.
The pools are simulated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from pools import words
from sections import markdown, provenance, publish

_EVERY = 0.02  # seconds
_MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    n: int
    k: int
    dense: tuple[int, ...]  # widths
    words: int = 0  # columns of a sparse view
    texts: bool = False  # whether that is TF-IDF of short texts, or 50 non-zeros per row
    dtype: str = "float32"
    shards: int = 0  # files on disk; 0: an array in memory
    options: dict[str, Any] = field(default_factory=dict)

    def described(self) -> str:
        widths = [f"{p:,} {self.dtype}" for p in self.dense]
        widths += [f"{self.words:,} sparse"] if self.words else []
        return f"{self.n:,} x {' + '.join(widths)}, k = {self.k}"


_FAST = {"effort": "fast", "certify": False}
_SEARCH = {"certify": False}
_SHARES = {**_FAST, "objective": "representative"}
CASES = {
    "dense, fast": Case(200_000, 100, (256,), options=_FAST),
    "dense, balanced": Case(200_000, 100, (256,), options=_SEARCH),
    "dense, thorough": Case(100_000, 100, (256,), options={**_SEARCH, "effort": "thorough"}),
    "dense, certified": Case(200_000, 100, (256,)),
    "two views, certified": Case(100_000, 100, (384, 384)),
    "dense, 150 MiB": Case(200_000, 100, (256,), options={**_SEARCH, "memory_limit": "150 MiB"}),
    "sparse, fast": Case(200_000, 100, (128,), 20_000, options=_FAST),
    "sparse, balanced": Case(200_000, 100, (128,), 20_000, options=_SEARCH),
    "sparse, certified": Case(50_000, 50, (128,), 20_000, options={"effort": "fast"}),
    "sparse, relaxed": Case(
        50_000, 50, (128,), 20_000, options={"effort": "fast", "method": "nepv", "certify": False}
    ),
    "texts, representative": Case(100_000, 200, (256,), 50_000, texts=True, options=_SHARES),
    "shards, fast": Case(500_000, 100, (256,), dtype="float16", shards=8, options=_FAST),
    "small": Case(2_000, 20, (64, 64)),
}
LARGE = {
    "a million, in memory": Case(1_000_000, 200, (512,), dtype="float16", options=_FAST),
    "a million, shards": Case(1_000_000, 200, (512,), dtype="float16", shards=20, options=_FAST),
    "5 million, shards": Case(5_000_000, 200, (512,), dtype="float16", shards=20, options=_FAST),
    "sparse million, fast": Case(1_000_000, 200, (256,), 50_000, options=_FAST),
    "sparse million, balanced": Case(1_000_000, 200, (256,), 50_000, options=_SEARCH),
    "sparse million, certified": Case(1_000_000, 200, (256,), 50_000, options={"gap": 5e-3}),
    "a million texts, representative": Case(
        1_000_000, 200, (256,), 50_000, texts=True, options=_SHARES
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--stages", action="store_true", help="Peaks by stage, too.")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    arguments = parser.parse_args()
    cases = {**CASES, **(LARGE if arguments.large else {})}
    if arguments.child:
        _choose({**CASES, **LARGE}[arguments.child[0]], Path(arguments.child[1]))
        return
    rows = []
    for name in arguments.names or cases:
        with tempfile.TemporaryDirectory() as folder:
            write_pool({**CASES, **LARGE}[name], Path(folder))
            rows.append(_row(name, Path(folder), arguments.stages))
            print(rows[-1], file=sys.stderr, flush=True)
    headings = ["case", "pool", "planned MiB", "measured MiB", "ratio", "F", "planned s", "took s"]
    body = f"{provenance()}\n\n{markdown(headings, rows)}"
    publish("scale", body, write=arguments.write)


def write_pool(case: Case, folder: Path) -> None:
    """Rows around some directions, as embeddings lie; words by how common they are."""
    rng = np.random.default_rng(0)
    for q, p in enumerate(case.dense):
        centres = rng.standard_normal((50, p)).astype(np.float32)
        (folder / f"view{q}").mkdir()
        for s, rows in enumerate(np.array_split(np.arange(case.n), max(case.shards, 1))):
            block = rng.standard_normal((len(rows), p), dtype=np.float32)
            block += centres[rng.integers(50, size=len(rows))]
            np.save(folder / f"view{q}" / f"{s:04}.npy", block.astype(case.dtype))
    if case.texts:
        sp.save_npz(folder / "words.npz", words(case.n, case.words), compressed=False)
    elif case.words:
        common = 1.0 / np.arange(1, case.words + 1) ** 0.7
        columns = rng.choice(case.words, size=(case.n, 50), p=common / common.sum())
        values = rng.random(columns.shape, dtype=np.float32) + 0.1
        indptr = np.arange(0, columns.size + 1, 50)
        table = sp.csr_array((values.ravel(), columns.ravel(), indptr), (case.n, case.words))
        table.sum_duplicates()
        sp.save_npz(folder / "words.npz", table, compressed=False)


def read_pool(case: Case, folder: Path) -> dict[str, Any]:
    import fairnepv

    data: dict[str, Any] = {}
    for q in range(len(case.dense)):
        path = folder / f"view{q}"
        rows = fairnepv.open_rows(str(path)) if case.shards else np.load(path / "0000.npy")
        data[f"view{q}"] = rows
    if case.words:
        data["words"] = sp.csr_array(sp.load_npz(folder / "words.npz"))
    return data


def _choose(case: Case, folder: Path) -> None:
    """In a process of its own: the plan, then the run, with lines that say where it is."""
    import warnings

    import fairnepv

    warnings.simplefilter("ignore")
    data = read_pool(case, folder)
    forecast = fairnepv.plan(data, case.k, **case.options)
    print("plan", forecast.memory, forecast.seconds, flush=True)
    stage = [""]

    def told(step: Any) -> None:
        if step.stage != stage[0]:
            stage[0] = step.stage
            print("stage", step.stage, flush=True)

    began = time.monotonic()
    found = fairnepv.select(data, case.k, progress=told, **case.options)
    print("done", time.monotonic() - began, found.fair_score, flush=True)


def _row(name: str, folder: Path, stages: bool) -> list[str]:
    command = [sys.executable, __file__, "--child", name, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        watch = Watch(child.pid)
        said = dict(_lines(child, watch))
        watch.stop()
    if "done" not in said:
        raise SystemExit(f"{name} failed")
    if stages:
        peaks = ", ".join(f"{s} {peak / _MIB:.0f}" for s, peak in watch.peaks.items())
        print(f"{name}: {peaks}", file=sys.stderr)
    (planned, expected), (seconds, score) = said["plan"], said["done"]
    measured = max(watch.peaks.values())
    return [
        name,
        {**CASES, **LARGE}[name].described(),
        f"{planned / _MIB:,.0f}",
        f"{measured / _MIB:,.0f}",
        f"{planned / measured:.2f}",
        f"{score:.4f}",
        f"{expected:.0f}",
        f"{seconds:.0f}",
    ]


def _lines(child: subprocess.Popen[str], watch: Watch) -> Iterator[tuple[str, list[float]]]:
    """What the child says: a word and its numbers; stages are for the watch."""
    assert child.stdout is not None
    for line in child.stdout:
        word, *rest = line.split()
        if word == "stage":
            watch.stage = rest[0]
        else:
            watch.stage = "start" if word == "plan" else ""
            yield word, [float(x) for x in rest]


class Watch:
    """The largest memory of a process by stage, while there is one."""

    def __init__(self, pid: int) -> None:
        self.stage, self.peaks = "", dict[str, int]()
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            if self.stage:
                found = anonymous_memory(self._pid)
                self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), found)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def anonymous_memory(pid: int) -> int:
    """RssAnon in bytes; 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon:")), 0)


if __name__ == "__main__":
    main()
