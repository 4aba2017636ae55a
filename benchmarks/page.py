"""How large a report page is, and how soon Chromium has drawn it: 50,000 points in two views, 200
picks with pictures. Prints medians with their ranges; nothing is written."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

import fairnepv


def made(folder: Path, n: int, k: int) -> Path:
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((n, 32), dtype=np.float32) for name in ("text", "vision")}
    ids = [f"item-{i:06}" for i in range(n)]
    pixels = rng.integers(0, 256, (64, 12, 12, 3), dtype=np.uint8)
    pictures = [Image.fromarray(p).resize((160, 160)) for p in pixels]
    warnings.simplefilter("ignore", fairnepv.RankWarning)
    found = fairnepv.select(data, k, ids=ids, effort="fast", gap=0.1)
    texts = [f"simulated item number {i}" for i in range(n)]
    images = [pictures[i % len(pictures)] for i in range(n)]
    return found.report(folder / "report.html", images=images, texts=texts)


def seconds(path: Path, times: int) -> tuple[list[float], list[float]]:
    """From the start of the navigation until all sections are there and a frame was painted, and
    what the page's process spent of a processor, which says more on a busy machine."""
    from playwright.sync_api import sync_playwright

    found, spent = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for _ in range(times):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.goto(path.as_uri(), wait_until="commit")
            painted = page.evaluate(
                """() => new Promise((tell) => {
                const look = () => document.documentElement?.dataset.ready
                  ? requestAnimationFrame(() => setTimeout(() => tell(performance.now())))
                  : setTimeout(look, 5);
                look(); })"""
            )
            found.append(painted / 1000)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            metrics = session.send("Performance.getMetrics")["metrics"]
            spent.append(next(m["value"] for m in metrics if m["name"] == "ProcessTime"))
            page.close()
        browser.close()
    return found, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=50_000)
    parser.add_argument("-k", type=int, default=200)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = made(Path(folder), given.n, given.k)
        drawn, spent = seconds(path, given.times)
        size = path.stat().st_size / 1e6
    middle = statistics.median(drawn)
    points = f"{given.n:,} points, k = {given.k}: {size:.2f} MB"
    print(f"{points}; drawn in {middle:.2f} s of {min(drawn):.2f} to {max(drawn):.2f} s,")
    print(f"{statistics.median(spent):.2f} s of a processor, {min(spent):.2f} to {max(spent):.2f}")


if __name__ == "__main__":
    main()
