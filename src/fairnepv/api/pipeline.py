"""The front door: the whole method on one screen, from the user's arrays to a Selection."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack, overload

import numpy as np

from fairnepv.api.calibration import calibrate, check_calibration
from fairnepv.api.inputs import (
    Posing,
    check_indices,
    check_priorities,
    count_items,
    pose,
    rows_of_ids,
    sizes_in_all,
    sketch,
)
from fairnepv.api.selection import (
    Comparison,
    Optimum,
    Score,
    Selection,
    make_optimum,
    make_selection,
    score_subset,
)
from fairnepv.compute import Block, Engine, block_threads, portable
from fairnepv.compute.rates import UNTIMED, Rates
from fairnepv.concave import (
    GAP,
    Certificate,
    Proof,
    Terms,
    Verified,
    check_proof,
    refuse_unreachable_floors,
)
from fairnepv.concave import certify as make_certificate
from fairnepv.errors import InputError, NumericalError, RankWarning, Status, UnsupportedError
from fairnepv.io.memory import check_memory_limit
from fairnepv.io.places import local_path
from fairnepv.loop import Progress, Session, Step, check_progress
from fairnepv.loop.journal import Journal, fingerprint_of, own_key
from fairnepv.methods import OWN_METHODS, check_method, refusal
from fairnepv.methods.baselines import baselines
from fairnepv.methods.plan import Plan
from fairnepv.methods.tiers import check_hierarchical, find_in_tiers, shards_of
from fairnepv.planning import Forecast, fit, foresee
from fairnepv.problem import Means, Problem, by_view, check_tau
from fairnepv.search import check_effort, enumerate_subsets, fair_order, misses_floors
from fairnepv.search.enumeration import LIMIT
from fairnepv.stiefel import Relaxation, make_solver
from fairnepv.stiefel import relax as solve_relaxation
from fairnepv.views import KernelView, Pool
from fairnepv.views.arrays import brief, check_count, check_flag, check_positive
from fairnepv.views.base import Floats
from fairnepv.views.imprint import Imprint
from fairnepv.views.intake import named_views

_READ = ("views", "quality", "ids", "engine")  # of what poses a problem, what belongs to its data


@overload
def select(data: Any, k: int | float, **options: Any) -> Selection: ...
@overload
def select(data: Any, k: Sequence[int | float], **options: Any) -> dict[int, Selection]: ...
def select(  # type: ignore[misc]  # the options are spelled out here, and only here
    data: Any,
    k: Any,
    *,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    include: Any = None,
    include_counts: bool = True,
    exclude: Any = None,
    groups: Any = None,
    quotas: Any = None,
    priorities: Mapping[str, float] | None = None,
    floors: Mapping[str, float] | None = None,
    nested: bool = False,
    method: str = "auto",
    effort: str = "balanced",
    oversampling: float = 3.0,
    certify: bool = True,
    gap: float = GAP,
    target_efficiency: float | None = None,
    node_limit: int | None = None,
    hierarchical: bool | int = False,
    random_state: int = 0,
    time_limit: float | None = None,
    strict: bool = False,
    memory_limit: int | str | None = None,
    checkpoint: str | Path | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Choose k items so that no view is left behind, and say how good the choice is.

    data: mapping from view names to (n, p) arrays, SciPy sparse matrices or views, or a list of
        them; with `views`, one (n, p) array whose columns `views` maps to names.
    k: how many, or a fraction of n; a list of sizes gives a mapping from size to Selection, each
        contained in the next where `nested` is true.
    tau: temperature of the soft-min; as it falls, F_tau approaches the worst view's score.
    eps: ridge, common or by view name.
    calibration: 'unit-diagonal', 'trace', 'none', 'efficiency', factors on L by view name, or the
        `calibration` of an earlier result.
    quality: per-item weights (n,), common or by view name: L = diag(sqrt q) K diag(sqrt q) + eps I;
        `fairnepv.typicality(data)` makes some that keep junk outliers out.
    ids: (n,) row ids, or row ids by view name, by which the views are then aligned.
    include, exclude: items that must and must not be chosen, by id where there are ids, else by row
        number, or a Selection. Included ones come first and count towards k, unless
        `include_counts` is false: then k more are chosen. Scores are always those of the whole set.
    groups, quotas: (n,) labels, and per label a number, (least, most) with None for free, or
        'proportional' (the default) for all labels.
    priorities: weights of the views in the soft-min, by name, summing to 1.
    floors: the least d_q that a view must keep, by name.
    method: 'auto', 'exact' (branch and bound: the proven optimum of a small pool), 'nepv' (the
        paper's pipeline), 'greedy', or a baseline: '<view>-only', 'averaged', 'fixed-weight',
        'concatenated', 'softmax', 'd-optimal', 'saturate', 'k-dpp', 'random'.
    effort: 'fast' (fair greedy), 'balanced' (several starts, swaps, pair exchanges, restarts) or
        'thorough' (more of each).
    oversampling: the shortlist of the NEPv start holds this many times k items.
    certify: also bound what any k items could score, to within a duality gap of `gap`.
    target_efficiency: stop as soon as the certified efficiency is this high, between 0 and 1.
    node_limit: of 'exact': the best so far and the gap proven by then are returned.
    hierarchical: choose k of every shard by fair greedy, then among those by `method`. Shards are
        the files of the first view where it has several, else runs of rows; a number says how many.
        A bound is still one on the whole pool.
    time_limit: seconds for the search; the best so far is returned and marked. Reading and
        calibration come on top, and so does the bound, which gets as long again.
    strict: raise NumericalError unless the search ended well.
    memory_limit: bytes, or text such as '2GiB', that may be added to the data in memory: kept by
        keeping less, at the cost of time; what is then done says `plan` beforehand.
    checkpoint: a file to which the state is written after every step; whoever does the same again,
        after an interruption or a crash, goes on there and gets the same items. Only states that
        were sealed with this user's key are believed (docs/engines.md).
    progress: called with a `Step` after every step of every stage.
    """
    posing: Posing = {
        "views": views,
        "tau": tau,
        "eps": eps,
        "calibration": calibration,
        "quality": quality,
        "ids": ids,
        "include": include,
        "include_counts": include_counts,
        "exclude": exclude,
        "groups": groups,
        "quotas": quotas,
        "priorities": priorities,
        "floors": floors,
        "random_state": random_state,
        "engine": engine,
    }
    wishes = Wishes(
        method,
        effort,
        oversampling,
        certify,
        gap,
        target_efficiency,
        node_limit,
        time_limit,
        strict,
        progress,
        memory_limit,
        hierarchical,
        checkpoint,
    )
    nested = check_flag("nested", nested)
    if is_one_size(k):
        if nested:
            raise InputError("nested needs several sizes, as in k=[100, 500]")
        return _select_one(data, k, posing, wishes)
    if checkpoint is not None:
        raise InputError("checkpoint is for one size; call select for each of them")
    return _select_sizes(data, k, nested, posing, wishes)


