"""`fairnepv uspto ingest --corpus openmoji | folder`: other sources in the same folder format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairnepv.errors import InputError

if TYPE_CHECKING:
    from fairnepv_studies.cli.embed import Sources
    from fairnepv_studies.corpus import About


def ingest_other(
    corpus: str,
    files: tuple[str, ...],
    out: str,
    sources: Sources,
    *,
    force: bool,
) -> About:
    """What the command does for every corpus but the register's."""
    from fairnepv.cli.progress import rows_bar
    from fairnepv_studies.corpora import ingest_folder, ingest_openmoji

    images, texts, ids = sources["images"], sources["texts"], sources["ids"]
    if corpus not in ("openmoji", "folder"):
        raise InputError(f"there is no corpus {corpus!r}; give uspto, openmoji or folder")
    if files:
        raise InputError(f"--corpus {corpus} takes no bulk files; leave {files[0]} out")
    if corpus == "openmoji":
        if images or texts or ids:
            raise InputError(
                "--corpus openmoji comes with the package; leave --images, --texts and --ids out"
            )
        return ingest_openmoji(out, force=force)
    if images is None or texts is None:
        raise InputError("--corpus folder takes --images DIR and --texts TABLE[:COLUMN]")
    with rows_bar("images") as progress:
        return ingest_folder(images, texts, out, ids=ids, force=force, progress=progress)
