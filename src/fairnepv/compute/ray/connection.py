"""The connection of this process to a Ray cluster, once it stands: tasks, results, and the end.

Whatever Ray says of a worker becomes one sentence, or the exception that the task raised.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from fairnepv.compute.clock import OutOfTime, left
from fairnepv.compute.ray.private import RETRIES, few_retries
from fairnepv.compute.ray.transport import Sender
from fairnepv.display import shown_uri
from fairnepv.errors import ClusterError, InputError

_CANCELS, _MOMENT = 5, 1.0  # at most so often, and seconds in between
_ANSWERS = 20.0  # seconds for all machines to answer a question
_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}


class ClusterConnection:
    """`folder` is where a cluster that was started here keeps its files; a connection that is not
    `ours` was made by the caller."""

    current: ClassVar[ClusterConnection | None] = None  # Ray has one for each process

    def __init__(
        self, ray: Any, address: str, folder: str | None = None, *, ours: bool = True
    ) -> None:
        self.address, self._ray, self._folder, self._ours = address, ray, folder, ours
        resources = ray.cluster_resources()
        self.workers = int(resources.get("CPU", 0))
        self.gpus = int(resources.get("GPU", 0))
        self.sender = Sender(self.put)
        self._open = True
        self._remote = functools.cache(self._remote_function)

    def __repr__(self) -> str:
        return f"<Ray at {shown_uri(self.address)}, {self.workers} workers>"

    @property
    def started_here(self) -> bool:
        return self._folder is not None

    @property
    def alive(self) -> bool:
        return self._open and bool(self._ray.is_initialized())

    def check(self) -> None:
        """Refuse a connection that was closed."""
        if not self.alive:
            raise ClusterError(
                f"the connection to the Ray cluster at {self.address} was closed; make the engine "
                "anew"
            )

    def check_device(self, device: Any) -> None:
        """Refuse a device that no worker has, as far as Ray knows."""
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
        """A promise of the result, by some worker; by one that has a GPU to itself, if wanted."""
        with self._connected():
            return self._remote(function, gpu).remote(*arguments)

    def _remote_function(self, function: Callable[..., Any], gpu: bool) -> Any:
        # By itself Ray would end a process after one task on a GPU, and its rows there with it.
        return self._ray.remote(num_cpus=1, num_gpus=int(gpu), max_retries=RETRIES, max_calls=0)(
            function
        )

    def get(self, promise: Any) -> Any:
        """The result, once it is there; until time is up."""
        seconds = left()
        with self._in_words():
            if math.isfinite(seconds):
                ready, _ = self._ray.wait([promise], timeout=max(seconds, 0.0))
                if not ready:
                    raise OutOfTime
            return self._ray.get(promise)

    def ask_everywhere(self, question: Callable[[], Any]) -> list[Any]:
        """The answers of all machines."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote = self._ray.remote(num_cpus=0, max_retries=RETRIES)(question)
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        where = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        asked = [remote.options(scheduling_strategy=node).remote() for node in where]
        answered, silent = self._ray.wait(asked, num_returns=len(asked), timeout=_ANSWERS)
        if silent:
            raise InputError(
                f"{len(silent)} of {len(nodes)} machines of the Ray cluster at {self.address} gave "
                f"no answer in {_ANSWERS:.0f} s; check `ray status`"
            )
        with self._in_words():
            return list(self._ray.get(answered))

    def cancel(self, promises: Iterable[Any]) -> None:
        """Cancel tasks, and end the workers that are at work on them: one that is interrupted while
        it imports stays broken. Ray starts others.

        Ray may lose the cancellation of a task that is on its way to a worker, so what is left
        after a moment is cancelled again. Nothing is left of a cluster that was closed, and to ask
        Ray for it would start another one.
        """
        left = list(promises) if self.alive else []
        with contextlib.suppress(Exception):  # the cluster may have ended
            for _ in range(_CANCELS):
                if not left:
                    return
                for promise in left:
                    self._ray.cancel(promise, force=True)
                _, left = self._ray.wait(left, num_returns=len(left), timeout=_MOMENT)

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
            raise (error.cause if isinstance(error.cause, BaseException) else error) from None
        except ConnectionError as error:
            raise self._lost(error) from error
        except errors.OutOfMemoryError as error:
            raise out_of_memory(", and Ray ended them") from error
        except errors.RayError as error:
            reason = str(error).strip().split("\n")[0].rstrip(".")
            raise ClusterError(
                f"a task of this pass died {1 + RETRIES} times, each time with its worker "
                f"({type(error).__name__}: {reason}); look into the logs of Ray, for the memory of "
                "the workers first"
            ) from error


def out_of_memory(what_then: str = "") -> ClusterError:
    return ClusterError(
        f"workers ran out of memory{what_then}; give a worker more memory, or use fewer workers "
        "per machine"
    )


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "this engine needs Ray, which is not installed; pip install 'fairnepv[ray]'"
        ) from error
    return ray


def connect(ray: Any, address: str, **options: Any) -> Any:
    """`ray.init`, which is quiet here: what matters is raised."""
    with warnings.catch_warnings(), few_retries():
        warnings.simplefilter("ignore")
        try:
            return ray.init(address=address, **_QUIET, **options)
        except ImportError as error:
            raise InputError(
                f"{address} needs {error.name or 'the client of Ray'}, which is not installed; pip "
                "install 'ray[client]'"
            ) from error
        except (RuntimeError, ConnectionError, OSError, ValueError, TimeoutError) as error:
            raise InputError(_refusal(address, error)) from error


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
