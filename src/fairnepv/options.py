"""Every knob once: its name, type and default, what it is for, and how a value is checked.

A knob is a field of a typed dictionary with an `Option` in its `Annotated`; what a function takes
is made up of such dictionaries. Signatures, docstrings, the parameters of `FairSelector` and the
options of the command line are made from them, and a type checker reads them as they stand. A knob
without a check needs the data or another room to be checked, and is checked there.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from fairnepv import checks
from fairnepv.signatures import Option, options_of

EFFORTS = ("fast", "balanced", "thorough")
STARTS = ("spectral", "random", "sketch")  # of a relaxation, by name
MISSING = ("refuse", "drop", "neutral")  # rows that lack a view
ALIGNED = ("same", "inner")  # ids of the views
CALIBRATIONS = ("unit-diagonal", "trace", "none", "efficiency")
DIVERSE, REPRESENTATIVE = "diverse", "representative"
# What the picks are for, and the defaults that depend on it: an option that is None has these.
OBJECTIVES: Mapping[str, Mapping[str, Any]] = {
    DIVERSE: {"tau": 0.05, "eps": 0.1, "center": False},
    REPRESENTATIVE: {"tau": 0.02, "eps": 1.0, "center": True},
}
# What `relax` takes where these are None; a search has others (`methods/nepv.py`).
RELAXING: Mapping[str, Any] = {"solver": "accelerated", "tol": 1e-6}
SHARE = 0.1  # of the rows that a FairSelector keeps
ByView = Mapping[str, float]
_METHOD = Option("auto")

# What each option is for: one line for the command line and for Python; after " -- ", for Python.
_TEXTS = """
objective: What are the picks for? diverse: to audit, to test, to find rare things;
    representative: to train on or to label. -- Scores of diverse picks are volumes, in nats per
    item; of representative ones the share of a view's variance over the pool that they explain.
views: Columns by view name: numbers of those of one (n, p) array, or names of those of a table. --
    As in {{'text': 'text_emb', 'audit': ['age', 'income']}}.
tau: Soft-min temperature; {tau}. -- As it falls, F_tau approaches the worst view's score.
eps: Ridge, common or by view; {eps}.
center: Take the mean of all rows off every row of a view, before it is calibrated; {center}. --
    None is also: as the `calibration` of an earlier result has it.
calibration: unit-diagonal, trace, none, efficiency, or a factor for each view. -- Factors are
    on L. The `calibration` of an earlier result is taken, too.
quality: Weights of the rows. -- (n,), common or by view name: L = diag(sqrt q) K diag(sqrt q) +
    eps I; of representative picks, how much there is to be explained of each row.
    `fairnepv.typicality(data)` makes some that keep junk outliers out.
priorities: Weight of a view in the soft-min; they sum to 1.
engine: Who computes: local, torch, torch:cuda, ray (the cluster of this machine),
    ray://HOST:PORT or local-ray. -- Or an engine; None is local, or the device where tensors
    are.
include: Items that must be chosen and come first: ids if there are any, else rows. -- Or a
    Selection. They count towards k; scores are always those of the whole set.
include_counts: If false, k items are chosen besides those of include.
exclude: Items that must not be chosen. -- Named as those of include.
groups: A group label for every row.
quotas: How many of a group. -- By label a number or (least, most) with None for free, or
    'proportional' for all of them, which is the default.
floors: The least score that a view must keep; a share for representative.
random_state: Random state.
ids: Row ids. -- (n,), or by view name, and then the views are aligned by them. Of a table, the name
    of their column.
align: same, or inner, where views have different ids: rows that some view lacks are left out. --
    With ids by view.
missing: What becomes of rows that lack a view (null or NaN): refuse, drop (they are left out) or
    neutral (they add nothing in that view). -- Rows keep their numbers (docs/tables.md).
deduplicate: Of rows that are closer than this cosine in every view only the lowest may be chosen,
    such as 0.98. -- Or those of include; `near_duplicates` shows the groups.
effort: How hard to search; fast makes no swaps, with nepv neither. -- 'fast' (fair greedy),
    'balanced' (also tabu search and swaps, about a second and some hundred products) or 'thorough'
    (more of each, and more starts).
