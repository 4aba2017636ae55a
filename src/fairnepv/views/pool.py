"""A pool: named views of the same n rows, aligned once, and the engine that walks over them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairnepv.checks import check_positive, is_finite
from fairnepv.compute import HOST, Block, Engine, LocalEngine, Pass, Place, engine_of, portable
from fairnepv.compute.clock import check_time
from fairnepv.compute.device import TorchEngine
from fairnepv.errors import InputError
from fairnepv.io.rows import RowFile
from fairnepv.options import default
from fairnepv.views.base import Floats, Indices, View
from fairnepv.views.blocks import Center, DenseBlock, squared_norms
from fairnepv.views.dense import DenseView
from fairnepv.views.ids import aligned, check_ids
from fairnepv.views.intake import as_view, check_quality, named_views

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Pool:
    """Make one with `Pool.of`, which checks; the constructor trusts."""

    names: tuple[str, ...]
    views: tuple[View, ...]
    engine: Engine
    ids: NDArray[Any] | None = None
    quality: Mapping[str, Floats] | None = None  # (n,) per view; `Calibration.apply` uses it
    centered: bool = False  # whether the views are about their means (`centering`)
    dropped: Indices | None = None  # rows that lack some view, and so are absent from all
    lacking: Mapping[str, Indices] = field(default_factory=dict)  # by view the rows without it
    reordered: tuple[str, ...] = ()  # views whose rows stood otherwise than those of the first

    @classmethod
    def of(
        cls,
        data: Any,
        *,
        views: Mapping[str, Any] | None = None,
        eps: float | Mapping[str, float] = default("eps"),
        ids: Any = None,
        align: str = default("align"),
        quality: Any = None,
        missing: str = default("missing"),
        engine: Engine | str | None = None,
    ) -> Pool:
        """Views by name, aligned by row, or by id where `ids` maps view names to row ids.

        With `missing` rows may lack a view; with `align` "inner" an id may.

        A quality vector of a view goes with the rows of that view, as they were handed in; one
        that is common to all views goes with the rows of the pool, which are those of the first.
        """
        engine = None if engine is None else engine_of(engine)
        named = named_views(data, views)
        gaps = missing != "refuse"
        checked = {name: _checked(name, value, engine, gaps) for name, value in named.items()}
        checked = _with_ridges(checked, eps)
        sizes = {name: view.n for name, view in checked.items()}
        orders: dict[str, Indices] = {}
        strangers: NDArray[np.bool_] | None = None
        common_ids: NDArray[Any] | None = None
        if isinstance(ids, Mapping):
            common_ids, orders, strangers = aligned(checked, ids, inner=align == "inner")
            checked |= {name: checked[name].reordered(order) for name, order in orders.items()}
        _check_lengths(checked)
        n = next(iter(checked.values())).n
        if ids is not None and common_ids is None:
            common_ids = check_ids(ids, n, "ids")
        qualities = check_quality(quality, sizes)
        if isinstance(quality, Mapping) and qualities is not None:
            qualities.update({name: qualities[name][order] for name, order in orders.items()})
        lacking = _lacking(checked, strangers)
        checked, dropped = _without_dropped(checked, strangers, missing == "drop")
        engine = engine_of(engine or _home_engine(checked.values()))
        there = settled(tuple(checked.values()), engine)
        known: Any = {"dropped": dropped, "lacking": lacking, "reordered": tuple(orders)}
        return cls(tuple(checked), there, engine, common_ids, qualities, **known)

    @classmethod
    def sketch(
        cls,
        data: Any,
        *,
        views: Mapping[str, Any] | None = None,
        eps: float | Mapping[str, float] = default("eps"),
        ids: Any = None,
        align: str = default("align"),
        engine: Engine | str | None = None,
    ) -> Pool:
        """The same from shapes and headers alone, for plans: no row is read or checked, and no id.
        Views that ids align have the rows of the first one, however many they come with."""
        named = named_views(data, views)
        sketched = {name: as_view(name, value).sketched(name) for name, value in named.items()}
        sketched = _with_ridges(sketched, eps)
        if isinstance(ids, Mapping) and align == "inner":
            n = next(iter(sketched.values())).n
            sketched = {name: _counting(view, n) for name, view in sketched.items()}
        _check_lengths(sketched)
        engine = engine_of(_home_engine(sketched.values()) if engine is None else engine)
        return cls(tuple(sketched), tuple(sketched.values()), engine)

    @property
    def n(self) -> int:
        return self.views[0].n

    @property
    def place(self) -> Place:
        """Where portable tasks compute."""
        return self.engine.place

    def items(self) -> Iterator[tuple[str, View]]:
        """The views with their names."""
        return zip(self.names, self.views, strict=True)

    @property
    def width(self) -> int:
        """P, the feature columns of all views together."""
        return sum(view.p for view in self.views)

    @property
    def stored(self) -> int:
        """How many numbers a product of all feature maps with a vector touches."""
        return sum(view.stored for view in self.views)

    @property
    def row_width(self) -> int:
        return -(-self.stored // self.n)

    @property
    def eps(self) -> Floats:
        """(M,) ridges."""
        return np.array([view.ridge for view in self.views])

    @property
    def offsets(self) -> Floats:
        """(M,) log factors on L."""
        return np.array([view.offset for view in self.views])

    def block(self, start: int, stop: int) -> Block:
        views = tuple(view.block(start, stop) for view in self.views)
        return Block(start, stop, views, self.place)

    def gather(self, rows: Indices, start: int, stop: int) -> Block:
        chosen = rows[start:stop]
        views = tuple(view.gather(chosen) for view in self.views)
        return Block(start, stop, views, self.place)

    def __getstate__(self) -> dict[str, Any]:
        """Copies are for the host, as are those of views: they may be opened without a device."""
        here = {} if self.place is HOST else {"engine": LocalEngine()}
        return {**vars(self), **here}

    def lean(self) -> Pool:
        views = tuple(view.lean() for view in self.views)
        return Pool(self.names, views, LocalEngine())

    def settled(self, engine: Engine) -> Pool:
        """Only views whose anchors any place can take go where the engine computes: the driver
        makes them."""
        there = [settled((v,), engine)[0] if v.array_anchors else v for v in self.views]
        return replace(self, views=tuple(there), engine=engine)

    def map(
        self,
        task: Callable[..., NDArray[Any]],
        state: Any,
        *aligned: Any,
        width: int = 0,
        fixed: bool = False,
        rows: Indices | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """One pass: row-aligned results of `task(block, state, *slices)`."""
        walked = Pass(task, self, state, aligned, width=width, fixed=fixed, rows=rows)
        return self.engine.map(walked, out)

    def reduce(
        self,
        task: Callable[..., R],
        combine: Callable[[R, R], R],
        state: Any,
        *aligned: Any,
        width: int = 0,
        total: int = 0,
        fixed: bool = False,
    ) -> R:
        """One pass: results of `task(block, state, *slices)`, combined in a fixed order."""
        walked = Pass(task, self, state, aligned, width=width, total=total, fixed=fixed)
        return self.engine.reduce(walked, combine)

    def each(self, task: Callable[[Pool, T], R], states: Iterable[T]) -> Generator[R, None, None]:
        """`task(pool, state)` for one state after the other, as they are asked for; where the
        engine has workers, these are ahead, each with a pool and an engine of its own, until all
        results are taken or this is closed."""
        return self.engine.each(task, self, states)

    @functools.cached_property
    def gram(self) -> Floats:
        """(P, P) Phi^T Phi of all views side by side; one pass, float64."""
        gram = self.reduce(_block_gram, operator.add, None, width=self.width, fixed=True)
        return np.asarray(self.place.get(gram))

    @functools.cached_property
    def squared_norms(self) -> Floats:
        """(n, M) diagonals of the kernels, ridge excluded."""
        return np.stack([view.squared_norms for view in self.views], axis=1)

    @functools.cached_property
    def largest_norms(self) -> Floats:
        """(M,) largest entry of every kernel's diagonal."""
        return np.array([view.squared_norms.max() for view in self.views])

    def with_views(self, names: tuple[str, ...], views: tuple[View, ...]) -> Pool:
        return replace(self, names=names, views=views)

    def only(self, name: str) -> Pool:
        return self.with_views((name,), (self.views[self.names.index(name)],))

    def take(self, indices: Indices, *, there: bool = False) -> Pool:
        """The pool of these rows alone, for the host, as they are few; or `there`, on the device
        where the engine has all of them."""
        engine = self.engine if self.place is HOST or there else LocalEngine()
        if there and self.place is not HOST:
            taken = [view.take_there(indices) for view in self.views]
        else:
            taken = [view.take(indices) for view in self.views]
        return replace(
            self,
            engine=engine,
            views=settled(tuple(taken), engine),
            ids=None if self.ids is None else self.ids[indices],
            quality=self.quality and {name: q[indices] for name, q in self.quality.items()},
            dropped=None,  # which no search takes along
        )


