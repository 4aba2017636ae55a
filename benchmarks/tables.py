"""What a table takes in memory beyond itself, by the kind of it: one pass over all of its rows, in
a process of its own (docs/tables.md). The rows are simulated."""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("numpy", "gaps", "fixed lists", "lists", "chunks", "polars", "pandas")
_KIB = 1 << 20  # to a GiB


def make(kind: str, n: int, p: int) -> tuple[Any, dict[str, Any]]:
    """A table of this kind with one view, and the options that it takes."""
    import pyarrow as pa

    rows = np.random.default_rng(0).standard_normal((n, p), dtype=np.float32)
    by_name = {"views": {"text": "text"}}
    if kind in ("numpy", "gaps"):
        rows[3] = np.nan if kind == "gaps" else 0.5
        return {"text": rows}, {"missing": "drop"} if kind == "gaps" else {}
    if kind == "pandas":
        import pandas

        return pandas.DataFrame({"text": list(rows)}), by_name
    if kind == "polars":
        import polars

        return polars.DataFrame({"text": rows}), by_name
    flat = pa.array(rows.ravel())
    if kind == "lists":
        ends = np.arange(0, n * p + 1, p, dtype=np.int32)
        return pa.table({"text": pa.ListArray.from_arrays(ends, flat)}), by_name
    table = pa.table({"text": pa.FixedSizeListArray.from_arrays(flat, p)})
    if kind == "chunks":
        table = pa.concat_tables([table.slice(start, n // 25) for start in range(0, n, n // 25)])
    return table, by_name


def measure(kind: str, n: int, p: int) -> None:
    """Print the GiB held before and the peak of a pass, as the system counts resident memory."""
    import fairnepv

    fairnepv.score({"text": np.random.default_rng(0).random((99, p))}, [1, 2])  # imports
    data, options = make(kind, n, p)
    gc.collect()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    fairnepv.score(data, [1, 2, 3], **options)
    print(f"{before:.2f} {_resident('VmHWM'):.2f}")


def _resident(what: str) -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB", status, re.M)
    assert found is not None
    return int(found[1]) / _KIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=250_000)
    parser.add_argument("-p", type=int, default=1024)
    parser.add_argument("--kind", choices=KINDS)
    asked = parser.parse_args()
    if asked.kind:
        measure(asked.kind, asked.n, asked.p)
        return
    print(f"{asked.n:,} rows of {asked.p} float32: {asked.n * asked.p * 4 / (_KIB << 10):.2f} GiB")
    for kind in KINDS:
        size = ["-n", str(asked.n), "-p", str(asked.p)]
        command = [sys.executable, "-W", "ignore", __file__, *size, "--kind", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        before, peak = map(float, done.stdout.split())
        print(f"{kind:12} held {before:.2f} GiB, peak {peak:.2f}, beyond it {peak - before:.2f}")


if __name__ == "__main__":
    main()
