"""Where files lie: on a local disk, or on any filesystem that PyArrow opens by a URI.

A local file is a `Path`. A `RemotePath` answers the few questions that readers ask of a path, so
that they need not know which they have. What travels to a worker is the URI: the worker opens the
filesystem itself, with credentials of its own environment.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, Any, TypeVar
from urllib.parse import parse_qsl, unquote

from fairnepv.display import shown_uri
from fairnepv.errors import InputError
from fairnepv.io.touched import READ, touched

_URI = re.compile(r"(?P<root>(?P<scheme>[a-z][a-z0-9+.-]+)://[^/]*)(?P<path>.*)", re.I | re.S)
_LOST_SLASH = re.compile(r"(s3|gs|gcs|abfss?|hdfs|file):/(?!/)", re.I)  # what `Path` makes of a URI
_DENIED = re.compile("denied|access_key|signature|expired|unauthor|credential|code 40[13]", re.I)
_ESCAPES = str.maketrans({"?": "%3F", "#": "%23", "@": "%40"})  # which a name may hold
_LONGEST = 300  # letters of what a filesystem says
_HOST = re.compile(r"(\[[^]]*\]|[^:]*)(:\d*)?")
_SECRET = re.compile("(sig|signature|password|.*secret.*|.*token|(.*[_-])?key)", re.I)
_NO_SECRETS = "which would end up in records; put credentials into the environment"
_OPTIONS = re.compile(r"\?(?P<options>[A-Za-z_]+=[^?]*)$")
_ANSWERS = 25.0  # seconds for a filesystem to say what it has
_CONNECTS, _RESPONDS, _ATTEMPTS = 4.0, 6.0, 3  # of one request to S3: seconds, seconds, times
_AT_ONCE = 16  # requests that are under way together
_BUFFER = 1 << 16  # bytes of a first read, which mostly hold a header
_NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # until a pipe is written to
_S3_OPTIONS = ("region", "scheme", "endpoint_override")

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class RemotePath:
    """A file or folder of a filesystem that is not mounted."""

    root: str  # scheme and authority, as in s3://bucket
    inner: str  # what follows, without a slash at either end
    options: str = ""  # the query of the URI
    listed: str = field(default="", compare=False)  # what a listing said that it is

    def __str__(self) -> str:
        return shown_uri(f"{self.root}/{self.inner.translate(_ESCAPES)}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.root, f"{self.inner}/{name}".lstrip("/"), self.options)

    @property
    def name(self) -> str:
        return PurePosixPath(self.inner).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.inner).suffix

    def absolute(self) -> RemotePath:
        return self

    def exists(self) -> bool:
        return self._kind in ("File", "Directory")

    def is_file(self) -> bool:
        return self._kind == "File"

    def is_dir(self) -> bool:
        return self._kind == "Directory"

    def stat(self) -> Any:
        """What the filesystem says of a file, in the names of `os.stat`."""
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return SimpleNamespace(st_size=info.size, st_mtime_ns=info.mtime_ns or 0, st_ino=0)

    def iterdir(self) -> Iterator[RemotePath]:
        from pyarrow.fs import FileSelector

        for info in self._ask(lambda fs, path: fs.get_file_info(FileSelector(path))):
            yield replace(self / PurePosixPath(info.path).name, listed=info.type.name)

    def opened(self) -> Any:
        """An Arrow file, of which any range can be read."""
        return self._ask(lambda fs, path: fs.open_input_file(path))

    @functools.cached_property
    def _kind(self) -> str:
        """The kind of this entry, in the words of PyArrow's `FileType`; asked for once."""
        kind: str = self.listed or self._info().type.name
        return kind

    def _info(self) -> Any:
        return self._ask(lambda fs, path: fs.get_file_info(path))

    def _ask(self, question: Callable[[Any, str], T]) -> T:
        """The answer, or an error after some seconds: by themselves some filesystems try again for
        a quarter of an hour."""
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                filesystem, base = _filesystem(self.root, self.options)
                answer.set_result(question(filesystem, f"{base}/{self.inner}".rstrip("/")))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        wait([answer], _ANSWERS)
        if not answer.done():
            raise InputError(
                f"{self} gives no answer in {_ANSWERS:.0f} s; check the address, the network and "
                "the credentials in the environment"
            )
        error = answer.exception()
        if error is not None:
            raise filesystem_error(str(self), error) from error
        return answer.result()


