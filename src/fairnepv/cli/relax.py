"""`fairnepv relax`: the continuous relaxation by itself, and how a solver got there."""

from __future__ import annotations

import click

from fairnepv.cli.options import (
    ProblemOptions,
    debug_option,
    force_option,
    json_option,
    posing,
    seed_option,
    size_option,
    strict_option,
    time_limit_option,
)


@click.command()
@size_option
@posing
@click.option(
    "--solver",
    default="accelerated",
    show_default=True,
    help="accelerated, or Algorithm 1 of the paper: plain, damped, shifted, damped-shifted.",
)
@click.option("--alpha", type=float, help="Damping of Algorithm 1, below 1.")
@click.option("--sigma", type=float, help="Level shift of Algorithm 1.")
@click.option(
    "--start",
    default="spectral",
    show_default=True,
    type=click.Choice(["spectral", "random"]),
    help="Where to begin.",
)
@click.option(
    "--tol",
    default=1e-6,
    show_default=True,
    help="Residual at which to stop; the paper's unscaled one for Algorithm 1.",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="At most so many steps.")
@time_limit_option
@seed_option
@click.option(
    "--trace",
    metavar="[FILE]",
    is_flag=False,
    flag_value="-",
    help="Objective and residual per step: printed, or to .parquet, .csv, .json, .txt or .png.",
)
@click.option("--out", metavar="FILE", help="The orthonormal basis V (n, k) as .npy.")
@force_option
@json_option
@strict_option
@debug_option
def relax(
    problem: ProblemOptions,
    k: int | float,
    solver: str,
    alpha: float | None,
    sigma: float | None,
    start: str,
    tol: float,
    max_steps: int | None,
    time_limit: float | None,
    seed: int,
    trace: str | None,
    out: str | None,
    force: bool,
    as_json: bool,
    strict: bool,
) -> None:
    """Maximise the relaxed objective over orthonormal frames.

    \b
    fairnepv relax --view text=t.npz --view vision=v.npy -k 50 --trace trace.png
    """
    from fairnepv.api.pipeline import relax as relax_problem
    from fairnepv.cli.outputs import deliver, finish, output_at, print_json, show
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.write import TABLES, array_content, table_document
    from fairnepv.report import (
        draw_traces,
        relaxation_summary,
        trace_lines,
        trace_table,
    )

    printed = trace == "-"
    trace_file = output_at(
        "--trace",
        None if printed else trace,
        (*TABLES, ".png"),
        force=force,
        inputs=problem.files,
    )
    basis_file = output_at("--out", out, (".npy",), force=force, inputs=problem.files)
    with stage_bar(time_limit) as progress:
        relaxation = relax_problem(
            k=k,
            **problem.read(),
            solver=solver,
            alpha=alpha,
            sigma=sigma,
            start=start,
            tol=tol,
            max_steps=max_steps,
            time_limit=time_limit,
            random_state=seed,
            progress=progress,
        )
    settings = {**problem.settings, "start": start, "random_state": seed}
    steps = trace_table(relaxation, settings)
    picture = trace_file is not None and trace_file.path.suffix.lower() == ".png"
    unwritten = deliver(trace_file, draw_traces({solver: steps.columns}) if picture else steps)
    if basis_file is not None:
        unwritten += deliver(basis_file, array_content(relaxation.basis))
    if as_json:
        print_json(table_document(steps) if printed else steps.about)
    else:
        show(*(trace_lines(steps) if printed else ()), relaxation_summary(relaxation))
    if unwritten:
        raise unwritten[0]
    finish(relaxation.status, strict=strict, written=None if picture else trace_file)
