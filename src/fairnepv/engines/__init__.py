"""The old place of the engines; they live in `fairnepv.compute`."""

from fairnepv.compute import LocalEngine

__all__ = ["LocalEngine"]
