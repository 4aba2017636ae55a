"""Examples in batches, and the forward pass to the loss of their descriptions.

Rows are filled up on the right, where causal attention never looks back at them, so no mask is
needed; positions are computed by the model's own rule once for each grid. Scores are computed only
where a token of a description is predicted: for a vocabulary of 150,000 the rest would take most of
the memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv_studies.downstream.dialogue import Answer, Dialogue, Grid, Picture, Prompt
from fairnepv_studies.downstream.items import Item
from fairnepv_studies.downstream.models import need

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """An item, prepared."""

    picture: str  # key of its image
    grid: Grid
    prompt: Prompt
    answer: Answer

    @property
    def length(self) -> int:
        return len(self.prompt.ids) + len(self.answer.ids)


@dataclass(frozen=True)
class Batch:
    """Tensors of some examples on the device."""

    ids: Any  # (examples, tokens)
    positions: Any  # (3, examples, tokens)
    image: Any  # places of image tokens among all tokens
    is_image: Any  # the same as a mask (examples, tokens)
    predicting: Any  # places of tokens that predict one of a description
    targets: Any  # which one


def key_of(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()


class Examples:
    """Prepares items once and makes batches of them."""

    def __init__(self, dialogue: Dialogue, base: Any, device: Any) -> None:
        self._dialogue, self._model, self._device = dialogue, base.model, device
        self._prepared: dict[tuple[str, str], Example] = {}
        self._positions: dict[Grid, Integers] = {}
        self.pictures: dict[str, Picture] = {}

    def prepare(self, items: Sequence[Item]) -> list[Example]:
        keys = [(key_of(item.image), item.text) for item in items]
        images = {key: item.image for (key, _), item in zip(keys, items, strict=True)}
        missing = [key for key in images if key not in self.pictures]
        found = self._dialogue.pictures([images[key] for key in missing])
        self.pictures.update(zip(missing, found, strict=True))
        new = list(dict.fromkeys(key for key in keys if key not in self._prepared))
        if new:
            grids = [self.pictures[key].grid for key, _ in new]
            prompts = [self._dialogue.prompt(grid) for grid in grids]
            answers = self._dialogue.answers([text for _, text in new], prompts)
            for key, grid, prompt, answer in zip(new, grids, prompts, answers, strict=True):
                self._prepared[key] = Example(key[0], grid, prompt, answer)
        return [self._prepared[key] for key in keys]

    def batch(self, examples: Sequence[Example], *, prompts_only: bool = False) -> Batch:
        rows = [
            list(e.prompt.ids) if prompts_only else [*e.prompt.ids, *e.answer.ids] for e in examples
        ]
        width = max(map(len, rows))
        ids = np.zeros((len(rows), width), np.int64)
        positions = np.zeros((3, len(rows), width), np.int64)
        is_image = np.zeros((len(rows), width), bool)
        predicting, targets = [], []
        for i, (row, example) in enumerate(zip(rows, examples, strict=True)):
            ids[i, : len(row)] = row
            positions[:, i] = self.positions(example, width)
            first = example.prompt.first_image
            is_image[i, first : first + example.prompt.image_tokens] = True
            before = len(example.prompt.ids)
            predicting.append(i * width + np.arange(before - 1, len(row) - 1))
            targets.append(np.array(row[before:], np.int64))
        arrays = (
            ids,
            positions,
            np.flatnonzero(is_image),
            is_image,
            np.concatenate(predicting),
            np.concatenate(targets),
        )
        return Batch(*map(self._sent, arrays))

    def positions(self, example: Example, width: int) -> Integers:
        """(3, width) rotary positions: those of the prompt by the model's rule, then one more for
        each token of text."""
        grid, prompt = example.grid, example.prompt
        if grid not in self._positions:
            self._positions[grid] = self._prompt_positions(grid, prompt)
        known = self._positions[grid]
        after = known.max() + 1 + np.arange(max(width - known.shape[1], 0))
        return np.concatenate([known, np.tile(after, (3, 1))], axis=1)[:, :width]

    def _prompt_positions(self, grid: Grid, prompt: Prompt) -> Integers:
        torch = need("torch")
        ids = torch.tensor([prompt.ids])
        found, _ = self._model.get_rope_index(
            input_ids=ids,
            mm_token_type_ids=(ids == self._dialogue.image_token).int(),
            image_grid_thw=torch.tensor([grid]),
        )
        positions: Integers = found[:, 0].numpy()
        return positions

    def _sent(self, array: NDArray[Any]) -> Any:
        """To the device, without waiting for it."""
        tensor = need("torch").from_numpy(np.ascontiguousarray(array))
        if self._device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


def hidden_states(base: Any, batch: Batch, features: Sequence[Any], **others: Any) -> Any:
    """(examples, tokens, width) after the last layer; `features` of every example's image."""
    torch = need("torch")
    levels = torch.cat(list(features), dim=1)  # (1 + deepstack levels, image tokens, width)
    text = base.model.language_model
    embedded = text.embed_tokens(batch.ids)
    flat = embedded.flatten(0, 1)
    seen = levels[0].to(flat.dtype)
    embedded = flat.index_copy(0, batch.image, seen).view_as(embedded)
    return text(
        inputs_embeds=embedded,
        position_ids=batch.positions,
        visual_pos_masks=batch.is_image,
        deepstack_visual_embeds=list(levels[1:]),
        **{"use_cache": False, "attention_mask": None, **others},
    ).last_hidden_state


def description_loss(base: Any, batch: Batch, features: Sequence[Any]) -> Any:
    """Sum over the tokens of the descriptions of -log p(token | all before it)."""
    torch = need("torch")
    hidden = hidden_states(base, batch, features).flatten(0, 1)
    scores = base.lm_head(hidden.index_select(0, batch.predicting))
    return torch.nn.functional.cross_entropy(scores.float(), batch.targets, reduction="sum")
