"""What results say, in sentences and lines of text."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from fairnepv.api.calibration import described
from fairnepv.api.selection import Comparison, Selection
from fairnepv.api.shown import at_least, score_line
from fairnepv.concave import Certificate, Terms, Verified
from fairnepv.errors import Status
from fairnepv.io.write import Table
from fairnepv.methods import APART
from fairnepv.objective import UNITS, Nats
from fairnepv.options import DIVERSE
from fairnepv.planning import Forecast
from fairnepv.problem import Constraints
from fairnepv.stiefel import Relaxation
from fairnepv.views.base import Indices
from fairnepv.views.scales import CUT_SHORT, SOLVED

_NOTICEABLE = 0.01  # one per cent in nats per item, a hundredth in shares
_FEW = 8  # rows that are listed one by one
_ORIGINS = {
    "explicit": "of the certificate",
    CUT_SHORT: "of the certificate; what a limit or Ctrl-C has left, which nobody computes again",
    "efficiency": f"of the certificate; computed again, the same to {SOLVED:g}",
}


def selection_summary(selection: Selection) -> list[str]:
    """What was chosen and how good it is, in a few sentences."""
    k, n = selection.settings["k"], selection.chosen_from["n"]
    units, objective = selection.units, selection.objective
    worst = f"worst view {selection.worst_view!r} at {units.shown(selection.minimum)}"
    lines = [f"Chose {k} of {n:,} items: {score_line(selection)}, {worst} (objective {objective})."]
    if selection.certificate is not None:
        lines.append(_how_good(selection))
    if "solver" in selection.settings:
        words = pipeline_in_words(selection.settings)
        lines.append(f"Method {selection.method!r} went so: {words}.")
    lines.append(f"Why the search stopped: {selection.status.value}.")
    lines.extend(f"Note: {note}." for note in selection.notes)
    return lines


def pipeline_in_words(knobs: Mapping[str, Any]) -> str:
    """The paper's pipeline as it was run, by its letters."""
    varied = {name: knobs[name] for name in ("alpha", "sigma") if knobs[name] is not None}
    shifts = "".join(f", {name} = {value:g}" for name, value in varied.items())
    begun = knobs["start"] if isinstance(knobs["start"], str) else "rows"
    passes = knobs["passes"]
    swaps = "as its effort has it" if passes is None else f"B = {passes:,}"
    return (
        f"relaxed by solver {knobs['solver']}{shifts}, tol = {knobs['tol']:g}, at most "
        f"{knobs['max_steps']:,} steps, start {begun}; shortlist of c k items, c = "
        f"{knobs['oversampling']:g}; at most B passes of one-swaps, {swaps}"
    )


def _how_good(selection: Selection) -> str:
    """The bound, rounded up, and the share of it that is reached, rounded down."""
    certificate, bound = selection.certificate, selection.upper_bound
    assert certificate is not None
    assert bound is not None
    assert selection.efficiency is not None
    if selection.status is Status.OPTIMAL:
        return "This is the best possible: branch and bound proved that no set scores higher."
    share, units = at_least(selection.efficiency), selection.units
    return (
        f"No {selection.settings['k']} items can score above {units.rounded_up(bound)}, so this "
        f"is at least {share} of {units.best}{beside_lots(selection)} (proven, "
        f"{_tightness(certificate)}; {_without_solver(certificate)})."
    )


def beside_lots(selection: Selection) -> str:
    """The share of the bound that random sets have, to be said behind an efficiency."""
    lots, certificate = selection.random_efficiency, selection.certificate
    if lots is None or certificate is None:
        return ""
    draws = len(certificate.random_scores)
    return f"; random sets reach {100 * lots:.1f}% of the bound, the mean of {draws}"


def units_of(certificate: Certificate) -> Nats:
    """In what a bound is told."""
    return UNITS[certificate.proof.terms.objective]


def _tightness(certificate: Certificate) -> str:
    if math.isinf(certificate.duality_gap):
        return "from the lengths of the rows alone"
    return f"duality gap {certificate.duality_gap:.1g}"


def _without_solver(certificate: Certificate) -> str:
    """The paper's bound, or what it is at most where not all eigenvalues are known."""
    units = units_of(certificate)
    bound = units.rounded_up(certificate.spectral_bound)
    others = [name for name, rule in certificate.rules.items() if rule == "trace"]
    if not others:
        return f"{units.spectral} is {bound}"
    named = ", ".join(map(repr, others))
    return f"{units.spectral} is at most {bound}, with eigenvalues of {named} bounded by their sum"


