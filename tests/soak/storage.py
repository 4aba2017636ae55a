"""Disks that are full or break while a command works, files that change under it, and two runs in
one folder: what was there before stays, nothing half-written does, and one sentence names the file
and says what to try."""

import contextlib
import errno
import functools
import io
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

import fairnepv
import row_files
from fairnepv.io.locks import locked
from soak.guarded import Guarded, refused, trouble
from soak.runner import Group

N, K = 300, 5
ROOM = 3000  # bytes that fit on a disk that is nearly full: less than any output, more than a name
CASES: dict[str, Callable[[], None]] = {}
SELECT = f"select --view a=a.npy --view b=b.npy -k {K} --effort fast --no-certify "


def storage(name: str, *arguments: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def keep(case: Callable[..., None]) -> Callable[..., None]:
        assert name not in CASES
        CASES[name] = functools.partial(case, *arguments)
        return case

    return keep


# --- commands in this process ---------------------------------------------------------------------


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def command(line: str) -> Ended:
    """What `fairnepv` does with these arguments; an error that it has no words for is raised."""
    from fairnepv.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["fairnepv", *shlex.split(line)]),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def refused_line(line: str, *words: str, while_: Any = None) -> None:
    """With exit code 2 and one sentence that has these words, and the folder is as it was."""
    before = files()
    with while_ or contextlib.nullcontext():
        ended = command(line)
    assert ended.code == 2, ended
    (said,) = (one for one in ended.err.splitlines() if one.startswith("fairnepv: "))
    for word in words:
        assert word in said, (word, said)
    assert files() == before, (before.keys() ^ files().keys(), said)


def files() -> dict[str, bytes]:
    """Everything in this folder but keys and the cache of fonts."""
    found = {str(path): path for path in Path().rglob("*") if "home" not in path.parts}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in found.items()}


def write_rows() -> None:
    rng = np.random.default_rng([23, 9])
    for name, p in (("a", 8), ("b", 11)):
        np.save(f"{name}.npy", rng.standard_normal((N, p)).astype(np.float32))
    Path("ids.csv").write_text("id\n" + "".join(f"item {i}\n" for i in range(N)))


# --- full disks -----------------------------------------------------------------------------------


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system writes no file beyond this size, whoever writes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def disk_of(size: int, folder: str = "disk") -> Iterator[None]:
    """A disk with so much room at `folder`; who may mount none gets the limit of files instead."""
    Path(folder).mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    mounted = shutil.which("mount") is not None and not subprocess.call(
        mount, stderr=subprocess.DEVNULL
    )
    try:
        with contextlib.nullcontext() if mounted else files_of_at_most(size):
            yield
    finally:
        if mounted:
            subprocess.check_call(["umount", "-l", folder])


_WHERE = ("of which nothing is there", "of which an older one stays")
OUTPUTS = {
    "--out {}.parquet": "",
    "--out {}.csv": "",
    "--out {}.json": "",
    "--out {}.txt": "",
    "--explain {}.json": "",
    "--assign {}.csv": "",
    "--report {}.html": "",
    "--bound {}.npz": "--certify",
}
for _option, _more in OUTPUTS.items():
    for _there in (False, True):

        @storage(f"{_option} {_more} too large to write, {_WHERE[_there]}", _option, _more, _there)
        def _(option: str, more: str, there: bool) -> None:
            write_rows()
            line = f"{SELECT} {option.format('result')} {more} --force"
            if there:  # and it stays as it is
                assert command(line).code == 0
            name = option.split()[1].format("result")
            with files_of_at_most(200):
                refused_line(line, name, "cannot be written (File too large)")


for _line in (
    "relax --view a=a.npy -k 60 --out disk/basis.npy",
    "relax --view a=a.npy -k 60 --trace disk/trace.png",
    f"certify --view a=a.npy -k {K} --out disk/bound.npz",
    SELECT + "--assign disk/all.csv",
    SELECT + "--report disk/page.html",
):

    @storage(f"no space left for {_line.split()[-1]}", _line)
    def _(line: str) -> None:
        write_rows()
        with disk_of(1 << 12):
            Path("disk/other").write_bytes(b"x" * ROOM)
            refused_line(line, line.split()[-1], "cannot be written (")


@storage("a disk with less room than converted rows need")
def _() -> None:
    write_rows()
    with disk_of(1 << 12):
        if not Path("disk").is_mount():
            return
        refused_line("convert a.npy --out disk/rows", "disk/rows needs", "of disk are free")


