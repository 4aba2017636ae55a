"""What a finished run leaves for people: tables and figures, each saying of what data it is."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from fairnepv.methods import APART, set_apart
from fairnepv.methods.baselines import OF_DETERMINANTS
from fairnepv.options import DIVERSE, REPRESENTATIVE
from fairnepv.report import budget_in_words, pipeline_in_words
from fairnepv.search import check_effort
from fairnepv_studies.figures import draw_efficiency, draw_view_scores
from fairnepv_studies.protocol.results import Result, Unit, label, summarise
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.settings import Settings
from fairnepv_studies.protocol.tables import (
    results_csv,
    results_tex,
    seconds_csv,
    seconds_tex,
    selections_csv,
)

# What scores are, and the efficiency that follows from one and its bound.
_READINGS = {
    DIVERSE: ("d per view and F in nats per item", "exp(F - bound)"),
    REPRESENTATIVE: ("e per view is the share of its variance that the picks explain", "F / bound"),
}
_BEFORE_BUDGETS = {  # what some had beside those with an objective of their own
    "nepv": "has one-swaps without tabu search",
    "auto": "may start from the bound's solution, too",
    "exact": "may start from the bound's solution, too, and branches and bounds",
    "greedy": "is greedy alone",
    **dict.fromkeys(("softmax", "d-optimal", "saturate"), "is not refined"),
    **dict.fromkeys(("random", "k-dpp"), "is drawn"),
}


def write_report(run: Run) -> list[str]:
    """All tables and figures into the folder of the run; their names."""
    settings, results = run.settings, run.results
    files = {
        **tables(results, settings),
        **tables_of_seconds(run.seconds, settings),
        "views.png": views_figure(run),
        "efficiency.png": efficiency_figure(results, settings),
    }
    for name, content in files.items():
        run.write(name, content)
    return list(files)


def tables(results: Sequence[Result], settings: Settings) -> dict[str, bytes]:
    """What follows from the results alone, so that anybody can write the same bytes again."""
    return {
        "results.csv": results_csv(results, settings.corpus_name),
        "results.tex": results_tex(results, results_caption(settings)).encode("utf-8"),
        "selections.csv": selections_csv(results),
    }


def tables_of_seconds(seconds: Mapping[Unit, float], settings: Settings) -> dict[str, bytes]:
    return {
        "seconds.csv": seconds_csv(seconds),
        "seconds.tex": seconds_tex(seconds, seconds_caption(settings)).encode("utf-8"),
    }


def results_caption(settings: Settings) -> str:
    said = (
        f"{settings.caption}: {_reading(settings)}.",
        *sentences(settings),
    )
    return " ".join(said)


def _reading(settings: Settings) -> str:
    scores, efficiency = _READINGS[settings.objective]
    return (
        f"{scores}, higher is better; C is the mean cosine distance of the pool to the nearest "
        f"pick, lower is better; eff. is {efficiency}, with one proven bound per k, so at least "
        "that share of the best possible; bold is the highest F as printed"
    )


def sentences(settings: Settings) -> list[str]:
    """What a reader of any table has to know of the selectors in it."""
    return [
        budget_sentence(settings),
        *pipeline_sentences(settings),
        seeds_sentence(settings),
        *left_out_sentences(settings),
    ]


def pipeline_sentences(settings: Settings) -> list[str]:
    """What stands behind the name of the paper's pipeline, for every size that has it otherwise."""
    sizes: dict[str, list[str]] = {}
    for k, knobs in settings.nepv.items():
        sizes.setdefault(pipeline_in_words(knobs), []).append(k)
    many = len(sizes) > 1
    return [
        f"{label('nepv')}{' at k = ' * many}{', '.join(ks) * many}: {words}."
        for words, ks in sizes.items()
    ] + _tuning_sentences(settings)


def _tuning_sentences(settings: Settings) -> list[str]:
    if not settings.shift_grid:
        return []
    grid = ", ".join(f"{times:g}" for times in settings.shift_grid)
    by = "on the validation split, by the relaxed objective"
    return [f"Its sigma was chosen {by}, from {grid} times 1/k."]