AnyPath = Path | RemotePath
SomePath = TypeVar("SomePath", bound=Path | RemotePath)


def regular_file(path: SomePath) -> SomePath:
    """The path of a file, links followed; a pipe would block for ever, a device has no end."""
    if isinstance(path, Path):
        with _opening(path):
            mode = path.stat().st_mode
        _refuse_other_kinds(path, mode)
    touched(READ, path)
    return path


def open_regular(path: AnyPath) -> io.BufferedReader:
    """A regular file to be read. It is checked again once it is open, since something else may have
    taken its place in between."""
    regular_file(path)
    if not isinstance(path, Path):
        return io.BufferedReader(path.opened(), _BUFFER)
    with _opening(path):
        local = io.FileIO(path, opener=_open_at_once)
    try:
        _refuse_other_kinds(path, os.fstat(local.fileno()).st_mode)
    except InputError:
        local.close()
        raise
    return _WholeFile(local, path)


class _WholeFile(io.BufferedReader):
    """A local file; to close it raises an error if it was written to meanwhile. If another file has
    taken its place, the one that is open is still whole."""

    def __init__(self, raw: io.FileIO, path: Path) -> None:
        super().__init__(raw)
        self._path, self._opened_as = path, self._state()

    def _state(self) -> tuple[int, int]:
        found = os.fstat(self.fileno())
        return found.st_size, found.st_mtime_ns

    def close(self) -> None:
        if self.closed:
            return
        changed = self._state() != self._opened_as
        super().close()
        if changed:
            raise InputError(
                f"{self._path} was changed while it was being read; run this again once it is "
                "written"
            )


def open_text(path: AnyPath, newline: str | None = None) -> IO[str]:
    """A regular file in UTF-8, which editors of some systems begin with a mark."""
    return io.TextIOWrapper(open_regular(path), "utf-8-sig", newline=newline)


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | _NOT_WAITING)


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except (OSError, ValueError) as error:  # the latter of a name with a NUL
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be opened ({reason}); check the path") from error


def _refuse_other_kinds(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{path} is a pipe, a socket or a device, not a file; write its content into a file "
            "and name that"
        )


def fingerprint(path: AnyPath) -> dict[str, Any]:
    """Name, size and SHA-256 of a file."""
    with open_regular(path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"name": path.name, "bytes": file.tell(), "sha256": sha256}


def sha256_of(path: AnyPath) -> str:
    """The SHA-256 of a file; of a folder that of its listing: a line per file as `sha256sum` would
    print it, in order of their names."""
    if not path.is_dir():
        return str(fingerprint(path)["sha256"])
    names = sorted(file.name for file in path.iterdir())
    lines = [f"{sha256_of(path / name)}  {name}\n" for name in names]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def is_uri(text: str) -> bool:
    return _URI.match(text) is not None


def check_slashes(text: str) -> None:
    """Refuse a URI that went through `Path`, which drops a slash."""
    if _LOST_SLASH.match(text) and not Path(text).exists():
        raise InputError(
            f"{shown_uri(text)} is no local file, and a URI has two slashes, as in "
            "s3://bucket/folder; give it as text, since Path drops one of them"
        )


def split_uri(text: str) -> tuple[RemotePath, str | None]:
    """SCHEME://HOST/PATH[:PART][?OPTIONS]; marks within PATH are written %3A, %3F and %23."""
    queried = _OPTIONS.search(text)
    options = queried["options"] if queried else ""
    pieces = _URI.fullmatch(text[: queried.start()] if queried else text)
    assert pieces is not None, "is_uri was asked before"
    user, _, host = pieces["root"].partition("://")[2].rpartition("@")
    if ":" in unquote(user) or not _HOST.fullmatch(host):  # or up to a slash within a password
        raise InputError(f"{shown_uri(text)} was given with a password, {_NO_SECRETS}")
    for name, value in re.findall("(?:^|&)([^=&]*)=([^&]*)", text.partition("?")[2]):
        if _SECRET.fullmatch(name.rpartition("-")[2]) or "@" in unquote(value):
            raise InputError(f"{shown_uri(text)} was given with the option {name!r}, {_NO_SECRETS}")
    if set("?#") & set(pieces["path"] + options):
        raise InputError(
            f"{shown_uri(text)} is followed by what is no option; write ?NAME=VALUE, and %3F and "
            "%23 for ? and # in a name"
        )
    inner, colon, part = pieces["path"].partition(":")
    scheme = pieces["scheme"]
    root = scheme.lower() + pieces["root"].removeprefix(scheme)
    path = RemotePath(root, unquote(inner).strip("/"), options)
    return path, part if colon else None


