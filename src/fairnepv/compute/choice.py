"""The engine that a user names: "local", "torch", "torch:cuda", "ray://..." or "local-ray"."""

from typing import Any

from fairnepv.compute.base import Engine
from fairnepv.compute.local import LocalEngine
from fairnepv.display import shown_uri
from fairnepv.errors import InputError

_NAMES = "'local', 'torch', 'torch:DEVICE', 'ray', 'ray://HOST:PORT' or 'local-ray'"


def engine_of(named: Any, workers: int | None = None, device: str | None = None) -> Engine:
    """An engine by its name; one that was made already is itself. None is the local one.

    `workers` is for "local-ray" alone: how many processes it starts. `device` is for engines of
    Ray: "cuda" or "cpu", with which PyTorch computes in their workers.
    """
    if named is None or named == "local":
        engine: Engine = LocalEngine()
    elif not isinstance(named, str):
        if isinstance(named, type) or not isinstance(named, Engine):
            raise InputError(
                f"engine must be {_NAMES}, or an engine such as LocalEngine(), not {named!r}"
            )
        engine = named
    elif named == "torch" or named.startswith("torch:"):
        from fairnepv.compute.device import TorchEngine

        engine = TorchEngine(named.partition(":")[2] or None)
    elif named == "local-ray":
        from fairnepv.compute.ray.engine import RayEngine

        return RayEngine.local(workers, device)
    elif named == "ray" or named.startswith("ray://"):
        from fairnepv.compute.ray.engine import RayEngine

        engine = RayEngine.connect("auto" if named == "ray" else named, device)
        device = None
    else:
        raise InputError(f"there is no engine {shown_uri(named)!r}; name {_NAMES}")
    if workers is not None:
        raise InputError(f"workers are for the engine 'local-ray', not for {named or 'local'!r}")
    if device is not None:
        raise InputError(
            f"device is for the workers of Ray, not for {named or 'local'!r}; name 'torch:{device}'"
        )
    return engine
