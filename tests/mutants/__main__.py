"""`make mutants`, or with tests/ on PYTHONPATH `python -m mutants`."""

import argparse
import hashlib
import json
import math
import os
import random
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pytest

from mutants.mutations import Mutant, mutants
from mutants.reach import Reach, module_of
from mutants.server import Server

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent / "src" / "fairnepv"
ROOMS = ["objective", "stiefel", "concave", "search"]
FOLDERS = [*ROOMS, "contracts", "methods", "paper", "loop/test_loop.py", "loop/test_checkpoint.py"]
BY_THE_CLOCK = ["contracts/test_limits.py"]  # a busy machine may fail them
# Survivors that were read and change no result, by file and text, and why: no test can notice them.
JUDGED = tomllib.loads(Path(__file__).with_name("judged.toml").read_text())
_NUMBER = 20  # letters of a mistake that names nothing but a number
MARKS = "not slow and not ray and not kill and not encoders"


def main() -> int:
    given = _arguments()
    os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="fairnepv-mutants-state-"))
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.environ["XDG_STATE_HOME"])
    run = _Run(given)
    paths = [str(TESTS / folder) for folder in given.tests or FOLDERS]
    left_out = [f"--ignore={TESTS / name}" for name in BY_THE_CLOCK]
    line = [*paths, *left_out, "-m", MARKS, "-s", "-p", "no:cacheprovider"]
    code = 0 if given.seconds == 0 else int(pytest.main(line, plugins=[Server(ROOT, run)]))
    run.tell()
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    add = parser.add_argument
    add("--room", action="append", choices=ROOMS, help="only this one; may be repeated")
    add("--sample", type=int, default=150, help="so many of each room (%(default)s)")
    add("--seed", type=int, default=0, help="which ones (%(default)s)")
    add(
        "--seconds",
        type=float,
        default=math.inf,
        help="at most so much time; 0 tells the rates alone",
    )
    add("--budget", type=float, default=30.0, help="seconds of tests for a mutant (%(default)g)")
    add("--only", default="", help="only mutants whose place and text have this in them")
    add(
        "--tests",
        nargs="+",
        help="only these, below tests/, instead of all that have to do with it",
    )
    add("--journal", type=Path, default=Path("mutants.jsonl"), help="how they ended (%(default)s)")
    return parser.parse_args()