def is_one_size(k: Any) -> bool:
    """Whether k is meant as one size, right or wrong, and not as a list of them."""
    return not isinstance(k, list | tuple) and np.ndim(k) == 0


class Wishes(NamedTuple):
    """How a selection is to be made, as the user says it."""

    method: str = "auto"
    effort: str = "balanced"
    oversampling: float = 3.0
    certify: bool = True
    gap: float = GAP
    target_efficiency: float | None = None
    node_limit: int | None = None
    time_limit: float | None = None
    strict: bool = False
    progress: Progress | None = None
    memory_limit: int | str | None = None
    hierarchical: bool | int = False
    checkpoint: str | Path | None = None


def _select_one(data: Any, k: Any, posing: Posing, wishes: Wishes, depth: int = 4) -> Selection:
    wishes = _checked(wishes)
    posing, means = _within_limit(data, k, posing, wishes)
    problem = pose(data, k, **posing, means=means)
    plan = make_plan(problem, wishes)
    refuse_unreachable_floors(problem)
    with _journal(problem, plan, wishes) as journal:
        proving = _session(wishes.time_limit, wishes.progress, journal)
        if wishes.certify:
            plan = replace(plan, certificate=prove(problem, wishes.gap, proving))
        session = _session(wishes.time_limit, wishes.progress, journal).following(proving)
        session.goal = plan.goal
        selection = carry_out(problem, plan, session)
    _warn(_rank_notes(problem, plan.certificate), depth)
    if wishes.strict and not selection.status.ok:
        raise NumericalError(f"selection: {selection.status.value}")
    return selection


