"""Models of Qwen3-VL's class: where their files are, what they need, how they are loaded, and the
adapters that are trained on them.

A base model is loaded once by a process; adapters are put back to their first state for every cell,
which is the same to the bit as loading all anew.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import math
import os
import platform
import re
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.places import sha256_of
from fairnepv_studies.downstream.recipe import Lora, ModelSource, Recipe
from fairnepv_studies.encoders.quiet import quiet

CLASS = "qwen3_vl"  # model_type of the configuration
TEMPLATES = ("chat_template.jinja", "chat_template.json")
PROCESSOR = ("preprocessor_config.json", "tokenizer_config.json")
_WITHOUT_GPU = 500_000_000  # parameters beyond which a CPU would take days
_NAMES = {"torch": "PyTorch"}
_ADAPTER = "adapter"


def need(module: str) -> Any:
    """The module of an optional package, or a sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"the downstream study needs {_NAMES.get(module, module)}, which is not installed "
            f"({error}); run pip install 'fairnepv-studies[downstream]'"
        ) from error


def folder_of(model: ModelSource) -> Path:
    """Where the model's files are: its own folder, or the local cache of the hub."""
    folder = Path(model.name)
    if folder.is_dir():
        if model.revision is not None:
            raise InputError(f"model {model.name} is a local folder, which has no revision")
        return folder
    if folder.is_absolute() or model.name.count("/") != 1:
        raise InputError(
            f"model {model.name} is no folder and no name on the hub, as in "
            "Qwen/Qwen3-VL-8B-Instruct"
        )
    hub = need("huggingface_hub")
    try:
        found = hub.snapshot_download(model.name, revision=model.revision, local_files_only=True)
    except Exception as error:  # of the hub, of the disk
        raise InputError(
            f"model {model.name} is not in the local Hugging Face cache; download it first: "
            f"hf download {model.name}" + (f" --revision {model.revision}" * bool(model.revision))
        ) from error
    return Path(found)


def check_model(model: ModelSource) -> None:
    """Whether this model can be trained here at all, before any work; `InputError` says why not."""
    folder = folder_of(model)
    for name in PROCESSOR:
        if not (folder / name).is_file():
            raise InputError(
                f"model {model.name} has no processor ({name} is missing in its folder); download "
                "the whole repository, or save the processor there"
            )
    if not list(folder.glob("*.safetensors")):
        raise InputError(f"model {model.name} has no weights as safetensors; download it again")
    _check_device(model, count_parameters(configuration(model)))


def _check_device(model: ModelSource, parameters: int) -> None:
    torch = need("torch")
    weights = 2 * parameters  # bf16, as anything this large is trained
    said = f"its {parameters / 1e9:.1f} billion parameters take {_gib(weights)} in bf16"
    if not torch.cuda.is_available():
        if parameters > _WITHOUT_GPU:
            raise InputError(
                f"model {model.name} needs a GPU, and PyTorch sees none here: {said}, and training "
                "more than that; use a machine with a GPU, or a smaller model"
            )
        return
    memory = torch.cuda.get_device_properties(0).total_memory
    if weights > memory:
        raise InputError(
            f"model {model.name} does not fit: {said}, and the GPU has {_gib(memory)}; use a "
            "larger one, or a smaller model"
        )


def configuration(model: ModelSource) -> Any:
    """Its configuration; another class of model is refused."""
    folder, transformers = folder_of(model), need("transformers")
    try:
        document = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"model {model.name} has no config.json that can be read; name the folder of a model"
        ) from error
    kind = document.get("model_type") if isinstance(document, dict) else None
    if kind != CLASS:
        raise InputError(
            f"model {model.name} is of class {kind!r}, expected {CLASS!r}; name a Qwen3-VL model"
        )
    try:
        with quiet(transformers):
            return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the configuration of {model.name} is not sound ({reason})") from error


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"


# --- memory -------------------------------------------------------------------------------------


def count_parameters(config: Any) -> int:
    """Of a model of this configuration, which is built without memory for its weights."""
    return sum(int(parameter.numel()) for parameter in _hollow(config).parameters())


def _hollow(config: Any) -> Any:
    torch, transformers = need("torch"), need("transformers")
    with quiet(transformers), torch.device("meta"):
        model = transformers.Qwen3VLForConditionalGeneration(config)
    model.tie_weights()
    return model


def memory_needed(model: ModelSource, recipe: Recipe) -> int:
    """Bytes that a process takes, estimated from the configuration alone: weights, adapters with
    gradient and moments, and the larger of what training a batch and writing one hold."""
    return memory_of(configuration(model), recipe)