class _Run:
    """Attempts what the journal does not know, and tells the rates."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._tests = given, _digest(TESTS.rglob("test_*.py"))
        self._library = _digest([*ROOT.rglob("*.py"), *TESTS.glob("*.py")])

    def __call__(self, server: Server) -> None:
        """A mutant of each room in turn, so that all samples are as large when time is up."""
        began, reach, done = time.monotonic(), self._reach(server), self._journal()
        drawn = [self._drawn(room) for room in self._given.room or ROOMS]
        for mutant in (m for turn in zip_longest(*drawn) for m in turn if m):
            if self._key(mutant) in done:
                continue
            if time.monotonic() - began > self._given.seconds:
                break
            self._attempt(server, reach, mutant)

    def tell(self) -> None:
        done = self._journal()
        for room in self._given.room or ROOMS:
            outcomes = [done.get(self._key(mutant)) for mutant in self._drawn(room)]
            _tell(room, [told for told in outcomes if told])

    def _drawn(self, room: str) -> Sequence[Mutant]:
        """The same ones first, whatever the size of the sample."""
        found = [m for file in sorted((ROOT / room).rglob("*.py")) for m in mutants(file, ROOT)]
        random.Random(f"{self._given.seed} {room}").shuffle(found)
        only = self._given.only
        wanted = (m for m in found if not m.idle and only in f"{m.file}:{m.first} {m.told}")
        return [*islice(wanted, self._given.sample)]

    def _reach(self, server: Server) -> Reach:
        """Recorded anew where a test has changed, and everywhere when the library has."""
        file = self._given.journal.with_suffix(".reach")
        modules = {module_of(test) for test in server.tests}
        now = {module: _digest([TESTS.parent / module]) for module in modules}
        reach, before = Reach({}, {}), {}
        if file.exists():
            known, state = Reach.loaded(file)
            if state["library"] == self._library:
                before = state["modules"]
                reach = known.of(lambda test: now.get(m := module_of(test), before[m]) == before[m])
        changed = [test for test in server.tests if before.get(m := module_of(test)) != now[m]]
        if changed:
            say = f"recording what {len(changed):,} tests reach"
            print(say, file=sys.stderr, flush=True)
            reach = reach.beside(server.reach(changed, ROOMS))
            reach.saved(file, library=self._library, modules={**before, **now})
        collected = set(server.tests)
        return reach.of(lambda test: test in collected)

    def _attempt(self, server: Server, reach: Reach, mutant: Mutant) -> None:
        began = time.monotonic()
        budget = self._given.budget
        tests = reach.tests_of(mutant.file, mutant.lines, budget)
        outcome, by = server.attempt(mutant, tests, reach) if tests else ("survived", "")
        told = {
            **{"key": self._key(mutant), "outcome": outcome, "by": by, "tests": len(tests)},
            **{"where": f"{mutant.file}:{mutant.first}", "within": mutant.within},
            **{"told": mutant.told, "with": self._tests, "budget": budget},
            "seconds": round(time.monotonic() - began, 2),
        }
        with self._given.journal.open("a") as journal:
            journal.write(json.dumps(told) + "\n")

    def _key(self, mutant: Mutant) -> str:
        return f"{_digest([ROOT / mutant.file])} {mutant.file} {mutant.number}"

    def _journal(self) -> dict[str, dict[str, Any]]:
        """What is killed stays killed; what survived meets other tests, or more, again."""
        if not self._given.journal.exists():
            return {}
        told = map(json.loads, self._given.journal.read_text().splitlines())
        return {
            line["key"]: line
            for line in told
            if line["outcome"] != "survived"
            or (line["with"] == self._tests and line["budget"] >= self._given.budget)
        }


def _tell(room: str, outcomes: Sequence[dict[str, Any]]) -> None:
    ended = Counter(told["outcome"] for told in outcomes)
    made = len(outcomes) - ended.pop("not made", 0)
    survivors = [told for told in outcomes if told["outcome"] == "survived"]
    unjudged = [
        told
        for told in survivors
        if judged_as(told) not in JUDGED.get(told["where"].partition(":")[0], {})
    ]
    for told in unjudged:
        print(f"{told['where']}  {_seen(told['told'])}  [{told['tests']} tests]")
    ended["judged"] = len(survivors) - len(unjudged)
    caught, mistakes = made - len(survivors), made - ended["judged"]
    rates = {
        **{"rate": caught / max(made, 1), "interval": interval(caught, made)},
        "without judged": caught / max(mistakes, 1),
    }
    rounded = json.loads(json.dumps(rates), parse_float=lambda text: round(float(text), 3))
    print(json.dumps({"room": room, "mutants": made, **ended, **rounded}), flush=True)


def judged_as(told: dict[str, Any]) -> str:
    """Its name among those that were judged: the same text in the same function is one judgement,
    and a number is told by its line."""
    file, _, line = told["where"].partition(":")
    text = told["told"]
    if len(text) < _NUMBER:
        text += f" in {(ROOT / file).read_text().splitlines()[int(line) - 1].strip()}"
    return f"{told['within'].partition(':')[0]}: {text}"


def _seen(told: str, width: int = 90) -> str:
    """The two versions, from where they differ."""
    one, _, other = told.partition("  ->  ")
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, min(same - 20, len(one) - width))
    cut = (text[start : start + width] for text in (one, other))
    return "  ->  ".join(f"{'...' * bool(start)}{text}" for text in cut)


def interval(killed: int, made: int) -> tuple[float, float]:
    """Wilson's, of 95%."""
    z, n = 1.96, max(made, 1)
    rate = killed / n
    half = z * math.sqrt(rate * (1 - rate) / n + (z / n) ** 2 / 4)
    middle, all_of_it = rate + z * z / (2 * n), 1 + z * z / n
    return (middle - half) / all_of_it, (middle + half) / all_of_it


def _digest(files: Iterable[Path]) -> str:
    state = hashlib.sha256()
    for file in sorted(files):
        state.update(file.read_bytes())
    return state.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
