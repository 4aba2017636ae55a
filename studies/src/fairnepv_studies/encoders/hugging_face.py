"""Any vision model of Hugging Face by id and revision: DINOv2, SigLIP, CLIP and their kin.

It comes from the local cache, and from the hub only where the user allows the network. Weights are
read as safetensors and no code of a repository is run. What is recorded is the commit, whatever
name of it was given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv.io.places import sha256_of
from fairnepv_studies.encoders.base import Kind, need
from fairnepv_studies.encoders.devices import Device
from fairnepv_studies.encoders.quiet import quiet
from fairnepv_studies.pictures import TRANSPARENCY, decode

_NAME = re.compile(
    r"hf:(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)@(?P<revision>[A-Za-z0-9][\w./-]*)"
)
_FILES = ["config.json", "preprocessor_config.json", "*.safetensors", "*.safetensors.index.json"]


class HuggingFaceVision:
    kind: Kind = "image"

    def __init__(self, name: str, device: Device, *, allow_network: bool) -> None:
        model, revision = parse(name)
        folder = _snapshot(name, model, revision, allow_network=allow_network)
        transformers = need(name, "transformers", "transformers")
        with quiet(transformers):
            self._processor, self._network = _load(transformers, name, folder)
        self._network.eval().to(device.name)
        self._device = device
        self._pooling = _pooling(self._network)
        self.name = f"hf:{model}"
        self.version = folder.name  # the commit
        self.preprocessing = {
            "colours": "RGB",
            "transparency": TRANSPARENCY,
            "processor": _plain(self._processor.to_dict()),
            "output": self._pooling,
            "normalised": False,
            "weights_sha256": _weights_checksum(folder),
        }
        self.runtime = {**device.runtime, "transformers": transformers.__version__}
        self.at_once = device.at_once
        self.width = self._measured_width()

    def encode(self, batch: Sequence[bytes]) -> NDArray[np.float32]:
        return self._device.rows(self._forward, [self._pixels(decode(each)) for each in batch])

    def _pixels(self, picture: Any) -> tuple[Any, ...]:
        return (self._processor(images=picture, return_tensors="pt")["pixel_values"][0],)

    def _forward(self, pixels: Any) -> Any:
        if self._pooling == _JOINT:
            found = self._network.get_image_features(pixel_values=pixels)
            return getattr(found, "pooler_output", found)
        found = self._network(pixel_values=pixels)
        if self._pooling == _FIRST:
            return found.last_hidden_state[:, 0]
        pooled = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        states = found.last_hidden_state  # (batch, tokens, p) or (batch, p, height, width)
        return states.mean((2, 3)) if states.ndim == 4 else states.mean(1)

    def _measured_width(self) -> int:
        from PIL import Image

        try:
            grey = self._pixels(Image.new("RGB", (224, 224), "grey"))
            return int(self._device.rows(self._forward, [grey]).shape[1])
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"encoder {self.name!r} cannot encode a picture ({reason}); name another model"
            ) from error


_JOINT = "image features in the space shared with texts"
_FIRST = "last hidden state of the class token"
_POOLED = "the model's own pooling, or the mean over positions where it has none"


def parse(name: str) -> tuple[str, str]:
    """hf:ORG/MODEL@REVISION"""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError(
            f"encoder {name!r} must be hf:ORG/MODEL@REVISION, as in "
            "hf:facebook/dinov2-base@COMMIT; the revision pins the weights"
        )
    return found["id"], found["revision"]


def _snapshot(name: str, model: str, revision: str, *, allow_network: bool) -> Path:
    hub = need(name, "huggingface_hub", "huggingface_hub")
    try:
        return Path(
            hub.snapshot_download(
                model,
                revision=revision,
                allow_patterns=_FILES,
                local_files_only=not allow_network,
            )
        )
    except Exception as error:  # of the hub, of its transport, of the disk
        reason = " ".join(str(error).split())[:200]
        if allow_network:
            raise InputError(
                f"encoder {name!r} can be had neither from the local cache nor from the hub "
                f"({reason}); check the id, the revision and the connection"
            ) from error
        raise InputError(
            f"encoder {name!r} is not in the local Hugging Face cache, and the network was not "
            "allowed; add --allow-network, or download it there beforehand"
        ) from error


def _load(transformers: Any, name: str, folder: Path) -> tuple[Any, Any]:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(
            folder,
            local_files_only=True,
            backend="pil",  # the other one needs torchvision and resizes otherwise
        )
        network = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype="float32"
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"encoder {name!r} cannot be loaded as a vision model with safetensors ({reason}); "
            "name another model, or download it again with --allow-network"
        ) from error
    return processor, network


def _pooling(network: Any) -> str:
    """Joint models have an image side; a class token is what others are read by, if they have one
    (the pooler of a plain ViT is often untrained)."""
    if hasattr(network, "get_image_features"):
        return _JOINT
    classed = any(name.endswith("cls_token") for name, _ in network.named_parameters())
    return _FIRST if classed else _POOLED


def _weights_checksum(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON would read it back: the fingerprint must not tell a tuple from a list."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