def forecast_summary(forecast: Forecast) -> list[str]:
    return [*forecast.summary().split("\n"), *(f"Note: {note}." for note in forecast.notes)]


def certificate_summary(certificate: Certificate) -> list[str]:
    terms, units = certificate.proof.terms, units_of(certificate)
    line = (
        f"No {terms.k} of {terms.n:,} items can score above "
        f"{units.rounded_up(certificate.upper_bound)} {units.unit}, objective {terms.objective} "
        f"({_tightness(certificate)}; {_without_solver(certificate)})."
    )
    return [line, *(f"Note: {note}." for note in certificate.notes)]


def relaxation_summary(relaxation: Relaxation, objective: str = DIVERSE) -> list[str]:
    units = UNITS[objective]
    pairs = relaxation.view_values.items()
    values = ", ".join(f"{name} {units.shown(value)}" for name, value in pairs)
    steps, solver = relaxation.steps, relaxation.solver.name
    return [
        f"Relaxed value {relaxation.value:.6f} {units.unit} ({values}), objective {objective}.",
        f"Residual {relaxation.residual:.2e} after {steps} steps of {solver!r}.",
        *_local_convergence(relaxation),
        f"Why the solver stopped: {relaxation.status.value}.",
        f"Checked: {relaxation.checked}.",
        *(f"Note: {note}." for note in relaxation.notes),
    ]


def _local_convergence(relaxation: Relaxation) -> Iterator[str]:
    """How fast Algorithm 1 was at the end, and what was to be expected at such a point."""
    if (observed := relaxation.contraction) is not None:
        yield f"Contraction: the residual changed by a factor of {observed:.4f} a step at the end."
    if (theory := relaxation.theorem_2) is None:
        return
    variant = relaxation.solver.name if relaxation.solver.literal else "plain"
    outlook = "it converges from nearby" if theory.rate < 1 else "it does not converge to here"
    yield (
        f"Theorem 2 here: C = {theory.C:.4g}, delta = {theory.delta:.4g}; the {variant} iteration "
        f"has a factor of {theory.rate:.4f} per step, so {outlook} (the theorem asks for C below "
        f"{theory.sufficient:.4g})."
    )


def trace_lines(trace: Table) -> Iterator[str]:
    """The trace as lines of text, one per step."""
    columns: dict[str, Any] = dict(trace.columns)
    shown = (columns[c] for c in ("step", "stage", "seconds", "objective", "residual"))
    yield f"{'step':>6} {'stage':<8} {'seconds':>9} {'objective':>14} {'residual':>11}"
    for step, stage, seconds, objective, residual in zip(*shown, strict=True):
        yield f"{step:>6} {stage:<8} {seconds:>9.3f} {objective:>14.8f} {residual:>11.3e}"


# --- which view does each selector leave behind? --------------------------------------------------


def budget_line(comparison: Comparison) -> str:
    """What every row of a comparison gets besides its objective, and which get more or less."""
    return budget_in_words(_most_passes(comparison), budgets_apart(comparison))


def budgets_apart(comparison: Comparison) -> dict[str, str]:
    """By method, the budgets of rows that get more or less than all others."""
    rows = {row.method: row.budget for row in comparison if row.method in APART}
    alike = APART["greedy"] if _most_passes(comparison) == 0 else None
    return {method: budget for method, budget in rows.items() if budget != alike}


def _most_passes(comparison: Comparison) -> int | None:
    passes = (row.settings["passes"] for row in comparison if row.method not in APART)
    return next(passes, None)


def budget_in_words(most: int | str | None, apart: Mapping[str, str]) -> str:
    """The passes of one-swaps that selectors get at most, where any is refined by them; and by name
    what those get that get more or less."""
    others = "; ".join(f"{name} has {budget}" for name, budget in apart.items())
    if most is None:
        return f"Selectors have no budget in common: {others}."
    refined = f"at most {most} passes of one-swaps under it" if most else "no swaps"
    whole = f"Every selector is greedy in its own objective, or rounded, and then has {refined}"
    return f"{whole}, but {others}." if others else f"{whole}."


def left_behind(comparison: Comparison, fair: str = "auto") -> list[str]:
    """A sentence per selector: the view that lost most against the fair choice, and how much."""
    reference = comparison[fair]
    return [_sentence(row, reference) for row in comparison if row is not reference]


def view_left_behind(row: Selection, fair: Selection) -> str | None:
    """The view that lost most against the fair choice, if it lost what can be noticed."""
    losses = row.losses(fair)
    view = max(losses, key=losses.__getitem__)
    return None if losses[view] < _NOTICEABLE else view


