"""`fairnepv relax`: the continuous relaxation by itself, and how a solver got there."""

from typing import Any

import click

import fairnepv
from fairnepv.cli import log
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Report, print_json, show


@click.command()
@cli.size_option
@cli.posing
@cli.relaxing_options
@cli.time_limit_option
@cli.random_state_option
@click.option(
    "--trace",
    metavar="[FILE]",
    is_flag=False,
    flag_value="-",
    help="Objective and residual per step: printed, or to .parquet, .csv, .json, .txt or .png.",
)
@cli.reporting(strict=True, out="The orthonormal basis V (n, k) as .npy.")
def relax(
    problem: ProblemFiles, k: int | float, trace: str | None, report: Report, **options: Any
) -> None:
    """Maximise the relaxed objective over orthonormal frames.

    \b
    fairnepv relax --view text=t.npz --view vision=v.npy -k 50 --trace trace.png
    """
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.write import TABLES, table_document
    from fairnepv.report import draw_traces, relaxation_summary, trace_lines, trace_table

    printed = trace == "-"
    report.files["trace"] = None if printed else trace
    report.inputs = problem.files
    trace_file = report.output("trace", (*TABLES, ".png"))
    basis_file = report.output("out", (".npy",))
    with stage_bar(options["time_limit"]) as progress:
        relaxation = fairnepv.relax(k=k, **problem.read(), **options, progress=progress)
    problem.check()
    settings = {name: options[name] for name in ("start", "random_state")}
    steps = trace_table(relaxation, {**problem.settings, **settings})
    picture = trace_file is not None and trace_file.path.suffix.lower() == ".png"
    drawn = draw_traces({relaxation.solver.name: steps.columns}) if picture else steps
    log.tell("result", found=steps.about)
    report.write(trace_file, drawn)
    report.write(basis_file, relaxation.basis)
    if report.as_json:
        print_json(table_document(steps) if printed else steps.about)
    else:
        show(
            *(trace_lines(steps) if printed else ()),
            relaxation_summary(relaxation, problem.objective),
        )
    report.finish(relaxation.status, None if picture else trace_file)
