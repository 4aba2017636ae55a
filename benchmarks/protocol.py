"""The protocol of section 6: tables of finished runs, from corpora that `fairnepv uspto` made.

A corpus and its run are made by the commands of docs/uspto.md; this only turns their results into
the section of BENCHMARKS.md: python benchmarks/protocol.py simulated/corpus openmoji:main --write
"""

from __future__ import annotations

import argparse

from fairnepv_studies.corpus import Corpus
from fairnepv_studies.protocol.report import sentences
from fairnepv_studies.protocol.results import BOUND, Unit, best_methods
from fairnepv_studies.protocol.run import Run
from fairnepv_studies.protocol.tables import cells, headings
from sections import markdown, provenance, publish


def section(run: Run) -> str:
    """One table per size under the name of the corpus; simulated data is called that there."""
    settings = run.settings
    parts = [f"### {settings.corpus_name[:1].upper()}{settings.corpus_name[1:]} corpus"]
    parts.append(f"{settings.caption}. {' '.join(sentences(settings))}")
    parts += [table(run, k) for k in settings.sizes]
    return "\n\n".join(parts)


def table(run: Run, k: int) -> str:
    best = best_methods(run.results, k)
    rows = cells(run.results, run.seconds, k)
    bold = [[name, f"**{fair}**" if name in best else fair, *rest] for name, fair, *rest in rows]
    bound, seconds = run.proof(k).upper_bound, run.seconds[Unit(k, BOUND, 0)]
    above = run.settings.told_in.rounded_up(bound)
    proven = f"no set scores above {above}, proven in {seconds:.1f} s"
    return f"k = {k:,} of {run.settings.n:,}; {proven}.\n\n{markdown(headings(run.results), bold)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", help="CORPUS[:RUN] of a finished run, by default main")
    parser.add_argument("--write", action="store_true", help="into BENCHMARKS.md")
    options = parser.parse_args()
    named = [text.partition(":") for text in options.runs]
    runs = [Run.open(Corpus.open(folder), name or "main") for folder, _, name in named]
    parts = [provenance("scikit-learn"), *map(section, runs)]
    publish("protocol", "\n\n".join(parts), write=options.write)


if __name__ == "__main__":
    main()
