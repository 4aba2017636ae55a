"""The tables of a run: comma-separated, LaTeX, and cells for terminals and Markdown.

Seconds stand in tables of their own: all else has the same bytes whenever it is computed.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from fairnepv.display import shown
from fairnepv.options import DIVERSE, REPRESENTATIVE
from fairnepv_studies.files import csv_content
from fairnepv_studies.protocol.results import (
    Result,
    Summary,
    Unit,
    best_methods,
    label,
    summarise,
)

# --- comma-separated ------------------------------------------------------------------------------


def results_csv(results: Sequence[Result], corpus: str) -> bytes:
    """One row per selector, size and seed; numbers with all their digits."""
    names = ["corpus", "method", "k", "seed", *results[0].numbers, "worst_view", "status"]
    rows = [
        [
            *(corpus, r.method, r.k, r.seed, *r.numbers.values()),
            *(min(r.scores, key=r.scores.__getitem__), r.status),
        ]
        for r in results
    ]
    return csv_content(names, rows)


def selections_csv(results: Sequence[Result]) -> bytes:
    """One row per chosen item: its row in items.parquet and its id."""
    rows = [
        [r.method, r.k, r.seed, order, row, id]
        for r in results
        for order, (row, id) in enumerate(zip(r.rows, r.ids, strict=True))
    ]
    return csv_content(["method", "k", "seed", "order", "row", "id"], rows)


def seconds_csv(seconds: Mapping[Unit, float]) -> bytes:
    rows = [[unit.method, unit.k, unit.seed, value] for unit, value in seconds.items()]
    return csv_content(["method", "k", "seed", "seconds"], rows)


# --- LaTeX ----------------------------------------------------------------------------------------

_SYMBOLS = {DIVERSE: "d", REPRESENTATIVE: "e"}  # of a view's score, as docs/method.md has them
_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return "".join(_SPECIAL.get(c, c) for c in shown(text))


def results_tex(results: Sequence[Result], caption: str) -> str:
    """A table in the paper's manner: per view, fair score, coverage and efficiency by size."""
    views, symbol = list(results[0].scores), _SYMBOLS[results[0].objective]
    m = len(views)
    heading = (
        rf"& \multicolumn{{{m}}}{{c}}{{per view}} & & & "
        rf"\multicolumn{{{m}}}{{c}}{{coverage, lower is better}} &\\"
        "\n"
        rf"\cmidrule(lr){{2-{m + 1}}}\cmidrule(lr){{{m + 4}-{2 * m + 3}}}"
    )
    columns = [
        "Selector",
        *(f"${symbol}_{{{_subscript(view)}}}$" for view in views),
        rf"${symbol}_{{\min}}$",
        r"$F_\tau$",
        *(f"$C_{{{_subscript(view)}}}$" for view in views),
        "eff.",
    ]
    summaries = summarise(results)
    body = [heading, " & ".join(columns) + r"\\"]
    for k in dict.fromkeys(row.k for row in summaries):
        rows = [row for row in summaries if row.k == k]
        best = best_methods(results, k)
        body += [r"\midrule", rf"\multicolumn{{{len(columns)}}}{{l}}{{$k={k}$}}\\"]
        body += [_tex_row(row, views, bold=row.method in best) for row in rows]
    return tex_table("l" + "r" * (len(columns) - 1), body, caption)


def _tex_row(row: Summary, views: Sequence[str], *, bold: bool) -> str:
    cells = [
        escaped(label(row.method)),
        *(_tex_number(row, f"{row.told_in.mark}_{view}") for view in views),
        _tex_number(row, "minimum"),
        _tex_number(row, "fair_score", bold=bold),
        *(_tex_number(row, f"coverage_{view}") for view in views),
        _tex_number(row, "efficiency"),
    ]
    return " & ".join(cells) + r"\\"


def _tex_number(row: Summary, name: str, *, bold: bool = False) -> str:
    value = escaped(row.mean(name))
    if bold:
        value = rf"\mathbf{{{value}}}"
    spread = rf"\pm{escaped(row.spread(name))}" if name in row.spreads else ""
    return f"${value}{spread}$"


def seconds_tex(seconds: Mapping[Unit, float], caption: str) -> str:
    """Mean seconds of every selector by size; the bound has a row of its own."""
    sizes = list(dict.fromkeys(unit.k for unit in seconds))
    body = [" & ".join(["Selector", *(f"$k={k}$" for k in sizes)]) + r"\\", r"\midrule"]
    for method in dict.fromkeys(unit.method for unit in seconds):
        means = [mean_seconds(seconds, k, method) for k in sizes]
        cells = ["--" if mean is None else f"${mean:.2f}$" for mean in means]
        body.append(" & ".join([escaped(label(method)), *cells]) + r"\\")
    return tex_table("l" + "r" * len(sizes), body, caption)


def mean_seconds(seconds: Mapping[Unit, float], k: int, method: str) -> float | None:
    own = [value for unit, value in seconds.items() if (unit.k, unit.method) == (k, method)]
    return statistics.fmean(own) if own else None


def tex_table(alignment: str, body: Sequence[str], caption: str) -> str:
    lines = [
        *(r"\begin{table}[t]", r"\centering", r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"),
        *(rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", *body, r"\bottomrule"),
        *(r"\end{tabular}", rf"\caption{{{escaped(caption)}}}", r"\end{table}", ""),
    ]
    return "\n".join(lines)


def _subscript(view: str) -> str:
    plain = view.isascii() and view.isalnum()
    return rf"\mathrm{{{view}}}" if plain else rf"\mbox{{\scriptsize {escaped(view)}}}"


# --- cells of a table by rows ---------------------------------------------------------------------


def table_of_seconds(seconds: Mapping[Unit, float]) -> list[list[str]]:
    """A row of headings, then mean seconds of every selector by size; the bound has its own row."""
    sizes = list(dict.fromkeys(unit.k for unit in seconds))
    rows = [["selector", *(f"k = {k:,}" for k in sizes)]]
    for method in dict.fromkeys(unit.method for unit in seconds):
        means = [mean_seconds(seconds, k, method) for k in sizes]
        rows.append([method, *("" if mean is None else f"{mean:.2f}" for mean in means)])
    return rows


def headings(results: Sequence[Result]) -> list[str]:
    views, mark = list(results[0].scores), results[0].told_in.mark
    columns = [*(f"{mark} {view}" for view in views), "min", *(f"C {view}" for view in views)]
    return ["selector", "F", *columns, "eff.", "sec"]


def cells(results: Sequence[Result], seconds: Mapping[Unit, float], k: int) -> list[list[str]]:
    """Means of one size under those headings; spreads over seeds in a row of their own below."""
    rows = []
    for row in summarise(results):
        if row.k != k:
            continue
        names = [name for name in row.means if name != "upper_bound"]
        mean = mean_seconds(seconds, k, row.method)
        spent = "" if mean is None else f"{mean:.2f}"
        rows.append([row.method, *map(row.mean, names), spent])
        if row.spreads:
            spreads = [f"±{row.spread(name)}" for name in names]
            rows.append([f"  {row.seeds} seeds", *spreads, ""])
    return rows
