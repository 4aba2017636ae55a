"""`fairnepv certify` and `fairnepv verify-bound`: a bound, and whether it holds."""

from dataclasses import replace
from shlex import join
from typing import Any

import click
from click.core import ParameterSource

import fairnepv
from fairnepv.cli import log
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles, reading
from fairnepv.cli.outputs import Report, print_json, show, show_plan
from fairnepv.errors import NumericalError


@click.command()
@cli.size_option
@cli.posing_with_rules
@cli.gap_option
@cli.time_limit_option
@cli.memory_limit_option
@cli.plan_option
@cli.reporting(out="The proof as .npz, for verify-bound.")
def certify(
    problem: ProblemFiles, k: int | float, plan: bool, report: Report, **options: Any
) -> None:
    """Prove what no k items can exceed, without choosing any.

    \b
    fairnepv certify --view text=t.npz --view vision=v.npy -k 200 --out bound.npz
    """
    from fairnepv.cli.progress import stage_bar
    from fairnepv.concave import proof_arrays
    from fairnepv.report import certificate_summary, certificate_table

    report.inputs = problem.files
    output = report.output("out", (".npz",))
    if plan:
        given = {**problem.read(engine=False), "memory_limit": options["memory_limit"]}
        show_plan([fairnepv.plan(k=k, method=None, **given)], as_json=report.as_json)
        return
    with stage_bar(options["time_limit"]) as progress:
        certificate = fairnepv.certify(k=k, **problem.read(), **options, progress=progress)
    problem.check()
    log.tell("result", found=certificate.record)
    written = report.write(output, proof_arrays(certificate.proof))
    if report.as_json:
        print_json({**certificate.record, "settings": problem.settings})
    else:
        show(certificate_table(certificate), certificate_summary(certificate))
        if written is not None:
            report.tell()
            show("To check the bound against this very problem:")
            terms = terms_of(k, problem, certificate)
            show("  " + join(["fairnepv", "verify-bound", str(written), *terms]))
    report.finish(certificate.status, output)


def terms_of(k: int | float, problem: ProblemFiles, certificate: fairnepv.Certificate) -> list[str]:
    """The options that state the terms of a bound. A calibration that was cut short follows from no
    rule and is left out; `verify-bound` prints it."""
    from fairnepv.views.scales import CUT_SHORT

    if certificate.proof.terms.calibration.rule == CUT_SHORT:
        stated = {name: value for name, value in problem.knobs.items() if name != "calibration"}
        problem = replace(problem, knobs=stated)
    return ["-k", str(k), *problem.arguments]


@click.command("verify-bound")
@click.argument("bound", metavar="BOUND.npz")
@click.option("-k", "k", type=cli.Size(), help="How many items the bound should be about.")
@cli.posing_with_rules
@cli.reporting()
@click.pass_context
def verify_bound(
    context: click.Context, problem: ProblemFiles, bound: str, k: int | float | None, report: Report
) -> None:
    """Check a stored bound against the data, from its dual variables alone.

    The terms of the problem (k, tau, eps, center, calibration, constraints, priorities) come with
    the bound and are printed: read them, for the bound holds under them and no others. What you
    name of them has to be the same. A calibration is computed again from its rule and the data.
    Exit code 1 if the bound does not follow, 2 if its terms are others.

    \b
    fairnepv verify-bound bound.npz --view text=t.npz --view vision=v.npy -k 200 --tau 0.05
    """
    from fairnepv.concave import read_proof
    from fairnepv.io.numpy_files import read_archive
    from fairnepv.report import verified_record, verified_summary

    proof = reading(lambda text: read_proof(read_archive(text)), "BOUND", "", bound)
    terms = problem.read()
    # Terms that were not named are not compared.
    for name in ("objective", "tau", "eps", "center", "calibration"):
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            del terms[name]
    verified = fairnepv.verify_bound(certificate=proof, k=k, **terms)
    problem.check()
    log.tell("result", found=verified_record(verified))
    sources = problem.checksums()
    if report.as_json:
        print_json({**verified_record(verified), "views": sources})
    else:
        show(verified_summary(verified, {n: f"sha256 {s}" for n, s in sources.items()}))
    if not verified.holds:
        raise NumericalError(f"{bound}: what is claimed does not follow for this data")
