"""Which files this process has read and written, for those who tell it, such as a command's log.

Readers report what they open (`places.regular_file`), writers what appeared (`atomic`). Nobody
listens unless asked to, and a listener must not raise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

READ, WRITTEN = "input", "output"
Listener = Callable[[str, Any], None]  # READ or WRITTEN, and the path

_listeners: list[Listener] = []


def touched(how: str, path: Any) -> None:
    for listener in _listeners:
        listener(how, path)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
