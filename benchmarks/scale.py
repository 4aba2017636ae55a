"""Pools larger than one would like to hold: what they take in memory and time, beside the plan.

Every run is a process of its own. Its anonymous memory (RssAnon, which mapped files do not count
towards) is sampled from outside. The data is simulated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sections import markdown, provenance, publish

_SAMPLE = 0.02  # seconds between looks at the memory of a process
_GIB = 1 << 30


# --- data -----------------------------------------------------------------------------------------


def write_shards(folder: Path, n: int, p: int, shards: int) -> None:
    """float16 embeddings in clip-retrieval layout: 500 uneven clusters, a falling spectrum."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((500, p), dtype=np.float32)
    columns = (np.arange(1, p + 1) ** -0.4).astype(np.float32)
    sizes = rng.dirichlet(np.full(500, 0.3))
    for s, rows in enumerate(np.array_split(np.arange(n), shards)):
        part = np.empty((len(rows), p), dtype=np.float16)
        for start in range(0, len(rows), 50_000):
            block = part[start : start + 50_000]
            noise = rng.standard_normal(block.shape, dtype=np.float32)
            block[:] = (centres[rng.choice(500, size=len(block), p=sizes)] + 0.7 * noise) * columns
        np.save(folder / f"img_emb_{s}.npy", part)


def write_sparse(folder: Path, n: int, p: int, nonzeros: int, width: int) -> None:
    """TF-IDF-like rows whose columns are frequent or rare as words are, and dense ones."""
    rng = np.random.default_rng(1)
    weights = 1.0 / np.arange(1, p + 1)
    edges = np.cumsum(weights / weights.sum())
    columns = np.searchsorted(edges, rng.random((n, nonzeros)), side="right").clip(max=p - 1)
    values = (rng.random((n, nonzeros), dtype=np.float32) + 0.1) * np.sqrt(columns + 1.0)
    indptr = np.arange(0, n * nonzeros + 1, nonzeros)
    text = sp.csr_array((values.astype(np.float32).ravel(), columns.ravel(), indptr), shape=(n, p))
    text.sum_duplicates()
    sp.save_npz(folder / "text.npz", sp.csr_matrix(text), compressed=False)
    dense = rng.standard_normal((n, width), dtype=np.float32)
    dense *= (np.arange(1, width + 1) ** -0.4).astype(np.float32)
    np.save(folder / "vision.npy", dense)


# --- a run, in a process of its own -------------------------------------------------------------


def child(arguments: dict[str, Any]) -> None:
    """Print what the plan says, and then what came."""
    import fairnepv
    from fairnepv.io import read_features

    warnings.simplefilter("ignore")
    data = {name: read_features(text) for name, text in arguments["views"].items()}
    options = arguments["options"]
    forecast = fairnepv.plan(data, **options)
    began = time.perf_counter()
    found = fairnepv.select(data, **options)
    print(
        json.dumps(
            {
                "planned": forecast.peak_memory,
                "expected": forecast.seconds,
                "seconds": time.perf_counter() - began,
                "score": found.fair_score,
                "bound": found.upper_bound,
                "status": found.status.name,
            }
        )
    )


def measured(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a run says of itself, and the peak of its anonymous memory."""
    command = [sys.executable, __file__, "--child", json.dumps(arguments)]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, _anonymous(process.pid))
            time.sleep(_SAMPLE)
        output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(f"the run failed with {process.returncode}")
    return {**json.loads(output.strip().splitlines()[-1]), "peak": peak}


def _anonymous(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in text.splitlines() if line.startswith("RssAnon")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


# --- the table ----------------------------------------------------------------------------------


def row(name: str, run: dict[str, Any]) -> list[str]:
    bound = "" if run["bound"] is None else f"{run['bound']:.4f}"
    return [
        name,
        f"{run['score']:.4f}",
        bound,
        run["status"],
        f"{run['seconds']:.0f}",
        f"{run['peak'] / _GIB:.2f}",
        f"{run['planned'] / _GIB:.2f}",
        f"{run['planned'] / run['peak']:.2f}",
    ]


def shards(folder: Path, n: int) -> list[list[str]]:
    """The same rows from shards, and from an array that is read into memory first."""
    write_shards(folder, n, 512, 10)
    options = {"k": 200, "effort": "fast", "certify": False}
    mapped = measured({"views": {"image": str(folder)}, "options": options})
    return [row(f"{n:,} x 512 float16 in 10 shards, k = 200, `fast`", mapped)]


def sparse(folder: Path, n: int) -> list[list[str]]:
    write_sparse(folder, n, 50_000, 50, 256)
    views = {"text": str(folder / "text.npz"), "vision": str(folder / "vision.npy")}
    rows = []
    for effort, certify in (("fast", False), ("balanced", False), ("balanced", True)):
        options = {"k": 200, "effort": effort, "certify": certify}
        name = f"sparse {n:,} x 50,000 with dense {n:,} x 256, k = 200, `{effort}`"
        run = measured({"views": views, "options": options})
        rows.append(row(name + (" and certificate" if certify else ""), run))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the dense pool")
    parser.add_argument("--sparse-rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("shards", "sparse"))
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    rows = []
    for name, run, n in (("shards", shards, options.rows), ("sparse", sparse, options.sparse_rows)):
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                rows += run(Path(folder), n)
    headings = ["pool", "F", "bound", "status", "s", "peak GiB", "planned GiB", "planned / peak"]
    body = f"{provenance()}\n\n{markdown(headings, rows)}"
    publish("scale", body, write=options.write and options.only is None)


if __name__ == "__main__":
    main()
