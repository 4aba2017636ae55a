"""Which model is trained, and how: every knob of a cell, checked when it is made.

A recipe is the same for all selectors, sizes and seeds of a study.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fairnepv.checks import brief, check_count, check_flag, check_positive, one_of
from fairnepv.errors import InputError
from fairnepv_studies.downstream.fields import (
    check_below,
    check_keys,
    check_table,
    check_text,
    read_fields,
)

SCHEDULES = ("linear", "cosine", "constant")
PRECISIONS = ("bf16", "float32")
PROMPT = "Describe this logo the way a trademark application describes its mark."
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MODEL = "Qwen/Qwen3-VL-8B-Instruct"


@dataclass(frozen=True)
class ModelSource:
    """A model by its name on the hub and revision, or a local folder, which has no revision."""

    name: str = MODEL
    revision: str | None = None

    def __post_init__(self) -> None:
        check_text("name", self.name)
        if self.revision is not None:
            check_text("revision", self.revision)


@dataclass(frozen=True)
class Lora:
    """Adapters of low rank, as peft takes them."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] | str = TARGETS  # names of modules, or one regular expression

    def __post_init__(self) -> None:
        check_count("rank", self.rank)
        check_positive("alpha", self.alpha)
        check_below("dropout", self.dropout, 1)
        named = isinstance(self.targets, tuple) and self.targets
        if not named and not (isinstance(self.targets, str) and self.targets):
            raise InputError(
                "targets must be names of modules or a regular expression, not "
                f"{brief(self.targets)}"
            )
        for name in self.targets if named else ():
            check_text("one of targets", name)


@dataclass(frozen=True)
class Recipe:
    """How a model is fine-tuned and how it writes, which it does greedily."""

    lora: Lora = field(default_factory=Lora)
    learning_rate: float = 1e-4  # the highest, after the warm-up
    schedule: str = "cosine"  # one of SCHEDULES
    warmup: float = 0.03  # share of the steps
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    epochs: int | None = None  # exactly one of epochs and steps
    steps: int | None = None  # of the optimiser
    batch_size: int = 8  # examples that are held at once, by one process
    accumulation: int = 1  # batches that make a step
    precision: str = "bf16"  # one of PRECISIONS
    gradient_checkpointing: bool = True
    prompt: str = PROMPT
    system: str | None = None
    max_tokens: int = 2048  # of a whole example; what is longer is cut and counted
    max_new_tokens: int = 256  # of a description that is written
    image_pixels: tuple[int, int] | None = None  # least and most; None: as the processor has it
    generation_batch: int = 32

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_positive("max_grad_norm", self.max_grad_norm)
        check_below("warmup", self.warmup, 1)
        check_below("weight_decay", self.weight_decay, 1)
        one_of(*SCHEDULES)("schedule", self.schedule)
        one_of(*PRECISIONS)("precision", self.precision)
        check_flag("gradient_checkpointing", self.gradient_checkpointing)
        for name in ("batch_size", "accumulation", "generation_batch", "max_new_tokens"):
            check_count(name, getattr(self, name))
        check_count("max_tokens", self.max_tokens, 2)
        check_text("prompt", self.prompt)
        if self.system is not None:
            check_text("system", self.system)
        self._check_length()
        self._check_pixels()

    def _check_length(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            said = "neither" if self.epochs is None else "both"
            raise InputError(f"exactly one of epochs and steps must be given, and {said} is")
        for name in ("epochs", "steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))

    def _check_pixels(self) -> None:
        pair = self.image_pixels
        if pair is None:
            return
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"image_pixels must be [least, most], not {brief(pair)}")
        for number in pair:
            check_count("image_pixels", number)
        if pair[0] > pair[1]:
            raise InputError(f"image_pixels must be [least, most], not {brief(list(pair))}")

    def steps_for(self, items: int) -> int:
        """Of the optimiser on so many items, by one process; a last batch may be smaller."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        per_step = self.batch_size * self.accumulation
        return self.epochs * -(-items // per_step)


def read_model(table: Any, where: str = "[model]") -> ModelSource:
    return read_fields(ModelSource, table, where)


def read_recipe(table: Any, where: str = "[recipe]") -> Recipe:
    """From a table of a study file or from `recipe_document`."""
    given = dict(check_table(table, where))
    lora = read_fields(Lora, given.pop("lora", {}), f"{where[:-1]}.lora]")
    check_keys(given, [name for name in asdict(RECIPE) if name != "lora"], where)
    return read_fields(Recipe, {**given, "lora": lora}, where)


def recipe_document(recipe: Recipe) -> dict[str, Any]:
    """Every field that is set, so that `read_recipe` gives the same recipe again; TOML and JSON
    have it alike, and neither needs a word for None."""
    return without_none(asdict(recipe))


def model_document(model: ModelSource) -> dict[str, Any]:
    return without_none(asdict(model))


def without_none(document: dict[str, Any]) -> dict[str, Any]:
    """The same tables without values that are None, and with lists for tuples."""
    return {name: _plainly(value) for name, value in document.items() if value is not None}


def _plainly(value: Any) -> Any:
    if isinstance(value, dict):
        return without_none(value)
    return [_plainly(inner) for inner in value] if isinstance(value, tuple | list) else value


RECIPE = Recipe(epochs=3)  # what a study has that names no recipe