def settled(views: tuple[View, ...], engine: Engine) -> tuple[View, ...]:
    """These views where the engine computes: rows on its device, as many as fit."""
    if not isinstance(engine, TorchEngine):
        return views
    room, there = engine.room, []
    for view in views:
        moved = view.moved(engine.place, room)
        there.append(moved)
        room -= moved.resident_bytes
    return tuple(there)


def _checked(name: str, value: Any, engine: Engine | None, gaps: bool) -> View:
    """One view, with every promise of the view contract made sure of, if it may have `gaps` but for
    these; workers of the engine read what lies in files."""
    check_time()
    view = measured_in_files(name, as_view(name, value), engine)
    if gaps:
        view = view.filled(name)
        if view.absent is not None and view.absent.all():
            raise InputError(f"view {name!r} has no value in any row; drop the view")
    return view.checked(name)


def _lacking(views: dict[str, View], strangers: NDArray[np.bool_] | None) -> dict[str, Indices]:
    """By view the rows without a value there; and those whose id some view has not."""
    own = {name: view.absent for name, view in views.items()}
    every = {**own, "an id in another view": strangers}
    return {
        name: np.flatnonzero(rows)
        for name, rows in every.items()
        if rows is not None and rows.any()
    }


def _without_dropped(
    views: dict[str, View], strangers: NDArray[np.bool_] | None, drop: bool
) -> tuple[dict[str, View], Indices | None]:
    """Rows that lack some view are absent from all of them, if they are to be left out, and so are
    those without a partner."""
    lost = strangers
    for view in views.values() if drop else ():
        if view.absent is not None:
            lost = view.absent if lost is None else lost | view.absent
    if lost is None or not lost.any():
        return views, None
    if lost.all():
        raise InputError("every row lacks some view; look whether the views belong together")
    return {name: view.without(lost) for name, view in views.items()}, np.flatnonzero(lost)


