"""Views that are not embeddings yet: audited attributes, texts, narrow views to be widened,
and several vectors per item. Plain functions from columns to what `select` takes as a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairnepv.api.columns import column_of, open_table
from fairnepv.checks import brief, check_count, check_positive, check_seed
from fairnepv.compute import HOST
from fairnepv.errors import InputError
from fairnepv.io.capsules import as_column, nested_rows
from fairnepv.options import default
from fairnepv.views.base import Floats
from fairnepv.views.intake import as_view
from fairnepv.views.validity import rows_in_words

_MOST_CATEGORIES = 1000  # of one column: beyond, it names rows rather than describes them
HOW = ("mean", "max")


def attributes(
    table: Any, columns: Sequence[str] | str, *, missing: str = "category"
) -> NDArray[np.float64]:
    """(n, p) rows of audited attributes: categories (texts, truth values) one-hot, and numbers
    less their mean and over their standard deviation.

    table: whatever `select` takes with names of columns.
    missing: 'category', so that rows without a category have one of their own (numbers have none),
        or 'refuse'.

    Categories are divided by the square root of two, so that two rows that differ in one are at a
    distance of 1 there, as are numbers one standard deviation apart.
    """
    names = _column_names(columns)
    if missing not in ("category", "refuse"):
        raise InputError(f"missing must be 'category' or 'refuse', not {missing!r}")
    held = open_table(table, names)
    found = [_attribute(held.values(name, gaps=True), name, missing) for name in names]
    for name, rows in zip(names, found, strict=True):
        if len(rows) != len(found[0]):
            raise InputError(
                f"columns must have the same number of rows, but {names[0]!r} has {len(found[0])} "
                f"and {name!r} has {len(rows)}"
            )
    return np.hstack(found)


def _column_names(columns: Any) -> list[str]:
    several = isinstance(columns, Iterable) and not isinstance(columns, str)
    names = list(columns) if several else [columns]
    if not all(isinstance(name, str) for name in names):
        raise InputError(
            f"columns must be the name of a column or a list of names, not {brief(columns)}"
        )
    if not names:
        raise InputError("columns is empty; name at least one")
    return names


def _attribute(values: NDArray[Any], name: str, missing: str) -> Floats:
    what = f"column {name!r}"
    if values.dtype.kind in "Mm":
        raise InputError(f"{what} holds dates; say what counts of them, such as the year")
    if values.dtype.kind in "iuf":
        return _standardised(values.astype(np.float64), what)
    empty = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    if empty.any() and missing == "refuse":
        raise InputError(
            f"{what} has no value in {rows_in_words(np.flatnonzero(empty))}; fill them"
        )
    texts = [None if gap else value for value, gap in zip(values.tolist(), empty, strict=True)]
    kinds = sorted({type(value).__name__ for value in texts if value is not None})
    if len(kinds) > 1:
        raise InputError(f"{what} mixes {' and '.join(kinds)}; make all of them of one kind")
    if kinds == ["Decimal"]:  # numbers, which NumPy has no type for
        return _standardised(np.array([np.nan if t is None else t for t in texts], float), what)
    labels = sorted({value for value in texts if value is not None})
    if len(labels) > _MOST_CATEGORIES:
        raise InputError(
            f"{what} has {len(labels):,} different values, too many for categories; of texts make "
            "a view with fairnepv.texts(column)"
        )
    codes = {label: at for at, label in enumerate(labels)}
    hot = np.zeros((len(texts), len(labels) + bool(empty.any())))
    at = [len(labels) if value is None else codes[value] for value in texts]
    hot[np.arange(len(texts)), at] = np.sqrt(0.5)
    return hot


def _standardised(values: Floats, what: str) -> Floats:
    gaps = np.flatnonzero(~np.isfinite(values))
    if len(gaps):
        raise InputError(
            f"{what} has no number in {rows_in_words(gaps)}; fill them, or say in a column of its "
            "own where it is missing"
        )
    largest = float(np.abs(values).max())
    values = values / (largest or 1.0)  # so that squares neither overflow nor vanish
    apart = values - values.mean()
    spread = float(apart.std())
    if not spread > 1e-12:
        raise InputError(f"{what} has the same number in every row; leave it out")
    return np.asarray(apart / spread)[:, None]


def texts(column: Any, *, most_words: int = 20_000, least_rows: int = 2) -> sp.csr_array:
    """(n, p) TF-IDF of texts, sparse, rows of unit length: words of two letters and more that occur
    in `least_rows` texts and in no more than half of them.

    column: texts, one per row, of any kind that a table has. Rows in which no such word is left are
        refused, as nothing tells where they are.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    written = column_of(column, "column")
    if written.dtype.kind not in "UT":
        raise InputError(f"column must hold texts, not {written.dtype}")
    words = check_count("most_words", most_words), check_count("least_rows", least_rows)
    reader = TfidfVectorizer(
        max_features=words[0], min_df=words[1], max_df=0.5, sublinear_tf=True, dtype=np.float32
    )
    try:
        found = sp.csr_array(reader.fit_transform(written.tolist()))
    except ValueError as error:
        raise InputError(
            f"column has no words that {words[1]} texts share ({error}); lower least_rows"
        ) from error
    bare = np.flatnonzero(np.diff(found.indptr) == 0)
    if len(bare):
        raise InputError(
            f"column has no word that other rows have in {rows_in_words(bare)}; drop or fill these "
            "rows, or lower least_rows"
        )
    return found


