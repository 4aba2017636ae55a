"""Time of every part of the downstream study on this machine, and what repeats to the bit there.

    python benchmarks/downstream_gpu.py --out /tmp/downstream          (on a GPU, some five minutes)
    python benchmarks/downstream_gpu.py --out /tmp/downstream --quick  (on a CPU, some minutes)

Marks are drawn by lot (simulated), so nothing has to be carried but the code. A model is pretrained
on some of them, cells of several sizes are fine-tuned on others, and these checks are made:
token ids, pixels and grid are those of `Qwen3VLProcessor`, where torchvision is installed; a cell
that is repeated has the same adapter and texts to the bit; and a recorded CUDA graph writes what
plain steps write.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts

from fairnepv_studies.downstream.cell_work import Workbench
from fairnepv_studies.downstream.dialogue import Dialogue
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.models import memory_needed
from fairnepv_studies.downstream.pretraining import Pretraining, pretrain
from fairnepv_studies.downstream.recipe import Lora, ModelSource, Recipe

SEED = 7


def draw(number: int) -> Item:
    from fairnepv_studies.uspto.drawing import draw_picture
    from fairnepv_studies.uspto.marks import draw_mark
    from fairnepv_studies.uspto.wording import describe_mark

    mark = draw_mark(SEED, number)
    return Item(str(10_000_000 + number), describe_mark(mark, SEED, number), draw_picture(mark))


def draw_all(count: int) -> list[Item]:
    with multiprocessing.get_context("spawn").Pool(min(16, os.cpu_count() or 1)) as pool:
        drawn = pool.map(draw, range(count), chunksize=64)
    return list({(item.text, item.image): item for item in drawn}.values())


def same_as_processor(folder: Path, recipe: Recipe, items: Sequence[Item]) -> str:
    """Token ids, pixels and grid, compared with those of the whole processor."""
    import torch
    import transformers

    from fairnepv_studies.pictures import decode

    if not transformers.utils.is_torchvision_available():
        return "not compared: no torchvision here"
    processor = transformers.Qwen3VLProcessor.from_pretrained(folder)
    exact = replace(recipe, precision="float32")
    made = Dialogue(folder, exact)
    for item in items:
        picture = made.pictures([item.image])[0]
        content = [{"type": "image"}, {"type": "text", "text": recipe.prompt}]
        turns = [{"role": "user", "content": content}]
        answer = {"role": "assistant", "content": item.text}
        for whole in (turns, [*turns, answer]):
            text = processor.apply_chat_template(whole, add_generation_prompt=len(whole) == 1)
            theirs = processor(text=[text], images=[decode(item.image)], return_tensors="pt")
            prompt = made.prompt(picture.grid)
            ids = list(prompt.ids)
            if len(whole) == 2:
                ids += made.answers([item.text], [prompt])[0].ids
            said = theirs["input_ids"][0].tolist()[: len(ids)]
            pad = [int(token == made.image_token) for token in ids]
            types = theirs["mm_token_type_ids"][0].tolist()[: len(ids)]
            assert said == ids, "token ids differ"
            assert types == pad, "types of tokens differ"
            assert bool(theirs["attention_mask"].all()), "the mask differs"
            assert torch.equal(theirs["pixel_values"], picture.pixels), "pixels differ"
            assert tuple(theirs["image_grid_thw"][0].tolist()) == picture.grid, "grids differ"
    return f"equal for {len(items)} items ({made.image_backend})"


def bleu(texts: Sequence[str], items: Sequence[Item]) -> float:
    try:
        import sacrebleu
    except ImportError:
        return float("nan")
    return float(sacrebleu.corpus_bleu(list(texts), [[item.text for item in items]]).score)


def adapter_bytes(folder: Path) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def plain_steps(bench: Workbench, items: Sequence[Item]) -> list[str]:
    """What is written without a recorded graph, by the adapters as they are."""
    for scribe in bench._scribes.values():
        scribe._graph, scribe._graphs = None, False
    examples = bench._examples.prepare(items)
    batches = bench._batches(examples)
    found: dict[int, str] = {}
    for places in batches:
        texts = bench._write_batch([examples[place] for place in places])
        found.update(zip(places, (text for text, _ in texts), strict=True))
    return [found[place] for place in range(len(items))]


class Report:
    """What was measured, said at once and kept."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"command": " ".join(sys.argv)}

    def say(self, what: str, value: Any) -> None:
        self.found[what] = value
        print(f"{what}: {value}", flush=True)


class Items(NamedTuple):
    """Simulated marks: those that models describe, those that they are tuned on, and the rest, of
    which the model was made."""

    evaluate: list[Item]
    pool: list[Item]
    validation: list[Item]
    rest: list[Item]