def _select_sizes(
    data: Any, sizes: Any, nested: bool, posing: Posing, wishes: Wishes
) -> dict[int, Selection]:
    """A selection per size, in the order given; nested ones grow from the smallest."""
    wanted = sizes.tolist() if isinstance(sizes, np.ndarray) else list(sizes)
    if not wanted or not all(map(is_one_size, wanted)):
        raise InputError(f"k must be a size or a list of sizes, each once, not {brief(sizes)}")
    whole = sizes_in_all(data, wanted, posing)  # fractions are resolved before sizes are compared
    if len(set(whole)) < len(whole):
        raise InputError(
            f"k must be a size or a list of sizes, each once, not {brief(sizes)}, which come to "
            f"{brief(whole)} items"
        )
    included = 0 if posing.get("include_counts", True) else count_items(posing.get("include"))
    posing = {**posing, "include_counts": True}
    found: dict[int, Selection] = {}
    for size in sorted(whole):
        found[size] = _select_one(data, size, posing, wishes, 5)
        if found[size].status is Status.INTERRUPTED:
            break
        if nested:
            posing = {**posing, "include": found[size]}
    return {size - included: found[size] for size in whole if size in found}


def certify(
    data: Any,
    k: int | float,
    *,
    gap: float = GAP,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
    **problem: Unpack[Posing],
) -> Certificate:
    """What no k items can exceed: a proven bound on F_tau, and on every view alone.

    gap: duality gap in nats per item at which the solver stops.
    problem: as for `select`: tau, eps, calibration, include, groups, ...
    """
    wishes = _checked(
        Wishes(gap=gap, time_limit=time_limit, memory_limit=memory_limit, progress=progress)
    )
    problem, means = _within_limit(data, k, problem, wishes, ())
    posed = pose(data, k, **problem, means=means)
    refuse_unreachable_floors(posed)
    certificate = prove(posed, wishes.gap, _session(wishes.time_limit, progress))
    _warn(_rank_notes(posed, certificate))
    return certificate


def plan(
    data: Any,
    k: int | float,
    *,
    method: str | None = "auto",
    effort: str = "balanced",
    certify: bool = True,
    hierarchical: bool | int = False,
    memory_limit: int | str | None = None,
    **options: Any,
) -> Forecast:
    """What `select` with the same options would take, before anything is run.

    Shapes and headers say it: no row is read or checked, nor are ids, rules or weights. Seconds are
    expected on this machine as it is now, and only known of the local engine; what depends on the
    data is an estimate. With `method=None`: what `certify` would take.
    """
    named = options.get("engine")
    elsewhere = isinstance(named, str) and named.startswith(("ray", "local-ray"))
    if elsewhere:
        options["engine"] = None  # it might have to be started
    check_flag("nested", options.pop("nested", False))
    posing: Posing = {name: options[name] for name in options if name in Posing.__annotations__}  # type: ignore[assignment]
    others = {name: options[name] for name in options if name not in posing}
    unknown = set(others) - set(Wishes._fields)
    if unknown:
        raise InputError(f"plan has no option {sorted(unknown)[0]!r}; it takes those of select")
    others |= {"method": method, "effort": effort, "certify": certify}
    others |= {"memory_limit": memory_limit, "hierarchical": hierarchical}
    wishes = _checked(Wishes(**others))
    _, forecast = _foreseen(data, k, posing, wishes, () if method is None else (method,))
    return forecast.untimed() if elsewhere else forecast


