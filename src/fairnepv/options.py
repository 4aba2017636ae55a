"""Every knob once: its name, type and default, what it is for, and how a value is checked.

A knob is a field of a typed dictionary with an `Option` in its `Annotated`; what a function takes
is made up of such dictionaries. Signatures, docstrings, the parameters of `FairSelector` and the
options of the command line are made from them, and a type checker reads them as they stand.

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
SHARE = 0.1  # of the rows that a FairSelector keeps
_METHOD = Option(
    "auto",
    "auto, exact (branch and bound), nepv (the paper's pipeline), greedy, or a baseline: "
    "VIEW-only, averaged, fixed-weight, concatenated, softmax, d-optimal, saturate, k-dpp, random.",
    "exact proves the optimum of a small pool.",
)
ByView = Mapping[str, float]


class Scale(TypedDict, total=False):
    """Views and how their scores become one."""

    views: Annotated[
        Mapping[str, Any] | None, Option(None, "Columns by view name, if data is one (n, p) array.")
    ]
    tau: Annotated[
        float,
        Option(
            0.05,
            "Soft-min temperature.",
            "As it falls, F_tau approaches the worst view's score.",
            check_positive,
        ),
    ]
    eps: Annotated[float | ByView, Option(0.1, "Ridge, common or by view.")]
    calibration: Annotated[
        Any,
        Option(
            "unit-diagonal",
            f"{', '.join(CALIBRATIONS)}, or a factor for each view.",
            "Factors are on L. The `calibration` of an earlier result is taken, too.",
        ),
    ]
    quality: Annotated[
        Any,
        Option(
            None,
            "Weights of the rows.",
            "(n,), common or by view name: L = diag(sqrt q) K diag(sqrt q) + eps I; "
            "`fairnepv.typicality(data)` makes some that keep junk outliers out.",
        ),
    ]
    priorities: Annotated[
        ByView | None, Option(None, "Weight of a view in the soft-min; they sum to 1.")
    ]
    engine: Annotated[
        Any,  # an `Engine`, which rooms above this one know
        Option(
            None,
            "Who computes: local, torch, torch:cuda, ray (the cluster of this machine), "
            "ray://HOST:PORT or local-ray.",
            "Or an engine; None is local, or the device where tensors are.",
        ),
    ]


class Rules(TypedDict, total=False):
    """What may be chosen."""

    include: Annotated[
        Any,
        Option(
            None,
            "Items that must be chosen and come first: ids if there are any, else rows.",
            "Or a Selection. They count towards k; scores are always those of the whole set.",
        ),
    ]
    include_counts: Annotated[
        bool,
        Option(True, "If false, k items are chosen besides those of include.", check=check_flag),
    ]
    exclude: Annotated[
        Any, Option(None, "Items that must not be chosen.", "Named as those of include.")
    ]
    groups: Annotated[Any, Option(None, "A group label for every row.")]
    quotas: Annotated[
        Any,
        Option(
            None,
            "How many of a group.",
            "By label a number or (least, most) with None for free, or 'proportional' for all of "
            "them, which is the default.",
        ),
    ]
    floors: Annotated[ByView | None, Option(None, "The least d that a view must keep.")]
    random_state: Annotated[int, Option(0, "Random state.", check=check_seed)]


class Ids(TypedDict, total=False):
    ids: Annotated[
        Any,
        Option(None, "Row ids.", "(n,), or by view name, and then the views are aligned by them."),
    ]


class Budget(TypedDict, total=False):
    effort: Annotated[
        str,
        Option(
            "balanced",
            "How hard to search.",
            "'fast' (fair greedy), 'balanced' (several starts, swaps, pair exchanges, restarts) or "
            "'thorough' (more of each).",
            one_of(*EFFORTS),
        ),
    ]
    oversampling: Annotated[
        float,
        Option(3.0, "The NEPv start has a shortlist of so many times k items.", check=check_ratio),
    ]


class Bound(TypedDict, total=False):
    gap: Annotated[
        float, Option(2e-3, "Duality gap of the bound, in nats per item.", check=check_positive)
    ]
    memory_limit: Annotated[
        int | str | None,
        Option(
            None,
            "Keep to so much memory besides the data, such as 2GiB, by keeping less.",
            "Bytes or text, at the cost of time; `plan` says beforehand what is then done.",
        ),
    ]


class Timed(TypedDict, total=False):
    time_limit: Annotated[
        float | None,
        Option(
            None,
            "Seconds; the best found until then is returned.",
            "And marked. Reading and calibration come on top, and so does the bound, which gets as "
            "long again.",
            optional(check_positive),
        ),
    ]


class Strict(TypedDict, total=False):
    strict: Annotated[
        bool, Option(False, "Raise NumericalError unless the run ended well.", check=check_flag)
    ]


class Listened(TypedDict, total=False):
    progress: Annotated[
        Callable[[Any], None] | None,  # of a `Step`
        Option(None, "Called with a `Step` after every step of every stage."),
    ]


class Search(Scale, Rules, Budget, Bound, Timed, Strict, total=False):
    """All of a search but its method."""

    certify: Annotated[
        bool, Option(True, "Also prove a bound.", "On what any k items could score.", check_flag)
    ]
    target_efficiency: Annotated[
        float | None,
        Option(
            None,
            "Stop once so much of the best possible is certain, such as 0.95.",
            check=optional(check_share),
        ),
    ]
    node_limit: Annotated[
        int | None,
        Option(
            None,
            "Most nodes of method exact.",
            "The best so far and the gap proven by then are returned.",
            optional(check_whole),
        ),
    ]
    hierarchical: Annotated[
        bool | int,
        Option(
            False,
            "Choose within shards first, then among those chosen: for pools that are too large to "
            "search at once. Shards are files of the first view, else runs of rows, as many as are "
            "named.",
            "A bound is still one on the whole pool.",
        ),
    ]
    checkpoint: Annotated[
        str | Path | None,
        Option(
            None,
            "Write the state there after every step, and go on from there.",
            "Whoever does the same again, after an interruption or a crash, gets the same items. "
            "Only states that were sealed with this user's key are believed (docs/engines.md).",
            optional(check_path),
        ),
    ]


class Call(Ids, Listened, total=False):
    """What belongs to one set of rows and to one call."""

    nested: Annotated[
        bool, Option(False, "Of several sizes, each is contained in the next.", check=check_flag)
    ]


# --- what the functions take ----------------------------------------------------------------------


class ProblemOptions(Scale, Rules, Ids, total=False):
    """What poses a problem, besides data and k."""


class SelectorOptions(Search, total=False):
    """What `FairSelector` takes, and `select` does, too."""

    method: Annotated[str, _METHOD]


class SelectOptions(SelectorOptions, Call, total=False):
    """What `select` takes."""


class PlanOptions(Search, Call, total=False):
    """What `plan` takes: as `select`, but no method stands for `certify`."""

    method: Annotated[str | None, _METHOD]


class CertifyOptions(ProblemOptions, Bound, Timed, Listened, total=False):
    """What `certify` takes."""


class CompareOptions(ProblemOptions, Budget, Bound, Listened, total=False):
    methods: Annotated[
        Sequence[str] | None, Option(None, "Only these selectors.", "None: all but exact.")
    ]


class ScoreOptions(Scale, Ids, total=False):
    by_id: Annotated[bool, Option(False, "The picks are ids, not row numbers.", check=check_flag)]


class RelaxOptions(ProblemOptions, Timed, Strict, Listened, total=False):
    solver: Annotated[
        str,
        Option(
            "accelerated",
            "accelerated, or Algorithm 1 of the paper: plain, damped, shifted, damped-shifted.",
        ),
    ]
    start: Annotated[
        Any,
        Option("spectral", "Where to begin: spectral or random.", "Or a frame (n, k), or k rows."),
    ]
    tol: Annotated[
        float,
        Option(
            1e-6,
            "Residual at which to stop; the paper's unscaled one for Algorithm 1.",
            "That is k ||A_perp||_F for 'accelerated', ||A - V/k||_F for the others.",
        ),
    ]
    max_steps: Annotated[int | None, Option(None, "At most so many steps.")]
    alpha: Annotated[float | None, Option(None, "Damping of Algorithm 1, below 1.")]
    sigma: Annotated[float | None, Option(None, "Level shift of Algorithm 1.")]


class ExhaustiveOptions(ProblemOptions, total=False):
    limit: Annotated[int, Option(2_000_000, "Most subsets to look at.", check=check_count)]


ALL: dict[str, Option] = {
    name: option
    for kind in (SelectOptions, CompareOptions, ScoreOptions, RelaxOptions, ExhaustiveOptions)
    for name, option in options_of(kind).items()
}


def default(name: str) -> Any:
    """The default of an option."""
    return ALL[name].default
