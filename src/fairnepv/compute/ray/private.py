"""All that this library uses of Ray without Ray promising it; each with the reason.

`tests/compute/test_ray.py` looks for each of these names, and says after an upgrade which one is
gone. Everything else in this room is public API of Ray.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

LOOPBACK = "127.0.0.1"
RETRIES = 2  # of a task whose worker died; then the task is to blame
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: nodes are on the loopback interface alone
_OOM_RETRIES = "RAY_task_oom_retries"  # which a process reads when it connects


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """What Ray starts within listens to this machine alone, sends no usage data, and imports what
    this process can.

    No public option does that: on Linux Ray takes a loopback address for a mistake, and replaces
    it, unless a variable says otherwise. Ray reads it into a constant when it is imported, which
    may be long ago; the processes that it starts read the variable.
    """
    from ray._private import ray_constants

    settings = {
        _CLUSTERS: "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    before = {name: os.environ[name] for name in settings if name in os.environ}
    clusters = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    os.environ.update(settings)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = clusters
        for name in settings:
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def few_retries() -> Iterator[None]:
    """A process that connects within tries a task again so often whose worker ran out of memory.

    By itself Ray tries without an end, whatever `max_retries` of the task says, and a pass whose
    tasks are too large never ends. A variable that is set already stays.
    """
    if _OOM_RETRIES in os.environ:
        yield
        return
    os.environ[_OOM_RETRIES] = str(RETRIES)
    try:
        yield
    finally:
        os.environ.pop(_OOM_RETRIES, None)


def start_options(folder: str) -> dict[str, Any]:
    """Options of `ray.init` that its documentation lists as unstable; no others say where its files
    lie, and on which interface it listens. Ray opens a folder of its own to everybody: it gets one
    inside of ours."""
    return {"_node_ip_address": LOOPBACK, "_temp_dir": os.path.join(folder, "r")}


def address_of_this_machine() -> str | None:
    """The address of the cluster that this machine belongs to, as Ray noted it down.

    `ray.init("auto")` finds it as well, but then tries for minutes where that cluster is gone.
    """
    with contextlib.suppress(ImportError, AttributeError, OSError):
        from ray._private.utils import read_ray_address

        address: str | None = read_ray_address()
        return address
    return None


def resolved(address: str) -> str:
    """The address that `ray.init` would go to: for Ray, localhost is elsewhere."""
    from ray._private.services import canonicalize_bootstrap_address

    return str(canonicalize_bootstrap_address(address) or address)


def answers(address: str, patience: float) -> bool:
    """Whether it is Ray that listens there. By itself `ray.init` would ask for more than a minute,
    and there is no public health check (ray-project/ray, issue 31822)."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined,unused-ignore]

    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(BaseException):
            GcsClient(address=address)
            answered.set()

    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(patience)
