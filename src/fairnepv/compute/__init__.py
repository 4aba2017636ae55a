"""Engines, which run a function over blocks of rows and put the results together."""

from fairnepv.compute.base import (
    Block,
    Engine,
    Pass,
    RowBlock,
    RowSource,
    end_to_end,
    portable,
    tree_fold,
)
from fairnepv.compute.choice import engine_of
from fairnepv.compute.local import (
    LocalEngine,
    block_threads,
    few_threads,
    has_small_products,
    in_order,
)
from fairnepv.compute.place import HOST, Place

__all__ = [
    "HOST",
    "Block",
    "Engine",
    "LocalEngine",
    "Pass",
    "Place",
    "RowBlock",
    "RowSource",
    "block_threads",
    "end_to_end",
    "engine_of",
    "few_threads",
    "has_small_products",
    "in_order",
    "portable",
    "tree_fold",
]
