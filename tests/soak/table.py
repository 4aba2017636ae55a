"""What the journal tells of the last full run, as the table of BENCHMARKS.md."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sections import markdown, provenance, publish

HEADINGS = ("group", "cases", "passed", "failed", "known to fail", "seconds", "seconds per case")


@dataclass
class Told:
    """Of a group, the last outcome of every case, by the sources that were tried last."""

    source: str = ""
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def hear(self, line: dict[str, Any]) -> None:
        if line["source"] != self.source:
            self.source, self.outcomes = line["source"], {}
        self.outcomes[line["case"]] = line


def told_of(journal: Path) -> dict[str, Told]:
    """By group, as far as the journal goes; a line that a kill has torn is none."""
    found: dict[str, Told] = {}
    for text in journal.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        found.setdefault(line["group"], Told()).hear(line)
    return found


def table(told: Mapping[str, Told], groups: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """A row per group. One that was not run, or with other sources than these, says so."""
    rows, older = [], []
    for name, group in groups.items():
        heard = told.get(name, Told())
        ended = {n: line["ok"] for n, line in heard.outcomes.items() if n < group.count}
        seconds = sum(heard.outcomes[n]["seconds"] for n in ended)
        bad = [n for n, ok in ended.items() if not ok]
        known = sum(n in (group.known or {}) for n in bad)
        counts = (sum(ended.values()), len(bad) - known, known)
        each = f"{seconds / len(ended):.3f}" if ended else ""
        tried = f"{len(ended):,} of {group.count:,}"
        rows.append([name, tried, *(f"{count:,}" for count in counts), f"{seconds:,.0f}", each])
        if ended and heard.source != sources[name]:
            older.append(name)
    whole = sum(len(t.outcomes) for t in told.values())
    ran = f"{whole:,} cases; seconds are those of a case by itself, one after the other."
    if older:
        ran += f" Run with earlier sources than those of this table's commit: {', '.join(older)}."
    return f"{ran}\n\n{markdown(HEADINGS, rows)}"


def write(journal: Path, groups: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Into BENCHMARKS.md, with the day of the journal's last line."""
    day = datetime.date.fromtimestamp(journal.stat().st_mtime)
    head = provenance("scikit-learn", "pyarrow", command="make soak", day=day)
    publish("soak", f"{head}\n\n{table(told_of(journal), groups, sources)}", write=True)
