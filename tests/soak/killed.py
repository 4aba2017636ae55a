"""A command that is killed at any moment, and then given again: the same picks, and a folder with
the same files as if nobody had disturbed it. What stands there under its name is whole, also right
after the kill."""

import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from fairnepv_studies.pictures import pixels_sha256
from soak.dying import AFTER, BEFORE, LATER, WATCHED
from soak.runner import Group

MOMENTS = 10  # of every phase
TRIES = 8  # until a moment is one of the phase and not behind its end
LONGEST = 0.2  # seconds between a call and the kill
N, K = 400, 6
DYING = (sys.executable, "-m", "soak.dying")
# Times, memory and random bytes differ between any two runs; the state of a checkpoint is written
# when there is time for it; of a run of the protocol it is kept how long each part took.
APART = re.compile(r"home/fairnepv/key|state|.*/seconds([./].*)?")
PASSING = re.compile(
    rb'"?seconds"?: ?[0-9.e-]+|[0-9]+(\.[0-9]+)? (s|ms|min)\b|[0-9.]+ [KMG]iB'
    rb'|"(trace|stages|beyond)": \[\[.*?\]\]|[0-9-]{10} [0-9:]{5} UTC'
)


class Phase(NamedTuple):
    """A command, what it needs, and a part of it that is to be killed (`dying.WATCHED`)."""

    command: str
    prepare: Callable[[Path], None]


class Moment(NamedTuple):
    """A call of the phase, and the seconds after it if the process goes on."""

    call: int = 0  # none
    how: str = BEFORE
    delay: float = 0.0


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    said: str


class Whole(NamedTuple):
    """What a command leaves that nobody disturbs, and the calls of the phase until then."""

    files: dict[str, bytes]
    calls: int


NEVER = Moment()


# --- what commands need -------------------------------------------------------------------------


def _rows(folder: Path, n: int = N) -> None:
    rng = np.random.default_rng([23, 7])
    np.save(folder / "a.npy", rng.standard_normal((n, 12)).astype(np.float32))
    np.savez(folder / "b.npz", rows=rng.standard_normal((n, 20)).astype(np.float32))
    (folder / "ids.csv").write_text("id\n" + "".join(f"item {i}\n" for i in range(n)))


def _fewer_rows(folder: Path) -> None:
    _rows(folder, 40)


def _raw(folder: Path) -> None:
    from fairnepv_studies.uspto.simulate import simulate

    simulate(90, 0, folder / "raw")


def _corpus(folder: Path) -> None:
    from corpora import make_corpus

    make_corpus(folder / "corpus", 60)


def _split_corpus(folder: Path) -> None:
    from corpora import add_features, make_corpus

    from fairnepv_studies.protocol.split import split, write_split

    corpus = make_corpus(folder / "corpus", 60)
    add_features(corpus)
    write_split(corpus, split(corpus))


SELECT = f"select --view a=a.npy --view b=b.npz -k {K} --ids ids.csv --force "
ALONE = "--no-certify --out picks.parquet "
FORMS = ("parquet", "csv", "json", "txt")  # one after the other, by the number of the case
PHASES = {
    "reading": Phase(SELECT + ALONE + "--effort fast", _rows),
    "greedy": Phase(SELECT + ALONE + "--method greedy", _rows),
    "swaps": Phase(SELECT + ALONE + "--method greedy-swaps -k 25", _rows),
    "tabu": Phase(SELECT + ALONE + "--effort thorough", _fewer_rows),
    "bound": Phase(SELECT + "--effort fast --out picks.json --bound bound.npz", _rows),
    "relaxation": Phase(SELECT + ALONE + "--method nepv", _rows),
    "exact": Phase(SELECT + ALONE + "--method exact", _fewer_rows),
    "shards": Phase(SELECT + ALONE + "--hierarchical 5", _rows),
    "checkpoint": Phase(SELECT + "--out picks.csv --checkpoint state", _rows),
    "tables": Phase(
        SELECT + "--effort fast --out picks.{form} --explain why.{form} --assign all.{form} "
        "--bound bound.npz",
        _rows,
    ),
    "page": Phase(SELECT + ALONE + "--report page.html --atlas atlas.parquet", _rows),
    "convert": Phase("convert a.npy --out rows --ids ids.csv --rows-per-shard 90 --force", _rows),
    "ingest": Phase("uspto ingest {raw} --images raw/images.zip --out corpus --force", _raw),
    "features": Phase("uspto features corpus --idf-on all", _corpus),
    "run": Phase("uspto run corpus --k 3,5 --seeds 1 --methods auto,nepv,random", _split_corpus),
}
assert list(PHASES) == list(WATCHED)


