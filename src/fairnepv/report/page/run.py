"""What a page says of certainty and of the run: words, figures, and the trace."""

from __future__ import annotations

import datetime
import math
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fairnepv import __version__
from fairnepv.api.selection import Selection
from fairnepv.display import shown
from fairnepv.insight import Overview
from fairnepv.io.memory import peak_memory, size_in_words
from fairnepv.io.write import to_json
from fairnepv.report.words import selection_summary

_MOST = 400  # points of the trace that are drawn
_PARTIAL = ("greedy", "bound")  # stages whose objective is not the score of a whole set


@dataclass(frozen=True)
class Made:
    """The command that made a page, and the one that verifies its bound."""

    command: str
    verify: str

    @classmethod
    def in_python(cls) -> Made:
        return cls(
            "fairnepv.select(data, **settings)  # the settings below find the same items again",
            "fairnepv.verify_bound(data, selection.certificate).holds",
        )


def how_sure(selection: Selection, made: Made) -> dict[str, Any]:
    """The sentences of the terminal, and the figures behind them; notes stand at the head."""
    lines = selection_summary(selection)[1:]
    return {
        "words": [shown(line) for line in lines if not line.startswith("Note: ")],
        "facts": [[name, shown(value)] for name, value in _certainty(selection)],
        "verify": None if selection.certificate is None else _lines(made.verify),
    }


def _certainty(selection: Selection) -> Iterator[tuple[str, str]]:
    units, certificate = selection.units, selection.certificate
    yield "fair score", f"{units.shown(selection.fair_score)} {units.unit}"
    if selection.upper_bound is None or selection.gap is None or selection.efficiency is None:
        yield "bound", "none was asked for (certify=False)"
    else:
        yield "bound", f"{units.rounded_up(selection.upper_bound)}: no set scores above it"
        yield "gap", units.shown(selection.gap)
        share = math.floor(10_000 * selection.efficiency) / 100  # it holds as it is printed
        yield "efficiency", f"{share:.2f}% of {units.best}, at least"
    if selection.random_efficiency is not None and certificate is not None:
        draws = len(certificate.random_scores)
        yield "random sets", f"{100 * selection.random_efficiency:.2f}%, the mean of {draws}"
    if certificate is not None:
        yield "duality gap", f"{certificate.duality_gap:.1g}: how much of the gap is the solver's"
    begun = Counter(step.stage for step in selection.trace if step.step == 0)
    if begun:
        yield "runs", ", ".join(f"{count} of {stage}" for stage, count in begun.items())
    yield "status", selection.status.name


def how_it_ran(seen: Overview, made: Made) -> dict[str, Any]:
    selection = seen.selection
    steps, stages = _trace(selection)
    beyond = {name: round(seconds, 3) for name, seconds in seen.seconds.items()}
    return {
        "command": _lines(made.command),
        "facts": [[name, shown(value)] for name, value in _facts(seen)],
        "settings": [[name, _plain(value)] for name, value in selection.settings.items()],
        "trace": steps,
        "stages": [[stage, round(seconds, 3)] for stage, seconds in stages.items()],
        "beyond": list(beyond.items()),
        "axis": selection.units.unit,
    }


def _trace(selection: Selection) -> tuple[list[list[Any]], dict[str, float]]:
    """[seconds, score as drawn, score as said] of whole sets, and the seconds of every stage."""
    seconds: dict[str, float] = {}
    clock = last = 0.0
    points: list[list[Any]] = []
    for step in selection.trace:
        if step.step == 0 or step.seconds < last:
            last = 0.0
        spent = max(step.seconds - last, 0.0)
        seconds[step.stage] = seconds.get(step.stage, 0.0) + spent
        clock, last = clock + spent, step.seconds
        if step.stage not in _PARTIAL and step.residual is None:
            points.append([round(clock, 4), step.objective, selection.units.shown(step.objective)])
    stride = -(-len(points) // _MOST) or 1
    kept = points[::stride] + (points[-1:] if (len(points) - 1) % stride else [])
    return kept, seconds


def _facts(seen: Overview) -> Iterator[tuple[str, str]]:
    selection = seen.selection
    yield "method", f"{selection.method}, effort {selection.settings['effort']}"
    yield "search", f"{selection.seconds:.2f} s"
    stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in seen.seconds.items())
    yield "this page", f"{sum(seen.seconds.values()):.2f} s more ({stages})"
    memory = peak_memory()
    if memory is not None:
        yield "memory", f"{size_in_words(memory)} at the most, of the whole process"
    columns = selection.chosen_from["views"].items()
    yield "views", "; ".join(f"{name}: {width:,} columns" for name, width in columns)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    yield "versions", f"fairnepv {__version__}, Python {platform.python_version()}, {packages}"
    now = datetime.datetime.now(datetime.UTC)
    yield "made", f"{now:%Y-%m-%d %H:%M} UTC on {platform.system()} {platform.machine()}"


def _lines(commands: str) -> str:
    """Commands without the secrets of addresses, a line each."""
    return "\n".join(map(shown, commands.split("\n")))


def _plain(value: Any) -> str:
    text = shown(value if isinstance(value, str) else to_json(value, indent=None))
    return text if len(text) <= 300 else f"{text[:299]}…"
