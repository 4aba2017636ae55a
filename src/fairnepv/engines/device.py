"""The old place of the engine; it lives in `fairnepv.compute.device`."""

from fairnepv.compute.device import TorchEngine

__all__ = ["TorchEngine"]