def _sentence(row: Selection, fair: Selection) -> str:
    view = view_left_behind(row, fair)
    higher = row.fair_score > fair.fair_score + 1e-9
    more = f"; its fair score is higher than that of {fair.method}" if higher else ""
    if view is None:
        least = row.units.noticeable
        return f"{row.method} leaves no view behind: none is {least} below {fair.method}{more}."
    return f"{row.method} leaves {view} behind: {_how_much(row, fair, view)}{more}."


def _how_much(row: Selection, fair: Selection, view: str) -> str:
    if row.objective != DIVERSE:
        own, other = (s.units.shown(s.scores[view]) for s in (row, fair))
        return f"it explains {own} of the variance there, {fair.method} {other}"
    if row.calibration.by_bounds:
        kept, fair_kept = (100 * math.exp(s.scores[view]) for s in (row, fair))
        return (
            f"it keeps {kept:.1f}% of the bound on what {view} could have alone, {fair.method} "
            f"{fair_kept:.1f}%"
        )
    share = 100 * math.exp(row.scores[view] - fair.scores[view])
    return f"{share:.1f}% of the volume per item that {fair.method} has there"


# --- the terms under which a bound holds ----------------------------------------------------------
# The user has to say whether they are the right ones. Numbers have all their digits, and what is
# too long to be listed has a checksum: two problems that differ in anything are told apart by them.


def verified_summary(verified: Verified, sources: Mapping[str, str] | None = None) -> list[str]:
    """What is proven beside what is claimed, and under which terms; `sources` says what a view was
    read from."""
    claimed = verified.claimed
    rounded_up = UNITS[claimed.terms.objective].rounded_up
    whole = f"fair score of {claimed.terms.k} of {claimed.terms.n:,} items"
    bounds = [(whole, claimed.upper_bound, verified.upper_bound)]
    for name, proven in verified.by_view.items():
        bounds.append((f"view {name!r} alone", claimed.by_view[name], proven))
    verdict = (
        "The bound holds under these terms."
        if verified.holds
        else "The bound does NOT follow for this data under these terms."
    )
    return [
        *(
            f"{what}: at most {rounded_up(claim)} claimed, {rounded_up(proven)} proven"
            for what, claim, proven in bounds
        ),
        "Terms:",
        *(f"  {line}" for line in terms_lines(claimed.terms, sources)),
        verdict,
    ]


def terms_lines(terms: Terms, sources: Mapping[str, str] | None = None) -> Iterator[str]:
    """A line per term, with where it comes from; `sources` says what a view was read from."""
    yield f"{terms.k} of {terms.n:,} items, tau = {terms.tau!r} (of the certificate)"
    yield f"objective: {terms.objective}, in {UNITS[terms.objective].axis} (of the certificate)"
    for name, eps in terms.eps.items():
        source = f", {sources[name]}" if sources else ""
        yield f"view {name!r}{source}: eps = {eps!r} (of the certificate)"
    if terms.calibration.center:
        yield "center: rows less the mean of all rows handed in now (of the certificate)"
    origin = _ORIGINS.get(terms.calibration.rule, "computed again")
    yield f"calibration: {described(terms.calibration)} ({origin})"
    if terms.priorities is not None:
        pairs = zip(terms.eps, terms.priorities.tolist(), strict=True)
        weights = ", ".join(f"{name!r} {weight!r}" for name, weight in pairs)
        yield f"priorities: {weights} (of the certificate)"
    if terms.quality:
        yield "quality: rows weighted as handed in now"
    if not terms.constraints:
        yield "constraints: none, so the bound is about all subsets of that size"
    else:
        yield from (f"{line} (of the certificate)" for line in _constraint_lines(terms.constraints))


def _constraint_lines(rules: Constraints) -> Iterator[str]:
    for words, rows in (("include", rules.fixed_in), ("exclude", rules.fixed_out)):
        if len(rows):
            yield f"{words}: {len(rows):,} row(s), {_listed(rows)}"
    if (quotas := rules.quotas) is not None:
        limits = zip(quotas.least.tolist(), quotas.most.tolist(), strict=True)
        each = ", ".join(f"{g}: {low} to {high}" for g, (low, high) in enumerate(limits))
        yield f"groups of the rows: {_listed(quotas.groups)}; quotas {each}"


def _listed(rows: Indices) -> str:
    """Whole numbers; of many of them the first, and what tells the others apart."""
    if len(rows) <= _FEW:
        return ", ".join(map(str, rows.tolist()))
    digest = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
    return f"{', '.join(map(str, rows[:_FEW].tolist()))}, ... (sha256 as int64 {digest})"
