"""Small items and settings for tests of the downstream study, and its steps in a process that can
be killed.

python cell_steps.py MOMENT:COUNT cell MODEL FOLDER      trains and writes
python cell_steps.py MOMENT:COUNT pretrain FOLDER        makes a model
python cell_steps.py never losses MODEL FOLDER           as cell, and several processes may

A moment is a call of a function; at its COUNT-th call the process ends by SIGKILL.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.recipe import Lora, Recipe

SEED = 11
NAMED = {"25M": 24e6, "40M": 41e6, "80M": 79e6}
RECIPE = Recipe(
    lora=Lora(rank=4, alpha=8.0),
    learning_rate=1e-3,
    epochs=2,
    batch_size=4,
    precision="float32",
    gradient_checkpointing=False,
    max_tokens=256,
    max_new_tokens=24,
    generation_batch=8,
)


def draw_items(count: int) -> list[Item]:
    """Simulated marks without noise."""
    from fairnepv_studies.uspto.drawing import draw_picture
    from fairnepv_studies.uspto.marks import draw_mark
    from fairnepv_studies.uspto.wording import describe_mark

    marks = [draw_mark(SEED, number) for number in range(count)]
    return [
        Item(f"{10_000_000 + n}", describe_mark(mark, SEED, n), draw_picture(mark))
        for n, mark in enumerate(marks)
    ]


def stretched(item: Item) -> Item:
    """Twice as wide."""
    from PIL import Image

    picture = Image.open(io.BytesIO(item.image)).convert("RGB")
    wide, out = picture.resize((2 * picture.width, picture.height)), io.BytesIO()
    wide.save(out, "PNG")
    return replace(item, id=f"{item.id} wide", image=out.getvalue())


def adapter_of(folder: Path) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def cell(model: str, folder: str) -> None:
    from fairnepv_studies.downstream import cell_work, training
    from fairnepv_studies.downstream.recipe import ModelSource

    training.SAVE_EVERY = 0.0  # after every step
    items = draw_items(12)
    recipe = replace(RECIPE, lora=replace(RECIPE.lora, dropout=0.1), generation_batch=2)
    cell_work.train_and_write(Path(folder), ModelSource(model), recipe, items[:8], items[8:], 5)


def losses(model: str, folder: str) -> None:
    from fairnepv_studies.downstream import cell_work
    from fairnepv_studies.downstream.recipe import ModelSource

    items = draw_items(12)
    cell_work.train_and_write(Path(folder), ModelSource(model), RECIPE, items[:10], items[8:], 5)


def pretrain(folder: str) -> None:
    from fairnepv_studies.downstream import pretraining, training

    training.SAVE_EVERY = 0.0
    items = draw_items(24)
    settings = pretraining.Pretraining("tiny", epochs=3, batch_size=8, at_once=4)
    pretraining.pretrain(Path(folder), items[:16], items[16:], RECIPE, settings)


def die_at(moment: str, count: int) -> None:
    import signal

    from fairnepv_studies.downstream import training

    owner, name = {
        "step": (training.Training, "_step"),
        "write": (Path, "write_bytes"),  # in the middle of that
        "replace": (os, "replace"),
    }[moment]
    call, left = getattr(owner, name), [count]

    def counted(*given, **options):
        left[0] -= 1
        if left[0] == 0:
            if moment == "write":
                call(given[0], given[1][: len(given[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **options)

    setattr(owner, name, counted)


def carry_out(moment: str, step: str, *given: str) -> None:
    warnings.simplefilter("ignore")
    if moment != "never":
        name, count = moment.split(":")
        die_at(name, int(count))
    {"cell": cell, "losses": losses, "pretrain": pretrain}[step](*given)


if __name__ == "__main__":
    carry_out(*sys.argv[1:])
