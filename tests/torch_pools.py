"""Pools of every kind of rows that the PyTorch engine takes, and the devices that it has here."""

import numpy as np
import scipy.sparse as sp
import torch

from fairnepv import KernelView

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def rows(n: int, p: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((12, p))
    return centres[rng.integers(12, size=n)] + 0.5 * rng.standard_normal((n, p))


def words(n: int, p: int, seed: int) -> sp.csr_array:
    dense = sp.random_array((n, p), density=0.2, rng=seed).toarray()
    dense[:, 0] = 0.1  # so that no row is empty
    return sp.csr_array(dense)


POOLS = {
    "dense": lambda n: {"a": rows(n, 9, 1), "b": rows(n, 5, 2)},
    "float32": lambda n: {"a": rows(n, 9, 1).astype("f4"), "b": rows(n, 30, 2).astype("f4")},
    "float16": lambda n: {"a": rows(n, 9, 1).astype("f2"), "b": rows(n, 30, 2).astype("f2")},
    "big-endian": lambda n: {"a": rows(n, 9, 1).astype(">f4"), "b": rows(n, 5, 2)},
    "integers": lambda n: {"a": (10 * rows(n, 9, 1)).astype("i2"), "b": rows(n, 4, 2)},
    "one view": lambda n: {"a": rows(n, 9, 1)},
    "sparse": lambda n: {"a": words(n, 30, 2).astype("f4"), "b": words(n, 40, 3)},
    "sparse beside": lambda n: {"a": rows(n, 9, 1), "b": words(n, 40, 3)},
    "whole counts": lambda n: {"a": sp.csr_array(words(n, 30, 2) * 9).astype("i4") + _ones(n, 30)},
    "a kernel beside": lambda n: {"a": rows(n, 9, 1), "b": KernelView(kernel(n))},
    "duplicates": lambda n: {"a": np.repeat(rows(n // 2, 9, 1), 2, axis=0), "b": rows(n, 4, 2)},
}


def _ones(n: int, p: int) -> sp.csr_array:
    return sp.csr_array((np.ones(n, "i4"), np.arange(n) % p, np.arange(n + 1)), (n, p))


def kernel(n: int) -> np.ndarray:
    X = rows(n, 6, 4)
    return X @ X.T