def verify_bound(
    data: Any,
    certificate: Certificate | Proof | Selection,
    *,
    k: int | float | None = None,
    **problem: Unpack[Posing],
) -> Verified:
    """What the dual variables of a certificate prove for this data, whoever made them.

    A certificate brings the terms of its problem along: k, tau, eps, calibration, constraints,
    priorities. The numbers of a calibration are computed again from its rule and the data, and
    refused where they differ. The other terms are the question, which only you can know: they are
    in the result (`claimed.terms`), and whatever of them you hand in is compared with them.

    problem: of what `certify` takes, views, ids, quality and engine as they were; any other term
        (k, tau, calibration, include, groups, ...) that the certificate should have.
    """
    if isinstance(certificate, Selection):
        certificate = certificate.certificate  # type: ignore[assignment]
    proof = certificate.proof if isinstance(certificate, Certificate) else certificate
    if not isinstance(proof, Proof):
        raise InputError(
            "verify_bound needs a certificate: the result of certify(), a selection that has one, "
            f"or what was read from a stored bound, not {proof!r}"
        )
    terms = proof.terms
    pool = _pool_of_terms(data, terms, problem)
    _refuse_other_terms(terms, data, k, problem)
    expected = problem.get("calibration")
    check_calibration(pool, terms.calibration, expected, terms.k, terms.constraints)
    return check_proof(pool, proof)


def _pool_of_terms(data: Any, terms: Terms, problem: Posing) -> Pool:
    """The data under the ridges of the terms; views that bring one of their own keep it."""
    given = named_views(data, problem.get("views"))
    terms.check_views(tuple(given))
    own = {name for name, view in given.items() if getattr(view, "eps", None) is not None}
    eps = {name: value for name, value in terms.eps.items() if name not in own}
    read: dict[str, Any] = {name: problem.get(name) for name in _READ}
    pool = Pool.of(data, eps=eps, **read)
    terms.check_pool(pool)
    return pool


def _refuse_other_terms(terms: Terms, data: Any, k: Any, problem: Posing) -> None:
    """Terms that are not what somebody says they should be."""
    if other := sorted({"floors", "random_state"} & set(problem)):
        raise InputError(f"a bound has no {other[0]}; leave it out")
    expected = set(problem) - {*_READ, "calibration"}  # which is checked by itself
    if k is None and not expected:
        return
    plain: Posing = {**problem, "calibration": "none"}
    posed = Terms.of(pose(data, terms.k if k is None else k, **plain))
    besides = {"k": k is not None, "quotas": "groups" in expected}
    terms.refuse_other(
        posed, names=expected | {name for name, is_said in besides.items() if is_said}
    )


def compare(
    data: Any,
    k: int | float,
    *,
    methods: Sequence[str] | None = None,
    effort: str = "balanced",
    oversampling: float = 3.0,
    gap: float = GAP,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
    **problem: Unpack[Posing],
) -> Comparison:
    """One row per selector on the same problem, all with the same rounding budget.

    problem: as for `select`: tau, eps, calibration, include, groups, ...
    """
    wishes = _checked(
        Wishes(
            effort=effort,
            oversampling=oversampling,
            gap=gap,
            memory_limit=memory_limit,
            progress=progress,
        )
    )
    names = _check_methods(methods) or _methods_within_limit(data, k, problem, wishes)
    problem, means = _within_limit(data, k, problem, wishes, names)
    posed = pose(data, k, **problem, means=means)
    if methods is None:
        names = [name for name in names if refusal(posed, name) is None]
    plans = [make_plan(posed, wishes._replace(method=name)) for name in names]
    refuse_unreachable_floors(posed)
    proving = _session(None, progress)
    certificate = prove(posed, wishes.gap, proving)
    if proving.stopped is Status.INTERRUPTED:
        raise KeyboardInterrupt  # nothing is in hand yet
    began = time.monotonic()
    rows: list[Selection] = []
    for plan in plans:
        session = _session(None, progress)
        if progress is not None:
            with session.absorbing_interruption() if rows else contextlib.nullcontext():
                progress(_turn_of(plan.method, rows, len(plans), began))
            if session.stopped:
                rows[-1] = replace(rows[-1], status=session.stopped)
                break
        rows.append(carry_out(posed, replace(plan, certificate=certificate), session))
        if session.stopped is Status.INTERRUPTED:
            break
    _warn(_rank_notes(posed, certificate))
    return Comparison(tuple(rows))


