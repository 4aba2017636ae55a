"""Descriptions that a model writes: greedily, a batch at a time, with a cache of keys and values.

Prompts of one grid have the same length, so a batch needs no filling up. On a GPU a token of the
whole batch is one replay of a recorded CUDA graph, since launching its kernels one by one would
take longer than running them; the graph is recorded once and serves every cell, whose adapters lie
where those of the cell before lay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairnepv_studies.downstream.examples import Batch, hidden_states
from fairnepv_studies.downstream.models import need

_LOOK_EVERY = 16  # tokens after which it is asked whether all texts have ended
_MULTIPLE = 16  # of the length of a cache, so that masks lie as quick kernels want them
_WARM_UP = 2  # steps before a graph is recorded, as PyTorch asks


@dataclass(frozen=True)
class Shape:
    """What a recorded step depends on."""

    texts: int
    prompt: int  # tokens
    new: int  # tokens at most


class Scribe:
    """Writes batches of one shape; its buffers stay where they are."""

    def __init__(self, base: Any, shape: Shape, stops: Sequence[int], device: Any) -> None:
        torch, transformers = need("torch"), need("transformers")
        self._base, self._shape, self._device = base, shape, device
        self._stops = torch.tensor(list(stops), device=device)
        config = base.config.text_config
        rows, whole = shape.texts, -(-(shape.prompt + shape.new) // _MULTIPLE) * _MULTIPLE
        self._cache = transformers.StaticCache(config=config, max_cache_len=whole)
        causal = torch.ones((shape.prompt, whole), dtype=torch.bool).tril()
        self._causal = causal.to(device)[None, None]
        counts = {"dtype": torch.long, "device": device}
        self._ids = torch.zeros((rows, 1), **counts)
        self._positions = torch.zeros((3, rows, 1), **counts)
        self._at = torch.zeros(1, **counts)  # number of the token that comes next
        self._open = torch.zeros((1, 1, 1, whole), dtype=torch.bool, device=device)
        self._written = torch.zeros((rows, shape.new), **counts)
        self._ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self._graph: Any = None
        self._graphs = device.type == "cuda" and shape.new > _WARM_UP + 1

    def write(self, batch: Batch, features: Sequence[Any]) -> list[list[int]]:
        """Tokens of every text, the one that ends it included where it did end."""
        torch = need("torch")
        with torch.no_grad():
            if self._graphs and self._graph is None:
                self._record(batch, features)
            self._read(batch, features)
            for number in range(1, self._shape.new):
                if number % _LOOK_EVERY == 0 and bool(self._ended.all()):
                    break
                if self._graph is None:
                    self._step()
                else:
                    self._graph.replay()
            return self._texts()

    def _read(self, batch: Batch, features: Sequence[Any]) -> None:
        """The prompts, and the first token of every text."""
        shape = self._shape
        self._cache.reset()
        for buffer in (self._written, self._ended, self._at, self._open):
            buffer.zero_()
        self._open[..., : shape.prompt] = True
        states = hidden_states(
            self._base,
            batch,
            features,
            attention_mask=self._causal,
            past_key_values=self._cache,
            use_cache=True,
        )
        self._positions.copy_(batch.positions.amax(dim=(0, 2))[None, :, None].expand(3, -1, 1))
        self._take(states[:, -1])

    def _step(self) -> None:
        """One more token of every text; no shape or choice depends on what is written."""
        text = self._base.model.language_model
        states = text(
            inputs_embeds=text.embed_tokens(self._ids),
            position_ids=self._positions,
            attention_mask=self._open,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        self._take(states[:, -1])

    def _take(self, states: Any) -> None:
        """The likeliest tokens are written and read next."""
        chosen = self._base.lm_head(states).argmax(dim=-1)
        self._written.index_copy_(1, self._at, chosen[:, None])
        self._ended |= (chosen[:, None] == self._stops).any(dim=1)
        self._ids.copy_(chosen[:, None])
        self._open.index_fill_(3, self._at + self._shape.prompt, True)
        self._positions += 1
        self._at += 1

    def _record(self, batch: Batch, features: Sequence[Any]) -> None:
        torch = need("torch")
        self._read(batch, features)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        self._read(batch, features)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()

    def _texts(self) -> list[list[int]]:
        stops, found = set(self._stops.tolist()), []
        for row in self._written.tolist():
            end = next((i for i, token in enumerate(row) if token in stops), len(row) - 1)
            found.append(row[: end + 1])
        return found
