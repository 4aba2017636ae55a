"""Starting a Ray cluster of this machine alone, which ends with this process."""

import atexit
import contextlib
import os
import shutil
import tempfile
from typing import Any

from fairnepv.compute.ray.connection import ClusterConnection, connect, import_ray
from fairnepv.compute.ray.private import LOOPBACK, on_loopback, start_options
from fairnepv.errors import ClusterError, InputError

_SHORT = "/tmp"  # sockets lie there, whose names have at most 107 bytes


def start_cluster(workers: int | None = None, device: str | None = None) -> ClusterConnection:
    """A cluster for this process alone, on the loopback interface; asked again, the same one."""
    wanted = _check_workers(workers)
    ray, current = import_ray(), ClusterConnection.current
    if current is not None and current.alive and current.started_here:
        if workers is not None and workers != current.workers:
            raise InputError(
                f"engine 'local-ray' runs with {current.workers} workers already, not {workers}; "
                "close() it before you start another"
            )
        current.check_device(device)
        return current
    if ray.is_initialized():
        raise InputError(
            "this process is connected to a Ray cluster already; use engine='ray' for that one, or "
            "ray.shutdown() first"
        )
    started = _start(ray, wanted)
    with contextlib.ExitStack() as on_error:
        on_error.callback(started.close)
        started.check_device(device)
        on_error.pop_all()
    return started


def _start(ray: Any, workers: int) -> ClusterConnection:
    folder = tempfile.mkdtemp(prefix="fairnepv-", dir=_SHORT if os.path.isdir(_SHORT) else None)
    options = {"num_cpus": workers, "include_dashboard": False, **start_options(folder)}
    try:
        with on_loopback():
            about = connect(ray, "local", **options).address_info
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    started = ClusterConnection.current = ClusterConnection(ray, about["address"], folder)
    atexit.register(started.close)
    if about["node_ip_address"] != LOOPBACK:
        started.close()
        raise ClusterError(
            f"this version of Ray ({ray.__version__}) would open ports to the network, at "
            f"{about['node_ip_address']}; start a cluster yourself, and use engine='ray'"
        )
    return started


def _check_workers(workers: Any) -> int:
    if workers is None:
        allowed = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(allowed(0)) if allowed else os.cpu_count() or 1
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")
    return workers
