"""All baselines by name."""

from __future__ import annotations

from fairnepv.methods.baselines.refined import (
    Baseline,
    averaged_kernel,
    concatenated,
    fixed_weight,
    single_view,
)
from fairnepv.methods.baselines.relaxed import d_optimal, softmax
from fairnepv.methods.baselines.sampled import k_dpp, uniform
from fairnepv.methods.baselines.saturate import saturate


def baselines(names: tuple[str, ...]) -> dict[str, Baseline]:
    """All baselines for views of these names, by their own name."""
    single = {f"{name}-only": single_view(name) for name in names}
    return {
        **single,
        "averaged": averaged_kernel,
        "fixed-weight": fixed_weight,
        "concatenated": concatenated,
        "softmax": softmax,
        "d-optimal": d_optimal,
        "saturate": saturate,
        "k-dpp": k_dpp,
        "random": uniform,
    }
