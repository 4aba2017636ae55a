"""Encoders by name; a module is imported when its encoder is asked for."""

from __future__ import annotations

from fairnepv.errors import InputError
from fairnepv_studies.encoders.base import Encoder, Kind
from fairnepv_studies.encoders.devices import Device

NAMES: dict[Kind, tuple[str, ...]] = {
    "image": ("efficientnet-lite0", "hf:ORG/MODEL@REVISION"),
    "text": ("minilm",),
}


def find(
    name: str, kind: Kind, *, device: str = "cpu", threads: int = 1, allow_network: bool = False
) -> Encoder:
    """The encoder of this name, ready to run; an `InputError` says what it is short of."""
    if kind == "image" and name == "efficientnet-lite0":
        from fairnepv_studies.encoders.efficientnet import EfficientNetLite0

        return EfficientNetLite0(Device.open(name, device, threads))
    if kind == "image" and name.startswith("hf:"):
        from fairnepv_studies.encoders.hugging_face import HuggingFaceVision, parse

        parse(name)
        here = Device.open(name, device, threads)
        return HuggingFaceVision(name, here, allow_network=allow_network)
    if kind == "text" and name == "minilm":
        from fairnepv_studies.encoders.minilm import MiniLM

        return MiniLM(Device.open(name, device, threads))
    known = " or ".join(NAMES[kind])
    raise InputError(f"there is no {kind} encoder {name!r}; give {known}")