def measured_in_files(name: str, view: View, engine: Engine | None) -> View:
    """The view with its norms known, where workers of the engine read what lies in files."""
    in_file = isinstance(view, DenseView) and isinstance(view.data, RowFile)
    if not (in_file and engine is not None and engine.remote):
        return view
    assert isinstance(view, DenseView)
    unread = view.sketched(name)._with(single=False, array_anchors=False)
    norms = Pool((name,), (unread,), engine).map(_measure_rows, view.center)
    return view._with(_raw_squared_norms=norms)


def _measure_rows(block: Block, center: Center | None) -> Floats:
    (rows,) = block.views
    assert isinstance(rows, DenseBlock)
    with np.errstate(over="ignore", invalid="ignore"):  # looked into by who asks
        return squared_norms(rows.data, center)


def _home_engine(views: Iterable[View]) -> str | None:
    """Rows on a GPU choose it."""
    return next((view.home_engine for view in views if view.home_engine), None)


@portable
def _block_gram(block: Block, state: None) -> Any:
    dense = [block.place.dense(view.features()) for view in block.views]
    Phi = dense[0] if len(dense) == 1 else block.xp.concat(dense, axis=1)
    return Phi.T @ Phi


def _with_ridges(views: Mapping[str, View], eps: Any) -> dict[str, View]:
    """One ridge per view; a view that brought its own keeps it, and may be told it again."""
    own = {name for name, view in views.items() if view.eps is not None}
    if not isinstance(eps, Mapping):
        common = check_positive("eps", eps)
        return {name: v if name in own else v.with_eps(common) for name, v in views.items()}
    unknown = set(eps) - set(views)
    if unknown:
        raise InputError(f"eps names {sorted(unknown)}, which are not views: {list(views)}")
    twice = sorted(
        name
        for name in set(eps) & own
        if not (is_finite(eps[name]) and eps[name] == views[name].eps)
    )
    if twice:
        raise InputError(
            f"eps names {twice}, which bring a ridge of their own; drop one of the two"
        )
    missing = [name for name in views if name not in eps and name not in own]
    if missing:
        raise InputError(f"eps has no value for view(s) {missing}; give one for each view")
    ridges = {n: check_positive("eps", value, n) for n, value in eps.items() if n not in own}
    return {name: v if name in own else v.with_eps(ridges[name]) for name, v in views.items()}


def _counting(sketched: View, n: int) -> View:
    """The same with so many rows, for a plan, which asks for none of them."""
    return sketched if sketched.n == n else sketched._with(n=n)


def _check_lengths(views: Mapping[str, View]) -> None:
    first, *others = views.items()
    for name, view in others:
        if view.n != first[1].n:
            raise InputError(
                f"views must have the same number of rows, but {first[0]!r} has {first[1].n} and "
                f"{name!r} has {view.n}; align them, or pass ids={{view: row ids}}"
            )
    if first[1].n < 2:
        raise InputError(f"a pool needs at least 2 rows to choose from, not {first[1].n}")
