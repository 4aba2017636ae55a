"""An item as the model sees it: an image and a prompt in the chat form of the model's own template,
then the description as the assistant's turn. The loss is on that turn alone: the tokens of the
description and the token that ends it.

Token ids, pixels and grid are those of the model's own processor; it is taken apart only because
`Qwen3VLProcessor` as a whole needs torchvision, for its videos.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv_studies.downstream.models import TEMPLATES, need
from fairnepv_studies.downstream.recipe import Recipe
from fairnepv_studies.encoders.quiet import quiet
from fairnepv_studies.pictures import decode

Grid = tuple[int, int, int]  # frames, rows and columns of patches
_IMAGE = "<|image_pad|>"
_TEXT = "description"  # stands for one where the template is asked for its form


@dataclass(frozen=True)
class Picture:
    """An image as the processor prepares it."""

    pixels: Any  # tensor (patches, values of a patch)
    grid: Grid


@dataclass(frozen=True)
class Prompt:
    """What stands before a description; all images of one grid have the same."""

    ids: tuple[int, ...]
    first_image: int  # place of the first token of the image
    image_tokens: int


@dataclass(frozen=True)
class Answer:
    """What the model is to write."""

    ids: tuple[int, ...]  # of the description, then the end of the turn
    truncated: bool  # then it has no end


class Dialogue:
    """Items in the chat form of one model under one recipe."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        torch = need("torch")
        self._type = torch.bfloat16 if recipe.precision == "bf16" else torch.float32
        self._transformers = need("transformers")
        self._tokenizer = _tokenizer(self._transformers, folder)
        self._template = _template(folder, self._tokenizer)
        self._images = _image_processor(self._transformers, folder, recipe)
        self._recipe = recipe
        self._prompts: dict[Grid, Prompt] = {}
        self._rendered = self._render(None)
        tail = self._tail()
        self.end = self._tokenizer(tail, add_special_tokens=False).input_ids[0]
        self.image_token = self._tokenizer.convert_tokens_to_ids(_IMAGE)

    @property
    def image_backend(self) -> str:
        """Who resizes; torchvision and Pillow differ in the last bits of some pixels."""
        return type(self._images).__name__

    def prompt(self, grid: Grid) -> Prompt:
        if grid not in self._prompts:
            self._prompts[grid] = self._make_prompt(grid)
        return self._prompts[grid]

    def answers(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Answer]:
        """Special tokens that a description spells are letters like all others."""
        found = self._tokenizer(
            [text.strip() for text in texts], add_special_tokens=False, split_special_tokens=True
        ).input_ids
        return [self._cut(ids, len(p.ids)) for ids, p in zip(found, prompts, strict=True)]

    def text(self, ids: Sequence[int]) -> str:
        said: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return said.strip()

    def pictures(self, images: Sequence[bytes]) -> list[Picture]:
        with ThreadPoolExecutor() as pool:  # decoding and resizing let other threads run
            return list(pool.map(self._picture, images))

    def _picture(self, image: bytes) -> Picture:
        found = self._images(images=decode(image), return_tensors="pt")
        pixels = found["pixel_values"].to(self._type)  # as the tower would round them
        return Picture(pixels, tuple(found["image_grid_thw"][0].tolist()))

    def _cut(self, ids: list[int], before: int) -> Answer:
        room = self._recipe.max_tokens - before
        if room < 1:
            raise InputError(
                f"max_tokens is {self._recipe.max_tokens}, and prompt and image take {before}; "
                "raise it, or lower image_pixels"
            )
        whole = [*ids, self.end]
        return Answer(tuple(whole[:room]), len(whole) > room)

    def _make_prompt(self, grid: Grid) -> Prompt:
        merged = self._images.merge_size**2
        count = grid[0] * grid[1] * grid[2] // merged
        text = self._rendered.replace(_IMAGE, _IMAGE * count)
        ids = self._tokenizer(text).input_ids
        return Prompt(tuple(ids), ids.index(self.image_token), count)

    def _render(self, text: str | None) -> str:
        """The conversation as a string, up to the assistant's turn or with this one."""
        recipe, user = self._recipe, [{"type": "image"}]
        turns: list[dict[str, Any]] = []
        if recipe.system is not None:
            turns.append({"role": "system", "content": recipe.system})
        turns.append({"role": "user", "content": [*user, {"type": "text", "text": recipe.prompt}]})
        if text is not None:
            turns.append({"role": "assistant", "content": text})
        rendered: str = self._tokenizer.apply_chat_template(
            turns,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=text is None,
        )
        return rendered

    def _tail(self) -> str:
        """What follows a description."""
        whole, before = self._render(_TEXT), self._rendered + _TEXT
        if self._rendered.count(_IMAGE) != 1 or not whole.startswith(before):
            raise InputError(
                "the model's chat template does not put one image and the description where an "
                "instruct model has them; name a Qwen3-VL Instruct model, whose prompt has no "
                f"{_IMAGE}"
            )
        return whole[len(before) :]


def _tokenizer(transformers: Any, folder: Path) -> Any:
    try:
        with quiet(transformers):
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{folder} has no tokenizer that can be loaded ({reason})") from error


def _template(folder: Path, tokenizer: Any) -> str:
    """The processor's chat template, which is a file of its own, or the tokenizer's."""
    for name in TEMPLATES:
        file = folder / name
        if file.is_file():
            text = file.read_text("utf-8")
            return str(json.loads(text)["chat_template"]) if name.endswith(".json") else text
    if not tokenizer.chat_template:
        raise InputError(f"{folder} has no chat template; name an Instruct model")
    return str(tokenizer.chat_template)


def _image_processor(transformers: Any, folder: Path, recipe: Recipe) -> Any:
    """The one that the whole processor would take: torchvision's where that is installed."""
    found = transformers.utils.is_torchvision_available()
    sizes = {}
    if recipe.image_pixels is not None:
        least, most = recipe.image_pixels
        sizes = {"size": {"shortest_edge": least, "longest_edge": most}}
    try:
        with quiet(transformers):
            return transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, backend="torchvision" if found else "pil", **sizes
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{folder} has no image processor that can be loaded ({reason})"
        ) from error
