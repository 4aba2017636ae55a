"""Baselines that draw: uniformly, or from the k-DPP of the averaged kernel [Kulesza]."""

import numpy as np
from scipy.linalg import eigh
from scipy.special import gammaln

from fairnepv.compute import Block
from fairnepv.compute.clock import EIGENVECTORS, check_time, expect
from fairnepv.errors import Status
from fairnepv.loop import Context
from fairnepv.methods.baselines.refined import averaged
from fairnepv.objective import subset_merit
from fairnepv.problem import Problem, Stream
from fairnepv.search import Effort, Found
from fairnepv.views.base import Floats, Indices

K_DPP_SAMPLES = 10  # of which the sampler returns the best


def uniform(problem: Problem, effort: Effort, context: Context) -> Found:
    """k items drawn without looking at them: uniformly, or under quotas uniformly one by one."""
    rng = problem.rng(Stream.RANDOM_BASELINE)
    indices = problem.constraints.fixed_in
    while len(indices) < problem.k:
        allowed = problem.constraints.may_add(indices, problem.n, problem.k)
        count = problem.k - len(indices) if problem.constraints.quotas is None else 1
        drawn = rng.choice(np.flatnonzero(allowed), size=count, replace=False)
        indices = np.concatenate([indices, drawn])
    return Found(indices, Status.COMPLETE)


def k_dpp(problem: Problem, effort: Effort, context: Context) -> Found:
    """The best of ten exact samples from the k-DPP of the averaged kernel, or of as many as there
    was time for."""
    sampler = KDppSampler(problem)
    samples, scores = [sampler.draw(problem.rng(Stream.KDPP_BASELINE, 0))], []
    with context.absorbing_interruption():
        for i in range(1, K_DPP_SAMPLES):
            scores.append(subset_merit(problem, samples[-1]))
            samples.append(sampler.draw(problem.rng(Stream.KDPP_BASELINE, i)))
        scores.append(subset_merit(problem, samples[-1]))
    if context.stopped:
        context.notes.append(
            f"this is the best of {len(samples)} samples of the k-DPP, and not of {K_DPP_SAMPLES}"
        )
    best = int(np.argmax(scores)) if scores else 0
    return Found(samples[best], context.stopped or Status.COMPLETE)


class KDppSampler:
    """Exact samples of P(S) proportional to det (K + eps I)[S, S], |S| = k.

    det (K + eps I)[S, S] is the sum over T in S of eps^(k - |T|) det K[T, T]. So draw t with
    weight eps^(k - t) e_t(lambda) C(n - t, k - t), then T from the t-DPP of K by its spectral
    form, then the rest uniformly: exact for any k, and only a Gram matrix of the smaller side, rows
    or feature columns, is needed.
    """

    def __init__(self, problem: Problem) -> None:
        pool = averaged(problem.pool)
        self.pool, self.n, self.k = pool, problem.n, problem.k
        self.by_rows = problem.n < pool.width
        expect(EIGENVECTORS * min(problem.n, pool.width) ** 3)
        gram = pool.views[0].whole_kernel() if self.by_rows else pool.gram
        expect(EIGENVECTORS * len(gram) ** 3)
        lam, E = eigh(gram)
        keep = lam > len(lam) * np.finfo(np.float64).eps * lam[-1]
        self.lam, self.E = lam[keep], E[:, keep]
        self.log_e = _log_elementary(self.lam, min(self.k, len(self.lam)))
        eps = float(pool.eps[0])
        t = np.arange(len(self.log_e[-1]))
        ridge = np.where(t == self.k, 0.0, (self.k - t) * np.log(eps) if eps > 0 else -np.inf)
        n, k = self.n, self.k
        log_choices = gammaln(n - t + 1) - gammaln(k - t + 1) - gammaln(n - k + 1)  # of the rest
        log_weights = self.log_e[-1] + ridge + log_choices
        weights = np.exp(log_weights - log_weights.max())
        self.size_weights = weights / weights.sum()

    def draw(self, rng: np.random.Generator) -> Indices:
        size = int(rng.choice(len(self.size_weights), p=self.size_weights))
        chosen = self._draw_diverse(size, rng)
        others = np.setdiff1d(np.arange(self.n), chosen)
        rest = rng.choice(others, size=self.k - size, replace=False)
        return np.concatenate([chosen, rest]).astype(np.int64)

    def _draw_diverse(self, size: int, rng: np.random.Generator) -> Indices:
        """A sample of the size-DPP of K: pick eigenvectors, then items, one at a time."""
        V = self._eigenvectors(self._draw_spectrum(size, rng))
        chosen: list[int] = []
        for _ in range(size):
            check_time()
            p = np.einsum("ij,ij->i", V, V)
            p[chosen] = 0.0
            item = int(rng.choice(self.n, p=p / p.sum()))
            chosen.append(item)
            # Restrict the span to what vanishes at the item: a Householder reflection of V.
            u = V[item] / np.linalg.norm(V[item])
            u[-1] += np.copysign(1.0, u[-1])
            V = (V - np.outer(V @ u, u) * (2.0 / (u @ u)))[:, :-1]
        return np.array(chosen, dtype=np.int64)

    def _eigenvectors(self, which: Indices) -> Floats:
        """(n, size) orthonormal eigenvectors of K."""
        C = self.E[:, which]
        if self.by_rows or not len(which):
            return C if self.by_rows else np.empty((self.n, 0))
        C = C / np.sqrt(np.einsum("ij,ij->j", C, self.pool.gram @ C))
        return self.pool.map(_project_rows, C, width=len(which), fixed=True)

    def _draw_spectrum(self, size: int, rng: np.random.Generator) -> Indices:
        chosen = []
        for j in range(len(self.lam), 0, -1):
            if size == 0:
                break
            log_p = np.log(self.lam[j - 1]) + self.log_e[j - 1, size - 1] - self.log_e[j, size]
            if rng.random() < np.exp(log_p):
                chosen.append(j - 1)
                size -= 1
        return np.array(chosen, dtype=np.int64)


def _project_rows(block: Block, C: Floats) -> Floats:
    return np.asarray(block.views[0].features() @ C)


def _log_elementary(lam: Floats, k: int) -> Floats:
    """(N + 1, k + 1) log of the elementary symmetric polynomials e_t of the first j values."""
    table = np.full((len(lam) + 1, k + 1), -np.inf)
    table[:, 0] = 0.0
    for j, value in enumerate(lam, start=1):
        check_time()
        table[j, 1:] = np.logaddexp(table[j - 1, 1:], np.log(value) + table[j - 1, :-1])
    return table
