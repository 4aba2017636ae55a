"""`fairnepv local-features`: features of nearness, to choose by what a model is trained on."""

import click

import fairnepv
from fairnepv.cli import options as cli
from fairnepv.cli.files import ProblemFiles
from fairnepv.cli.outputs import Report, print_json, show
from fairnepv.errors import InputError


@click.command("local-features")
@cli.rows
@cli.reporting(out="The features of each view, as .npy; --out near.npy makes near-VIEW.npy.")
def local_features(problem: ProblemFiles, report: Report) -> None:
    """Features of nearness: near rows are alike, opposite ones share nothing.

    Representative picks that are chosen by them train better models than those chosen by the
    embeddings as they are (docs/choosing.md). Views that are aligned by ids come in the order of
    the first one.

    \b
    fairnepv local-features --view text=t.npz --view vision=v.npy --out near.npy
    fairnepv select --view text=near-text.npy --view vision=near-vision.npy -k 200 \\
        --objective representative --eps 0.3
    """
    if report.files["out"] is None:
        raise InputError("say where to write the features: --out near.npy")
    report.inputs = problem.files
    outputs = {name: report.output("out", (".npy",), part=name) for name in problem.views}
    given = problem.read()
    rows = {name: given[name] for name in ("data", "ids", "engine") if name in given}
    features = fairnepv.local_features(**rows)
    written = {name: str(report.write(outputs[name], F)) for name, F in features.items()}
    report.finish(fairnepv.Status.COMPLETE)
    if report.as_json:
        print_json({"views": written, "shapes": {name: F.shape for name, F in features.items()}})
        return
    shapes = (f"{written[name]} ({len(F):,} x {F.shape[1]:,})" for name, F in features.items())
    views = " ".join(f"--view {name}={file}" for name, file in written.items())
    ids = f" --ids {next(iter(problem.ids.values()))}" if problem.ids else ""
    show(f"Wrote {', '.join(shapes)}. Choose by them with")
    show(f"  fairnepv select {views}{ids} -k K --objective representative --eps 0.3")