def score(
    data: Any,
    indices: Any,
    *,
    by_id: bool = False,
    views: Mapping[str, Any] | None = None,
    tau: float = 0.05,
    eps: float | Mapping[str, float] = 0.1,
    calibration: Any = "unit-diagonal",
    quality: Any = None,
    ids: Any = None,
    priorities: Mapping[str, float] | None = None,
    engine: Engine | str | None = None,
) -> Score:
    """How the given rows do: d_q per view, F_tau and coverage, in float64 from the rows.

    `indices` count rows of the pool; with `ids` by view name that is the order of the first view.
    With `by_id` they are ids instead.
    """
    tau, by_id = check_tau(tau), check_flag("by_id", by_id)
    pool = Pool.of(data, views=views, eps=eps, ids=ids, quality=quality, engine=engine)
    rows = rows_of_ids(indices, pool.ids) if by_id else check_indices(indices, pool.n)
    rule = calibrate(pool, calibration, len(rows))
    weights = check_priorities(priorities, pool.names)
    problem = Problem(rule.apply(pool), len(rows), tau, rule, priorities=weights)
    _warn(_width_notes(problem))
    with block_threads(problem.work()):
        return score_subset(problem, rows)


def relax(
    data: Any,
    k: int | float,
    *,
    solver: str = "accelerated",
    start: Any = "spectral",
    tol: float = 1e-6,
    max_steps: int | None = None,
    alpha: float | None = None,
    sigma: float | None = None,
    time_limit: float | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    **problem: Unpack[Posing],
) -> Relaxation:
    """Maximise f_tau over orthonormal frames [FairNEPv, Eq. (P-Fair)].

    solver: 'accelerated', or Algorithm 1 as 'plain', 'damped', 'shifted' or 'damped-shifted' with
        its own `alpha` and `sigma`.
    start: 'spectral', 'random', a frame (n, k) to warm-start from, or k row indices.
    tol: on k ||A_perp||_F for 'accelerated', on the paper's ||A - V/k||_F for the others.
    problem: as for `select`: tau, eps, calibration, ...; frames know no rows, so items and groups
        cannot be constrained here.
    """
    strict = check_flag("strict", strict)
    posed = pose(data, k, **problem)
    if posed.constraints or posed.floors is not None:
        raise UnsupportedError(
            "relax does not support include, exclude, groups or floors, since a frame has no rows "
            "to choose; use select or certify"
        )
    chosen = make_solver(solver, k=posed.k, tol=tol, max_steps=max_steps, alpha=alpha, sigma=sigma)
    session = _session(time_limit, progress)
    result = solve_relaxation(posed, chosen, start=start, session=session)
    if strict and not result.status.ok:
        raise NumericalError(f"relaxation: {result.status.value} (residual {result.residual:.3g})")
    return replace(result, imprint=Imprint.of(posed.pool, np.arange(0)))


def exhaustive(
    data: Any, k: int | float, *, limit: int = LIMIT, **problem: Unpack[Posing]
) -> Optimum:
    """The discrete optimum of a small pool by looking at all C(n, k) subsets.

    problem: as for `select`: tau, eps, calibration, include, groups, ...
    """
    limit = check_count("limit", limit)
    posed = pose(data, k, **problem)
    _warn(_width_notes(posed))
    with block_threads(posed.work()):
        return make_optimum(posed, enumerate_subsets(posed, limit))


