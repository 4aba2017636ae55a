"""A small model of Qwen3-VL's class from random weights to one that describes: full training on
items which no cell of a study is trained on or evaluated with.

    model/             as `from_pretrained` loads it, with pretraining.json: what it was made from
    .model.pretraining/   beside it while it is made: the untrained model and the state on the way
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fairnepv.checks import check_count, check_positive
from fairnepv.errors import InputError
from fairnepv.io.atomic import put_in_place
from fairnepv_studies.downstream.cell_work import checksum_of
from fairnepv_studies.downstream.dialogue import Dialogue
from fairnepv_studies.downstream.examples import Example, Examples, description_loss
from fairnepv_studies.downstream.fields import check_below
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.models import device_name, load_base, need, versions
from fairnepv_studies.downstream.processes import Processes, repeatable
from fairnepv_studies.downstream.recipe import ModelSource, Recipe, recipe_document
from fairnepv_studies.downstream.seeing import look_at_once, see_all
from fairnepv_studies.downstream.small import SIZES, make_model
from fairnepv_studies.downstream.training import Course, Training, cut, examples_of
from fairnepv_studies.encoders.quiet import quiet
from fairnepv_studies.files import write_whole
from fairnepv_studies.progress import StageProgress

RECORD = "pretraining.json"
SHARD = "15MB"  # of a file of weights, so that all of them can be carried
_BEGUN, _STATE, _REPORTED = "begun", "training.safetensors", "reported.json"
_REPORTS = 10  # validation losses on the way


@dataclass(frozen=True)
class Pretraining:
    """How a model is pretrained."""

    size: str = "25M"  # one of `small.SIZES`
    epochs: int = 8
    batch_size: int = 256  # examples of a step
    at_once: int = 256  # of which so many are held at once
    learning_rate: float = 1e-3
    warmup: float = 0.05
    weight_decay: float = 0.05
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise InputError(f"size must be one of {', '.join(SIZES)}, not {self.size!r}")
        for name in ("epochs", "batch_size", "at_once"):
            check_count(name, getattr(self, name))
        for name in ("learning_rate", "max_grad_norm"):
            check_positive(name, getattr(self, name))
        for name in ("warmup", "weight_decay"):
            check_below(name, getattr(self, name), 1)


@dataclass(frozen=True)
class Pretrained:
    """What `pretraining.json` says."""

    settings: dict[str, Any]
    recipe: dict[str, Any]
    items: int
    items_sha256: str
    validation: int
    losses: list[float]  # of every step
    validation_losses: list[list[float]]  # (step, mean over tokens of descriptions)
    parameters: int
    device: str
    versions: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)  # by part, of the run that ended it


def pretrain(
    out: Path,
    items: Sequence[Item],
    validation: Sequence[Item],
    recipe: Recipe,
    settings: Pretraining,
    progress: StageProgress = lambda *_: None,
) -> Pretrained:
    """Make a model at `out`; a run that was killed goes on where it was. The recipe is that of the
    study, whose prompt, lengths, pixels and precision the model learns with."""
    if out.exists():
        raise InputError(f"{out} exists already; name a new folder for the model")
    if not items or not validation:
        raise InputError("pretraining needs items to train on and others to validate with")
    check_apart(items, validation, "validate")
    if Processes.join().count > 1:
        raise InputError("pretraining runs in one process; start it without accelerate launch")
    work = out.with_name(f".{out.name}.pretraining")
    began = time.perf_counter()
    base, training, losses = _begin(work, items, validation, recipe, settings, progress)
    prepared = time.perf_counter()
    with repeatable():
        reports = _train(training, losses, work / _REPORTED, progress)
    record = Pretrained(
        settings=asdict(settings),
        recipe=recipe_document(recipe),
        items=len(items),
        items_sha256=checksum_of(items),
        validation=len(validation),
        losses=training.losses,
        validation_losses=reports,
        parameters=sum(value.numel() for value in base.parameters()),
        device=device_name(training.processes.device),
        versions=versions(),
        seconds={"preparing": prepared - began, "training": time.perf_counter() - prepared},
    )
    _save(base, recipe, record, work, out)
    return record


def check_apart(items: Sequence[Item], others: Sequence[Item], doing: str) -> None:
    """Refuse items that are among others by id, text or image."""
    for what in ("id", "text", "image"):
        known = {getattr(other, what) for other in others}
        both = [item.id for item in items if getattr(item, what) in known]
        if both:
            raise InputError(
                f"{len(both):,} items to pretrain on have the {what} of one of those that "
                f"{doing}, as {both[0]}; leave them out"
            )


def _begin(
    work: Path,
    items: Sequence[Item],
    validation: Sequence[Item],
    recipe: Recipe,
    settings: Pretraining,
    progress: StageProgress,
) -> tuple[Any, Training, Callable[[], float]]:
    """The model, its training, and what tells the validation loss."""
    folder = _untrained(work, items, validation, recipe, settings)
    processes = Processes.join()
    device = processes.device
    base = load_base(ModelSource(str(folder)), "float32", device).requires_grad_(True)
    look_at_once(base)
    examples = Examples(Dialogue(folder, recipe), base, device)
    trained, held = _prepared(examples, items, progress), examples.prepare(validation)
    _to_device(examples, device)
    precision = _precision(recipe, device)

    def loss_of(part: Sequence[Example]) -> Any:
        with precision():
            pictures = [examples.pictures[example.picture] for example in part]
            features = see_all(base, pictures, device)
            return description_loss(base, examples.batch(part), features)

    def gradients(step: int) -> Any:
        numbers = examples_of(step, len(trained), settings.batch_size, settings.seed)
        whole = [trained[number] for number in numbers]
        tokens, total = _tokens(whole), need("torch").zeros((), device=device)
        for part in cut(processes.share(whole), settings.at_once):
            loss = loss_of(part) / tokens
            loss.backward()
            total += loss.detach()
        return total

    def validation_loss() -> float:
        with need("torch").no_grad():
            sums = [float(loss_of(part)) for part in cut(held, settings.at_once)]
        return sum(sums) / _tokens(held)

    steps = settings.epochs * -(-len(trained) // settings.batch_size)
    course = Course(
        steps,
        settings.learning_rate,
        warmup=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
    )
    parameters = dict(sorted(base.named_parameters()))
    training = Training(parameters, course, gradients, processes, settings.seed, work / _STATE)
    return base, training, validation_loss


def _untrained(
    work: Path,
    items: Sequence[Item],
    validation: Sequence[Item],
    recipe: Recipe,
    settings: Pretraining,
) -> Path:
    """The untrained model of this work, made unless it is there."""
    asked = {
        "settings": asdict(settings),
        "recipe": recipe_document(recipe),
        "items": checksum_of(items),
        "validation": checksum_of(validation),
    }
    content, file = (json.dumps(asked, sort_keys=True) + "\n").encode(), work / "asked.json"
    if file.is_file() and file.read_bytes() != content:
        raise InputError(
            f"{work} was begun with other items or settings; go on as it was begun, or delete it"
        )
    if not file.is_file():  # whatever is there was not finished
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        texts = [item.text for item in items]
        make_model(work / _BEGUN, texts, settings.size, seed=settings.seed)
        write_whole(file, content)
    return work / _BEGUN


def _prepared(examples: Examples, items: Sequence[Item], progress: StageProgress) -> list[Example]:
    found: list[Example] = []
    for part in cut(items, 1024):
        found.extend(examples.prepare(part))
        progress("preparing", len(found), len(items))
    return found


def _to_device(examples: Examples, device: Any) -> None:
    """All pixels at once, if there is ample room; else a batch at a time."""
    torch = need("torch")
    if device.type != "cuda":
        return
    pictures = examples.pictures
    total = sum(picture.pixels.nbytes for picture in pictures.values())
    if total < torch.cuda.mem_get_info(device)[0] / 3:
        for key, picture in pictures.items():
            pictures[key] = replace(picture, pixels=picture.pixels.to(device))


def _precision(recipe: Recipe, device: Any) -> Callable[[], Any]:
    """Weights stay in float32; products are of bf16 if the recipe says so."""
    torch = need("torch")
    if recipe.precision != "bf16":
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)


def _tokens(examples: Sequence[Example]) -> int:
    return sum(len(example.answer.ids) for example in examples)


def _train(
    training: Training, validation_loss: Callable[[], float], file: Path, progress: StageProgress
) -> list[list[float]]:
    """To the end, with validation losses on the way; those of a run before this one are kept."""
    steps = training.course.steps
    moments = sorted({round(steps * part / _REPORTS) for part in range(1, _REPORTS + 1)} - {0})
    reports = json.loads(file.read_text("utf-8")) if file.is_file() else []
    for moment in moments[len(reports) :]:
        training.run(lambda done, n: progress("pretraining", done, n), until=moment)
        reports.append([moment, validation_loss()])
        training.save()  # no report is of a later state than the one that is kept
        write_whole(file, json.dumps(reports).encode())
        progress(f"validation loss {reports[-1][1]:.4f}", moment, steps)
    final: list[list[float]] = reports
    return final


def _save(base: Any, recipe: Recipe, record: Pretrained, work: Path, out: Path) -> None:
    """In the precision of the study, with tokenizer and processor, and then under its name."""
    torch, transformers = need("torch"), need("transformers")
    whole = work / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(work / _BEGUN, whole, ignore=shutil.ignore_patterns("*.safetensors"))
    kind = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
    with quiet(transformers):
        base.to(kind).save_pretrained(whole, max_shard_size=SHARD)
    text = json.dumps(asdict(record), indent=1)
    (whole / RECORD).write_text(text + "\n", encoding="utf-8")
    put_in_place(whole, out)
    shutil.rmtree(work)
