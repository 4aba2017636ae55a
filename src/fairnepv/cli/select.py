"""`fairnepv select`: choose k items of a pool in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairnepv.cli.options import (
    ProblemOptions,
    constraining,
    debug_option,
    effort_option,
    force_option,
    gap_option,
    hierarchical_option,
    json_option,
    memory_limit_option,
    plan_option,
    posing,
    seed_option,
    sizes_option,
    strict_option,
    time_limit_option,
)
from fairnepv.display import visible
from fairnepv.errors import FairnepvError, InputError

if TYPE_CHECKING:
    from fairnepv.api.selection import Selection


@click.command()
@sizes_option
@click.option("--nested", is_flag=True, help="Of several sizes, each is contained in the next.")
@posing
@constraining
@click.option(
    "--method",
    default="auto",
    show_default=True,
    help="auto, exact (branch and bound), nepv (the paper's pipeline), greedy, or a baseline: "
    "VIEW-only, averaged, fixed-weight, concatenated, softmax, d-optimal, saturate, k-dpp, random.",
)
@effort_option
@click.option("--certify/--no-certify", default=True, help="Also prove a bound.  [default: yes]")
@gap_option
@click.option(
    "--target-efficiency",
    type=click.FloatRange(0, 1, min_open=True),
    help="Stop once so much of the best possible is certain, such as 0.95.",
)
@click.option("--node-limit", type=click.IntRange(min=1), help="Of --method exact.")
@hierarchical_option
@time_limit_option
@memory_limit_option
@click.option(
    "--checkpoint",
    metavar="FILE",
    help="Write the state there after every step, and go on from there.",
)
@plan_option
@seed_option
@click.option(
    "--out",
    metavar="FILE",
    help="Picks with id, row, order and gain per view: .parquet, .csv, .json or .txt; for several "
    "sizes one file each, FILE-100.csv.",
)
@click.option("--bound", metavar="FILE", help="The proof of the bound as .npz, for verify-bound.")
@click.option("--explain", metavar="FILE", help="What each pick adds, and the rival that it beat.")
@click.option("--assign", metavar="FILE", help="Every row with its pick, and training weights.")
@force_option
@json_option
@strict_option
@debug_option
def select(
    problem: ProblemOptions,
    k: Any,
    seed: int,
    out: str | None,
    bound: str | None,
    explain: str | None,
    assign: str | None,
    force: bool,
    as_json: bool,
    strict: bool,
    plan: bool,
    **wishes: Any,
) -> None:
    """Choose k items so that no view is left behind, and prove how good the choice is.

    \b
    fairnepv select --view text=t.npz --view vision=v.npy -k 200 --out picks.parquet
    """
    from fairnepv.api.pipeline import plan as foretell
    from fairnepv.api.pipeline import select as choose
    from fairnepv.cli.outputs import deliver, finish, print_json, show_plan
    from fairnepv.cli.progress import stage_bar
    from fairnepv.io.places import local_path
    from fairnepv.io.write import TABLES, table_document
    from fairnepv.report import selection_table

    sizes = k if isinstance(k, list) else None
    if sizes and (bound or explain or assign):
        raise InputError("--bound, --explain and --assign are for one size; leave the others out")
    if bound and not wishes["certify"]:
        raise InputError("--bound needs a bound; leave --no-certify out")
    files = Files(problem, force)
    tables = {size: files.at("--out", _with_size(out, size), TABLES) for size in sizes or [None]}
    others = {
        "bound": files.at("--bound", bound, (".npz",)),
        "explain": files.at("--explain", explain, TABLES),
        "assign": files.at("--assign", assign, TABLES),
    }
    if wishes["checkpoint"] is not None:
        files.claim("--checkpoint", local_path(wishes["checkpoint"]))
    if plan:
        given = problem.read(engine=False)
        forecasts = [foretell(k=size, **given, **wishes) for size in sizes or [k]]
        show_plan(forecasts, as_json=as_json)
        return
    with stage_bar(wishes["time_limit"]) as progress:
        found = choose(k=k, **problem.read(), **wishes, random_state=seed, progress=progress)
        whole = _by_size(found, sizes) if sizes else {None: found}
        chosen = {size: selection.looked_around() for size, selection in whole.items()}
    found_tables = {size: selection_table(selection) for size, selection in chosen.items()}
    failed = {size: deliver(tables[size], table) for size, table in found_tables.items()}
    unwritten: list[FairnepvError] = [error for errors in failed.values() for error in errors]
    try:
        if as_json:
            documents = [table_document(table) for table in found_tables.values()]
            print_json(documents if sizes else documents[0])
        else:
            for size, selection in chosen.items():
                output = tables[size]
                _show(selection, output.path if output and not failed[size] else None)
    finally:  # whoever reads along may leave
        for name, output in others.items():
            extra = _extra(name, next(iter(chosen.values()))) if output else None
            unwritten += deliver(output, extra)
    if unwritten:
        raise unwritten[0]
    worst = next((size for size, s in chosen.items() if not s.status.ok), next(iter(chosen)))
    finish(chosen[worst].status, strict=strict, written=tables[worst])


class Files:
    """Outputs of one command: checked before any work, none of them a file that is read."""

    def __init__(self, problem: ProblemOptions, force: bool) -> None:
        self._inputs, self._force = problem.files, force
        self._claimed: list[Path] = []

    def at(self, option: str, text: str | None, endings: tuple[str, ...]) -> Any:
        from fairnepv.cli.outputs import output_at

        output = output_at(option, text, endings, force=self._force, inputs=self._inputs)
        if output is not None:
            self.claim(option, output.path)
        return output

    def claim(self, option: str, path: Path) -> None:
        """For this option alone, whatever the others call the same file."""
        for others, why in (
            (self._inputs, "is also read; write to another file"),
            (self._claimed, "is named twice; give each output its own file"),
        ):
            if os.path.realpath(path) in map(os.path.realpath, others):
                raise InputError(f"{option}: {path} {why}")
        self._claimed.append(path)


def _with_size(out: str | None, size: Any) -> str | None:
    if out is None or size is None:
        return out
    stem, ending = os.path.splitext(out)
    return f"{stem}-{size}{ending}"


def _by_size(found: Mapping[int, Selection], sizes: Sequence[Any]) -> dict[Any, Selection]:
    """Selections by the sizes as they were given, of which an interruption leaves the largest out.

    The library counts items where a fraction was given, and more of them for a larger one.
    """
    whole = {size: found[size] for size in sizes if size in found}
    fractions = sorted(size for size in sizes if isinstance(size, float))
    counts = sorted(count for count in found if count not in whole)
    named = whole | dict(zip(fractions, (found[count] for count in counts), strict=False))
    return {size: named[size] for size in sizes if size in named}


def _show(selection: Selection, written: Path | None) -> None:
    from fairnepv.cli.outputs import show
    from fairnepv.report import score_table, selection_summary

    show(score_table(selection), selection_summary(selection))
    if written is None:
        click.echo("Picks in order: " + ", ".join(map(visible, selection.ids.tolist())))
    else:
        show(f"Wrote {written}.")


def _extra(name: str, selection: Selection) -> Mapping[str, Any] | Any:
    """What further outputs hold: arrays for .npz, a table else."""
    from fairnepv.concave import proof_arrays
    from fairnepv.insight import assign, explain
    from fairnepv.report import assignment_table, explanation_table

    if name == "bound":
        assert selection.certificate is not None
        return proof_arrays(selection.certificate.proof)
    if name == "explain":
        return explanation_table(explain(selection))
    return assignment_table(assign(selection), selection)
