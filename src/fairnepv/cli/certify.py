"""`fairnepv certify` and `fairnepv verify-bound`: a bound, and whether it holds."""

from __future__ import annotations

from shlex import join
from typing import Any

import click
from click.core import ParameterSource

from fairnepv.cli.files import ProblemFiles, reading
from fairnepv.cli.options import (
    Size,
    gap_option,
    memory_limit_option,
    plan_option,
    posing_with_rules,
    reporting,
    size_option,
    time_limit_option,
)
from fairnepv.cli.outputs import Outputs, Report, deliver, finish, print_json, show, show_plan
from fairnepv.errors import NumericalError


@click.command()
@size_option
@posing_with_rules
@gap_option
@time_limit_option
@memory_limit_option
@plan_option
@reporting(out="The proof as .npz, for verify-bound.")
def certify(
    problem: ProblemFiles, k: int | float, plan: bool, report: Report, **options: Any
) -> None:
    """Prove what no k items can exceed, without choosing any.

    \b
    fairnepv certify --view text=t.npz --view vision=v.npy -k 200 --out bound.npz
    """
    from fairnepv.api.certify import certify as prove
    from fairnepv.api.plan import plan as foretell
    from fairnepv.cli.progress import stage_bar
    from fairnepv.concave import proof_arrays
    from fairnepv.report import certificate_record, certificate_summary, certificate_table

    again = ["-k", str(k), *problem.arguments]
    output = Outputs(report, problem.files).at("out", (".npz",))
    if plan:
        limit = options["memory_limit"]
        forecast = foretell(k=k, **problem.read(engine=False), method=None, memory_limit=limit)
        show_plan([forecast], as_json=report.as_json)
        return
    with stage_bar(options["time_limit"]) as progress:
        certificate = prove(k=k, **problem.read(), **options, progress=progress)
    unwritten = deliver(output, proof_arrays(certificate.proof))
    if report.as_json:
        print_json({**certificate_record(certificate), "settings": problem.settings})
    else:
        show(certificate_table(certificate), certificate_summary(certificate))
        if output is not None and not unwritten:
            show(f"Wrote {output.path}. To check it against this very problem:")
            show("  " + join(["fairnepv", "verify-bound", str(output.path), *again]))
    if unwritten:
        raise unwritten[0]
    finish(certificate.status, strict=False, written=output)


@click.command("verify-bound")
@click.argument("bound", metavar="BOUND.npz")
@click.option("-k", "k", type=Size(), help="How many items the bound should be about.")
@posing_with_rules
@reporting()
@click.pass_context
def verify_bound(
    context: click.Context, problem: ProblemFiles, bound: str, k: int | float | None, report: Report
) -> None:
    """Check a stored bound against the data, from its dual variables alone.

    The terms of the problem (k, tau, eps, calibration, constraints, priorities) come with the bound
    and are printed: read them, for the bound holds under them and no others. What you name of them
    has to be the same. A calibration is computed again from its rule and the data. Exit code 1 if
    the bound does not follow, 2 if its terms are others.

    \b
    fairnepv verify-bound bound.npz --view text=t.npz --view vision=v.npy -k 200 --tau 0.05
    """
    from fairnepv.api.certify import verify_bound as verify
    from fairnepv.concave import read_proof
    from fairnepv.io import read_archive
    from fairnepv.report import verified_record, verified_summary

    proof = reading(lambda text: read_proof(read_archive(text)), "BOUND", "", bound)
    verified = verify(certificate=proof, k=k, **_named_terms(context, problem.read()))
    sources = problem.checksums()
    if report.as_json:
        print_json({**verified_record(verified), "views": sources})
    else:
        show(verified_summary(verified, {n: f"sha256 {s}" for n, s in sources.items()}))
    if not verified.holds:
        raise NumericalError(f"{bound}: what is claimed does not follow for this data")


def _named_terms(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """What was read, without the defaults of options that nobody named."""
    default = ParameterSource.DEFAULT
    unsaid = {
        n for n in ("tau", "eps", "calibration") if context.get_parameter_source(n) is default
    }
    return {name: value for name, value in given.items() if name not in unsaid}
