"""The connection of this process to a Ray cluster: made, checked and ended here.

A cluster is started on request only, and listens to this machine alone. Whatever Ray says of a
worker becomes one sentence, or the exception that the task raised.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from fairnepv.compute.ray.freight import Freight
from fairnepv.display import shown_uri
from fairnepv.errors import ClusterError, InputError

_RETRIES = 2  # of a task whose worker died; then the task is to blame
_PATIENCE = 10.0  # seconds for an address to answer
_ANSWERS = 20.0  # seconds for its machines to say what they have
_SHORT = "/tmp"  # sockets lie there, whose names have at most 107 bytes
_LOOPBACK = "127.0.0.1"
_NO_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: nodes are on the loopback interface alone


class Session:
    """`folder` is where a cluster that was started here keeps its files; a connection that is not
    `ours` was made by the caller."""

    def __init__(
        self, ray: Any, address: str, folder: str | None = None, *, ours: bool = True
    ) -> None:
        self.address, self._ray, self._folder, self._ours = address, ray, folder, ours
        resources = ray.cluster_resources()
        self.workers = int(resources.get("CPU", 0))
        self.gpus = int(resources.get("GPU", 0))
        self.freight = Freight(self.put)
        self._open = True
        self._remote = functools.cache(self._made_remote)

    def __repr__(self) -> str:
        return f"<Ray at {shown_uri(self.address)}, {self.workers} workers>"

    @property
    def started_here(self) -> bool:
        return self._folder is not None

    @property
    def alive(self) -> bool:
        return self._open and bool(self._ray.is_initialized())

    def check(self) -> None:
        if not self.alive:
            raise ClusterError(
                f"the connection to the Ray cluster at {self.address} was closed; make the engine "
                "anew"
            )

    def check_workers(self) -> None:
        """Ray would wait for one for ever."""
        if not self.workers:
            raise InputError(
                f"the Ray cluster at {self.address} has no CPU for tasks; add a node that has "
                "(`ray start --num-cpus N`)"
            )

    def check_device(self, device: Any) -> None:
        """Whether workers have it, as far as Ray knows."""
        if device not in (None, "cpu", "cuda"):
            raise InputError(f"device must be 'cuda' or 'cpu' (or None for NumPy), not {device!r}")
        if device == "cuda" and not self.gpus:
            raise InputError(
                f"device 'cuda': the Ray cluster at {self.address} has no GPU; start its nodes "
                "where there are some (`ray start --num-gpus N`), or leave the device out"
            )

    def put(self, value: Any) -> Any:
        with self._connected():
            return self._ray.put(value)

    def submit(self, function: Callable[..., Any], gpu: bool, *arguments: Any) -> Any:
        """A promise of its result, by some worker; by one that has a GPU to itself, if wanted."""
        with self._connected():
            return self._remote(function, gpu).remote(*arguments)

    def _made_remote(self, function: Callable[..., Any], gpu: bool) -> Any:
        # By itself Ray would end a process after one task on a GPU, and its rows there with it.
        return self._ray.remote(num_cpus=1, num_gpus=int(gpu), max_retries=_RETRIES, max_calls=0)(
            function
        )

    def get(self, promise: Any) -> Any:
        with self._in_words():
            return self._ray.get(promise)

    def ask_everywhere(self, question: Callable[[], Any]) -> list[Any]:
        """The answers of all machines."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(num_cpus=0, max_retries=_RETRIES)(question)
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        asked = [remote.options(scheduling_strategy=place).remote() for place in places]
        answered, silent = self._ray.wait(asked, num_returns=len(asked), timeout=_ANSWERS)
        if silent:
            raise InputError(
                f"{len(silent)} of {len(nodes)} machines of the Ray cluster at {self.address} gave "
                f"no answer in {_ANSWERS:.0f} s; check `ray status`"
            )
        with self._in_words():
            return list(self._ray.get(answered))

    def cancel(self, promise: Any) -> None:
        """With its worker, if it is at work: one that is interrupted while it imports stays broken.
        Ray starts another."""
        with contextlib.suppress(Exception):  # it may have ended, and so may the cluster
            self._ray.cancel(promise, force=True)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends, and its files go. A connection that
        the caller made is left to the caller."""
        if self.alive and self._ours:
            self._ray.shutdown()
        self._open = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> ClusterError:
        """What the client of Ray says; what a task raises is a result."""
        return ClusterError(
            f"the connection to the Ray cluster at {self.address} was lost ({error}); check that "
            "it runs, and begin again"
        )

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        errors = self._ray.exceptions
        try:
            yield
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, BaseException) else error) from None
        except ConnectionError as error:
            raise self._lost(error) from error
        except errors.OutOfMemoryError as error:
            raise ClusterError(
                "workers ran out of memory, and Ray ended them; give a worker more memory, or use "
                "fewer workers per machine"
            ) from error
        except errors.RayError as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise ClusterError(
                f"a task of this pass died {1 + _RETRIES} times, each time with its worker "
                f"({type(error).__name__}: {reason}); look into the logs of Ray, for the memory of "
                "the workers first"
            ) from error


_current: Session | None = None


def launch(workers: int | None = None, device: str | None = None) -> Session:
    """A cluster of this machine alone, for this process alone; the same one when asked again."""
    global _current
    wanted = _check_workers(workers)
    ray = _ray()
    if _current is not None and _current.alive and _current.started_here:
        if workers is not None and workers != _current.workers:
            raise InputError(
                f"engine 'local-ray' runs with {_current.workers} workers already, not {workers}; "
                "close() it before you start another"
            )
        _current.check_device(device)
        return _current
    if ray.is_initialized():
        raise InputError(
            "this process is connected to a Ray cluster already; use engine='ray' for that one, or "
            "ray.shutdown() first"
        )
    folder = tempfile.mkdtemp(prefix="fairnepv-", dir=_SHORT if os.path.isdir(_SHORT) else None)
    try:
        with _on_loopback(ray):
            about = _init(
                ray,
                address="local",
                num_cpus=wanted,
                include_dashboard=False,
                _node_ip_address=_LOOPBACK,
                _temp_dir=os.path.join(folder, "r"),  # Ray opens its own to everybody
            ).address_info
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _current = Session(ray, about["address"], folder)
    atexit.register(_current.close)
    if about["node_ip_address"] != _LOOPBACK:
        _current.close()
        raise ClusterError(
            f"this version of Ray ({ray.__version__}) would open ports to the network, at "
            f"{about['node_ip_address']}; start a cluster yourself, and use engine='ray'"
        )
    with _closing_on_error(_current):
        _current.check_device(device)
    return _current


def join(address: str = "auto", device: str | None = None) -> Session:
    """A cluster that is there already. Nothing is started if it does not answer."""
    global _current
    ray = _ray()
    if _current is not None and _current.alive and address in ("auto", _current.address):
        _current.check_device(device)
        return _current
    ours = not ray.is_initialized()
    if ours:
        found = _address_of(ray) if address == "auto" else address
        _knock(found)
        if found.startswith("ray://"):
            os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "3")  # 24 s in all
        else:
            _greet(found)
        _init(ray, address=found)
    elif address != "auto":
        raise InputError(
            f"this process is connected to another Ray cluster than {address}; use engine='ray' "
            "for that one, or ray.shutdown() first"
        )
    session = Session(ray, address, ours=ours)
    with _closing_on_error(session):
        session.check_workers()
        session.check_device(device)
        check_versions(session)
    _current = session
    return session


@contextlib.contextmanager
def _closing_on_error(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.close()
        raise


def _check_workers(workers: Any) -> int:
    if workers is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")
    return workers


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "this engine needs Ray, which is not installed; pip install 'fairnepv[ray]'"
        ) from error
    return ray


def _init(ray: Any, **options: Any) -> Any:
    """`ray.init`, which is quiet here: what matters is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
        except ImportError as error:
            raise InputError(
                f"{options['address']} needs {error.name or 'the client of Ray'}, which is not "
                "installed; pip install 'ray[client]'"
            ) from error
        except (RuntimeError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            raise InputError(_refusal(options["address"], error)) from error


def _refusal(address: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if "ersion mismatch" in reason:
        return (
            f"the Ray cluster at {address} has other versions than this process ({reason}); "
            "install the same ones"
        )
    if address == "local":
        return f"Ray could not be started on this machine ({reason})"
    token = ", and that RAY_AUTH_MODE and the token are those of its head"
    hint = token if address.startswith("ray://") else ""
    return f"the Ray cluster at {address} does not answer ({reason}); check that it runs{hint}"


@contextlib.contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """What Ray starts listens to this machine alone, tells nobody, and imports what we can.

    Ray takes a loopback address for a mistake on Linux, unless this variable says otherwise, which
    it reads when it is imported.
    """
    constants = ray._private.ray_constants
    settings = {
        _NO_NETWORK: "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    before = {name: os.environ.get(name) for name in settings}
    clusters = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ.update(settings)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _address_of(ray: Any) -> str:
    """Of the cluster that this machine belongs to."""
    named = os.environ.get("RAY_ADDRESS")
    if not named:
        with contextlib.suppress(ImportError, AttributeError, OSError):
            from ray._private.utils import read_ray_address

            named = read_ray_address()
    if not named or named in ("auto", "local"):
        raise InputError(
            "engine 'ray': this machine belongs to no Ray cluster; start one with `ray start "
            "--head`, name it as in 'ray://HOST:10001', or use 'local-ray'"
        )
    return str(named)


def _knock(address: str) -> None:
    """Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise InputError(f"engine {address!r}: write the address as in 'ray://HOST:10001'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError, UnicodeError) as error:  # the last, of names no host can have
        raise InputError(
            f"the Ray cluster at {address} does not answer ({error}); check the address, and that "
            "it runs"
        ) from error


def _greet(address: str) -> None:
    """Something is there; is it Ray? By itself `ray.init` would ask for more than a minute."""
    from ray._private.services import canonicalize_bootstrap_address
    from ray._raylet import GcsClient  # type: ignore[attr-defined,unused-ignore]

    meant = canonicalize_bootstrap_address(address) or address  # for Ray, localhost is elsewhere
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(BaseException):
            GcsClient(address=meant)
            answered.set()

    threading.Thread(target=ask, daemon=True).start()
    if not answered.wait(_PATIENCE):
        raise InputError(
            f"what is at {meant} does not answer as a Ray cluster does; check the address"
        )


# --- versions -------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    """Of what must be the same everywhere, for the same bits."""
    names = ("fairnepv", "numpy", "scipy")
    return {"Python": platform.python_version(), **{name: version(name) for name in names}}


def check_versions(session: Session) -> None:
    """Ask every machine of the cluster once."""
    here = versions()
    for host, there in _versions_there(session):
        for name, own in here.items():
            if there.get(name) != own:
                raise InputError(
                    f"worker {host} has {name} {there.get(name) or 'not at all'}, and this process "
                    f"has {own}; install the same version on both"
                )


def _versions_there(session: Session) -> list[tuple[str, dict[str, str]]]:
    names = tuple(versions())

    def ask() -> tuple[str, dict[str, str]]:  # a local function travels whole: ours may be missing
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError, version

        found = {"Python": platform.python_version()}
        for name in names[1:]:
            with contextlib.suppress(PackageNotFoundError):
                found[name] = version(name)
        return socket.gethostname(), found

    return session.ask_everywhere(ask)  # containers often share a name
