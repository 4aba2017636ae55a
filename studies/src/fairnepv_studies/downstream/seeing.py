"""The vision tower on images of one grid at once, and what it makes of an image, kept by content.

Transformers attends image by image, one call for each in every layer; images of one grid can share
a call, which is the same sum. Patches do not overlap, so the convolution which embeds them is a
matrix product, and quicker as one. Adapters usually leave the tower alone: then an image has to go
through it only once in a study. What is kept depends on the image alone, whatever else was seen.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from fairnepv_studies.downstream.dialogue import Grid, Picture
from fairnepv_studies.downstream.models import need

AT_ONCE = 64  # images of a batch on a GPU, which is filled up so that shapes are always the same
_SHARE = 4  # part of the free memory of a GPU that features may take: one in so many


def look_at_once(base: Any) -> None:
    """From now on the tower is given images of one grid at a time."""
    visual = base.model.visual
    visual.patch_embed.forward = types.MethodType(_embed, visual.patch_embed)
    for block in visual.blocks:
        block.attn.forward = types.MethodType(_attend, block.attn)


def _embed(patches: Any, hidden_states: Any) -> Any:
    """As `Qwen3VLVisionPatchEmbed.forward`."""
    torch, weight = need("torch"), patches.proj.weight
    rows = hidden_states.to(weight.dtype)
    return torch.nn.functional.linear(rows, weight.flatten(1), patches.proj.bias)


def _attend(attention: Any, hidden_states: Any, cu_seqlens: Any, **others: Any) -> Any:
    """As `Qwen3VLVisionAttention.forward`, with all images in one call."""
    torch, rotary = need("torch"), need("transformers.models.qwen3_vl.modeling_qwen3_vl")
    images, tokens = len(cu_seqlens) - 1, len(hidden_states)
    parts = attention.qkv(hidden_states).reshape(tokens, 3, attention.num_heads, -1).unbind(1)
    queries, keys, values = parts
    cos, sin = others["position_embeddings"]
    queries, keys = rotary.apply_rotary_pos_emb_vision(queries, keys, cos, sin)

    def apart(rows: Any) -> Any:  # (images, heads, tokens of an image, width of a head)
        return rows.reshape(images, tokens // images, attention.num_heads, -1).transpose(1, 2)

    seen = torch.nn.functional.scaled_dot_product_attention(
        apart(queries), apart(keys), apart(values), scale=attention.scaling
    )
    return attention.proj(seen.transpose(1, 2).reshape(tokens, -1))


def see(base: Any, pixels: Any, grid: Grid) -> Any:
    """(images, 1 + deepstack levels, tokens of an image, width of the text) of pixels (images,
    patches, values).

    The images are handed over as the frames of one video: the tower gives each frame the positions
    of an image and attends within it, and loops over videos, not over frames."""
    torch = need("torch")
    images = len(pixels)
    grids = torch.tensor([[images * grid[0], *grid[1:]]])
    visual = base.model.visual
    flat = pixels.reshape(-1, pixels.shape[-1]).to(visual.patch_embed.proj.weight.dtype)
    found = visual(flat, grid_thw=grids.to(flat.device), return_dict=True)
    levels = torch.stack([found.pooler_output, *found.deepstack_features])
    return levels.reshape(len(levels), images, -1, levels.shape[-1]).transpose(0, 1)


def see_all(base: Any, pictures: Sequence[Picture], device: Any) -> list[Any]:
    """What the tower makes of every picture, each grid on its own; gradients pass."""
    torch = need("torch")
    found: list[Any] = [None] * len(pictures)
    for grid in dict.fromkeys(picture.grid for picture in pictures):
        places = [i for i, picture in enumerate(pictures) if picture.grid == grid]
        pixels = torch.stack([pictures[i].pixels for i in places]).to(device)
        for place, rows in zip(places, see(base, pixels, grid), strict=True):
            found[place] = rows
    return found


class Seen:
    """Features of images by their key, made once."""

    def __init__(self, base: Any, device: Any) -> None:
        self._base, self._device = base, device
        self._rows: dict[str, Any] = {}
        self._room = 0  # bytes on a GPU; beyond that features wait in the memory of the host
        if device.type == "cuda":
            self._room = need("torch").cuda.mem_get_info(device)[0] // _SHARE

    def add(
        self, wanted: dict[str, Picture], progress: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        """Those of all that are not there yet."""
        missing = {key: picture for key, picture in wanted.items() if key not in self._rows}
        done = 0
        for grid in dict.fromkeys(picture.grid for picture in missing.values()):
            keys = [key for key, picture in missing.items() if picture.grid == grid]
            size = AT_ONCE if self._device.type == "cuda" else 1
            for start in range(0, len(keys), size):
                part = keys[start : start + size]
                self._add_batch(part, [missing[key].pixels for key in part], grid, size)
                done += len(part)
                progress(done, len(missing))

    def _add_batch(self, keys: list[str], pixels: list[Any], grid: Grid, size: int) -> None:
        torch = need("torch")
        filled = torch.stack(pixels + [pixels[-1]] * (size - len(pixels)))
        with torch.no_grad():
            rows = see(self._base, filled.to(self._device), grid)
        for key, row in zip(keys, rows, strict=False):
            self._room -= row.nbytes
            self._rows[key] = row.clone() if self._room >= 0 else row.clone().cpu()

    def of(self, keys: Sequence[str]) -> list[Any]:
        return [self._rows[key].to(self._device) for key in keys]
