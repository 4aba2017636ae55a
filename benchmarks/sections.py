"""Tables for BENCHMARKS.md, each with the command that made it, machine, versions and date."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from threadpoolctl import threadpool_info, threadpool_limits

_FILE = Path(__file__).resolve().parents[1] / "BENCHMARKS.md"


def benchmark(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Parse the command, add `--write`, and run with one BLAS thread for everybody."""
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        run(options)


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def provenance(*packages: str, command: str | None = None, day: datetime.date | None = None) -> str:
    """The command, as it was given or as it is called, the machine, the versions and the day."""
    names = ("numpy", "scipy", "fairnepv", *packages)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    given = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments])
    return (
        f"`{command or given}`, {day or datetime.date.today()}. "
        f"{os.cpu_count()} shared cores ({platform.machine()}, "
        f"{platform.system()}), Python {platform.python_version()}, {versions}; BLAS threads: "
        f"{max(blas, default=1)}."
    )


def publish(name: str, body: str, *, write: bool) -> None:
    """Print a section; with `write` also put it into BENCHMARKS.md between its two marks."""
    print(body)
    if not write:
        return
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    text = _FILE.read_text(encoding="utf-8")
    if not pattern.search(text):
        raise SystemExit(f"BENCHMARKS.md has no marks for {name!r}")
    _FILE.write_text(pattern.sub(lambda m: m[1] + body + "\n" + m[2], text), encoding="utf-8")
