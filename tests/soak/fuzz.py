"""Mutated files of every format, read by a process that may use so much memory and no more: there
is an answer or a `FairnepvError`, and never a signal, a hang or another error."""

from functools import partial
from pathlib import Path

import numpy as np

from fairnepv.errors import FairnepvError
from soak.formats import NAMES, Format, format_of
from soak.guarded import Guarded, trouble
from soak.mutator import mutated
from soak.runner import Group

PATIENCE = 20.0  # seconds for one file


def damage(number: int, folder: Path) -> Format:
    """Write the files of a case, one of them changed; what reads them, and by which name."""
    rng = np.random.default_rng([23, 7, number])
    chosen = format_of(NAMES[number % len(NAMES)])
    changed = sorted(chosen.files)[rng.integers(len(chosen.files))]
    for name, content in chosen.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mutated(rng, content) if name == changed else content)
    return chosen


def inside(number: int, folder: Path) -> str:
    chosen = damage(number, folder)
    return trouble(chosen.name, partial(read, chosen), folder)


def read(chosen: Format) -> None:
    try:
        chosen.read(chosen.given)
    except FairnepvError as error:
        if len(str(error).splitlines()) > 1:
            raise AssertionError("an error of several lines") from error


CASE = Guarded("soak.fuzz", PATIENCE).case
GROUP = Group("fuzz", CASE, 70_000, sample=range(0, 70_000, 350), patience=300.0)
