"""Who runs a function over row blocks, and how the results are put together."""

from fairnepv.compute.base import Block, Engine, RowBlock, Source, portable, tree_fold
from fairnepv.compute.choice import engine_of
from fairnepv.compute.local import LocalEngine, block_threads, few_threads, in_order
from fairnepv.compute.place import HOST, Place

__all__ = [
    "HOST",
    "Block",
    "Engine",
    "LocalEngine",
    "Place",
    "RowBlock",
    "Source",
    "block_threads",
    "engine_of",
    "few_threads",
    "in_order",
    "portable",
    "tree_fold",
]
