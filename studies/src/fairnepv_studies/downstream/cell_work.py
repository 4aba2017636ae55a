"""The work of one cell: fine-tune by LoRA on some items, and write a description of others.

    cell/
      asked.json               what was asked, so that a folder never goes on with other work
      training.safetensors     parameters, moments and losses on the way; gone once it is trained
      trained.json, adapter/   losses and counts, and the adapter in peft's format
      written-00000.json       the texts of each batch

Whatever is there is not made again, so a cell that was killed gives the same adapter and the same
texts as one that was not. A process keeps the last model that it loaded, with all examples that it
prepared, and puts the adapters back for the next cell.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv_studies.downstream.dialogue import Dialogue
from fairnepv_studies.downstream.examples import (
    Example,
    Examples,
    description_loss,
)
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.models import (
    adapters_of,
    add_adapters,
    check_model,
    device_name,
    folder_of,
    identity,
    load_adapter,
    load_base,
    memory_needed,
    need,
    reset_adapters,
    save_adapter,
    versions,
)
from fairnepv_studies.downstream.processes import Processes, repeatable
from fairnepv_studies.downstream.recipe import ModelSource, Recipe, recipe_document
from fairnepv_studies.downstream.seeing import Seen, look_at_once, see_all
from fairnepv_studies.downstream.training import Course, Training, cut, examples_of
from fairnepv_studies.downstream.writing import Scribe, Shape
from fairnepv_studies.files import write_whole
from fairnepv_studies.progress import StageProgress

__all__ = ["Workbench", "Written", "check_model", "memory_needed", "train_and_write"]

ASKED, TRAINING, TRAINED = "asked.json", "training.safetensors", "trained.json"


@dataclass(frozen=True)
class Written:
    texts: list[str]  # one for each item, in order
    losses: list[float]  # one for each step of the optimiser: mean over tokens of descriptions
    counts: dict[str, int]
    device: str
    versions: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)  # by part, of this run alone


def train_and_write(
    folder: Path,
    model: ModelSource,
    recipe: Recipe,
    train: Sequence[Item],
    evaluate: Sequence[Item],
    seed: int,
    progress: StageProgress = lambda *_: None,
) -> Written:
    """Fine-tune by LoRA on `train` and write a description of each of `evaluate`. `folder` is this
    cell's own: what is interrupted goes on from there."""
    if not train or not evaluate:
        raise InputError("a cell needs items to train on and items to describe; one list is empty")
    return bench_for(model, recipe).run(folder, train, evaluate, seed, progress)


_benches: dict[tuple[ModelSource, Recipe], Workbench] = {}  # at most one: a model fills a GPU


def bench_for(model: ModelSource, recipe: Recipe) -> Workbench:
    """The one of this process, kept from cell to cell."""
    key = (model, recipe)
    if key not in _benches:
        _benches.clear()
        check_model(model)
        _benches[key] = Workbench(model, recipe)
    return _benches[key]


