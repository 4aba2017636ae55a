"""The ladders of swaps against their definition, however the rows were cut into blocks."""

import numpy as np
import pytest

from fairnepv.search import ladders
from fairnepv.search.ladders import SwapLadders

TIE = 0.1
Swap = tuple[int, int, float]  # slot, row, score


def twin(swaps: list[Swap], coarse: bool = False) -> list[Swap]:
    """Of every slot the rows within the tie of its best, in order; of sure scores those alone that
    beat all such rows before them."""
    found = []
    for slot in sorted({slot for slot, _, _ in swaps}):
        own = sorted((row, score) for s, row, score in swaps if s == slot)
        near = [(row, score) for row, score in own if score >= max(v for _, v in own) - TIE]
        found += [
            (slot, row, score)
            for i, (row, score) in enumerate(near)
            if coarse or all(score > before for _, before in near[:i])
        ]
    return found


def of(swaps: list[Swap], **options) -> SwapLadders:
    slots, rows = (np.array([swap[i] for swap in swaps], dtype=np.int64) for i in (0, 1))
    return SwapLadders.of(slots, rows, np.array([s for *_, s in swaps]), TIE, **options)


def rungs(found: SwapLadders) -> list[Swap]:
    return [tuple(rung) for rung in found.rungs.tolist()]


def random_swaps(seed: int, rows: int = 40, slots: int = 5) -> list[Swap]:
    """In no order, with equal scores, and with far scores of slots apart."""
    rng = np.random.default_rng(seed)
    level = rng.choice([0.0, 0.02, -3.0, 7.0], slots)
    pairs = [(s, r) for s in range(slots) for r in range(rows) if rng.random() < 0.7]
    swaps = [(s, r, float(level[s] + rng.integers(-9, 3) * 0.03)) for s, r in pairs]
    return [swaps[i] for i in rng.permutation(len(swaps))]


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_ladder_has_the_rows_that_may_turn_out_to_be_chosen(seed, coarse, monkeypatch):
    monkeypatch.setattr(ladders, "_CROWD", 1000)
    swaps = random_swaps(seed)
    whole = of(swaps, coarse=coarse)
    assert rungs(whole) == twin(swaps, coarse)
    assert not whole.crowded
    for cut in (0, 1, 13, 40):
        parts = [[s for s in swaps if (s[1] < cut) is lower] for lower in (True, False)]
        low, high = (
            of(part, coarse=coarse) if part else SwapLadders.none(TIE)._replace(coarse=coarse)
            for part in parts
        )
        joined = low.merged(high)
        assert rungs(joined) == rungs(whole)
        assert (joined.tie, joined.coarse) == (TIE, coarse)


def test_a_score_that_is_lower_by_just_the_tie_is_tied():
    slots, rows, scores = np.zeros(3, dtype=np.int64), np.arange(3), np.array([0.5, 1.0, 0.25])
    for coarse in (False, True):
        found = SwapLadders.of(slots, rows, scores, 0.5, coarse=coarse)
        assert found.rungs["row"].tolist() == [0, 1]
    nobody = SwapLadders.of(slots[:0], rows[:0], scores[:0], 0.5)
    assert (len(nobody.rungs), nobody.tie) == (0, 0.5)


def test_of_a_crowd_the_first_of_the_best_stay(monkeypatch):
    monkeypatch.setattr(ladders, "_CROWD", 3)
    few = of([(0, row, 1.0) for row in (5, 2, 9)], coarse=True)
    assert [row for _, row, _ in rungs(few)] == [2, 5, 9]
    assert not few.crowded
    scores = {5: 1.0, 2: 0.95, 9: 1.0, 7: 1.01, 1: 0.95, 3: 0.5}
    found = of([(0, row, s) for row, s in scores.items()] + [(2, 8, 4.0)], coarse=True)
    assert rungs(found) == [(0, 5, 1.0), (0, 7, 1.01), (0, 9, 1.0), (2, 8, 4.0)]
    assert found.crowded
    for one, other in ((found, few), (few, found)):
        assert one.merged(other).crowded
    assert found.merged(SwapLadders.none(TIE)).crowded
    monkeypatch.setattr(ladders, "_CROWD", 1000)  # and who has lost rows once says so ever after
    assert found.merged(few).crowded
    assert few.merged(found).crowded
    assert not few.merged(few).crowded
    spread = of([(slot, 4, 1.0) for slot in range(5)], coarse=True)  # a crowd of nobody
    assert len(spread.rungs) == 5
    assert not spread.crowded


def test_swaps_are_tried_from_the_best_with_ties_by_row_and_slot():
    swaps = [(0, 6, 1.0), (0, 8, 1.05), (1, 6, 1.0), (2, 4, 0.98), (3, 1, 2.0), (4, 0, 0.2)]
    found = of(swaps)
    assert found.moves() == [(3, (1,)), (2, (4,)), (0, (6, 8)), (1, (6,)), (4, (0,))]
    assert found.moves(above=1.0) == [(3, (1,)), (0, (6, 8))]
    assert found.by_row().tolist() == [[0, 4], [1, 3], [4, 2], [6, 0], [6, 1], [8, 0]]
    assert SwapLadders.none(TIE).moves() == []
    assert SwapLadders.none(TIE).by_row().tolist() == []