oversampling: The NEPv start has a shortlist of so many times k items, c of the paper.
passes: Refine by so many passes of one-swaps over all rows at most, and by nothing else: B of the
    paper. 0 leaves a set as greedy or rounding made it; by default as the effort has it. -- Not for
    auto, exact and greedy, nor for what is drawn. Of a comparison every other row has them.
gap: Duality gap of the bound, in nats per item, or in shares.
memory_limit: Keep to so much memory besides the data, such as 2GiB, by keeping less. -- Bytes
    or text, at the cost of time; `plan` says beforehand what is then done.
time_limit: Seconds for the whole call; the best found until then is returned. -- And marked. The
    bound gets at most 40% of what is left when it begins, the search the rest. With a checkpoint
    only new work counts (docs/engines.md).
strict: Raise NumericalError unless the run ended well.
progress: Show the running stage and the time left. -- True shows a bar in a terminal or a
    notebook, False none, None one that appears after two seconds in interactive use; or a function
    that is called with a `Step` after every step of every stage.
certify: Also prove a bound. -- On what any k items could score.
target_efficiency: Stop once so much of the best possible is certain, such as 0.95.
node_limit: Most nodes of method exact. -- The best so far and the gap proven by then are
    returned.
hierarchical: Choose within shards first, then among those chosen: for pools that are too large
    to search at once. Shards are files of the first view, else runs of rows, as many as are
    named. -- A bound is still one on the whole pool.
checkpoint: Write the state there after every step, and go on from there. -- Whoever does the
    same again, after an interruption or a crash, gets the same items. Only states that were
    sealed with this user's key are believed (docs/engines.md).
nested: Of several sizes, each is contained in the next.
method: auto, exact (branch and bound), nepv (the paper's pipeline), greedy, greedy-swaps (and then
    one-swaps), or a baseline such as VIEW-only, averaged, fixed-weight, concatenated, softmax,
    d-optimal, saturate, k-dpp, random. -- exact proves the optimum of a small pool.
methods: Only these selectors. -- None: all but exact.
by_id: The picks are ids, not row numbers.
solver: How the relaxation is solved, in searches that of nepv alone: accelerated, dual (globally,
    for representative), or Algorithm 1 of the paper: plain, damped, shifted, damped-shifted; by
    default {solver}, and for rounding representative picks dual. -- Other methods refuse this, and
    `start`, `tol`, `max_steps`, `alpha`, `sigma` and `passes`.
start: Where a relaxation begins: spectral, random (uniform on all frames) or sketch (random, and
    mostly what the views have most of). -- Or a frame (n, k), or k rows.
tol: Residual at which to stop, the paper's unscaled one for Algorithm 1; by default {tol:g}, and
    looser where the relaxation is only rounded. -- That is k ||A_perp||_F for 'accelerated', ||A -
    V/k||_F for Algorithm 1, and for 'dual' how far the bound is above the value. What rounding
    needs: docs/method.md#the-papers-pipeline.
