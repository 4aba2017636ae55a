"""A prepared study for those who train elsewhere: chat turns with images, and predictions back.

chat/
  images/000000.png            the images of all items that are used
  train/SELECTOR-kK-seedS.jsonl    one conversation per chosen item, in the order of the choice
  validation.jsonl, test.jsonl     prompts without the descriptions, with the ids to answer by

A line is {"id", "messages"}; a message has a role and a list of contents, each {"type": "image",
"image": PATH} or {"type": "text", "text": TEXT}, as the chat templates of Qwen-VL and TRL's
trainers take them. Paths are relative to chat/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairnepv.checks import brief
from fairnepv.errors import InputError
from fairnepv.io.documents import parse_document
from fairnepv.io.places import open_regular
from fairnepv_studies.downstream.cells import Cell, Record, cell_key
from fairnepv_studies.downstream.folder import StudyFolder, picks_name
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.preparation import units_of
from fairnepv_studies.downstream.recipe import Recipe

FOLDER = "chat"
ELSEWHERE = "elsewhere"  # the device of cells whose predictions were brought
_LARGEST_LINE = 1 << 20
_ENDINGS = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"RIFF": "webp",
}


def export(folder: StudyFolder) -> list[str]:
    """Writes the files of `chat_files`; their names."""
    names = []
    for name, content in chat_files(folder):
        file = folder.path / name
        if not (file.is_file() and file.read_bytes() == content):
            folder.write(name, content)
        names.append(name)
    return names


def chat_files(folder: StudyFolder) -> Iterator[tuple[str, bytes]]:
    """Every file with its bytes, which follow from the prepared study alone."""
    places = {}
    for number, (id, packed) in enumerate(folder.items.items()):
        places[id] = f"images/{number:06}.{_ending(packed.item.image)}"
        yield f"{FOLDER}/{places[id]}", packed.item.image
    recipe = folder.study.recipe
    for name, k, seed in units_of(folder.study, folder.data["drawn"]):
        items = folder.trained_on(Cell(name, k, seed))
        lines = [_line(item, places[item.id], recipe, answered=True) for item in items]
        yield f"{FOLDER}/train/{picks_name(name, k, seed)}.jsonl", "".join(lines).encode("utf-8")
    for part in ("validation", "test"):
        asked = folder.evaluated(part)
        lines = [_line(item, places[item.id], recipe, answered=False) for item in asked]
        yield f"{FOLDER}/{part}.jsonl", "".join(lines).encode("utf-8")


def _line(item: Item, place: str, recipe: Recipe, *, answered: bool) -> str:
    image, prompt = {"type": "image", "image": place}, {"type": "text", "text": recipe.prompt}
    messages: list[dict[str, Any]] = [{"role": "user", "content": [image, prompt]}]
    if recipe.system is not None:
        system = {"type": "text", "text": recipe.system}
        messages.insert(0, {"role": "system", "content": [system]})
    if answered:
        answer = {"type": "text", "text": item.text}
        messages.append({"role": "assistant", "content": [answer]})
    return json.dumps({"id": item.id, "messages": messages}, ensure_ascii=False) + "\n"


def _ending(image: bytes) -> str:
    return next((e for start, e in _ENDINGS.items() if image.startswith(start)), "tif")


# --- predictions ----------------------------------------------------------------------------------


def bring(folder: StudyFolder, files: Sequence[Path]) -> list[Cell]:
    """Predictions of others as cells of the study; all are checked before any is kept.

    A line is {"selector", "k", "seed", "id", "text"}, one for every test item of every cell that is
    brought. Of cells that are there already none is replaced.
    """
    texts: dict[Cell, dict[str, str]] = {}
    for file in files:
        for where, line in _lines(file):
            cell, id, text = _prediction(line, where)
            if id in texts.setdefault(cell, {}):
                raise InputError(f"{where}: {cell} has {brief(id)} twice")
            texts[cell][id] = text
    records = [_brought(folder, cell, own) for cell, own in texts.items()]
    if not records:
        raise InputError("there are no predictions in these files")
    for record in records:
        folder.keep(record)
    return [record.cell for record in records]


def _lines(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        with open_regular(file) as stream:
            for number, line in enumerate(stream, 1):
                if len(line) > _LARGEST_LINE:
                    raise ValueError(f"line {number} has more than a megabyte")
                if line.strip():
                    yield f"{file}, line {number}", parse_document(line)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error}); expected JSON lines") from error


def _prediction(line: Any, where: str) -> tuple[Cell, str, str]:
    kinds = {"selector": str, "k": int, "seed": int, "id": str, "text": str}
    for name, kind in kinds.items():
        if not isinstance(line, dict) or type(line.get(name)) is not kind:
            raise InputError(
                f"{where} must say {name}: a prediction is an object with selector, k, seed, id "
                "and text"
            )
    return Cell(line["selector"], line["k"], line["seed"]), line["id"], line["text"]


def _brought(folder: StudyFolder, cell: Cell, texts: dict[str, str]) -> Record:
    if cell not in folder.tested:
        raise InputError(f"the study has no cell {cell}")
    if folder.has(cell):
        raise InputError(f"{cell} is there already; remove {folder.cell_file(cell)} to replace it")
    items = folder.evaluated("test")
    missing = [item.id for item in items if item.id not in texts]
    strange = sorted({*texts} - {item.id for item in items})
    if missing or strange:
        what = f"no text for {missing[0]!r}" if missing else f"{strange[0]!r}, which is not tested"
        raise InputError(f"the predictions of {cell} have {what}")
    train, model = folder.trained_on(cell), {"elsewhere": folder.study.model.name}
    return Record(
        *cell,
        key=cell_key(folder.study.recipe, model, train, items, cell.seed),
        model=model,
        texts=[texts[item.id] for item in items],
        losses=[],
        counts={"train_items": len(train)},
        device=ELSEWHERE,
        versions={},
    )