def widened(
    rows: Any,
    features: int,
    *,
    bandwidth: float | None = None,
    random_state: int = default("random_state"),
) -> NDArray[np.float32]:
    """(n, features) random Fourier features of a narrow view [RahimiRecht]: rows of unit length,
    whose products are about exp(-|x - y|^2 / (2 bandwidth^2)).

    For a view with fewer columns than items are to be chosen, and for attributes, of which length
    counts and not only direction.

    rows: whatever is a view.
    features: how many columns; an even number.
    bandwidth: how far apart rows may be and still be alike; by default the median distance between
        a thousand of them.
    """
    view = as_view("rows", rows).checked("rows")
    count, seed = check_count("features", features, 2), check_seed("random_state", random_state)
    if count % 2:
        raise InputError(f"features must be an even number, not {count}; add one")
    rng = np.random.default_rng(seed)
    if bandwidth is None:
        some = np.sort(rng.choice(view.n, min(view.n, 1000), replace=False))
        width = _median_distance(np.asarray(HOST.dense(view.raw_rows(some)), dtype=np.float64))
    else:
        width = check_positive("bandwidth", bandwidth)
    waves = rng.standard_normal((view.p, count // 2)) / width
    found = np.empty((view.n, count), dtype=np.float32)
    for start in range(0, view.n, 4096):
        angles = np.asarray(view.raw_rows(slice(start, min(start + 4096, view.n))) @ waves)
        found[start : start + 4096] = np.hstack([np.cos(angles), np.sin(angles)])
    found /= np.float32(np.sqrt(count // 2))
    return found


def _median_distance(rows: Floats) -> float:
    rows = rows - rows.mean(axis=0)  # or lengths would cancel where rows are far from zero
    norms = (rows**2).sum(axis=1)
    squares = norms[:, None] + norms - 2 * rows @ rows.T
    median = float(np.sqrt(np.median(squares[np.triu_indices(len(rows), 1)]).clip(0)))
    if not median > 0:
        raise InputError("most rows are equal, so that no distance is usual; name a bandwidth")
    return median


def pooled(rows: Any, ids: Any = None, *, how: str = "mean") -> Any:
    """One row per item of several vectors per item: crops of a picture, chunks of a text.

    rows: (m, p) rows, each of the item that `ids` names: the result is the ids, each once, in the
        order in which they first occur, and their (n, p) rows. Without ids a column of lists of
        vectors, one list per item: the result is (n, p) rows, NaN where a list is empty.
    how: 'mean' or 'max', of every feature.
    """
    if how not in HOW:
        raise InputError(f"how must be 'mean' or 'max', not {how!r}")
    if ids is None:
        return _pooled_lists(rows, how)
    view = as_view("rows", rows).checked("rows")
    names = column_of(ids, "ids")
    if len(names) != view.n:
        raise InputError(f"ids must be one per row, {view.n} in all, not {len(names)}")
    values, first, item = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.argsort(order)[item.reshape(-1)]
    whole = HOST.dense(view.raw_rows(slice(0, view.n)))
    return values[order], _pooled(whole, place, len(values), how)


def _pooled(rows: NDArray[Any], item: NDArray[Any], n: int, how: str) -> Floats:
    """(n, p) of rows (m, p) by the item of each; NaN of items without rows."""
    counts = np.bincount(item, minlength=n)
    if how == "max":
        found = np.full((n, rows.shape[1]), -np.inf)
        np.maximum.at(found, item, rows)
        found[counts == 0] = np.nan
        return found
    sums = sp.csr_array((np.ones(len(item)), (item, np.arange(len(item)))), shape=(n, len(item)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums @ rows.astype(np.float64) / counts[:, None])


def _pooled_lists(column: Any, how: str) -> Floats:
    """(n, p) of a column of lists of vectors, chunk by chunk."""
    found, first, width = [], 0, 0
    for chunk in as_column(column, "rows").chunks:
        rows, item = nested_rows(chunk, "rows", first)
        if len(rows):
            if width not in (0, rows.shape[1]):
                raise InputError(
                    f"rows has vectors of different lengths: {width} before row "
                    f"{first + int(item[0]):,} and {rows.shape[1]} there"
                )
            width = rows.shape[1]
        found.append(_pooled(rows, item, len(chunk), how))
        first += len(chunk)
    if not width:
        raise InputError("rows has no vector in any row")
    # A chunk of empty lists does not say how long vectors are.
    return np.concatenate([f if f.shape[1] else np.full((len(f), width), np.nan) for f in found])
