"""The tables of a study: comma-separated with four digits, LaTeX, Markdown, and for terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairnepv.display import shown
from fairnepv_studies.downstream.cells import Cell, Record
from fairnepv_studies.downstream.scoring import LABELS, ROUGE
from fairnepv_studies.downstream.summary import ALL, Mean, Summary
from fairnepv_studies.files import csv_content
from fairnepv_studies.protocol.tables import escaped, tex_table


def cells_csv(records: Sequence[Record], scores: Mapping[Cell, Mapping[str, float]]) -> bytes:
    """A row per tested cell."""
    names = list(next(iter(scores.values())))
    counted = list(dict.fromkeys(name for record in records for name in record.counts))
    header = ["selector", "k", "seed", *names, "steps", "first_loss", "last_loss", *counted]
    rows = [
        [
            *(record.selector, record.k, record.seed),
            *(_digits(scores[record.cell][name]) for name in names),
            len(record.losses),
            *(_digits(loss) for loss in _ends(record.losses)),
            *(record.counts.get(name, "") for name in counted),
            _digits(record.seconds.get("cell")),
            record.device,
        ]
        for record in records
    ]
    return csv_content([*header, "seconds", "device"], rows)


def _ends(losses: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The first and the last one; predictions that came from elsewhere have none."""
    return (losses[0], losses[-1]) if losses else (None, None)


def means_csv(summary: Summary, strata: bool) -> bytes:
    """A row per selector and size; with strata one for each of these, too."""
    rows = summary.means if strata else summary.of(ALL)
    names = [name for score in summary.scores for name in (score, f"{score}_sd")]
    header = [*(["stratum", "items"] if strata else []), "k", "selector", "seeds", *names]
    return csv_content(
        header,
        [
            [
                *([row.stratum, row.items] if strata else []),
                *(row.k, row.selector, row.seeds),
                *(
                    _digits(values.get(score))
                    for score in summary.scores
                    for values in (row.means, row.spreads)
                ),
            ]
            for row in rows
        ],
    )


def differences_csv(summary: Summary) -> bytes:
    header = ["stratum", "items", "k", "selector", "baseline", "score", "seeds"]
    rows = [
        [
            *(gap.stratum, gap.items, gap.k, gap.selector, gap.baseline, gap.score, gap.seeds),
            *(_digits(gap.difference), _digits(gap.low), _digits(gap.high), gap.better),
        ]
        for gap in summary.gaps
    ]
    return csv_content([*header, "difference", "low", "high", "seeds_ahead"], rows)


def results_tex(summary: Summary, caption: str) -> str:
    scores = summary.scores
    heading = " & ".join(["Selector", "seeds", *(LABELS[score] for score in scores)]) + r"\\"
    body = [heading]
    means = summary.of(ALL)
    for k in dict.fromkeys(row.k for row in means):
        rows = [row for row in means if row.k == k]
        body += [r"\midrule", rf"\multicolumn{{{2 + len(scores)}}}{{l}}{{$k={k}$}}\\"]
        for row in rows:
            cells = [_tex(row, score, is_best(row, rows, score)) for score in scores]
            line = [escaped(row.selector), str(row.seeds), *cells]
            body.append(" & ".join(line) + r"\\")
    return tex_table("lr" + "r" * len(scores), body, caption)


def _tex(row: Mean, score: str, bold: bool) -> str:
    value = f"{row.means[score]:.2f}"
    spread = rf"\pm{row.spreads[score]:.2f}" if score in row.spreads else ""
    return f"$\\mathbf{{{value}}}{spread}$" if bold else f"${value}{spread}$"


def results_md(summary: Summary, caption: str) -> str:
    lines = [caption, ""]
    for title, table in (*markdown_means(summary), *markdown_gaps(summary)):
        lines += [f"**{title}**", "", *_markdown(table), ""]
    return "\n".join(lines)


def markdown_means(summary: Summary) -> list[tuple[str, list[list[str]]]]:
    return [(f"k = {k:,}", cells_of(summary, k)) for k in dict.fromkeys(m.k for m in summary.means)]


def markdown_gaps(summary: Summary) -> list[tuple[str, list[list[str]]]]:
    """Differences of the whole test set in ROUGE-L; differences.csv has all others."""
    tables = []
    for k in dict.fromkeys(gap.k for gap in summary.gaps):
        rows = [["selector", "less", "difference", "interval", "seeds ahead"]]
        for gap in summary.gaps:
            if (gap.k, gap.stratum, gap.score) == (k, ALL, ROUGE):
                interval = f"{gap.low:+.2f} to {gap.high:+.2f}"
                seeds = f"{gap.better} of {gap.seeds}"
                rows.append([gap.selector, gap.baseline, f"{gap.difference:+.2f}", interval, seeds])
        tables.append((f"{LABELS[ROUGE]} at k = {k:,}", rows))
    return tables


def cells_of(summary: Summary, k: int) -> list[list[str]]:
    """A row of headings, then a row per selector; in brackets the seeds where it has others."""
    rows = [row for row in summary.of(ALL) if row.k == k]
    table = [["selector", "seeds", *(LABELS[score] for score in summary.scores)]]
    for row in rows:
        cells = []
        for score in summary.scores:
            spread = f" ± {row.spreads[score]:.2f}" if score in row.spreads else ""
            best = " *" if is_best(row, rows, score) else ""
            cells.append(f"{row.means[score]:.2f}{spread}{best}")
        table.append([row.selector, str(row.seeds), *cells])
    return table


def is_best(row: Mean, rows: Sequence[Mean], score: str) -> bool:
    """As far as tables print it."""
    best = max(round(other.means[score], 2) for other in rows)
    return round(row.means[score], 2) == best


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table]
    return [lines[0], "|" + "---|" * len(table[0]), *lines[1:]]


def _cell(text: str) -> str:
    return shown(text).replace("|", r"\|")


def _digits(value: float | None) -> float | None:
    """As many as anybody compares; a number, which a spreadsheet does not run."""
    return None if value is None else round(value, 4) + 0.0
