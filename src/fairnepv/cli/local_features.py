"""`fairnepv local-features`: features of nearness, to choose by what a model is trained on."""

import click

import fairnepv
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import InputError
from fairnepv.insight import LOCAL_EPS

_SETTINGS = f"--objective representative --eps {LOCAL_EPS}"


@click.command(
    "local-features",
    help=f"""Features of nearness: near rows are alike, opposite ones share nothing.

    Representative picks that are chosen by them train better models than those chosen by the
    embeddings as they are (docs/choosing.md). Views that are aligned by ids come in the order of
    the first one.

    \b
    fairnepv local-features --view text=t.npz --view vision=v.npy --out near.npy
    fairnepv select --view text=near-text.npy --view vision=near-vision.npy -k 200 \\
        {_SETTINGS}
    """,
)
@cli.rows
@cli.reporting(out="The features of each view, as .npy; --out near.npy makes near-VIEW.npy.")
def local_features(problem: ProblemFiles, report: Report) -> None:
    if report.files["out"] is None:
        raise InputError("say where to write the features: --out near.npy")
    report.inputs = problem.files
    outputs = {name: report.output("out", (".npy",), part=name) for name in problem.views}
    given = problem.read()
    rows = {name: given[name] for name in ("data", "ids", "engine") if name in given}
    features = fairnepv.local_features(**rows)
    problem.check()
    written = {name: str(report.write(outputs[name], F)) for name, F in features.items()}
    report.finish(fairnepv.Status.COMPLETE)
    if report.as_json:
        print_json({"views": written, "shapes": {name: F.shape for name, F in features.items()}})
        return
    shapes = (f"{written[name]} ({len(F):,} x {F.shape[1]:,})" for name, F in features.items())
    views = " ".join(f"--view {name}={file}" for name, file in written.items())
    ids = f" --ids {_ids_of_rows(problem)}" if given.get("ids") is not None else ""
    show(f"Features of nearness: {', '.join(shapes)}. Choose by them with")
    show(f"  fairnepv select {views}{ids} -k K {_SETTINGS}")


def _ids_of_rows(problem: ProblemFiles) -> str:
    """Where the ids of the rows lie, which are those of the first view: in a file that was named,
    or in the converted folder of that view."""
    if "" in problem.ids:
        return problem.ids[""]
    first = next(iter(problem.views))
    return problem.ids.get(first, problem.views[first])