def local_text(text: str) -> str:
    """The name of a local file without file:// before it; other texts as they are."""
    if not text.lower().startswith("file://"):
        return text
    path = unquote(text[len("file://") :])
    if not path.startswith("/"):
        raise InputError(
            f"{shown_uri(text)}: write the whole path behind file://, as in file:///data/a.npy"
        )
    return path


def local_path(text: str) -> Path:
    """The path of a file or folder to be written, which must be local."""
    plain = local_text(text)
    if is_uri(plain):
        raise InputError(
            f"{shown_uri(text)} is not on a local disk, where results are written; name a file"
        )
    return Path(plain)


def real_path(path: Path) -> Path:
    """Where a link leads, so that it stays a link when its file is replaced; one that leads to
    itself, of which `Path.resolve` makes an error of its own, stands for itself."""
    return Path(os.path.realpath(path))


def for_arrow(place: AnyPath) -> Any:
    """What Arrow opens: the name of a local file, an open one elsewhere."""
    return regular_file(place) if isinstance(place, Path) else place.opened()


def map_each(function: Callable[[U], T], things: Sequence[U], *, waits: bool) -> list[T]:
    """The results for all things, several at once where the function mostly `waits`."""
    if not waits or len(things) < 2:
        return list(map(function, things))
    with ThreadPoolExecutor(min(_AT_ONCE, len(things))) as threads:
        return list(threads.map(function, things))


# --- filesystems ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _filesystem(root: str, options: str) -> tuple[Any, str]:
    """The filesystem of a URI, and what it calls the root of that."""
    if root.startswith("s3://"):
        return _s3(root, options)
    from pyarrow.fs import FileSystem

    if root.startswith(("gs://", "gcs://")) and "retry_limit_seconds" not in options:
        options = "&".join(filter(None, (options, f"retry_limit_seconds={_RESPONDS:g}")))
    filesystem, base = FileSystem.from_uri(f"{root}/" + (f"?{options}" if options else ""))
    return filesystem, base.rstrip("/")


def _s3(root: str, options: str) -> tuple[Any, str]:
    """The filesystem that `FileSystem.from_uri` would make, but with limits of time."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    user, _, bucket = root.removeprefix("s3://").rpartition("@")
    if user not in ("", "anonymous"):
        raise InputError(
            f"s3://{bucket} was given with a user; put credentials into the environment"
        )
    wishes = dict(parse_qsl(options))
    strange = sorted(set(wishes) - set(_S3_OPTIONS))
    if strange:
        raise InputError(f"{root} has no option {strange[0]!r}; there are {', '.join(_S3_OPTIONS)}")
    named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
    endpoint = wishes.pop("endpoint_override", None) or next(filter(None, named), None)
    if endpoint:
        scheme, _, host = endpoint.rpartition("://")
        wishes = {**({"scheme": scheme} if scheme else {}), **wishes, "endpoint_override": host}
    own = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = wishes.pop("region", None) or own
    filesystem = S3FileSystem(
        anonymous=user == "anonymous",
        region=region or (None if endpoint else resolve_s3_region(bucket)),
        connect_timeout=_CONNECTS,
        request_timeout=_RESPONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **wishes,
    )
    return filesystem, bucket


def filesystem_error(what: str, error: BaseException) -> BaseException:
    """An error of a filesystem as one sentence; other errors as they are."""
    import pyarrow as pa

    theirs = (OSError, pa.ArrowException, ImportError)
    if isinstance(error, InputError) or not isinstance(error, theirs):
        return error
    reason = " ".join(str(error).split())
    if len(reason) > _LONGEST:
        reason = reason[:_LONGEST] + " ..."
    if "Unrecognized filesystem" in reason or isinstance(error, ImportError):
        return InputError(
            f"{what} cannot be opened ({reason}); name a local file, or one of s3://, gs://, "
            "abfs:// or hdfs:// that this PyArrow knows"
        )
    if isinstance(error, FileNotFoundError):
        return InputError(f"{what} does not exist ({reason}); check the path")
    if _DENIED.search(reason):
        return InputError(
            f"{what} may not be read ({reason}); put credentials into the environment, for S3 "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return InputError(
        f"{what} cannot be reached ({reason}); check the address, the network and the credentials "
        "in the environment"
    )
