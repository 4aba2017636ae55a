"""Products of all features with k columns: how many a relaxation makes, and how long they take."""

from __future__ import annotations

import time
from typing import Any

from fairnepv.stiefel.maps import SpanMaps


class Products:
    """Counts the products of some feature maps from now on, and the seconds inside of them.

    One product multiplies all features, or their transposes, with the columns that it is given. In
    the span `adjoint` has nothing to do, `combine` makes two, and `images` one more per view.
    """

    def __init__(self, maps: Any, views: int) -> None:
        self.count, self.seconds, self._inside = 0, 0.0, False
        spanned = isinstance(maps, SpanMaps)
        costs = {"adjoint": 1, "combine": 1, "images": 1}
        if spanned:
            costs = {"adjoint": 0, "combine": 2, "images": 1 + views}
        for name, cost in costs.items():
            setattr(maps, name, self._counted(getattr(maps, name), cost))

    def _counted(self, product: Any, cost: int) -> Any:
        def counted(array: Any) -> Any:
            if self._inside:  # `combine` may be made of `images`
                return product(array)
            self._inside, began = True, time.perf_counter()
            try:
                return product(array)
            finally:
                self._inside = False
                self.count += cost
                self.seconds += time.perf_counter() - began

        return counted
