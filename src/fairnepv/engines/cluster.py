"""The old place of the engine; it lives in `fairnepv.compute.ray.cluster`."""

from fairnepv.compute.ray.cluster import RayEngine

__all__ = ["RayEngine"]