def left_out_sentences(settings: Settings) -> list[str]:
    """Which selectors there are that such a run cannot have."""
    if settings.objective == DIVERSE:
        return []
    return [f"Not supported here, and left out: {', '.join(OF_DETERMINANTS)}."]


def seconds_caption(settings: Settings) -> str:
    said = f"{settings.caption}: seconds of the search, and of the bound, which serves all."
    starts = [label(method) for method in ("auto", "exact") if method in settings.methods]
    if not starts:
        return said
    return f"{said} The search of {' and '.join(starts)} starts from the bound's solution."


def budget_sentence(settings: Settings) -> str:
    """What every selector gets besides its objective, so that nobody takes them for equals."""
    if not settings.budgets:
        return _before_budgets(settings)
    effort = check_effort(settings.effort)
    sizes: dict[int, list[str]] = {}
    for k, passes in settings.budgets.items():
        sizes.setdefault(passes, []).append(k)
    apart = {label(m): budget for m in settings.methods if (budget := set_apart(m, effort))}
    if len(apart) == len(settings.methods):
        return budget_in_words(None, apart)
    if not any(sizes):
        apart = {name: budget for name, budget in apart.items() if budget != APART["greedy"]}
        return budget_in_words(0, apart)
    if len(sizes) == 1:
        return budget_in_words(next(iter(sizes)), apart)
    most = (f"{passes} (k = {', '.join(ks)})" for passes, ks in sizes.items())
    return budget_in_words(" or ".join(most), apart)


def _before_budgets(settings: Settings) -> str:
    """The sentence of runs that name no passes: every selector had the search of the effort."""
    if check_effort(settings.effort).passes == 0:
        return f"With effort {settings.effort} no selector is refined by swaps."
    groups: dict[str, list[str]] = {}
    for method in settings.methods:
        if method in _BEFORE_BUDGETS:
            groups.setdefault(_BEFORE_BUDGETS[method], []).append(label(method))
    others = [f"{' and '.join(names)} {what}" for what, names in groups.items()]
    return (
        "Every selector is greedy in its objective and refined under it by the same search "
        f"within the same effort{', except: ' if others else ''}{'; '.join(others)}."
    )


def seeds_sentence(settings: Settings) -> str:
    """Which selectors are random, and what is said of them."""
    drawn = [label(m) for m, sizes in settings.drawn.items() if sizes == settings.sizes]
    partly = {
        label(m): ", ".join(map(str, sizes))
        for m, sizes in settings.drawn.items()
        if sizes != settings.sizes
    }
    named = [*drawn, *(f"{name} (k = {sizes})" for name, sizes in partly.items())]
    if not named or settings.seeds == 1:
        return "Every selector was run once."
    return (
        f"Mean and standard deviation over {settings.seeds} seeds of what depends on the seed: "
        f"{', '.join(named)}; all else was run once."
    )


def views_figure(run: Run) -> bytes:
    summaries, settings = summarise(run.results), run.settings
    units = settings.told_in
    panels = {
        f"k = {k:,}": {
            label(row.method): {view: row.means[f"{units.mark}_{view}"] for view in settings.views}
            for row in summaries
            if row.k == k
        }
        for k in settings.sizes
    }
    bounds = {f"k = {k:,}": run.proof(k).by_view for k in settings.sizes}
    return draw_view_scores(panels, bounds, units, _title("Which view is left behind?", settings))


def efficiency_figure(results: Sequence[Result], settings: Settings) -> bytes:
    lines: dict[str, dict[int, tuple[float, float]]] = {}
    for row in summarise(results):
        spread = row.spreads.get("efficiency", 0.0)
        lines.setdefault(label(row.method), {})[row.k] = (row.means["efficiency"], spread)
    return draw_efficiency(lines, _title("At least this share of the best possible", settings))


def _title(question: str, settings: Settings) -> str:
    lines = textwrap.wrap(settings.caption, 88, break_on_hyphens=False)
    return "\n".join([question, *lines])
