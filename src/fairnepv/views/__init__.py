"""What a pool is: aligned views of the same rows, and the scales that make them comparable."""

from fairnepv.views.base import View as View
from fairnepv.views.dense import DenseView as DenseView
from fairnepv.views.kernel import DiagonalView as DiagonalView
from fairnepv.views.kernel import KernelView as KernelView
from fairnepv.views.pool import Pool as Pool
from fairnepv.views.scales import Calibration as Calibration
from fairnepv.views.sparse import SparseView as SparseView
from fairnepv.views.sum import SumView as SumView
