"""Imported by others until they know the files of the verbs; goes once nobody does."""

from fairnepv.pipeline import *  # noqa: F403