@storage("a shard that cannot be written to its end")
def _() -> None:
    write_rows()
    with files_of_at_most(ROOM):
        refused_line("convert a.npy --out rows", "rows cannot be written (File too large)")


@storage("converted rows that stay when the new ones do not fit")
def _() -> None:
    write_rows()
    assert command("convert a.npy --out rows").code == 0
    with files_of_at_most(ROOM):
        refused_line("convert b.npy --out rows --force", "rows cannot be written (File too large)")


@storage("a result that is saved")
def _() -> None:
    write_rows()
    found = fairnepv.select({"a": np.load("a.npy")}, K, effort="fast")
    before = files()
    with files_of_at_most(200):
        refused(lambda: found.save("saved.npz"), "saved.npz", "cannot be written")
    assert files() == before


@storage("standard output that goes to a full disk")
def _() -> None:
    write_rows()
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "fairnepv", *shlex.split(SELECT)]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ended = subprocess.run(
            line, stdout=full, stderr=subprocess.PIPE, text=True, env=here, check=False
        )
    assert ended.returncode == 2, ended
    assert "No space left on device; make room on the disk" in ended.stderr
    assert "Traceback" not in ended.stderr


@storage("a checkpoint that finds no room costs no selection")
def _() -> None:
    write_rows()
    whole = command(SELECT + "--out whole.txt")
    with files_of_at_most(20_000):
        ended = command(SELECT + "--out picks.txt --checkpoint state")
    assert (whole.code, ended.code) == (0, 0), ended
    assert Path("picks.txt").read_text() == Path("whole.txt").read_text()
    assert command(SELECT + "--out picks.txt --force --checkpoint state").code == 0
    assert Path("picks.txt").read_text() == Path("whole.txt").read_text()


@storage("a checkpoint on a disk without any room")
def _() -> None:
    write_rows()
    assert command(SELECT + "--checkpoint other").code == 0  # which makes the key
    with files_of_at_most(0):
        refused_line(
            SELECT + "--checkpoint state", "checkpoint state cannot be used", "another file"
        )


@storage("a key for checkpoints that finds no room")
def _() -> None:
    write_rows()
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(Path("new").absolute())}):
        Path("new").mkdir()
        with files_of_at_most(0):
            ended = command(SELECT + "--checkpoint state")
    assert ended.code == 2, ended
    assert "key cannot be used (File too large); set XDG_STATE_HOME" in ended.err
    assert not [path for path in Path("new").rglob("*") if path.is_file()]


# --- corpora --------------------------------------------------------------------------------------


def _raw() -> str:
    from fairnepv_studies.uspto.simulate import simulate

    simulate(40, 0, Path("raw"))
    bulk = " ".join(str(path) for path in sorted(Path("raw").glob("applications-*.xml")))
    return f"uspto ingest {bulk} --images raw/images.zip --out corpus"


def _split() -> str:
    from corpora import add_features, make_corpus

    from fairnepv_studies.protocol.split import split, write_split

    corpus = make_corpus(Path("corpus"), 60)
    add_features(corpus)
    write_split(corpus, split(corpus))
    return "uspto run corpus --k 3 --seeds 1 --methods random,nepv"


def goes_on(line: str, size: int, *words: str) -> None:
    """A step of the protocol on a full disk is refused, and the same command goes on later."""
    with files_of_at_most(size):
        ended = command(line)
    assert ended.code == 2, ended
    for word in words:
        assert word in ended.err, (word, ended.err)
    again = command(line)
    assert again.code == 0, again
    assert not [str(path) for path in Path("corpus").rglob("*.part")]


@storage("marks that are drawn")
def _() -> None:
    goes_on("uspto simulate --n 40 --out raw", 4000, "raw", "cannot be written (File too large)")


@storage("a corpus that is ingested")
def _() -> None:
    goes_on(_raw(), 4000, "corpus", "cannot be written (", "File too large")


@storage("a run of the protocol")
def _() -> None:
    goes_on(_split(), 100, "corpus/runs", "cannot be written (File too large)")


@storage("a publication")
def _() -> None:
    assert command(_split()).code == 0
    line = "uspto publish corpus --out published"
    with files_of_at_most(1000):
        refused_line(line, "cannot be written (File too large)")
    assert command(line).code == 0


# --- files that change while they are read --------------------------------------------------------


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0" * 4096)


