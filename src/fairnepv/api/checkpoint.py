"""The journal of a selection: a file that knows which problem it belongs to."""

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from fairnepv.api.settings import settings_of
from fairnepv.compute import Block, block_threads, portable
from fairnepv.io.places import local_path
from fairnepv.loop.journal import Journal, fingerprint_of, own_key
from fairnepv.methods.plan import Plan
from fairnepv.options import SelectOptions
from fairnepv.problem import Problem
from fairnepv.views import KernelView, Pool
from fairnepv.views.base import Floats


def journal_of(
    problem: Problem, plan: Plan, options: SelectOptions
) -> AbstractContextManager[Journal | None]:
    """The journal of this very selection; only the limits need not be the same."""
    if options["checkpoint"] is None:
        return nullcontext()
    path, key = local_path(str(options["checkpoint"])), own_key()
    return closing(Journal(path, _fingerprint(problem, plan, options, key), key))


def _fingerprint(problem: Problem, plan: Plan, options: SelectOptions, key: bytes) -> Any:
    """What tells this selection from any other: what is asked for, the rules and the rows."""
    settings = {
        **settings_of(problem, replace(plan, time_limit=None, memory_limit=None)),
        "options": (options["certify"], plan.gap, plan.target, plan.node_limit),
        "means": problem.means,
        "shards": plan.shards,
        "evidence": sorted(problem.calibration.evidence),  # which need not be proven again
    }
    rules, pool = problem.constraints, problem.pool
    quotas = rules.quotas
    groups = () if quotas is None else (quotas.groups, quotas.least, quotas.most)
    weights = () if pool.quality is None else pool.quality.values()
    start = () if isinstance(plan.nepv.start, str) else (plan.nepv.start,)
    numbers = (pool.squared_norms, pool.offsets, *weights)
    with block_threads(problem.work()):
        rows = _probe(pool, key)
    rules_of = (rules.fixed_in, rules.fixed_out, *groups)
    return fingerprint_of(settings, *numbers, *rows, *rules_of, *start)


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
