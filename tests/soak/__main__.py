"""The full run: `make soak`, or with tests, src and benchmarks on PYTHONPATH `python -m soak`."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from soak.groups import GROUPS, group_of
from soak.runner import Journal, carry_out, digest, run, say_on_stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    add = parser.add_argument
    add("--group", action="append", choices=list(GROUPS), help="only this one; may be repeated")
    add("--only", choices=list(GROUPS), help=argparse.SUPPRESS)  # of those named
    add("--count", type=int, help="at most so many cases of each group")
    add("--seconds", type=float, help="at most so much time for each group")
    add("--case", type=int, help="only this case of one group, with nothing caught or kept")
    add(
        "--journal", type=Path, default=Path("soak.jsonl"), help="how the cases ended (%(default)s)"
    )
    add("--write", action="store_true", help="run nothing; what the journal has, to BENCHMARKS.md")
    given = parser.parse_args()
    os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="fairnepv-soak-state-"))
    names = [given.only] if given.only else given.group or list(GROUPS)
    if given.write:
        return write_table(given.journal)
    if given.case is not None:
        group = group_of(names[0])
        outcome = carry_out(group, given.case, "")
        print(outcome.error or f"{group.name} {given.case} passed in {outcome.seconds:.1f} s")
        return int(not outcome.ok)
    if len(names) > 1:
        return each_apart(names)
    # A shell starts what it leaves in the background deaf to Ctrl-C, which cases press.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = {"source": source_of(names[0]), "count": given.count, "seconds": given.seconds}
    record = run(group_of(names[0]), Journal(given.journal), say=say_on_stderr, **options)
    print(json.dumps(record), flush=True)
    return int(record["failures"] > 0)


def each_apart(names: list[str]) -> int:
    """Every group in a process of its own: clusters and heaps that one leaves behind are in
    nobody's way."""
    ended = [
        subprocess.run([sys.executable, "-m", "soak", *sys.argv[1:], "--only", name], check=False)
        for name in names
    ]
    return int(any(process.returncode for process in ended))


def source_of(name: str) -> str:
    return digest({*GROUPS.values()} - {GROUPS[name]})


def write_table(journal: Path) -> int:
    from soak import table

    if not journal.is_file():
        say_on_stderr(f"{journal} does not exist; run `make soak` first, or name another --journal")
        return 2
    sources = {name: source_of(name) for name in GROUPS}
    table.write(journal, {name: group_of(name) for name in GROUPS}, sources)
    return 0


if __name__ == "__main__":
    sys.exit(main())