def _written_over(path: Path) -> None:
    """The same size and other numbers, as who runs the encoder again has it."""
    content = bytearray(path.read_bytes())
    content[-400:] = np.random.default_rng(1).bytes(400)
    time.sleep(0.02)  # times of files have steps of some milliseconds
    with path.open("r+b") as file:
        file.write(content)


def _replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    shutil.copy(path, other)
    os.replace(other, path)


DAMAGES = (_cut, _emptied, _grown, _written_over, _replaced, Path.unlink)


def _table(rows: Any) -> pa.Table:
    return pa.table({"rows": row_files.fixed_lists(rows)})


def _parquet(rows: Any) -> str:
    pq.write_table(_table(rows), "a.parquet", row_group_size=64)
    return "a.parquet"


def _folder(rows: Any) -> str:
    assert command(f"convert {_npy(rows)} --out a --rows-per-shard 128").code == 0
    return "a/part_00001.npy"


def _npy(rows: Any) -> str:
    np.save("a.npy", rows)
    return "a.npy"


def _arrow(rows: Any) -> str:
    row_files.write_arrow("a.arrow", _table(rows), batch=64)
    return "a.arrow"


def _safetensors(rows: Any) -> str:
    tensor = {"rows": ("F32", rows.shape, rows.tobytes())}
    row_files.write_safetensors("a.safetensors", tensor)
    return "a.safetensors"


def _sparse(rows: Any) -> str:
    sp.save_npz("a.npz", sp.csr_array(np.where(rows > -0.5, rows, 0.0)))
    return "a.npz"


KINDS = (_npy, _folder, _parquet, _arrow, _safetensors, _sparse)
LOADED = ("a.npz", "a.parquet")  # whose few rows are in memory once they are read


def _damaging(path: Path, damage: Callable[[Path], None]) -> Callable[[Any], None]:
    """A listener that changes the file when a search begins."""
    left = [1]

    def listen(step: Any) -> None:
        if left:
            left.clear()
            damage(path)

    return listen


for _kind in KINDS:
    for _damage in DAMAGES:

        @storage(f"{_kind.__name__}, {_damage.__name__} while it is read", _kind, _damage)
        def _(kind: Callable[[Any], str], damage: Callable[[Path], None]) -> None:
            rng = np.random.default_rng([23, 10])
            name = kind(rng.standard_normal((N, 8)).astype(np.float32))
            given = fairnepv.open_rows(name.split("/")[0])
            asked = {"data": {"a": given}, "k": K, "random_state": 0}
            blocks = fairnepv.LocalEngine(block_rows=50)
            whole = fairnepv.select(**asked, engine=blocks).indices.tolist()
            listen = _damaging(Path(name), damage)

            def ask() -> list[int]:
                found = fairnepv.select(**asked, engine=blocks, progress=listen)
                picks: list[int] = found.indices.tolist()
                return picks

            if name in LOADED:
                assert ask() == whole
            else:
                refused(ask, name, "was changed or removed while it was being read (at row")


# --- disks that cannot be read --------------------------------------------------------------------


class _Broken(io.FileIO):
    """A file of which some bytes can be read and no more."""

    def __init__(self, path: Any, good: int) -> None:
        super().__init__(path)
        self.good = good

    def readinto(self, buffer: Any) -> int:
        if self.tell() + len(memoryview(buffer)) > self.good:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or self.tell() + size > self.good:
            return self.readall()
        return super().read(size) or b""


@contextlib.contextmanager
def _broken(name: str, good: int) -> Iterator[None]:
    """What opens this file in Python gets an error of the disk behind these bytes."""
    plain = io.FileIO

    def opened(path: Any, *given: Any, **options: Any) -> io.FileIO:
        broken = os.path.basename(str(path)) == name
        return _Broken(path, good) if broken else plain(path, *given, **options)

    with mock.patch("io.FileIO", opened):  # by which `open_regular` opens
        yield


for _name, _option, _said in (
    ("ids.csv", "--ids ids.csv", "nput/output error"),
    ("ids.json", "--include ids.json", "nput/output error"),
    ("recipe.toml", "--recipe recipe.toml", "nput/output error"),
    ("b.npz", "--view c=b.npz", "cannot be read as an .npz archive"),
    ("texts.csv", "--texts texts.csv --report page.html", "nput/output error"),
):

    @storage(f"{_name} on a disk that breaks", _name, _option, _said)
    def _(name: str, option: str, said: str) -> None:
        write_rows()
        shutil.copy("ids.csv", "texts.csv")
        Path("ids.json").write_text('["item 3", "item 4"]' + " " * 400)
        Path("recipe.toml").write_text("tau = 0.1\n" + "#" * 400)
        np.savez("b.npz", rows=np.load("b.npy"))
        for good in (0, 100):
            refused_line(f"{SELECT} {option}", name, said, while_=_broken(name, good))


