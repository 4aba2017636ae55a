"""`fairnepv uspto run`: every selector at every size on the selection pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli.options import (
    Sizes,
    debug_option,
    effort_option,
    gap_option,
    library_option,
    log_option,
    rounding_options,
)
from fairnepv.options import CALIBRATIONS, OBJECTIVES, default
from fairnepv_studies.protocol import SEEDS, default_methods

if TYPE_CHECKING:
    from fairnepv_studies.protocol.run import Run


_FIT = 7  # columns of numbers beside the name of a selector


class Names(click.ParamType):  # type: ignore[type-arg]  # generic in stubs, not at run time
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        return [part.strip() for part in str(value).split(",") if part.strip()]


@click.command()
@click.argument("corpus", metavar="CORPUS")
@click.option(
    "--k", "-k", "k", type=Sizes(), default="100,500,1000", show_default=True, help="Sizes."
)
@click.option("--views", type=Names(), help="Feature views.  [default: text,vision]")
@click.option(
    "--methods",
    type=Names(),
    help=f"Selectors.  [default: {','.join(default_methods(['<view>']))}]",
)
@click.option(
    "--seeds",
    default=SEEDS,
    show_default=True,
    type=click.IntRange(min=1),
    help="Runs of every selector that depends on a seed.",
)
@library_option("objective", type=click.Choice(list(OBJECTIVES)))
@library_option("tau", type=float)
@library_option("eps", type=float)
@library_option("center", "--center/--no-center")
@click.option(
    "--calibration",
    default=default("calibration"),
    show_default=True,
    type=click.Choice([rule for rule in CALIBRATIONS if rule != "efficiency"]),
    help="The rule that puts views on one scale.",
)
@effort_option
@rounding_options
@gap_option
@click.option(
    "--tune-shift",
    is_flag=True,
    help="Choose sigma of nepv on the validation split; without --solver by shifted.",
)
@click.option(
    "--engine",
    metavar="NAME",
    help="Who computes, as for fairnepv select: local, torch:cuda, ...  [default: local]",
)
@click.option("--name", default="main", show_default=True, help="Goes into CORPUS/runs/NAME.")
@log_option
@debug_option
def run(
    corpus: str,
    k: Any,
    views: list[str] | None,
    methods: list[str] | None,
    seeds: int,
    engine: str | None,
    name: str,
    **problem: Any,
) -> None:
    """Run the protocol: the paper's pipeline, our default and their rivals, with one effort.

    What is done is kept: the same command goes on after an interruption.

    \b
    fairnepv uspto run corpus/ --k 100,500,1000
    """
    from fairnepv.cli.outputs import Interrupted, show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.locks import locked
    from fairnepv_studies.corpus import Corpus
    from fairnepv_studies.protocol.execution import carry_out
    from fairnepv_studies.protocol.pool import open_pool
    from fairnepv_studies.protocol.report import sentences, write_report
    from fairnepv_studies.protocol.run import Run
    from fairnepv_studies.protocol.settings import make_settings

    opened = Corpus.open(corpus)
    pool = open_pool(opened, views)
    sizes = k if isinstance(k, list) else [k]
    settings = make_settings(pool, sizes, methods=methods, seeds=seeds, **problem)
    with locked(Run.folder_of(opened, name)):
        begun = Run.start(opened, name, settings)
        try:
            with stage_bar() as progress:
                carry_out(begun, pool, progress, engine=engine)
        except KeyboardInterrupt as error:
            done = sum(begun.has(unit) for unit in settings.units)
            raise Interrupted(
                f"interrupted; {done} of {len(settings.units)} selections are kept in "
                f"{begun.folder}, and the same command goes on from there"
            ) from error
        files = write_report(begun)
    show(*_tables(begun), _seconds(begun))
    show(f"{settings.caption}.", *sentences(settings))
    show(f"Wrote {', '.join(files)} in {begun.folder}.")


def _tables(run: Run) -> list[Any]:
    """Per size the means, without seconds, in pieces that a terminal of 80 columns has room for."""
    from rich.text import Text

    from fairnepv.display import shown
    from fairnepv_studies.protocol.results import best_methods
    from fairnepv_studies.protocol.tables import cells, headings

    names = [Text(shown(name).replace(" ", "\n", 1)) for name in headings(run.results)[1:-1]]
    tables = []
    for k in run.settings.sizes:
        settings = run.settings
        chosen = f"{k:,} of {settings.n:,} items, {settings.corpus_name}"
        title = f"{chosen}, objective {settings.objective}"
        best = best_methods(run.results, k)
        for piece in _pieces(len(names), len(run.settings.views)):
            table = _table(f"{title} (C: lower is better)", ["selector", *names[piece]])
            for name, *numbers in cells(run.results, run.seconds, k):
                table.add_row(name, *numbers[piece], style="green" if name in best else None)
            tables.append(table)
    return tables


def _pieces(columns: int, views: int) -> list[slice]:
    """All columns at once where they fit; else scores first, then coverage and efficiency."""
    scores = views + 2  # F, d of every view, their minimum
    parts = [(0, columns)] if columns <= _FIT else [(0, scores), (scores, columns)]
    return [slice(i, min(i + _FIT, end)) for at, end in parts for i in range(at, end, _FIT)]


def _seconds(run: Run) -> Any:
    from fairnepv_studies.protocol.tables import table_of_seconds

    heading, *rows = table_of_seconds(run.seconds)
    table = _table("Seconds", heading)
    for row in rows:
        table.add_row(*row)
    return table


def _table(title: str, heading: list[Any]) -> Any:
    from fairnepv.report.terminal import plain_table

    table = plain_table(title)
    for i, name in enumerate(heading):
        justify: Any = "right" if i else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    return table
