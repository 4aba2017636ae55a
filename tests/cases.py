"""Data sets for tests, some with known answers; nothing here imports fairnepv.

The paper's quality-conflict instance (Section 5, Appendix C) with its known values, generators of
random pools, the list SMALL of pools that enumeration can solve, and two real pools.
"""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROOT = Path(__file__).resolve().parents[1]

# --- The paper's instance -------------------------------------------------------------------------

PAPER_OPTIMUM = (2 * math.log(100) + math.log(3) + 2 * math.log(0.1)) / 5  # 1.1407, enumerated
PAPER_ONE_SWAP = (math.log(100) + 3 * math.log(3) + math.log(0.1)) / 5  # 1.120, the paper's result
PAPER_BALANCED = math.log(3)  # 1.099, the five balanced items; a one-swap optimum as well
PAPER_OPTIMA = 500  # subsets that attain the optimum: C(5, 2)^2 * 5


class PaperRow(NamedTuple):
    """A row of the table in Appendix C: (text, vision, balanced) counts and three-digit scores."""

    counts: tuple[int, int, int]
    text: float
    vision: float
    fair_score: float

    @property
    def subset(self) -> list[int]:
        """The first items of each type, as many as the row counts."""
        return [5 * kind + i for kind, count in enumerate(self.counts) for i in range(count)]


PAPER_TABLE = {
    "exact": PaperRow((2, 2, 1), 1.141, 1.141, 1.141),
    "fairnepv": PaperRow((1, 1, 3), 1.120, 1.120, 1.120),
    "text-only": PaperRow((5, 0, 0), 4.605, -2.303, -2.199),
    "vision-only": PaperRow((0, 5, 0), -2.303, 4.605, -2.199),
    "averaged": PaperRow((5, 0, 0), 4.605, -2.303, -2.199),
    # The paper prints 0.565, the sum of the rounded 0.461 and 0.104; the value is 0.56447.
    "fixed-weight": PaperRow((2, 3, 0), 0.461, 1.842, 0.564),
}


def paper_instance() -> dict[str, Any]:
    """Appendix C: diagonal kernels diag(text) and diag(vision) without ridge, k = 5, tau = 0.15."""
    return {
        "text": np.repeat([100.0, 0.1, 3.0], 5),
        "vision": np.repeat([0.1, 100.0, 3.0], 5),
        "types": ["text"] * 5 + ["vision"] * 5 + ["balanced"] * 5,
        "k": 5,
        "tau": 0.15,
    }


# --- Generators -----------------------------------------------------------------------------------


def random_views(rng: np.random.Generator, n: int, widths: Sequence[int]) -> list[Array]:
    """Gaussian features, one n x p array per width p."""
    return [rng.standard_normal((n, p)) for p in widths]


def clustered_views(
    rng: np.random.Generator, n: int, widths: Sequence[int], clusters: int, spread: float = 0.2
) -> list[Array]:
    """Rows near `clusters` centres; items alike in one view differ in another.

    Every view deals the rows to its own centres anew.
    """
    views = []
    for p in widths:
        centres = rng.standard_normal((clusters, p))
        dealt = rng.permutation(np.arange(n) % clusters)
        views.append(centres[dealt] + spread * rng.standard_normal((n, p)))
    return views


def with_duplicates(views: Sequence[Array], pairs: Sequence[tuple[int, int]]) -> list[Array]:
    """For every (source, copy) the row `copy` repeats the row `source`, in all views."""
    repeated = [view.copy() for view in views]
    for view in repeated:
        for source, copy in pairs:
            view[copy] = view[source]
    return repeated


def random_frame(rng: np.random.Generator, n: int, k: int) -> Array:
    """A random orthonormal frame V, n x k."""
    return np.linalg.qr(rng.standard_normal((n, k)))[0]


# --- Small pools ----------------------------------------------------------------------------------


class Case(NamedTuple):
    """A pool small enough to enumerate; `eps` has one ridge per view."""

    name: str
    views: list[Array]
    k: int
    tau: float
    eps: tuple[float, ...]


def _unit_rows(views: Sequence[Array]) -> list[Array]:
    return [view / np.linalg.norm(view, axis=1, keepdims=True) for view in views]


def _freeze(arrays: Iterable[NDArray[Any]]) -> None:
    """Make arrays read-only, because every test gets the same ones."""
    for array in arrays:
        array.setflags(write=False)


def _small() -> list[Case]:
    rng = np.random.default_rng(20240607)
    one = random_views(rng, 8, [5])
    two = random_views(rng, 10, [6, 4])
    rows = random_views(rng, 12, [4, 5])
    zero = random_views(rng, 9, [4, 3])
    zero[1][4] = 0.0
    cases = [
        Case("one view", one, 3, 0.1, (0.1,)),
        Case("one item", random_views(rng, 6, [3, 2]), 1, 0.15, (0.1, 0.1)),
        Case("two views", two, 4, 0.15, (0.1, 0.1)),
        Case("cold", random_views(rng, 11, [6, 6]), 4, 0.01, (0.05, 0.05)),
        Case("warm", random_views(rng, 9, [4, 6]), 3, 2.0, (0.05, 0.05)),
        Case("ridge per view", random_views(rng, 10, [5, 5, 3]), 4, 0.1, (1e-3, 0.1, 1.0)),
        Case("four views", random_views(rng, 12, [3, 4, 5, 6]), 3, 0.2, (0.1, 0.1, 0.1, 0.1)),
        Case("clusters", clustered_views(rng, 14, [5, 4], 4), 4, 0.1, (0.01, 0.01)),
        Case("unit rows", _unit_rows(random_views(rng, 12, [5, 7])), 4, 0.05, (0.1, 0.1)),
        Case("k above p", random_views(rng, 12, [2, 3]), 5, 0.15, (0.1, 0.2)),
        Case("n below 2k", random_views(rng, 7, [6, 5]), 5, 0.15, (0.1, 0.1)),
        Case("all but one", random_views(rng, 6, [4, 4, 4]), 5, 0.15, (0.1, 0.1, 0.1)),
        Case("duplicates", with_duplicates(rows, [(2, 7), (2, 11), (9, 4)]), 4, 0.1, (0.1, 0.1)),
        Case("repeated view", [two[0], two[1], two[0]], 3, 0.15, (0.1, 0.1, 0.1)),
        Case("zero row", zero, 3, 0.1, (0.1, 0.1)),
        Case("scales apart", [100 * two[0], 0.01 * two[1]], 4, 0.15, (1e-2, 1e-4)),
    ]
    for case in cases:
        _freeze(case.views)
    return cases


SMALL = _small()


# --- Real pools -----------------------------------------------------------------------------------


def _load(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """The named arrays of an archive, as float32."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name].astype(np.float32) for name in names}
    _freeze(arrays.values())
    return arrays


@lru_cache
def uci() -> dict[str, NDArray[np.float32]]:
    """UCI multiple features, six views of 2,000 handwritten digits."""
    return _load(ROOT / "tests/data/uci_mfeat.npz", ["fou", "fac", "kar", "pix", "zer", "mor"])


@lru_cache
def openmoji() -> dict[str, NDArray[np.float32]]:
    """OpenMoji, MiniLM text features and vision features of 2,297 pictograms."""
    text = _load(ROOT / "src/fairnepv/data/openmoji_minilm.npz", ["text"])
    path = ROOT / "src/fairnepv/data/openmoji.parquet"
    column = pq.read_table(path, columns=["vision"], use_threads=False).column("vision")
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vision = {"vision": flat.astype(np.float32).reshape(len(column), -1)}
    _freeze(vision.values())
    return text | vision
