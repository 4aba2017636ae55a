"""`report.html`: one self-contained page about a selection, which opens from disk and asks nothing
of any network. It lays out what `insight.overview` has collected.

Data is an island of JSON in which nothing can end a tag, the script writes it by `textContent`
alone, and the content-security policy of the page allows our one script, our one style and pictures
that are part of the page.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fairnepv.errors import InputError
from fairnepv.insight import Overview, overview
from fairnepv.insight.collected import TIME_LIMIT, with_rivals
from fairnepv.insight.given import problem_of
from fairnepv.io.write import Output, Table, to_json, write_table
from fairnepv.report.page.document import Document, page_document
from fairnepv.report.page.material import Material
from fairnepv.report.page.run import Made

_SCRIPTS = ("data.js", "gallery.js", "bars.js", "maps.js", "groups.js", "run.js", "main.js")
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
_MATERIAL = ("images", "texts", "ids", "groups")


def write_page(chosen: Any, path: Any, **options: Any) -> Path:
    """Write a page about a selection, or about a comparison with its row 'auto' as the choice.

    images, texts: what items look like and what they say: a value for every row of the pool, a
        mapping from ids, the name of a column in a file ('table.parquet:caption'), of images also
        of a folder whose files are called by id. Pictures are bytes, paths, arrays or PIL images.
    ids, groups: names of the rows where the data had none, and labels to filter by.
    coordinates: (n, 2) places on the map, common or by view; by default principal components.
    title: the heading.
    time_limit: seconds for what the page needs besides the selection; what is not ready by then is
        left out, and the page says so.
    atlas: a .parquet file for embedding-atlas, beside the page.
    """
    known = (*_MATERIAL, "coordinates", "title", "time_limit", "atlas", "progress", "made")
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"report does not know {unknown}; it takes {', '.join(known[:-1])}")
    page = Output.at(str(path), (".html",), force=True)
    atlas = options.get("atlas")
    table = None if atlas is None else Output.at(str(atlas), (".parquet",), force=True)
    problem = problem_of(with_rivals(chosen)[0], "report")
    material = Material(problem, **{name: options.get(name) for name in _MATERIAL})
    material.check()
    seen = overview(
        chosen,
        coordinates=options.get("coordinates"),
        time_limit=options.get("time_limit", TIME_LIMIT),
        progress=options.get("progress"),
    )
    made = options.get("made") or Made.in_python()
    page.write(page_of(page_document(seen, material, options.get("title"), made)))
    if table is not None:
        write_table(table, atlas_table(seen, material))
    return page.path


def page_of(document: Document) -> bytes:
    """The page as UTF-8; what comes from data is ASCII."""
    style, script = _asset("page.css"), "\n".join(map(_asset, _SCRIPTS))
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    island = to_json(document, indent=None).translate(_ESCAPES)
    parts = {"policy": policy, "style": style, "script": script, "data": island}
    return Template(_asset("page.html")).substitute(parts).encode()


def _asset(name: str) -> str:
    return resources.files("fairnepv.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def atlas_table(seen: Overview, material: Material) -> Table:
    """The rows of the maps as embedding-atlas reads them: x and y (of the first view), further
    coordinates by view, whether a row is a pick and in which place, its id, text and group."""
    rows = seen.rows
    k = len(seen.selection.indices)
    order = np.full(len(rows), -1)
    order[:k] = np.arange(k)
    columns: dict[str, Any] = {
        "id": np.array(material.names(rows), dtype=object),
        "row": rows,
        "picks": np.where(order >= 0, "pick", "pool").astype(object),
        "order": order,
        "text": np.array(material.captions(rows), dtype=object),
        "group": np.array(material.labels(rows), dtype=object),
    }
    for turn, (name, plane) in enumerate(seen.planes.items()):
        for axis, letter in enumerate("xy"):
            own = plane.coordinates[:, axis]
            columns |= {letter: own} if turn == 0 else {}
            columns |= {f"{letter}_{name}": own} if name else {}
    return Table(columns, {"chosen": k, "of": seen.problem.n}, "items")
