"""Joining a Ray cluster that is there already. Nothing is started if it does not answer."""

import contextlib
import os
import platform
import socket
from importlib.metadata import version

from fairnepv.compute.ray import private
from fairnepv.compute.ray.connection import ClusterConnection, connect, import_ray
from fairnepv.errors import InputError

_PATIENCE = 10.0  # seconds for an address to answer


def join_cluster(address: str = "auto", device: str | None = None) -> ClusterConnection:
    """The cluster at "ray://HOST:PORT" or "HOST:PORT"; "auto" is that of this machine."""
    ray, current = import_ray(), ClusterConnection.current
    if current is not None and current.alive and address in ("auto", current.address):
        current.check_device(device)
        return current
    ours = not ray.is_initialized()
    if ours:
        found = _address_of_this_machine() if address == "auto" else address
        _check_address(found)
        if found.startswith("ray://"):
            os.environ.setdefault("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "3")  # 24 s in all
        connect(ray, found)
    elif address != "auto":
        raise InputError(
            f"this process is connected to another Ray cluster than {address}; use engine='ray' "
            "for that one, or ray.shutdown() first"
        )
    joined = ClusterConnection(ray, address, ours=ours)
    with contextlib.ExitStack() as on_error:
        on_error.callback(joined.close)
        _check_workers(joined)
        joined.check_device(device)
        check_versions(joined)
        on_error.pop_all()
    ClusterConnection.current = joined
    return joined


def _address_of_this_machine() -> str:
    named = os.environ.get("RAY_ADDRESS") or private.address_of_this_machine()
    if not named or named in ("auto", "local"):
        raise InputError(
            "engine 'ray': this machine belongs to no Ray cluster; start one with `ray start "
            "--head`, name it as in 'ray://HOST:10001', or use 'local-ray'"
        )
    return named


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens, or nothing of Ray, which would try for minutes."""
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
    if address.startswith("ray://"):
        return  # the client of Ray asks by itself, and gives up in time
    meant = private.resolved(address)
    if not private.answers(meant, _PATIENCE):
        raise InputError(
            f"what is at {meant} does not answer as a Ray cluster does; check the address"
        )


def _check_workers(joined: ClusterConnection) -> None:
    """Refuse a cluster without a CPU, for which Ray would wait for ever."""
    if not joined.workers:
        raise InputError(
            f"the Ray cluster at {joined.address} has no CPU for tasks; add a node that has "
            "(`ray start --num-cpus N`)"
        )


def versions() -> dict[str, str]:
    """Versions of what must be the same everywhere, for the same bits."""
    names = ("fairnepv", "numpy", "scipy")
    return {"Python": platform.python_version(), **{name: version(name) for name in names}}


def check_versions(joined: ClusterConnection) -> None:
    """Whether every machine of the cluster has the versions of this one."""
    here = versions()
    names = tuple(here)

    def ask() -> tuple[str, dict[str, str]]:  # a local function travels whole: ours may be missing
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError, version

        found = {"Python": platform.python_version()}
        for name in names[1:]:
            with contextlib.suppress(PackageNotFoundError):
                found[name] = version(name)
        return socket.gethostname(), found

    for host, there in joined.ask_everywhere(ask):  # containers often share a name
        for name, own in here.items():
            if there.get(name) != own:
                raise InputError(
                    f"worker {host} has {name} {there.get(name) or 'not at all'}, and this process "
                    f"has {own}; install the same version on both"
                )
