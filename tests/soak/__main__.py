"""The full run: `make soak`, or with tests, src and benchmarks on PYTHONPATH `python -m soak`."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from soak.groups import GROUPS, group_of
from soak.runner import Journal, carry_out, digest, run, say_on_stderr


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    add = parser.add_argument
    add("--group", action="append", choices=list(GROUPS), help="only this one; may be repeated")
    add("--count", type=int, help="at most so many cases of each group")
    add("--seconds", type=float, help="at most so much time for each group")
    add("--case", type=int, help="only this case of one group, with nothing caught or kept")
    add(
        "--journal", type=Path, default=Path("soak.jsonl"), help="how the cases ended (%(default)s)"
    )
    add("--write", action="store_true", help="run nothing; what the journal has, to BENCHMARKS.md")
    given = parser.parse_args()
    os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="fairnepv-soak-state-"))
    names = given.group or list(GROUPS)
    if given.write:
        return write_table(given.journal)
    if given.case is not None:
        group = group_of(names[0])
        outcome = carry_out(group, given.case, "")
        print(outcome.error or f"{group.name} {given.case} passed in {outcome.seconds:.1f} s")
        return int(not outcome.ok)
    records = []
    for name in names:
        options = {
            "source": source_of(name),
            "count": given.count,
            "seconds": given.seconds,
        }
        records.append(run(group_of(name), Journal(given.journal), say=say_on_stderr, **options))
        print(json.dumps(records[-1]), flush=True)
    return int(any(record["failures"] for record in records))


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