# --- carrying commands out ------------------------------------------------------------------------


def carried_out(folder: Path, phase: str, form: str, moment: Moment = NEVER) -> Ended:
    """The command in its folder, to its end or to the moment at which it is killed."""
    raw = " ".join(f"raw/{file.name}" for file in sorted(folder.glob("raw/applications-*.xml")))
    line = PHASES[phase].command.format(form=form, raw=raw)
    here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    told, telling = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(told, "rb", 0) as moments:
        process = subprocess.Popen(
            [*DYING, phase, str(moment.call), moment.how, *shlex.split(line)],
            cwd=folder,
            env={**os.environ, **here, "XDG_STATE_HOME": str(folder / "home")},
            stdin=telling,
            stdout=said,
            stderr=said,
        )
        os.close(telling)  # here, so that the pipe ends with the process
        try:
            if moments.read(1):
                time.sleep(moment.delay)
                process.kill()
            process.wait()
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        return Ended(process.returncode, said.read().decode(errors="replace"))


def prepared(folder: Path, phase: str) -> Path:
    """A fresh folder with what the command needs."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_inputs(phase), folder)
    return folder


@functools.lru_cache(maxsize=1)
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fairnepv-soak-killed-")


@functools.cache
def _inputs(phase: str) -> Path:
    folder = Path(_kept().name) / phase
    folder.mkdir()
    PHASES[phase].prepare(folder)
    return folder


@functools.lru_cache(maxsize=len(FORMS))
def undisturbed(phase: str, form: str) -> Whole:
    with tempfile.TemporaryDirectory(prefix="fairnepv-soak-") as folder:
        work = prepared(Path(folder) / "work", phase)
        ended = carried_out(work, phase, form)
        assert ended.code == 0, ended.said
        return Whole(files_of(work), int(ended.said.split()[-1]))


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder by name, but for what differs between any two runs."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: b"" if path.is_dir() or APART.fullmatch(name) else content_of(path)
        for name, path in names.items()
    }


def content_of(path: Path) -> bytes:
    """Of a picture its pixels, of a table its rows and what is said of them."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        said = b"".join((table.schema.metadata or {}).values())
        return repr(table.to_pylist()).encode() + PASSING.sub(b"", said)
    if path.suffix == ".png":
        return pixels_sha256(path.read_bytes()).encode()
    return PASSING.sub(b"", path.read_bytes())


# --- one case -------------------------------------------------------------------------------------


def killed(folder: Path, phase: str, form: str, rng: np.random.Generator) -> None:
    """The command, killed at a moment of the phase; where it has got to its end first, another
    moment in a fresh folder."""
    calls = undisturbed(phase, form).calls
    for _ in range(TRIES):
        how = str(rng.choice([BEFORE, AFTER, LATER]))
        moment = Moment(int(rng.integers(1, calls + 1)), how, float(rng.uniform(0, LONGEST)))
        ended = carried_out(prepared(folder, phase), phase, form, moment)
        if ended.code == -signal.SIGKILL:
            return
        assert ended.code == 0, ended.said
    raise AssertionError(f"{TRIES} times {phase} came to its end before it was killed")


def case(number: int, folder: Path) -> None:
    at, moment = divmod(number, MOMENTS)
    phase, form = list(PHASES)[at], FORMS[moment % len(FORMS)]
    whole, work = undisturbed(phase, form).files, folder / "work"
    killed(work, phase, form, np.random.default_rng([23, 8, number]))
    left = {name: content for name, content in files_of(work).items() if name in whole}
    assert left == {name: whole[name] for name in left}, "a file is torn after the kill"
    again = carried_out(work, phase, form)
    assert again.code == 0, again.said
    found = files_of(work)
    assert sorted(found) == sorted(whole)
    assert [name for name in whole if found[name] != whole[name]] == []


GROUP = Group("killed", case, MOMENTS * len(PHASES), sample=(12, 93, 114), patience=600.0)
