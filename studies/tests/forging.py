"""Publications changed by hand, with checksums and tables that fit again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairnepv_studies.corpus import Corpus
from fairnepv_studies.protocol.differences import Difference
from fairnepv_studies.protocol.publication import sums
from fairnepv_studies.protocol.report import tables
from fairnepv_studies.protocol.results import Result
from fairnepv_studies.protocol.settings import Settings
from fairnepv_studies.protocol.verification import verify


def check(folder: Path) -> list[str]:
    """What is said of published/ beside corpus/."""
    return list(verify(folder / "published", Corpus.open(folder / "corpus")))


def difference(folder: Path) -> str:
    with pytest.raises(Difference) as found:
        check(folder)
    return str(found.value)


def seal(folder: Path) -> None:
    """Checksums that fit again, as whoever tampers would write them."""
    (folder / "published" / "SHA256SUMS").write_text(sums(folder / "published"))


def edit(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = folder / "published" / name
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    seal(folder)


def forge(folder: Path, change: Callable[[Any], Any], **settings: Any) -> None:
    """Results changed, perhaps settings too, and everything that is written from them made to fit,
    as a careful forger would."""
    edit(folder, "manifest.json", lambda m: m["settings"].update(settings))
    edit(folder, "results.json", change)
    published = folder / "published"
    manifest = json.loads((published / "manifest.json").read_text())
    claimed = Settings.read(manifest["settings"], "")
    start = manifest["what"].partition(": ")[0]
    edit(folder, "manifest.json", lambda m: m.update(what=f"{start}: {claimed.caption}"))
    documents = json.loads((published / "results.json").read_text())
    for name, content in tables([Result.read(d, "") for d in documents], claimed).items():
        (published / name).write_bytes(content)
    seal(folder)