def memory_of(config: Any, recipe: Recipe) -> int:
    hollow, text = _hollow(config), config.text_config
    each = 2 if recipe.precision == "bf16" else 4
    weights = each * sum(parameter.numel() for parameter in hollow.parameters())
    adapters = 16 * count_adapted(hollow, recipe.lora)  # value, gradient, two moments
    # Of each token a layer keeps its input where it is computed again, else about 17 such rows
    # (norms, queries, keys, values, attention, three of the perceptron, adapters in float32).
    tokens, wide = recipe.batch_size * recipe.max_tokens, text.intermediate_size / text.hidden_size
    row, layers = each * text.hidden_size, text.num_hidden_layers
    whole_layer = (17 + 4 * wide) * row
    kept = layers * (row if recipe.gradient_checkpointing else whole_layer) + whole_layer
    training = tokens * kept + 8 * tokens * text.vocab_size  # scores and their gradient
    pair = 2 * text.num_key_value_heads * text.head_dim * each * layers
    writing = recipe.generation_batch * (recipe.max_tokens + recipe.max_new_tokens) * pair
    total: int = math.ceil(weights + adapters + max(training, writing))
    return total


def count_adapted(model: Any, lora: Lora) -> int:
    """Parameters of the adapters."""
    found: int = sum(
        lora.rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if hasattr(module, "in_features") and is_target(name, lora)
    )
    return found


def is_target(name: str, lora: Lora) -> bool:
    """As peft matches names of modules."""
    if isinstance(lora.targets, str):
        if lora.targets == "all-linear":
            return name != "lm_head"  # but for the output
        return re.fullmatch(lora.targets, name) is not None
    return any(name == target or name.endswith(f".{target}") for target in lora.targets)


# --- loading ------------------------------------------------------------------------------------


def load_base(model: ModelSource, precision: str, device: Any) -> Any:
    """The model with frozen weights."""
    torch, transformers = need("torch"), need("transformers")
    configuration(model)
    try:
        with quiet(transformers):
            base = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
                folder_of(model),
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
                attn_implementation="sdpa",
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"model {model.name} cannot be loaded ({reason}); download it again"
        ) from error
    return base.requires_grad_(False).to(device).eval()


def add_adapters(base: Any, lora: Lora, *, gradient_checkpointing: bool = False) -> Any:
    """The base model with adapters, which `reset_adapters` gives their first values."""
    peft = need("peft")
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of names that version 6 will drop
            if gradient_checkpointing:
                base.gradient_checkpointing_enable({"use_reentrant": False})
            return peft.get_peft_model(base, settings)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"targets of the adapters do not fit the model ({reason})") from error


def adapters_of(model: Any) -> dict[str, Any]:
    """Parameters of the adapters by name, in the order of names."""
    named = {name: value for name, value in model.named_parameters() if ".lora_" in name}
    return dict(sorted(named.items()))


def reset_adapters(model: Any, seed: int) -> None:
    """First values, drawn on the CPU so that they are the same on every device: A as peft draws
    it, uniform within 1 / sqrt(inputs), and B zero."""
    torch = need("torch")
    lots = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in adapters_of(model).items():
            first = torch.zeros(value.shape)
            if ".lora_A." in name or ".lora_embedding_A" in name:
                bound = 1 / math.sqrt(value.shape[1])
                first.uniform_(-bound, bound, generator=lots)
            value.copy_(first)
            value.grad = None


def save_adapter(model: Any, folder: Path) -> None:
    """In peft's format, whole or not at all."""
    part = folder / f".{_ADAPTER}"
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part, safe_serialization=True)
    shutil.rmtree(folder / _ADAPTER, ignore_errors=True)
    os.replace(part, folder / _ADAPTER)


def load_adapter(model: Any, folder: Path) -> None:
    """Into the adapters that the model has."""
    peft, safetensors = need("peft"), need("safetensors.torch")
    stored = safetensors.load_file(folder / _ADAPTER / "adapter_model.safetensors")
    peft.set_peft_model_state_dict(model, stored)


# --- what a result depends on -------------------------------------------------------------------


@functools.lru_cache
def weights_checksum(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()


def identity(model: ModelSource) -> dict[str, Any]:
    """A revision names its weights; a folder is known by their checksum."""
    folder = folder_of(model)
    if model.revision is not None:
        return {**asdict(model), "commit": folder.name}
    return {"weights_sha256": weights_checksum(folder)}


def versions() -> dict[str, str]:
    names = ("torch", "transformers", "peft", "accelerate", "tokenizers")
    return {name: str(need(name).__version__) for name in names}


def device_name(device: Any) -> str:
    torch = need("torch")
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    capability = torch.backends.cpu.get_cpu_capability()
    return f"cpu {platform.machine()} {capability}, {torch.get_num_threads()} threads"
