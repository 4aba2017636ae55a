"""Fifty texts that would run a script, in each place of a page that somebody else may have filled:
in Chromium and without a network nothing runs, nothing calls out, and each is read as a text."""

from pathlib import Path

from browser import chromium
from page_cases import GROUPS, IDS, TEXTS, pool
from payloads import PAYLOADS
from test_injections import HARMLESS, stirred

import fairnepv
from fairnepv.display import visible
from fairnepv.report.page.run import Made
from soak.runner import Group

FIELDS = ("view", "id", "text", "group", "title", "command")
PICKS = 8


def written(folder: Path, field: str, payload: str) -> Path:
    """A page with the payload in one field: as one of two views, or for every other item."""

    def told(here: str, plain: str | None, row: int = 0) -> str | None:
        return payload if here == field and row % 2 == 0 else plain

    ids = [payload if field == "id" and i == 2 else own for i, own in enumerate(IDS)]
    views = pool((told("view", "text"), "vision"))
    asked = {"ids": ids, "include": ids[:PICKS], "effort": "fast", "certify": False}
    return fairnepv.select(views, PICKS, **asked).report(
        folder / "r.html",
        texts=[told("text", own, i) for i, own in enumerate(TEXTS)],
        groups=[told("group", own, i) for i, own in enumerate(GROUPS)],
        title=told("title", "A pool"),
        made=Made(told("command", "fairnepv select"), "fairnepv verify-bound"),
    )


def case(number: int, folder: Path) -> None:
    payload, field = PAYLOADS[number // len(FIELDS)], FIELDS[number % len(FIELDS)]
    path = written(folder, field, payload)
    with chromium() as browser:
        found, seen = stirred(browser, path)
    assert found == HARMLESS
    assert seen.quiet(), seen
    assert visible(payload) in seen.text


GROUP = Group("page", case, len(PAYLOADS) * len(FIELDS), sample=(1, 86, 171, 256), patience=300.0)
