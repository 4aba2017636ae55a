"""The old place of the engine; it lives in `fairnepv.compute.ray.engine`."""

from fairnepv.compute.ray.engine import RayEngine

__all__ = ["RayEngine"]