# --- two at once ----------------------------------------------------------------------------------


@contextlib.contextmanager
def started(line: str, moment: str) -> Iterator[subprocess.Popen[str]]:
    """The command in another process, which has come to this function and waits there."""
    code = (
        "import importlib, sys\n"
        f"module, _, path = {moment!r}.partition(':')\n"
        "owner, name = importlib.import_module(module), path\n"
        "while '.' in name:\n"
        "    first, _, name = name.partition('.')\n"
        "    owner = getattr(owner, first)\n"
        "call, waits = getattr(owner, name), [1]\n"
        "def waiting(*arguments, **options):\n"
        "    if waits:\n"
        "        waits.clear()\n"
        "        print('there', flush=True)\n"
        "        sys.stdin.readline()\n"
        "    return call(*arguments, **options)\n"
        "setattr(owner, name, waiting)\n"
        f"sys.argv = ['fairnepv', *{shlex.split(line)!r}]\n"
        "from fairnepv.cli import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for said in process.stdout:
            if said == "there\n":
                break
        else:
            raise AssertionError(process.communicate()[1])
        yield process
    finally:
        process.kill()
        process.communicate()


def ends_well(process: "subprocess.Popen[str]") -> None:
    out, err = process.communicate("go on\n")
    assert process.returncode == 0, (out, err)


def _begun_twice(line: str, moment: str) -> None:
    """The second is refused, and the first comes to its end as if nobody had disturbed it."""
    with started(line, moment) as first:
        ended = command(line)
        assert ended.code == 2, ended
        assert re.search(r"another (run|selection) is (at work in|using) ?.*(wait|name)", ended.err)
        ends_well(first)


@storage("two runs of the protocol")
def _() -> None:
    line = _split()
    _begun_twice(line, "fairnepv_studies.protocol.execution:select_posed")
    assert command(line).code == 0


@storage("two runs with a checkpoint")
def _() -> None:
    write_rows()
    line = SELECT + "--checkpoint state"
    _begun_twice(line, "fairnepv.loop.journal:Journal.keep")


@storage("two that ingest into a corpus")
def _() -> None:
    _begun_twice(_raw(), "fairnepv_studies.uspto.ingest:move_in")


@storage("two that draw marks")
def _() -> None:
    _begun_twice("uspto simulate --n 40 --out raw", "fairnepv_studies.uspto.simulate:_assemble")


@storage("two that convert into a folder")
def _() -> None:
    """Each has a folder of its own until the end, and the last one stays."""
    write_rows()
    line = "convert a.npy --out rows --force"
    with started(line, "fairnepv.io.atomic:_put_folder") as first:
        assert command(line).code == 0
        ends_well(first)
    assert sorted(path.name for path in Path("rows").iterdir()) == [
        "manifest.json",
        "part_00000.npy",
    ]
    np.testing.assert_array_equal(fairnepv.open_rows("rows")[:], np.load("a.npy"))
    assert sorted(path.name for path in Path().iterdir()) == ["a.npy", "b.npy", "ids.csv", "rows"]


@storage("two that write the same table")
def _() -> None:
    write_rows()
    line = SELECT + "--out picks.csv --force"
    with started(line, "os:replace") as first:
        assert command(line).code == 0
        expected = Path("picks.csv").read_bytes()
        ends_well(first)
    assert Path("picks.csv").read_bytes() == expected
    assert sorted(path.name for path in Path().iterdir()) == [
        *("a.npy", "b.npy", "ids.csv", "picks.csv", "picks.csv.settings.json"),
    ]


@storage("a folder of a run that somebody else holds")
def _() -> None:
    line = _split()
    Path("corpus/runs/main").mkdir(parents=True)
    with locked(Path("corpus/runs/main")):
        refused_line(line, "another run is at work in corpus/runs/main; wait until")


# --- one case -------------------------------------------------------------------------------------


def inside(number: int, folder: Path) -> str:
    name = list(CASES)[number]
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "home")}):
        return trouble(name, CASES[name], folder)


CASE = Guarded("soak.storage", 120.0).case
GROUP = Group("storage", CASE, len(CASES), sample=range(3, len(CASES), 15), patience=900.0)
