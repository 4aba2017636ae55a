"""What a pool is: aligned views of the same rows, and the scales that make them comparable."""

from fairnepv.views.base import View
from fairnepv.views.dense import DenseView
from fairnepv.views.kernel import KernelView
from fairnepv.views.pool import Pool
from fairnepv.views.scales import Calibration
from fairnepv.views.sparse import DiagonalView, SparseView
from fairnepv.views.sum import SumView

__all__ = [
    "Calibration",
    "DenseView",
    "DiagonalView",
    "KernelView",
    "Pool",
    "SparseView",
    "SumView",
    "View",
]