def drawn(count: int, asked: int, largest: int) -> Items:
    items = draw_all(count + 2 * asked + 2 * largest)
    used = asked + 2 * largest
    known = {part for item in items[: used + asked] for part in (item.text, item.image)}
    rest = [i for i in items[used + asked :] if i.text not in known and i.image not in known]
    return Items(items[:asked], items[asked:used], items[used : used + asked], rest)


def recipe_of(given: argparse.Namespace, asked: int) -> Recipe:
    return Recipe(
        lora=Lora(rank=16, alpha=32.0),
        learning_rate=1e-3,
        epochs=3,
        batch_size=given.batch,
        gradient_checkpointing=False,
        precision="float32" if given.quick else "bf16",
        max_tokens=320,
        max_new_tokens=32 if given.quick else 160,
        generation_batch=asked,
    )


def make_model(
    folder: Path, items: Items, recipe: Recipe, given: argparse.Namespace, report: Report
) -> None:
    batch = 16 if given.quick else 256
    settings = Pretraining(size=given.size, epochs=given.epochs, batch_size=batch)
    last = [0.0]

    def listen(stage: str, done: int, of: int) -> None:
        if time.perf_counter() - last[0] > 5 or stage.startswith("validation"):
            last[0] = time.perf_counter()
            print(f"  {stage}: {done} of {of}", flush=True)

    made = pretrain(folder, items.rest, items.validation, recipe, settings, listen)
    report.say("pretraining, s", {k: round(v, 2) for k, v in made.seconds.items()})
    report.say("pretraining, losses", [made.losses[0], made.losses[-1], made.validation_losses])
    report.say("parameters", made.parameters)


def cell_twice(bench: Workbench, k: int, items: Items, out: Path, report: Report) -> Any:
    """What was written the last time; the same cell has to come to the same end."""
    adapters, texts = [], []
    for turn in range(2):
        cell = out / f"cell-{k}-{turn}-{os.getpid()}"
        began = time.perf_counter()
        written = bench.run(cell, items.pool[:k], items.evaluate, SEED)
        whole = time.perf_counter() - began
        parts = {part: round(seconds, 3) for part, seconds in written.seconds.items()}
        report.say(f"cell k={k} turn {turn}, s", {"whole": round(whole, 3), **parts})
        adapters.append(adapter_bytes(cell))
        texts.append(written.texts)
    losses = [written.losses[0], written.losses[-1], len(written.losses)]
    report.say(f"cell k={k} losses", losses)
    report.say(f"cell k={k} counts", written.counts)
    report.say(f"cell k={k} BLEU", round(bleu(texts[0], items.evaluate), 2))
    same = {"adapter": adapters[0] == adapters[1], "texts": texts[0] == texts[1]}
    report.say(f"cell k={k} repeats", same)
    return written


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--size", default="25M")
    parser.add_argument("--items", type=int, default=16_000, help="to pretrain on")
    parser.add_argument("--epochs", type=int, default=6, help="of pretraining")
    parser.add_argument("--batch", type=int, default=32, help="of a cell")
    given = parser.parse_args()
    if given.quick:
        given.size, given.items, given.epochs = "tiny", 64, 2
    return given


def main() -> None:
    given, report = arguments(), Report()
    sizes, asked = ((8, 16), 8) if given.quick else ((100, 300, 1000), 500)
    began = time.perf_counter()
    items = drawn(given.items, asked, max(sizes))
    report.say("drawing, s", round(time.perf_counter() - began, 2))
    recipe, folder = recipe_of(given, asked), given.out / f"model-{given.size}"
    if not folder.exists():
        make_model(folder, items, recipe, given, report)
    model = ModelSource(str(folder))
    report.say("processor", same_as_processor(folder, recipe, items.evaluate[:8]))
    report.say("memory estimated, MB", memory_needed(model, recipe) // 10**6)
    began = time.perf_counter()
    bench = Workbench(model, recipe)
    report.say("loading, s", round(time.perf_counter() - began, 2))
    for k in sizes:
        written = cell_twice(bench, k, items, given.out, report)
    plain = plain_steps(bench, items.evaluate)
    same = sum(a == b for a, b in zip(plain, written.texts, strict=True))
    report.say("texts of plain steps that are those of the graph", f"{same} of {len(plain)}")
    report.say("versions", written.versions)
    report.say("device", written.device)
    print("for example:", written.texts[0], "\n  which should be:", items.evaluate[0].text)
    (given.out / "report.json").write_text(json.dumps(report.found, indent=1) + "\n")


if __name__ == "__main__":
    main()
