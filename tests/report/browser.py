"""Chromium without a head, for pages: what it asks of a network, says on its console and runs is
kept. Tests that use it skip where there is none, with the reason, and fail instead on CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright that runs Debian's Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("Playwright is not installed; pip install playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        _missing("there is no Chromium; `make test` installs it as root on Debian")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _missing(reason: str) -> None:
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI needs a browser: {reason}")
    pytest.skip(reason)


@dataclass
class Watched:
    """A page, and everything that it should not have done."""

    page: Any
    said: list[str] = field(default_factory=list)  # on the console, warnings of the policy there
    asked: list[str] = field(default_factory=list)  # of a network
    opened: list[str] = field(default_factory=list)  # dialogs and windows
    text: str = ""  # all that could be read on it

    def quiet(self) -> bool:
        return not (self.said or self.asked or self.opened)


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1200, scheme: str = "light") -> Iterator[Any]:
    """A page from disk, with the network blocked and counted, once it has drawn itself."""
    look: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    context = browser.new_context(offline=True, **look)
    page = context.new_page()
    seen, address = Watched(page), path.resolve().as_uri()

    def asked(request: Any) -> None:
        if request.url.partition("#")[0] != address and not request.url.startswith("data:"):
            seen.asked.append(request.url)

    def dismissed(dialog: Any) -> None:
        seen.opened.append(dialog.message)
        dialog.dismiss()

    page.on("request", asked)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("dialog", dismissed)
    page.on("popup", lambda popup: seen.opened.append(popup.url))
    page.on(
        "framenavigated",
        lambda frame: (
            seen.opened.append(frame.url) if frame.url.partition("#")[0] != address else None
        ),
    )
    try:
        page.goto(address)
        yield seen
    finally:
        context.close()
