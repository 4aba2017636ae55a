"""Who runs a function over row blocks, and how the results are put together."""

from fairnepv.engines.base import Block, Engine, RowBlock, Source, tree_fold
from fairnepv.engines.local import LocalEngine, block_threads, few_threads, in_order

__all__ = [
    "Block",
    "Engine",
    "LocalEngine",
    "RowBlock",
    "Source",
    "block_threads",
    "few_threads",
    "in_order",
    "tree_fold",
]
