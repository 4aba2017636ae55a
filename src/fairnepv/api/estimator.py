"""`FairSelector`: the scikit-learn face of `select`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fairnepv.api.pipeline import is_one_size, select
from fairnepv.compute import Engine
from fairnepv.compute.tensors import to_device
from fairnepv.concave import GAP
from fairnepv.errors import InputError
from fairnepv.views import View
from fairnepv.views.arrays import brief, check_flag


class FairSelector(BaseEstimator):  # type: ignore[misc]
    """Selects k rows of X; `fit_resample` returns them (and their labels).

    X is one array whose columns `views` assigns to views, or whatever `select` takes as data. All
    options of `select` are parameters but those of one set of rows, `ids`, and of one call,
    `nested` and `progress`. There is no `transform`: dropping rows inside a pipeline would part X
    from y.
    """

    def __init__(
        self,
        k: int | float = 0.1,
        *,
        views: Mapping[str, Any] | None = None,
        tau: float = 0.05,
        eps: float | Mapping[str, float] = 0.1,
        calibration: Any = "unit-diagonal",
        quality: Any = None,
        priorities: Mapping[str, float] | None = None,
        floors: Mapping[str, float] | None = None,
        include: Any = None,
        include_counts: bool = True,
        exclude: Any = None,
        groups: Any = None,
        quotas: Any = None,
        method: str = "auto",
        effort: str = "balanced",
        oversampling: float = 3.0,
        certify: bool = True,
        gap: float = GAP,
        target_efficiency: float | None = None,
        node_limit: int | None = None,
        hierarchical: bool | int = False,
        time_limit: float | None = None,
        strict: bool = False,
        memory_limit: int | str | None = None,
        checkpoint: str | Path | None = None,
        engine: Engine | str | None = None,
        random_state: int = 0,
    ) -> None:
        self.k = k
        self.views = views
        self.tau = tau
        self.eps = eps
        self.calibration = calibration
        self.quality = quality
        self.priorities = priorities
        self.floors = floors
        self.include = include
        self.include_counts = include_counts
        self.exclude = exclude
        self.groups = groups
        self.quotas = quotas
        self.method = method
        self.effort = effort
        self.oversampling = oversampling
        self.certify = certify
        self.gap = gap
        self.target_efficiency = target_efficiency
        self.node_limit = node_limit
        self.hierarchical = hierarchical
        self.time_limit = time_limit
        self.strict = strict
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Select; the result is in `selection_`, the rows in `selected_indices_`."""
        if not is_one_size(self.k):
            raise InputError(f"k must be one size, not {brief(self.k)}; fit once for each of them")
        self.selection_ = select(X, **self.get_params(deep=False))
        self.selected_indices_ = self.selection_.indices
        return self

    def fit_resample(self, X: Any, y: Any = None) -> Any:
        """The selected rows of X, or the pair (X, y) of them when y is given."""
        self.fit(X, y)
        n = self.selection_.settings["n"]
        if y is not None and _length(y) != n:
            raise InputError(f"y must have one label per row, {n} in all, not {_length(y)}")
        picked = _rows(X, self.selected_indices_)
        return picked if y is None else (picked, _rows(y, self.selected_indices_))

    def get_support(self, indices: bool = False) -> Any:
        """Which rows were selected, as a mask or as sorted row numbers."""
        check_is_fitted(self, "selected_indices_")
        if check_flag("indices", indices):
            return np.sort(self.selected_indices_)
        mask = np.zeros(self.selection_.settings["n"], dtype=bool)
        mask[self.selected_indices_] = True
        return mask


def _length(data: Any) -> int:
    shape = getattr(data, "shape", None) or np.shape(data)
    return int(shape[0]) if shape else 0


def _rows(data: Any, indices: Any) -> Any:
    """Rows of an array, sparse matrix, data frame, or of each view of a mapping or a list."""
    if isinstance(data, Mapping):
        return {name: _rows(value, indices) for name, value in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[indices]
    if hasattr(data, "tocsr"):
        return data.tocsr()[indices]
    if hasattr(data, "index_select"):
        return _rows_of_tensor(data, indices)
    if hasattr(data, "__array__"):
        return np.asarray(data)[indices]
    if isinstance(data, list | tuple):
        if isinstance(data[0], View) or len(getattr(data[0], "shape", np.shape(data[0]))) == 2:
            return [_rows(value, indices) for value in data]
        return [data[int(i)] for i in indices]
    raise InputError(f"cannot take rows of {type(data).__name__}; pass arrays")


def _rows_of_tensor(tensor: Any, indices: Any) -> Any:
    """Where it is, in its layout or, of a sparse one, as COO."""
    tensor = tensor if str(tensor.layout) == "torch.strided" else tensor.to_sparse_coo()
    return tensor.index_select(0, to_device(indices, tensor.device))