# --- what is asked for ----------------------------------------------------------------------------


def make_plan(problem: Problem, wishes: Wishes) -> Plan:
    """How a search for this is made. `select`, `compare` and whoever searches again ask here, or
    take the plan of a selection, so that the same question is searched for in the same way."""
    return Plan(
        check_method(problem, wishes.method),
        check_effort(wishes.effort).for_size(problem),
        wishes.oversampling,
        wishes.node_limit,
        shards=shards_of(problem.pool, problem.k, wishes.hierarchical),
        target=wishes.target_efficiency,
        gap=wishes.gap,
        time_limit=wishes.time_limit,
    )


def _checked(wishes: Wishes) -> Wishes:
    """What can be refused before any data is looked at; numbers are plain ones afterwards."""
    check_hierarchical(wishes.hierarchical, wishes.method)
    check_effort(wishes.effort)
    check_progress(wishes.progress)
    path = wishes.checkpoint
    if path is not None and not (isinstance(path, str | os.PathLike) and str(path)):
        raise InputError(f"checkpoint must be the path of a file, not {brief(path)}")
    limit = wishes.time_limit
    wishes = wishes._replace(
        oversampling=_check_oversampling(wishes.oversampling),
        certify=check_flag("certify", wishes.certify),
        gap=check_positive("gap", wishes.gap),
        time_limit=None if limit is None else check_positive("time_limit", limit),
        strict=check_flag("strict", wishes.strict),
        memory_limit=check_memory_limit(wishes.memory_limit),
    )
    return wishes._replace(
        target_efficiency=_check_target(wishes), node_limit=_check_node_limit(wishes)
    )


def _check_oversampling(value: Any) -> float:
    oversampling = check_positive("oversampling", value)
    if oversampling < 1:
        raise InputError(f"oversampling must be at least 1, not {value!r}")
    return oversampling


def _check_target(wishes: Wishes) -> float | None:
    value = wishes.target_efficiency
    if value is None:
        return None
    target = check_positive("target_efficiency", value)
    if target > 1:
        raise InputError(f"target_efficiency must be between 0 and 1, not {brief(value)}")
    if not wishes.certify:
        raise InputError("target_efficiency needs the bound; leave certify on")
    return target


def _check_node_limit(wishes: Wishes) -> int | None:
    value: Any = wishes.node_limit
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"node_limit must be a positive integer, not {brief(value)}")
    if wishes.method != "exact":
        raise InputError(f"node_limit is for method 'exact', not {brief(wishes.method)}; drop it")
    return int(value)


def _check_methods(methods: Any) -> list[str] | None:
    """Selectors by name; each is checked against the views later."""
    if methods is None:
        return None
    if not isinstance(methods, str | list | tuple):
        raise InputError(f"methods must be a list of names, not {brief(methods)}")
    if not methods:
        raise InputError("methods is empty; name at least one, or leave it out for all")
    return [methods] if isinstance(methods, str) else list(methods)


def _methods_within_limit(data: Any, k: Any, posing: Posing, wishes: Wishes) -> list[str]:
    """All selectors but the one that may take for ever, less those that a limit on memory is too
    low for; what is always run is then refused with its reason."""
    known = (*OWN_METHODS, *baselines(tuple(named_views(data, posing.get("views")))))
    names = [name for name in known if name != "exact"]
    if wishes.memory_limit is None:
        return names
    return [name for name in names if name in OWN_METHODS or _fits(data, k, posing, wishes, name)]


def _fits(data: Any, k: Any, posing: Posing, wishes: Wishes, method: str) -> bool:
    try:
        _foreseen(data, k, posing, wishes, (method,), UNTIMED)
    except InputError:
        return False
    return True


