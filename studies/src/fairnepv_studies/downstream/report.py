"""Scores, tables and the figure of a study, from what its cells wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fairnepv.errors import InputError
from fairnepv.io.documents import read_document
from fairnepv.io.places import sha256_of
from fairnepv_studies.downstream.cells import Cell
from fairnepv_studies.downstream.figure import draw_scores
from fairnepv_studies.downstream.folder import TUNING, StudyFolder
from fairnepv_studies.downstream.scoring import (
    LABELS,
    Scored,
    bert_scores,
    read_scored,
    score_texts,
    scored_document,
    signatures,
    text_checksum,
)
from fairnepv_studies.downstream.strata import KINDS, MOTIF
from fairnepv_studies.downstream.summary import Strata, Summary, strata_of, summarise
from fairnepv_studies.downstream.tables import (
    cells_csv,
    differences_csv,
    means_csv,
    results_md,
    results_tex,
)
from fairnepv_studies.files import LARGEST, damaged_file
from fairnepv_studies.progress import StageProgress

SUMS = "SHA256SUMS"
TABLES = ("cells.csv", "results.csv", "differences.csv", "strata.csv", "results.tex", "results.md")
FIGURE = "scores.png"
_SEEDS = (
    "Mean ± standard deviation over seeds, which are matched: a seed means the same start and "
    "order for every selector; * is the highest mean as printed."
)
_AGAIN = "remove it, and the same command makes it again"


def finished(folder: StudyFolder, *, partial: bool = False) -> list[Cell]:
    """The tested cells that are there; unless `partial`, all of them have to be."""
    there = [cell for cell in folder.tested if folder.has(cell)]
    missing = [cell for cell in (*folder.tuning, *folder.tested) if not folder.has(cell)]
    if missing and not (partial and there):
        total = len(folder.tuning) + len(folder.tested)
        raise InputError(
            f"{len(missing)} of {total} cells are missing, the first is {missing[0]}; run them, "
            "or ask for --partial tables of those that are there"
        )
    return there


def score_cells(
    folder: StudyFolder, cells: Sequence[Cell], progress: StageProgress | None = None
) -> dict[Cell, Scored]:
    """Of every cell, from its file if that is about the same texts and was made the same way."""
    references = [item.text for item in folder.evaluated("test")]
    said = signatures(folder.study.scoring.bertscore)
    found: dict[Cell, Scored] = {}
    fresh: dict[Cell, Sequence[str]] = {}
    for cell in cells:
        texts = folder.record(cell).texts
        if len(texts) != len(references):
            raise damaged_file(
                folder.cell_file(cell), f"{len(texts)} texts, not {len(references)}", _AGAIN
            )
        known = _known(folder, cell, text_checksum(texts, references), said)
        if known is None:
            fresh[cell] = texts
        else:
            found[cell] = known
    made = compute(folder, fresh, references, progress)
    for cell, scored in made.items():
        document = scored_document(scored, text_checksum(fresh[cell], references), said)
        folder.write(score_file(cell), json.dumps(document) + "\n")
    return {cell: found.get(cell) or made[cell] for cell in cells}


def compute(
    folder: StudyFolder,
    texts: Mapping[Cell, Sequence[str]],
    references: Sequence[str],
    progress: StageProgress | None = None,
) -> dict[Cell, Scored]:
    """BERTScore for all cells at once: equal texts are encoded once, references too."""
    found = {}
    for done, (cell, own) in enumerate(texts.items(), 1):
        found[cell] = score_texts(own, references)
        if progress is not None:
            progress("scores", done, len(texts))
    asked = folder.study.scoring.bertscore
    if asked is None or not texts:
        return found
    pairs = list(
        dict.fromkeys(p for own in texts.values() for p in zip(own, references, strict=True))
    )
    listen = None if progress is None else lambda done, of: progress("BERTScore", done, of)
    values = bert_scores(asked, [p[0] for p in pairs], [p[1] for p in pairs], listen)
    by_pair = dict(zip(pairs, values.tolist(), strict=True))
    return {
        cell: with_bertscore(
            scored, [by_pair[p] for p in zip(texts[cell], references, strict=True)]
        )
        for cell, scored in found.items()
    }


def with_bertscore(scored: Scored, values: Sequence[float]) -> Scored:
    import numpy as np

    return Scored(scored.bleu_counts, scored.sentence_bleu, scored.rouge_l, np.array(values))


def score_file(cell: Cell) -> str:
    return f"scores/{cell.name}.json"


def _known(
    folder: StudyFolder, cell: Cell, checksum: str, said: Mapping[str, str]
) -> Scored | None:
    file = folder.path / score_file(cell)
    if not file.is_file():
        return None
    document = read_document(file, _AGAIN, most=LARGEST)
    if document.get("texts") != checksum or document.get("signatures") != said:
        return None
    try:
        return read_scored(document)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged_file(file, error, _AGAIN) from error


# --- tables and figure ----------------------------------------------------------------------------


def strata(folder: StudyFolder) -> Strata:
    """Rare motifs are told only where the corpus has design codes."""
    packed = [packed for packed in folder.items.values() if packed.part == "test"]
    rare = [p.rare for p in packed]
    known = [kind for kind in KINDS if kind != MOTIF or any(MOTIF in own for own in rare)]
    return strata_of(rare, known)


def tables(
    folder: StudyFolder, scored: Mapping[Cell, Scored], said: Mapping[str, str]
) -> tuple[dict[str, bytes], Summary]:
    """What follows from cells and scores alone, so that anybody writes the same bytes again.

    said: the signatures of the scores.
    """
    cells = list(scored)
    summary = summarise(folder.study, scored, strata(folder))
    caption = " ".join(sentences(folder, len(cells), said))
    records = [folder.record(cell) for cell in sorted(cells, key=table_order(folder))]
    scores = {cell: scored[cell].of() for cell in cells}
    contents = (
        cells_csv(records, scores),
        means_csv(summary, False),
        differences_csv(summary),
        means_csv(summary, True),
        results_tex(summary, caption).encode("utf-8"),
        results_md(summary, caption).encode("utf-8"),
    )
    return dict(zip(TABLES, contents, strict=True)), summary


def table_order(folder: StudyFolder) -> Any:
    names = [selector.name for selector in folder.study.selectors]
    return lambda cell: (cell.k, names.index(cell.selector), cell.seed)


def sentences(folder: StudyFolder, cells: int, said: Mapping[str, str]) -> list[str]:
    """What a reader of any table has to know."""
    scoring = folder.study.scoring
    near = len(folder.data["left_out"]["test"])
    several = [
        title_of(folder),
        f"{near:,} test items were left out as near duplicates of what may be trained on.",
        _SEEDS,
        _intervals(scoring.level, scoring.resamples),
        *(f"{LABELS[name]}: {how}." for name, how in said.items()),
        *_tuned(folder),
    ]
    if scoring.bertscore is None:
        several.append("BERTScore was not asked for.")
    if cells < len(folder.tested):
        several.append(f"INCOMPLETE: {cells} of {len(folder.tested)} cells.")
    return several


def title_of(folder: StudyFolder) -> str:
    """Simulated data is always called that."""
    data, counts = folder.data, folder.data["counts"]
    name = str(data["corpus"]["name"])
    chosen = f"fine-tuned by LoRA on k of {counts['pool']:,} items"
    tested = f"tested once on {counts['test']:,} others"
    return f"{name[:1].upper()}{name[1:]} corpus: {folder.study.model.name} {chosen}, {tested}."


def _intervals(level: float, resamples: int) -> str:
    how = "by a bootstrap over seeds and items"
    return f"Intervals: {100 * level:g}% {how}, {resamples:,} resamples."


def _tuned(folder: StudyFolder) -> list[str]:
    tuning = folder.study.tuning
    if tuning is None or not (folder.path / TUNING).is_file():
        return []
    values = ", ".join(map(str, tuning.values))
    chosen = f"{tuning.knob} was chosen on the validation split as {folder.tuned} from {values}"
    return [f"{chosen}, by ROUGE-L of {tuning.selector} at k = {tuning.k}, for all selectors."]


def write_report(
    folder: StudyFolder, *, partial: bool = False, progress: StageProgress | None = None
) -> tuple[list[str], Summary]:
    """Scores, tables, figure and checksums; the names of what was written, and what they say."""
    cells = finished(folder, partial=partial)
    scored = score_cells(folder, cells, progress)
    files, summary = tables(folder, scored, signatures(folder.study.scoring.bertscore))
    figure = draw_scores(summary, title_of(folder))
    for name, content in {**files, FIGURE: figure}.items():
        folder.write(name, content)
    folder.clean()
    folder.write(SUMS, sums(folder))
    return [*files, FIGURE, SUMS], summary


def sums(folder: StudyFolder) -> str:
    """A line per file, in order of their names; what is unfinished is no part of the study."""
    names = sorted(
        file.relative_to(folder.path).as_posix()
        for file in folder.path.rglob("*")
        if file.is_file()
    )
    kept = [name for name in names if name != SUMS and not name.startswith("unfinished/")]
    return "".join(f"{sha256_of(folder.path / name)}  {name}\n" for name in kept)
