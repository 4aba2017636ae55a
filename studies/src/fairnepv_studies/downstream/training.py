"""Steps of AdamW that a kill does not change.

What a step does follows from its number alone: which examples it takes, how large its learning rate
is, and which random numbers dropout draws, since the generator is seeded with seed, step and
process. So what is stored are parameters, the moments of the optimiser and the losses, in one file
that is written whole; the random state and the order of the data need not be.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairnepv.errors import NumericalError
from fairnepv_studies.downstream.models import need
from fairnepv_studies.downstream.processes import Processes
from fairnepv_studies.files import write_whole
from fairnepv_studies.progress import RowProgress

SAVE_EVERY = 60.0  # seconds; a short cell is done before
_BETAS = (0.9, 0.999)
_PARTS = ("value", "exp_avg", "exp_avg_sq")  # as AdamW names its moments


@dataclass(frozen=True)
class Course:
    """What the optimiser follows."""

    steps: int
    learning_rate: float
    schedule: str = "cosine"
    warmup: float = 0.03
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0

    def rate(self, step: int) -> float:
        """Up in a line to the learning rate, then down to zero, or not."""
        rising = math.ceil(self.warmup * self.steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        share = (step - rising) / max(self.steps - rising, 1)
        if self.schedule == "linear":
            return self.learning_rate * (1 - share)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * share)) / 2
        return self.learning_rate


def examples_of(step: int, count: int, per_step: int, seed: int) -> list[int]:
    """Numbers of the examples of a step: every epoch has all in an order of its own, its last step
    what is left."""
    epoch, place = divmod(step, -(-count // per_step))
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return [int(number) for number in order[place * per_step : (place + 1) * per_step]]


@dataclass
class Training:
    """Parameters under way. `gradients(step)` adds this process's share of the gradient of a step
    to the parameters and returns its share of the loss."""

    parameters: Mapping[str, Any]
    course: Course
    gradients: Callable[[int], Any]
    processes: Processes
    seed: int
    file: Path  # where the state is kept
    losses: list[float] = field(default_factory=list)

    def run(self, progress: RowProgress = lambda *_: None, until: int | None = None) -> list[float]:
        """Go on to the last step, or to another one; the losses of all steps so far."""
        torch, course = need("torch"), self.course
        if not hasattr(self, "_optimiser"):
            self._optimiser = self._begin()
            self._restore()
        last = course.steps if until is None else min(until, course.steps)
        pending: list[Any] = []  # losses that are still on the device
        saved = time.monotonic()
        for step in range(len(self.losses), last):
            torch.manual_seed(_lot(self.seed, step, self.processes.rank))
            pending.append(self._step(step))
            progress(step + 1, course.steps)
            if time.monotonic() - saved >= SAVE_EVERY:
                self._settle(pending)
                self.save()
                saved = time.monotonic()
        self._settle(pending)
        return self.losses

    def _step(self, step: int) -> Any:
        torch, course, values = need("torch"), self.course, list(self.parameters.values())
        loss = self.gradients(step)
        for value in values:
            if value.grad is None:  # a process without a share
                value.grad = torch.zeros_like(value)
        self.processes.sum([loss, *(value.grad for value in values)])
        torch.nn.utils.clip_grad_norm_(values, course.max_grad_norm)
        for group in self._optimiser.param_groups:
            group["lr"] = course.rate(step)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return loss

    def _begin(self) -> Any:
        """Biases and gains of norms do not decay."""
        torch, values = need("torch"), list(self.parameters.values())
        groups: list[dict[str, Any]] = [
            {"params": [value for value in values if value.ndim > 1]},
            {"params": [value for value in values if value.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=self.course.learning_rate,
            betas=_BETAS,
            weight_decay=self.course.weight_decay,
            fused=True,
        )

    def _settle(self, pending: list[Any]) -> None:
        """Losses to the host, all at once."""
        torch = need("torch")
        if pending:
            self.losses.extend(torch.stack(pending).float().tolist())
            pending.clear()
        for step, loss in enumerate(self.losses):
            if not math.isfinite(loss):
                raise NumericalError(
                    f"the loss of step {step + 1} is {loss}; lower learning_rate, or take "
                    "precision = 'float32'"
                )

    # --- the state on disk ----------------------------------------------------------------------

    def save(self) -> None:
        if not self.processes.first:
            return
        tensors = {}
        for name, value in self.parameters.items():
            state = self._optimiser.state.get(value, {})
            for part, tensor in (("value", value), *state.items()):
                if part in _PARTS:
                    tensors[f"{part}:{name}"] = tensor.detach().cpu().contiguous()
        content = need("safetensors.torch").save(tensors, {"losses": json.dumps(self.losses)})
        write_whole(self.file, content)

    def _restore(self) -> None:
        """A file that is damaged or of other parameters counts as none."""
        if not self.file.is_file():
            return
        torch = need("torch")
        try:
            with need("safetensors").safe_open(str(self.file), framework="pt") as stored:
                losses = json.loads((stored.metadata() or {})["losses"])
                found = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except Exception:  # of a damaged file: the training begins anew
            return
        parts = _PARTS if losses else _PARTS[:1]
        wanted = {f"{part}:{name}" for part in parts for name in self.parameters}
        if set(found) != wanted:
            return
        for name, value in self.parameters.items():
            with torch.no_grad():
                value.copy_(found[f"value:{name}"])
            if losses:
                moments = {part: found[f"{part}:{name}"].to(value.device) for part in _PARTS[1:]}
                count = torch.tensor(float(len(losses)), device=value.device)
                self._optimiser.state[value] = {"step": count, **moments}
        self.losses = list(losses)


def _lot(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def cut(examples: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [examples[start : start + size] for start in range(0, len(examples), size)]