def _within_limit(
    data: Any, k: Any, posing: Posing, wishes: Wishes, methods: Sequence[str] | None = None
) -> tuple[Posing, Means]:
    """What the limit on memory leaves: the engine that works in it, and what may be kept."""
    if wishes.memory_limit is None:
        return posing, Means()
    if methods is None:
        methods = (wishes.method,)
    problem, _ = _foreseen(data, k, posing, wishes, methods, UNTIMED)
    return {**posing, "engine": problem.pool.engine}, problem.means


def _foreseen(
    data: Any,
    k: Any,
    posing: Posing,
    wishes: Wishes,
    methods: Sequence[str],
    rates: Rates | None = None,
) -> tuple[Problem, Forecast]:
    """A sketch of the problem with means that keep to the limit, and what it will take."""
    limit = check_memory_limit(wishes.memory_limit)
    problem = sketch(data, k, posing)
    effort = check_effort(wishes.effort).for_size(problem)
    shards = shards_of(problem.pool, problem.k, wishes.hierarchical)
    plans = [Plan(_known_method(problem, name), effort, shards=shards) for name in methods]
    efficiency = problem.calibration.rule == "efficiency"
    foretell = partial(
        foresee, plans=plans, certify=wishes.certify, efficiency=efficiency, rates=rates
    )
    return fit(problem, limit, foretell)


def _known_method(problem: Problem, name: Any) -> str:
    known = (*OWN_METHODS, *baselines(problem.pool.names))
    if not isinstance(name, str) or name not in known:
        raise InputError(f"method must be one of {', '.join(known)}, not {brief(name)}")
    return name


def _session(time_limit: Any, progress: Progress | None, journal: Journal | None = None) -> Session:
    listener = check_progress(progress)
    limit = None if time_limit is None else check_positive("time_limit", time_limit)
    return Session(time_limit=limit, progress=listener, journal=journal)


@contextlib.contextmanager
def _journal(problem: Problem, plan: Plan, wishes: Wishes) -> Iterator[Journal | None]:
    """Of this very selection; only the limits need not be the same."""
    if wishes.checkpoint is None:
        yield None
        return
    options = (wishes.certify, wishes.gap, wishes.target_efficiency, wishes.node_limit)
    settings = {
        **_settings(problem, plan),
        "options": options,
        "means": problem.means,
        "shards": plan.shards,
        "evidence": sorted(problem.calibration.evidence),  # which need not be proven again
    }
    path, key = local_path(str(wishes.checkpoint)), own_key()
    rules, pool = problem.constraints, problem.pool
    quotas = rules.quotas
    groups = () if quotas is None else (quotas.groups, quotas.least, quotas.most)
    norms = (pool.squared_norms, pool.offsets)
    with block_threads(problem.work()):
        rows = _probe(pool, key)
    fingerprint = fingerprint_of(settings, *norms, *rows, rules.fixed_in, rules.fixed_out, *groups)
    journal = Journal(path, fingerprint, key)
    try:
        yield journal
    finally:
        journal.close()


def _probe(pool: Pool, key: bytes) -> list[Any]:
    """What tells rows of equal norms apart: their products with a vector, which is secret so that
    nobody can make rows for which they are the same; kernels themselves."""
    kernels = [view.kernel for view in pool.views if isinstance(view, KernelView)]
    others = [(n, view) for n, view in pool.items() if not isinstance(view, KernelView)]
    if not others:
        return kernels
    names, views = zip(*others, strict=True)
    rng = np.random.default_rng(list(key))
    vectors = tuple(rng.standard_normal(view.p) for view in views)
    products = pool.with_views(names, views).map(_probe_rows, vectors, fixed=True)
    return [*kernels, pool.place.get(products)]


@portable
def _probe_rows(block: Block, vectors: tuple[Floats, ...]) -> Any:
    products = [x.features() @ block.put(r) for x, r in zip(block.views, vectors, strict=True)]
    return block.xp.stack(products, axis=1)