max_steps: At most so many steps of the relaxation.
alpha: Damping of Algorithm 1, below 1.
sigma: Level shift of Algorithm 1.
limit: Most subsets to look at.
"""


class Scale(TypedDict, total=False):
    """Views and how their scores become one."""

    objective: Annotated[str, Option(DIVERSE, checks.one_of(*OBJECTIVES))]
    views: Annotated[Mapping[str, Any] | None, Option(None)]
    tau: Annotated[float | None, Option(None, checks.optional(checks.check_positive))]
    eps: Annotated[float | ByView | None, Option(None)]
    center: Annotated[bool | None, Option(None, checks.optional(checks.check_flag))]
    calibration: Annotated[Any, Option("unit-diagonal")]
    quality: Annotated[Any, Option(None)]
    missing: Annotated[str, Option("refuse", checks.one_of(*MISSING))]
    priorities: Annotated[ByView | None, Option(None)]
    engine: Annotated[Any, Option(None)]  # an `Engine`, which rooms above this one know


class Rules(TypedDict, total=False):
    """What may be chosen."""

    include: Annotated[Any, Option(None)]
    include_counts: Annotated[bool, Option(True, checks.check_flag)]
    exclude: Annotated[Any, Option(None)]
    deduplicate: Annotated[float | None, Option(None, checks.optional(checks.check_share))]
    groups: Annotated[Any, Option(None)]
    quotas: Annotated[Any, Option(None)]
    floors: Annotated[ByView | None, Option(None)]
    random_state: Annotated[int, Option(0, checks.check_seed)]


class Ids(TypedDict, total=False):
    ids: Annotated[Any, Option(None)]
    align: Annotated[str, Option("same", checks.one_of(*ALIGNED))]


class Relaxing(TypedDict, total=False):
    """How the relaxation on frames is solved."""

    solver: Annotated[str | None, Option(None)]
    start: Annotated[Any, Option("spectral")]
    tol: Annotated[float | None, Option(None, checks.optional(checks.check_positive))]
    max_steps: Annotated[int | None, Option(None, checks.optional(checks.check_count))]
    alpha: Annotated[float | None, Option(None)]
    sigma: Annotated[float | None, Option(None)]


class Rounding(Relaxing, total=False):
    """And how it is rounded: what method 'nepv' takes besides its budget."""

    oversampling: Annotated[float, Option(3.0, checks.check_ratio)]


class Budget(Rounding, total=False):
    passes: Annotated[int | None, Option(None, checks.optional(checks.check_seed))]
    effort: Annotated[str, Option("balanced", checks.one_of(*EFFORTS))]


class Bound(TypedDict, total=False):
    gap: Annotated[float, Option(2e-3, checks.check_positive)]
    memory_limit: Annotated[int | str | None, Option(None)]


class Timed(TypedDict, total=False):
    time_limit: Annotated[float | None, Option(None, checks.optional(checks.check_positive))]


class Strict(TypedDict, total=False):
    strict: Annotated[bool, Option(False, checks.check_flag)]


class Listened(TypedDict, total=False):
    progress: Annotated[Callable[[Any], None] | bool | None, Option(None)]


class Search(Scale, Rules, Budget, Bound, Timed, Strict, total=False):
    """All of a search but its method."""

    certify: Annotated[bool, Option(True, checks.check_flag)]
    target_efficiency: Annotated[float | None, Option(None, checks.optional(checks.check_share))]
    node_limit: Annotated[int | None, Option(None, checks.optional(checks.check_whole))]
    hierarchical: Annotated[bool | int, Option(False)]
    checkpoint: Annotated[str | Path | None, Option(None, checks.optional(checks.check_path))]


class Call(Ids, Listened, total=False):
    """What belongs to one set of rows and to one call."""

    nested: Annotated[bool, Option(False, checks.check_flag)]


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


class CompareOptions(ProblemOptions, Budget, Bound, Timed, Listened, total=False):
    methods: Annotated[Sequence[str] | None, Option(None)]


class CurveOptions(ProblemOptions, Timed, Listened, total=False):
    """What `curve` takes, besides sizes."""


class ScoreOptions(Scale, Ids, total=False):
    by_id: Annotated[bool, Option(False, checks.check_flag)]


class RelaxOptions(ProblemOptions, Relaxing, Timed, Strict, Listened, total=False):
    """What `relax` takes."""


class ExhaustiveOptions(ProblemOptions, Timed, total=False):
    limit: Annotated[int, Option(2_000_000, checks.check_count)]


ALL: dict[str, Option] = {
    name: option
    for kind in (SelectOptions, CompareOptions, ScoreOptions, RelaxOptions, ExhaustiveOptions)
    for name, option in options_of(kind).items()
}
_usual, *_others = OBJECTIVES.items()
_DEFAULTS = {
    name: "; ".join([f"by default {value}", *(f"{own[name]} for {o}" for o, own in _others)])
    for name, value in _usual[1].items()
}
for _name, _text in re.findall(
    r"^(\w+): (.+(?:\n +.+)*)", _TEXTS.format(**_DEFAULTS, **RELAXING), re.MULTILINE
):
    ALL[_name].help, _, ALL[_name].more = " ".join(_text.split()).partition(" -- ")


def default(name: str, objective: str = DIVERSE) -> Any:
    """The default of an option; where that depends on the objective, with this one."""
    return OBJECTIVES[objective].get(name, ALL[name].default)


def as_objective_wants(options: Mapping[str, Any]) -> Any:
    """The same options with the defaults of their objective for those that are None; but for
    `center`, which the calibration of an earlier result may bring."""
    usual = {**OBJECTIVES[options["objective"]], "center": None}
    return {n: usual.get(n) if value is None else value for n, value in options.items()}
