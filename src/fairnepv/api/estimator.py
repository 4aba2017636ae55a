"""`FairSelector`: the scikit-learn face of `select`."""

from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from fairnepv.api.picked import count_rows, rows_at
from fairnepv.api.select import is_one_size, select
from fairnepv.checks import brief, check_flag
from fairnepv.errors import InputError
from fairnepv.options import SHARE, SelectorOptions
from fairnepv.signatures import completed, takes


class FairSelector(BaseEstimator):  # type: ignore[misc]
    """Selects k rows of X; `fit_resample` returns them (and their labels).

    X is one array whose columns `views` assigns to views, or whatever `select` takes as data. All
    options of `select` are parameters but those of one set of rows, `ids`, and of one call,
    `nested` and `progress`. There is no `transform`: dropping rows inside a pipeline would part X
    from y.
    """

    _sampling_type = "bypass"  # to imbalanced-learn: k says how many, and no strategy of classes

    @takes(SelectorOptions)
    def __init__(self, k: int | float = SHARE, **options: Unpack[SelectorOptions]) -> None:
        self.k = k
        self.__dict__.update(completed("FairSelector.__init__", SelectorOptions, options))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Select; the result is in `selection_`, the rows in `selected_indices_`, which
        imbalanced-learn calls `sample_indices_`."""
        if not is_one_size(self.k):
            raise InputError(f"k must be one size, not {brief(self.k)}; fit once for each of them")
        self.selection_ = select(X, **self.get_params(deep=False))
        self._count_features(X)
        self.selected_indices_ = self.sample_indices_ = self.selection_.indices
        return self

    def _count_features(self, X: Any) -> None:
        """Set what scikit-learn asks for where X is one array; of several views there is none."""
        self.__dict__.pop("n_features_in_", None)
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if len(shape) == 2:
            self.n_features_in_ = int(shape[1])

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit_resample(self, X: Any, y: Any = None) -> Any:
        """The selected rows of X, or the pair (X, y) of them when y is given."""
        self.fit(X, y)
        n = self.selection_.chosen_from["n"]
        if y is not None and count_rows(y) != n:
            raise InputError(f"y must have one label per row, {n} in all, not {count_rows(y)}")
        picked = rows_at(X, self.selected_indices_)
        return picked if y is None else (picked, rows_at(y, self.selected_indices_))

    def get_support(self, indices: bool = False) -> Any:
        """Which rows were selected, as a mask or as sorted row numbers."""
        check_is_fitted(self, "selected_indices_")
        if check_flag("indices", indices):
            return np.sort(self.selected_indices_)
        mask = np.zeros(self.selection_.chosen_from["n"], dtype=bool)
        mask[self.selected_indices_] = True
        return mask
