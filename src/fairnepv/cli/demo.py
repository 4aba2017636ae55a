"""`fairnepv demo`: the embedded pool, every selector, one table."""

from __future__ import annotations

import click


@click.command()
@click.option("-k", default=50, show_default=True, help="How many items to choose.")
@click.option("--seed", default=0, show_default=True, help="Random state.")
def demo(k: int, seed: int) -> None:
    """Choose 50 of 2,297 pictograms by keywords and by looks, and compare every selector."""
    from rich.console import Console

    from fairnepv.cli.progress import stage_bar
    from fairnepv.data import openmoji
    from fairnepv.errors import Status
    from fairnepv.pipeline import compare
    from fairnepv.report import comparison_table, selection_summary

    pool = openmoji()
    data = {"text": pool["text"], "vision": pool["vision"]}
    with stage_bar() as progress:
        comparison = compare(data, k, ids=pool["id"], random_state=seed, progress=progress)
    console = Console()
    title = "OpenMoji: 2,297 pictograms, two views (d and F in nats per item; C: lower is better)"
    console.print(comparison_table(comparison, title))
    best = comparison["auto"]
    console.print(selection_summary(best), highlight=False)
    console.print("First picks: " + ", ".join(str(i) for i in best.ids[:8]), highlight=False)
    console.print("Pictograms by OpenMoji (CC BY-SA 4.0).", style="dim")
    if any(row.status is Status.INTERRUPTED for row in comparison):
        raise click.Abort
