"""Listeners to what takes long. Searches have their own (`fairnepv.loop.Progress`)."""

from collections.abc import Callable

RowProgress = Callable[[int, int], None]  # rows done, of so many
StageProgress = Callable[[str, int, int], None]  # stage, done, of so many
