"""Every knob once: its type, its default, what it is for, and how a value is checked.

A knob is a type alias with an `Option` in its `Annotated`; the typed dictionaries below say which
function takes which. Signatures, docstrings, the parameters of `FairSelector` and the options of
the command line are made from them, and a type checker reads them as they stand.

What needs the data or another room to be checked (`include`, `engine`, `memory_limit`, ...) is
checked there.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from fairnepv.checks import (
    check_count,
    check_flag,
    check_path,
    check_positive,
    check_ratio,
    check_seed,
    check_share,
    check_whole,
    one_of,
    optional,
)
from fairnepv.signatures import Option, options_of

EFFORTS = ("fast", "balanced", "thorough")
CALIBRATIONS = ("unit-diagonal", "trace", "none", "efficiency")


# --- the problem ----------------------------------------------------------------------------------

_Views = Annotated[
    Mapping[str, Any] | None, Option(None, "Columns by view name, where data is one (n, p) array.")
]
_Tau = Annotated[
    float,
    Option(
        0.05,
        "Soft-min temperature.",
        "As it falls, F_tau approaches the worst view's score.",
        check_positive,
    ),
]
_Eps = Annotated[float | Mapping[str, float], Option(0.1, "Ridge, common or by view.")]
_Calibration = Annotated[
    Any,
    Option(
        "unit-diagonal",
        f"{', '.join(CALIBRATIONS)}, or a factor for each view.",
        "Factors are on L. The `calibration` of an earlier result is taken, too.",
    ),
]
_Quality = Annotated[
    Any,
    Option(
        None,
        "Weights of the rows.",
        "(n,), common or by view name: L = diag(sqrt q) K diag(sqrt q) + eps I; "
        "`fairnepv.typicality(data)` makes some that keep junk outliers out.",
    ),
]
_Ids = Annotated[
    Any,
    Option(None, "Row ids.", "(n,), or by view name, and then the views are aligned by them."),
]
_Priorities = Annotated[
    Mapping[str, float] | None, Option(None, "Weight of a view in the soft-min; they sum to 1.")
]
_Floors = Annotated[Mapping[str, float] | None, Option(None, "The least d that a view must keep.")]
_Include = Annotated[
    Any,
    Option(
        None,
        "Items that must be chosen and come first: ids if there are any, else rows.",
        "Or a Selection. They count towards k; scores are always those of the whole set.",
    ),
]
_IncludeCounts = Annotated[
    bool,
    Option(True, "If false, k items are chosen besides those of include.", check=check_flag),
]
_Exclude = Annotated[
    Any, Option(None, "Items that must not be chosen.", "Named as those of include.")
]
_Groups = Annotated[Any, Option(None, "A group label for every row.")]
_Quotas = Annotated[
    Any,
    Option(
        None,
        "How many of a group.",
        "By label a number or (least, most) with None for free, or 'proportional' for all of them, "
        "which is the default.",
    ),
]
_RandomState = Annotated[int, Option(0, "Random state.", check=check_seed)]
_Engine = Annotated[
    Any,  # an `Engine`, which rooms above this one know
    Option(
        None,
        "Who computes: local, torch, torch:cuda, ray (the cluster of this machine), "
        "ray://HOST:PORT or local-ray.",
        "Or an engine; None is local, or the device where tensors are.",
    ),
]

# --- the search and the bound ---------------------------------------------------------------------

_METHOD = Option(
    "auto",
    "auto, exact (branch and bound), nepv (the paper's pipeline), greedy, or a baseline: "
    "VIEW-only, averaged, fixed-weight, concatenated, softmax, d-optimal, saturate, k-dpp, random.",
    "exact proves the optimum of a small pool.",
)
_Method = Annotated[str, _METHOD]
_MethodOrNone = Annotated[str | None, _METHOD]
_Methods = Annotated[
    Sequence[str] | None, Option(None, "Only these selectors.", "None: all but exact.")
]
_Effort = Annotated[
    str,
    Option(
        "balanced",
        "How hard to search.",
        "'fast' (fair greedy), 'balanced' (several starts, swaps, pair exchanges, restarts) or "
        "'thorough' (more of each).",
        one_of(*EFFORTS),
    ),
]
_Oversampling = Annotated[
    float,
    Option(
        3.0, "The shortlist of the NEPv start holds this many times k items.", check=check_ratio
    ),
]
_Certify = Annotated[
    bool,
    Option(True, "Also prove a bound.", "On what any k items could score.", check_flag),
]
_Gap = Annotated[
    float, Option(2e-3, "Duality gap of the bound, in nats per item.", check=check_positive)
]
_TargetEfficiency = Annotated[
    float | None,
    Option(
        None,
        "Stop once so much of the best possible is certain, such as 0.95.",
        check=optional(check_share),
    ),
]
_NodeLimit = Annotated[
    int | None,
    Option(
        None,
        "Most nodes of method exact.",
        "The best so far and the gap proven by then are returned.",
        optional(check_whole),
    ),
]
_Hierarchical = Annotated[
    bool | int,
    Option(
        False,
        "Choose within shards first, then among those chosen: for pools that are too large to "
        "search at once. Shards are files of the first view, else runs of rows, as many as are "
        "named.",
        "A bound is still one on the whole pool.",
    ),
]
_Nested = Annotated[
    bool, Option(False, "Of several sizes, each is contained in the next.", check=check_flag)
]

# --- the run --------------------------------------------------------------------------------------

_TimeLimit = Annotated[
    float | None,
    Option(
        None,
        "Seconds; the best found until then is returned.",
        "And marked. Reading and calibration come on top, and so does the bound, which gets as "
        "long again.",
        optional(check_positive),
    ),
]
_Strict = Annotated[
    bool, Option(False, "Raise NumericalError unless the run ended well.", check=check_flag)
]
_MemoryLimit = Annotated[
    int | str | None,
    Option(
        None,
        "Keep to so much memory besides the data, such as 2GiB, by keeping less.",
        "Bytes or text, at the cost of time; `plan` says beforehand what is then done.",
    ),
]
_Checkpoint = Annotated[
    str | Path | None,
    Option(
        None,
        "Write the state there after every step, and go on from there.",
        "Whoever does the same again, after an interruption or a crash, gets the same items. Only "
        "states that were sealed with this user's key are believed (docs/engines.md).",
        optional(check_path),
    ),
]
_Listener = Annotated[
    Callable[[Any], None] | None,  # of a `Step`
    Option(None, "Called with a `Step` after every step of every stage."),
]

# --- single functions -----------------------------------------------------------------------------

_SolverName = Annotated[
    str,
    Option(
        "accelerated",
        "accelerated, or Algorithm 1 of the paper: plain, damped, shifted, damped-shifted.",
    ),
]
_Start = Annotated[
    Any,
    Option(
        "spectral", "Where to begin: spectral or random.", "Or a frame (n, k), or k row numbers."
    ),
]
_Tol = Annotated[
    float,
    Option(
        1e-6,
        "Residual at which to stop; the paper's unscaled one for Algorithm 1.",
        "That is k ||A_perp||_F for 'accelerated', ||A - V/k||_F for the others.",
    ),
]
_MaxSteps = Annotated[int | None, Option(None, "At most so many steps.")]
_Alpha = Annotated[float | None, Option(None, "Damping of Algorithm 1, below 1.")]
_Sigma = Annotated[float | None, Option(None, "Level shift of Algorithm 1.")]
_ById = Annotated[
    bool, Option(False, "The picks are ids, as in ids, not row numbers.", check=check_flag)
]
_Limit = Annotated[int, Option(2_000_000, "Most subsets to look at.", check=check_count)]
SHARE = 0.1  # of the rows that a FairSelector keeps


# --- which function takes which -------------------------------------------------------------------


class _Scale(TypedDict, total=False):
    views: _Views
    tau: _Tau
    eps: _Eps
    calibration: _Calibration
    quality: _Quality
    priorities: _Priorities
    engine: _Engine


class _Rules(_Scale, total=False):
    include: _Include
    include_counts: _IncludeCounts
    exclude: _Exclude
    groups: _Groups
    quotas: _Quotas
    floors: _Floors
    random_state: _RandomState


class _Search(_Rules, total=False):
    effort: _Effort
    oversampling: _Oversampling
    certify: _Certify
    gap: _Gap
    target_efficiency: _TargetEfficiency
    node_limit: _NodeLimit
    hierarchical: _Hierarchical
    time_limit: _TimeLimit
    strict: _Strict
    memory_limit: _MemoryLimit
    checkpoint: _Checkpoint


class ProblemOptions(_Rules, total=False):
    """What poses a problem, besides data and k."""

    ids: _Ids


class SelectorOptions(_Search, total=False):
    """Options of `select` but those of one set of rows and of one call."""

    method: _Method


class SelectOptions(SelectorOptions, total=False):
    ids: _Ids
    nested: _Nested
    progress: _Listener


class PlanOptions(_Search, total=False):
    """Those of `select`; without a method, the plan is that of `certify`."""

    method: _MethodOrNone
    ids: _Ids
    nested: _Nested
    progress: _Listener


class CertifyOptions(ProblemOptions, total=False):
    gap: _Gap
    time_limit: _TimeLimit
    memory_limit: _MemoryLimit
    progress: _Listener


class CompareOptions(ProblemOptions, total=False):
    methods: _Methods
    effort: _Effort
    oversampling: _Oversampling
    gap: _Gap
    memory_limit: _MemoryLimit
    progress: _Listener


class ScoreOptions(_Scale, total=False):
    ids: _Ids
    by_id: _ById


class RelaxOptions(ProblemOptions, total=False):
    solver: _SolverName
    start: _Start
    tol: _Tol
    max_steps: _MaxSteps
    alpha: _Alpha
    sigma: _Sigma
    time_limit: _TimeLimit
    strict: _Strict
    progress: _Listener


class ExhaustiveOptions(ProblemOptions, total=False):
    limit: _Limit


ALL: dict[str, Option] = {
    name: option
    for kind in (
        SelectOptions,
        CompareOptions,
        ScoreOptions,
        RelaxOptions,
        ExhaustiveOptions,
    )
    for name, option in options_of(kind).items()
}


def default(name: str) -> Any:
    """The default of an option."""
    return ALL[name].default
