"""What an encoder is; whoever runs one knows nothing of PyTorch."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError

Kind = Literal["image", "text"]


class Encoder(Protocol):
    """Contents -> rows. A row depends on its own content alone, bit for bit, and never on what
    else is in a batch: so rows may be kept by content, and a run may stop and go on anywhere."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def width(self) -> int: ...
    @property
    def at_once(self) -> int:
        """Contents that it takes at once; more are no faster."""
        ...

    @property
    def preprocessing(self) -> Mapping[str, Any]:
        """All that happens between a content and its row, besides the network."""
        ...

    @property
    def runtime(self) -> Mapping[str, Any]:
        """What the last bits depend on: device, threads, version of PyTorch."""
        ...

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """(len(batch), width) of pictures as bytes, or of texts."""
        ...


def fingerprint(encoder: Encoder) -> str:
    """Rows of encoders with the same fingerprint may stand in one file."""
    said = {
        "name": encoder.name,
        "version": encoder.version,
        "width": encoder.width,
        "preprocessing": dict(encoder.preprocessing),
        "runtime": dict(encoder.runtime),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def need(encoder: str, module: str, package: str) -> Any:
    """The module of an optional package, or a sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"encoder {encoder!r} needs {package}, which is not installed ({error}); run "
            "pip install 'fairnepv-studies[encoders]'"
        ) from error


def version_of(package: str) -> str:
    return importlib.metadata.version(package)