class Workbench:
    """A loaded model with adapters, and examples that were prepared for it."""

    def __init__(self, model: ModelSource, recipe: Recipe) -> None:
        self.model, self.recipe = model, recipe
        self.processes = Processes.join()
        self._device = self.processes.device
        self._dialogue = Dialogue(folder_of(model), recipe)
        self.base = load_base(model, recipe.precision, self._device)
        look_at_once(self.base)
        self.adapted = add_adapters(
            self.base, recipe.lora, gradient_checkpointing=recipe.gradient_checkpointing
        )
        tower = self.base.model.visual.parameters()
        self._tower_learns = any(value.requires_grad for value in tower)
        self._examples = Examples(self._dialogue, self.base, self._device)
        self._seen = Seen(self.base, self._device)
        self._scribes: dict[Shape, Scribe] = {}

    def run(
        self,
        folder: Path,
        train: Sequence[Item],
        evaluate: Sequence[Item],
        seed: int,
        progress: StageProgress = lambda *_: None,
    ) -> Written:
        clock = _Clock()
        if self.processes.first:
            self._claim(folder, train, evaluate, seed)
        self.processes.wait()
        with repeatable():
            trained = self._examples.prepare(train)
            asked = self._examples.prepare(evaluate)
            self._look([*trained, *asked], progress)
            clock.lap("preparing")
            losses = self._train(folder, trained, seed, progress)
            clock.lap("training")
        # Writing repeats without: each of its kernels writes a place once. Some of the other kind
        # ask the host about indices, which a graph that is being recorded cannot.
        texts, open_ended = self._write(folder, asked, progress)
        clock.lap("writing")
        counts = {**self._counts(trained), "truncated_written": open_ended}
        device = device_name(self._device)
        return Written(texts, losses, counts, device, self._versions(), clock.seconds)

    def _claim(
        self, folder: Path, train: Sequence[Item], evaluate: Sequence[Item], seed: int
    ) -> None:
        """Write what is asked, or compare it with what was."""
        asked = {
            "model": identity(self.model),
            "recipe": recipe_document(self.recipe),
            "train": checksum_of(train),
            "evaluate": checksum_of(evaluate),
            "seed": seed,
            "device": device_name(self._device),
            "versions": self._versions(),
        }
        content = (json.dumps(asked, indent=1, sort_keys=True) + "\n").encode()
        file = folder / ASKED
        folder.mkdir(parents=True, exist_ok=True)
        if not file.is_file():
            write_whole(file, content)
        elif file.read_bytes() != content:
            raise InputError(
                f"{folder} was begun with other items, settings, versions or another device; "
                "go on as it was begun, or delete the folder to begin anew"
            )

    def _versions(self) -> dict[str, str]:
        return {**versions(), "images": self._dialogue.image_backend}

    def _counts(self, trained: Sequence[Example]) -> dict[str, int]:
        adapted = sum(value.numel() for value in adapters_of(self.adapted).values())
        return {
            "train_items": len(trained),
            "train_tokens": sum(example.length for example in trained),
            "description_tokens": sum(len(example.answer.ids) for example in trained),
            "truncated_train": sum(example.answer.truncated for example in trained),
            "trainable_parameters": adapted,
            "parameters": sum(value.numel() for value in self.base.parameters()) - adapted,
        }

    # --- images -----------------------------------------------------------------------------

    def _look(self, examples: Sequence[Example], progress: StageProgress) -> None:
        """Send every image through the tower once, unless the tower learns."""
        if not self._tower_learns:
            pictures = self._examples.pictures
            wanted = {example.picture: pictures[example.picture] for example in examples}
            self.base.eval()
            self._seen.add(wanted, lambda done, n: progress("seeing", done, n))

    def _features(self, examples: Sequence[Example]) -> list[Any]:
        keys = [example.picture for example in examples]
        if not self._tower_learns:
            return self._seen.of(keys)
        pictures = [self._examples.pictures[key] for key in keys]
        return see_all(self.base, pictures, self._device)

    # --- training ---------------------------------------------------------------------------

    def _train(
        self, folder: Path, examples: Sequence[Example], seed: int, progress: StageProgress
    ) -> list[float]:
        """Leaves the trained adapters in the model."""
        reset_adapters(self.adapted, seed)
        if (folder / TRAINED).is_file():
            load_adapter(self.adapted, folder)
            losses: list[float] = json.loads((folder / TRAINED).read_text("utf-8"))["losses"]
            return losses
        training = self.training(folder / TRAINING, examples, seed)
        self.adapted.train()
        losses = training.run(lambda done, n: progress("training", done, n))
        if self.processes.first:
            save_adapter(self.adapted, folder)
            content = {"losses": losses, "counts": self._counts(examples)}
            write_whole(folder / TRAINED, (json.dumps(content) + "\n").encode())
            (folder / TRAINING).unlink(missing_ok=True)
        self.processes.wait()
        return losses

    def training(self, file: Path, examples: Sequence[Example], seed: int) -> Training:
        recipe = self.recipe
        course = Course(
            recipe.steps_for(len(examples)),
            recipe.learning_rate,
            recipe.schedule,
            recipe.warmup,
            recipe.weight_decay,
            recipe.max_grad_norm,
        )
        per_step = recipe.batch_size * recipe.accumulation

        def gradients(step: int) -> Any:
            numbers = examples_of(step, len(examples), per_step, seed)
            return self.gradients([examples[number] for number in numbers])

        return Training(adapters_of(self.adapted), course, gradients, self.processes, seed, file)

    def gradients(self, examples: Sequence[Example]) -> Any:
        """Of the mean loss over all tokens of descriptions of a step; this process's share."""
        torch = need("torch")
        tokens = sum(len(example.answer.ids) for example in examples)
        total = torch.zeros((), device=self._device)
        for part in cut(self.processes.share(examples), self.recipe.batch_size):
            batch = self._examples.batch(part)
            loss = description_loss(self.base, batch, self._features(part)) / tokens
            loss.backward()
            total += loss.detach()
        return total

    # --- writing ----------------------------------------------------------------------------

    def _write(
        self, folder: Path, examples: Sequence[Example], progress: StageProgress
    ) -> tuple[list[str], int]:
        """All texts, and how many had no end."""
        self.adapted.eval()
        batches = self._batches(examples)
        for number in self.processes.share(range(len(batches))):
            file = folder / f"written-{number:05}.json"
            if not file.is_file():
                texts = self._write_batch([examples[place] for place in batches[number]])
                write_whole(file, (json.dumps(texts) + "\n").encode())
            progress("writing", number + 1, len(batches))
        self.processes.wait()
        found: dict[int, tuple[str, bool]] = {}
        for number, places in enumerate(batches):
            texts = json.loads((folder / f"written-{number:05}.json").read_text("utf-8"))
            found.update(zip(places, map(tuple, texts), strict=True))
        ordered = [found[place] for place in range(len(examples))]
        return [text for text, _ in ordered], sum(not ended for _, ended in ordered)

    def _batches(self, examples: Sequence[Example]) -> list[Sequence[int]]:
        """Prompts of a batch have the same length."""
        by_grid: dict[Any, list[int]] = {}
        for place, example in enumerate(examples):
            by_grid.setdefault(example.grid, []).append(place)
        size = self.recipe.generation_batch
        return [part for places in by_grid.values() for part in cut(places, size)]

    def _write_batch(self, examples: Sequence[Example]) -> list[tuple[str, bool]]:
        """Texts, and whether they ended by themselves."""
        torch = need("torch")
        shape = Shape(len(examples), len(examples[0].prompt.ids), self.recipe.max_new_tokens)
        if shape not in self._scribes:
            self._scribes[shape] = Scribe(self.base, shape, self._stops(), self._device)
        with torch.no_grad():
            features = self._features(examples)
        batch = self._examples.batch(examples, prompts_only=True)
        rows = self._scribes[shape].write(batch, features)
        stops = set(self._stops())
        return [(self._dialogue.text(row), row[-1] in stops) for row in rows]

    def _stops(self) -> list[int]:
        """The end of a turn, and what else the model's settings stop at."""
        also = self.base.generation_config.eos_token_id
        more = also if isinstance(also, list) else [also] if also is not None else []
        return sorted({self._dialogue.end, *more})


class _Clock:
    """Seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


def checksum_of(items: Sequence[Item]) -> str:
    """Of items in their order."""
    found = hashlib.sha256()
    for item in items:
        for part in (item.id.encode(), item.text.encode(), item.image):
            found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()
