"""The old place of these names; they live in `fairnepv.concave`."""

from fairnepv.concave import Certificate

__all__ = ["Certificate"]
