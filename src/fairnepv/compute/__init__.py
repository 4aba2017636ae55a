"""Engines, which run a function over blocks of rows and put the results together."""

from fairnepv.compute.base import Block as Block
from fairnepv.compute.base import Engine as Engine
from fairnepv.compute.base import Pass as Pass
from fairnepv.compute.base import RowBlock as RowBlock
from fairnepv.compute.base import RowSource as RowSource
from fairnepv.compute.base import end_to_end as end_to_end
from fairnepv.compute.base import portable as portable
from fairnepv.compute.base import tree_fold as tree_fold
from fairnepv.compute.choice import engine_of as engine_of
from fairnepv.compute.local import LocalEngine as LocalEngine
from fairnepv.compute.local import block_threads as block_threads
from fairnepv.compute.local import few_threads as few_threads
from fairnepv.compute.local import has_small_products as has_small_products
from fairnepv.compute.local import in_order as in_order
from fairnepv.compute.place import HOST as HOST
from fairnepv.compute.place import Place as Place