# --- the method -----------------------------------------------------------------------------------


def carry_out(problem: Problem, plan: Plan, session: Session) -> Selection:
    """The search that is planned, and the record of what it finds."""
    began = time.monotonic()
    with block_threads(problem.work()):
        found = find_in_tiers(problem, plan, session)
        indices = found.indices
        if not found.ordered or problem.constraints:
            with session.absorbing_interruption():
                indices = fair_order(problem, indices)
        status = session.stopped or found.status
        if status.ok and misses_floors(problem, indices):
            status = Status.FLOORS_MISSED
        return make_selection(
            problem,
            indices,
            certificate=plan.certificate,
            plan=plan,
            proven=found.upper,
            settings=_settings(problem, plan),
            trace=tuple(session.trace),
            status=status,
            seconds=time.monotonic() - began,
            run_notes=(
                *_rank_notes(problem, plan.certificate),
                *(plan.certificate.notes if plan.certificate else ()),
                *session.notes,
            ),
        )


def prove(problem: Problem, gap: float, session: Session) -> Certificate:
    """The bound on what any set can score."""
    with block_threads(problem.work()):
        return make_certificate(problem, gap=gap, session=session)


def _turn_of(name: str, rows: list[Selection], of: int, began: float) -> Step:
    """What a listener hears before a selector of a comparison takes its turn."""
    best = max((row.fair_score for row in rows), default=0.0)
    details = {"selector": name, "size": len(rows), "of": of}
    return Step("compare", len(rows), 0, time.monotonic() - began, best, details=details)


# --- what is said about it ----------------------------------------------------------------------


def _settings(problem: Problem, plan: Plan) -> dict[str, Any]:
    pool, rules = problem.pool, problem.constraints
    return {
        "method": plan.method,
        "effort": plan.effort.name,
        "n": problem.n,
        "k": problem.k,
        "views": {name: view.p for name, view in pool.items()},
        "tau": problem.tau,
        "eps": {name: view.ridge for name, view in pool.items()},
        "calibration": problem.calibration.rule,
        "quality": pool.quality is not None,
        "included": len(rules.fixed_in),
        "excluded": len(rules.fixed_out),
        "quotas": None if rules.quotas is None else rules.quotas.described(),
        "priorities": None if problem.priorities is None else by_view(pool, problem.priorities),
        "floors": None if problem.floors is None else _floors(problem),
        "oversampling": plan.oversampling,
        "hierarchical": len(plan.shards) - 1 if plan.shards else None,  # shards
        "random_state": problem.random_state,
    }


def _floors(problem: Problem) -> dict[str, float]:
    assert problem.floors is not None
    named = zip(problem.pool.names, problem.floors.tolist(), strict=True)
    return {name: value for name, value in named if np.isfinite(value)}


def _rank_notes(problem: Problem, certificate: Certificate | None) -> tuple[str, ...]:
    if certificate is None:
        return _width_notes(problem)
    widths = {name: min(view.n, view.p) for name, view in problem.pool.items()}
    ranks = {name: widths[name] if r is None else r for name, r in certificate.ranks.items()}
    return tuple(_rank_note(problem.k, name, r) for name, r in ranks.items() if problem.k > r)


def _width_notes(problem: Problem) -> tuple[str, ...]:
    """As far as widths tell, without looking at the data."""
    widths = [(name, min(view.n, view.p)) for name, view in problem.pool.items()]
    return tuple(_rank_note(problem.k, name, p) for name, p in widths if problem.k > p)


def _rank_note(k: int, name: str, rank: int) -> str:
    return (
        f"k = {k} exceeds the rank {rank} of view {name!r}, so its score fills with log eps "
        f"({k - rank} of {k} terms); lower k or drop the view"
    )


def _warn(notes: tuple[str, ...], depth: int = 3) -> None:
    """Seen from the caller of the front door, `depth` calls up."""
    for note in notes:
        warnings.warn(note, RankWarning, stacklevel=depth)
