"""Models of Qwen3-VL's class that are small enough to be trained here: for tests, and for a study
on one GPU. They start from random weights; everything else is as the large ones have it (deepstack,
rotary positions in three axes, byte-level BPE, chat template), so the same code trains both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv_studies.downstream.models import need
from fairnepv_studies.encoders.quiet import quiet
from fairnepv_studies.files import local

SPECIAL = (  # Qwen's, which the template and the processor name
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' or 'image' in part -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif 'text' in part -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
_HALF = [0.5, 0.5, 0.5]  # mean and deviation of colours, as Qwen3-VL has them
_PATCH, _MERGE = 16, 2


@dataclass(frozen=True)
class Size:
    """Shape of a model."""

    vocabulary: int  # at most
    hidden: int
    intermediate: int
    layers: int
    heads: int  # of which half are key-value heads
    vision: int  # width of the vision tower
    vision_layers: int
    vision_heads: int
    deepstack: tuple[int, ...]  # layers of the tower that reach the first layers of the text
    side: int  # pixels of a square image; others have about as many pixels
    spread: float = 0.02  # of first weights


SIZES = {
    "tiny": Size(512, 64, 128, 2, 2, 32, 2, 2, (0,), 64, 0.15),
    "25M": Size(2048, 384, 1152, 8, 6, 256, 6, 4, (1, 3), 192),
    "40M": Size(3072, 512, 1536, 8, 8, 320, 6, 5, (1, 3), 192),
    "80M": Size(4096, 640, 1920, 10, 10, 384, 8, 6, (1, 3, 5), 224),
}


def make_model(
    folder: str | Path, texts: Sequence[str], size: str = "tiny", *, seed: int = 0
) -> Path:
    """Write an untrained model whose tokenizer was trained on these texts; `from_pretrained` loads
    the folder as it loads a Qwen3-VL of the hub."""
    if size not in SIZES:
        raise InputError(f"size must be one of {', '.join(SIZES)}, not {size!r}")
    shape, folder = SIZES[size], local(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder")
    torch, transformers = need("torch"), need("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(transformers, texts, shape.vocabulary)
    with quiet(transformers):
        tokenizer.save_pretrained(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = _config(transformers, shape, tokenizer)
            model = transformers.Qwen3VLForConditionalGeneration(config)
        model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
        model.generation_config.pad_token_id = tokenizer.convert_tokens_to_ids("<|endoftext|>")
        model.save_pretrained(folder)
    _write_processor(folder, shape)
    return folder


def _tokenizer(transformers: Any, texts: Sequence[str], vocabulary: int) -> Any:
    """Byte-level BPE that cuts words as Qwen's does."""
    tokenizers = need("tokenizers")
    blank = transformers.Qwen2Tokenizer(eos_token="<|im_end|>", pad_token="<|endoftext|>")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.normalizer = blank.backend_tokenizer.normalizer
    model.pre_tokenizer = blank.backend_tokenizer.pre_tokenizer
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Names of roles stand in every prompt.
    model.train_from_iterator([*texts, "system", "user", "assistant"], trainer)
    learned = json.loads(model.to_str())["model"]
    made = transformers.Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(pair) for pair in learned["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=[name for name in SPECIAL if name != "<|im_end|>"],
    )
    made.chat_template = TEMPLATE
    return made


def _config(transformers: Any, shape: Size, tokenizer: Any) -> Any:
    vocabulary = -(-len(tokenizer) // 64) * 64  # few texts have fewer pairs to merge
    half = shape.hidden // shape.heads // 2  # frequencies of a head, shared by three axes
    thirds = [half - 2 * (half // 3), half // 3, half // 3]
    patches = shape.side // _PATCH
    text = {
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads // 2,
        "head_dim": shape.hidden // shape.heads,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "initializer_range": shape.spread,  # frozen embeddings have to tell tokens apart
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": thirds,
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": shape.vision_layers,
        "hidden_size": shape.vision,
        "num_heads": shape.vision_heads,
        "intermediate_size": 4 * shape.vision,
        "out_hidden_size": shape.hidden,
        "patch_size": _PATCH,
        "spatial_merge_size": _MERGE,
        "deepstack_visual_indexes": list(shape.deepstack),
        "num_position_embeddings": patches * patches,
    }
    names = ("image_token", "video_token", "vision_start_token", "vision_end_token")
    tokens = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    ids = tokenizer.convert_tokens_to_ids(list(tokens))
    return transformers.Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        **{f"{name}_id": id for name, id in zip(names, ids, strict=True)},
    )


def _write_processor(folder: Path, shape: Size) -> None:
    """As Qwen3-VL's folders have it; the part on videos is there because its processor asks."""
    common = {
        "size": {"shortest_edge": shape.side**2, "longest_edge": shape.side**2},
        "patch_size": _PATCH,
        "temporal_patch_size": 2,
        "merge_size": _MERGE,
        "image_mean": _HALF,
        "image_std": _HALF,
        "processor_class": "Qwen3VLProcessor",
    }
    image = {**common, "image_processor_type": "Qwen2VLImageProcessorFast"}
    video = {**common, "video_processor_type": "Qwen3VLVideoProcessor"}
    for name, content in (("preprocessor", image), ("video_preprocessor", video)):
        text = json.dumps(content, indent=1)
        (folder / f"{name}_config.json").write_text(text + "\n", encoding="utf-8")
