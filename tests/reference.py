"""The paper's formulas once more: dense, slow, loop by loop, and importing nothing of fairnepv.

Statements are numbered in the paper's order (Lemma 1 is the exact embedding, Appendix C the worked
example); where a formula comes from docs/method.md instead, the docstring says so. A view is its
n x n kernel `L`, a pool is the list `Ls` of them, a frame `V` is n x k, a subset `S` a sequence of
rows.
"""

import math
import re
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from scipy.optimize import minimize

Array = NDArray[np.float64]
Kernels = Sequence[Array]
Subset = Sequence[int]

TIE = 1e-10  # scores closer than this are tied (docs/method.md#ties)


# --- Views: calibration and kernels (Remark 1, Assumption 1) --------------------------------------


def centered(Phi: Array) -> Array:
    """Rows less the mean of all rows (docs/method.md#centred-views)."""
    mean = sum(row.astype(np.float64) for row in Phi) / len(Phi)
    return np.array([row - mean for row in Phi])


def unit_diagonal(Phi: Array) -> Array:
    """Rows of length one, so that Phi Phi^T has unit diagonal (Remark 1); a zero row stays zero."""
    return np.array([row / (np.linalg.norm(row) or 1.0) for row in Phi])


def trace_normalized(Phi: Array) -> Array:
    """One scale for the view, so that Phi Phi^T has trace n (Remark 1)."""
    return Phi * math.sqrt(len(Phi) / np.linalg.norm(Phi, "fro") ** 2)


def neutral(Phi: Array, gone: Subset, center: bool) -> Array:
    """Unit rows of a view that some rows lack: less the mean of the others, if it is centred, and
    zeros for those."""
    there = [i for i in range(len(Phi)) if i not in gone]
    rows = np.zeros_like(Phi)
    for i in there:
        row = Phi[i] - sum(Phi[j] for j in there) / len(there) if center else Phi[i]
        rows[i] = row / np.sqrt(row @ row)
    return rows


def near_duplicates(Phis: Sequence[Array], threshold: float, within: str) -> list[int]:
    """For every row the lowest that it is linked to by pairs of a cosine of at least `threshold`,
    in all views or in any."""
    n, chosen = len(Phis[0]), all if within == "all" else any
    Ks = [Phi @ Phi.T for Phi in Phis]
    pairs = [
        (i, j)
        for i in range(n)
        for j in range(n)
        if chosen(cosine(K, i, j) >= threshold for K in Ks)
    ]
    lowest = list(range(n))
    for _ in range(n):  # a chain of rows has no more links
        for i, j in pairs:
            lowest[i] = lowest[j] = min(lowest[i], lowest[j])
    return lowest


def kernel(Phi: Array, eps: float, quality: Array | None = None) -> Array:
    """L = diag(sqrt q) Phi Phi^T diag(sqrt q) + eps I (Assumption 1; q as in Appendix C)."""
    n = len(Phi)
    root = np.diag(np.sqrt(np.ones(n) if quality is None else quality))
    return root @ Phi @ Phi.T @ root + eps * np.eye(n)


def tf_idf(texts: Sequence[str]) -> Array:
    """(1 + log tf)(log((1 + n)/(1 + df)) + 1), rows of length one (Section 6.1).

    Words have two letters or more; columns are in their alphabetical order.
    """
    documents = [re.findall(r"\w\w+", text.lower()) for text in texts]
    words = sorted({word for document in documents for word in document})
    table = np.zeros((len(texts), len(words)))
    for (i, j), _ in np.ndenumerate(table):
        tf = documents[i].count(words[j])
        df = sum(words[j] in document for document in documents)
        idf = math.log((1 + len(texts)) / (1 + df)) + 1
        table[i, j] = (1 + math.log(tf)) * idf if tf else 0.0
    return unit_diagonal(table)


def averaged_kernel(Ls: Kernels) -> Array:
    """(L_1 + ... + L_M) / M, the averaged-kernel baseline of Section 5."""
    return sum(Ls, np.zeros_like(Ls[0])) / len(Ls)


# --- The discrete objective (Section 3, Eq. (D-Fair)) ---------------------------------------------


def logdet(X: Array) -> float:
    """log det X, with the paper's convention log 0 = -inf."""
    sign, value = np.linalg.slogdet(X)
    return float(value) if sign > 0 else -math.inf


def subset_score(L: Array, S: Subset) -> float:
    """d_q(S) = (1/|S|) log det L_S (Section 3, before Eq. (D-Fair))."""
    return logdet(L[np.ix_(S, S)]) / len(S)


def subset_scores(Ls: Kernels, S: Subset) -> Array:
    """(d_1(S), ..., d_M(S)), the vector that Appendix B asks to report."""
    return np.array([subset_score(L, S) for L in Ls])


def gains(L: Array, S: Subset) -> Array:
    """log det of the leading minors of L_S, differenced: what each item of S adds in its turn."""
    logdets = [0.0] + [logdet(L[np.ix_(S[:j], S[:j])]) for j in range(1, len(S) + 1)]
    return np.array([after - before for before, after in pairwise(logdets)])


def soft_min(d: Array, tau: float) -> float:
    """-tau log[(1/M) sum_q exp(-d_q / tau)] (Eq. (D-Fair)); its limit, the mean, at tau = inf."""
    if math.isinf(tau):
        return float(np.mean(d))
    # SciPy's logsumexp takes forty times as long, and enumerations do little else.
    return float(-tau * (np.logaddexp.reduce(-np.asarray(d) / tau) - math.log(len(d))))


def soft_min_identity(d: Array, tau: float) -> float:
    """d_min + tau log M - tau log sum_q exp(-Delta_q / tau) (Appendix C, Eq. (17))."""
    d_min, M = min(d), len(d)
    total = sum(math.exp(-(d_q - d_min) / tau) for d_q in d)
    return float(d_min + tau * math.log(M) - tau * math.log(total))


def soft_min_bracket(d: Array, tau: float) -> tuple[float, float]:
    """d_min <= soft-min <= d_min + tau log M (Appendix C, Eq. (18))."""
    return float(min(d)), float(min(d) + tau * math.log(len(d)))


def weights(d: Array, tau: float) -> Array:
    """w_q = exp(-(d_q - d_min)/tau) / sum_r exp(-(d_r - d_min)/tau) (Prop. 2, Algorithm 1)."""
    unnormalized = np.array([math.exp(-(d_q - min(d)) / tau) for d_q in d])
    return unnormalized / unnormalized.sum()


def fair_score(Ls: Kernels, S: Subset, tau: float) -> float:
    """F_tau(S) (Eq. (D-Fair))."""
    return soft_min(subset_scores(Ls, S), tau)


def exhaustive(Ls: Kernels, k: int, tau: float) -> tuple[float, list[tuple[int, ...]]]:
    """The optimum of Eq. (D-Fair) over all C(n, k) subsets, and every subset tied with it."""
    scores = {S: fair_score(Ls, S, tau) for S in combinations(range(len(Ls[0])), k)}
    best = max(scores.values())
    return best, [S for S, score in scores.items() if score >= best - TIE]


# --- The relaxation and its gradient (Eq. (P-Fair), Lemma 1, Propositions 1 and 2) ----------------


def selector(S: Subset, n: int) -> Array:
    """V_S = [e_i for i in S], for which V_S^T L V_S = L_S (Lemma 1)."""
    return np.eye(n)[:, list(S)]


def view_values(Ls: Kernels, V: Array) -> Array:
    """g_q(V) = (1/k) log det V^T L_q V (before Eq. (P-Fair)); V need not be orthonormal."""
    return np.array([logdet(V.T @ L @ V) / V.shape[1] for L in Ls])


def f(Ls: Kernels, V: Array, tau: float) -> float:
    """f_tau(V) (Eq. (P-Fair))."""
    return soft_min(view_values(Ls, V), tau)


def spectral_value(L: Array, k: int) -> float:
    """U_k = (1/k) sum of the k largest log lambda_i(L) (Proposition 1, Appendix B)."""
    return float(np.mean(np.log(np.sort(np.linalg.eigvalsh(L))[-k:])))


def spectral_certificate(Ls: Kernels, k: int, tau: float) -> float:
    """The soft-min of U_{k,q}: no frame and no subset scores more (Appendix B)."""
    return soft_min(np.array([spectral_value(L, k) for L in Ls]), tau)


def diagonal_value(L: Array, k: int) -> float:
    """Hadamard's bound det L_S <= prod L_ii: the mean of the k largest log L_ii."""
    return float(np.mean(np.log(np.sort(np.diag(L))[-k:])))


def A(Ls: Kernels, V: Array, tau: float) -> Array:
    """A_tau(V) = (1/k) sum_q w_q L_q V G_q^-1, half the gradient of f (Proposition 2)."""
    w = weights(view_values(Ls, V), tau)
    total = np.zeros_like(V)
    for w_q, L in zip(w, Ls, strict=True):
        total += w_q * L @ V @ np.linalg.inv(V.T @ L @ V)
    return total / V.shape[1]


def A_perp(Ls: Kernels, V: Array, tau: float) -> Array:
    """(I - V V^T) A_tau(V), half the Grassmann gradient (Proposition 3, Eq. (15))."""
    return (np.eye(len(V)) - V @ V.T) @ A(Ls, V, tau)


def riemannian_gradient_fd(Ls: Kernels, V: Array, tau: float, h: float = 1e-5) -> Array:
    """Proposition 2 without its formula: grad f over all n x k matrices by central differences.

    It equals 2 A_tau(V); (I - V V^T) times it is the Riemannian gradient 2 A_perp.
    """
    gradient = np.zeros_like(V)
    for i, j in np.ndindex(*V.shape):
        step = np.zeros_like(V)
        step[i, j] = h
        gradient[i, j] = (f(Ls, V + step, tau) - f(Ls, V - step, tau)) / (2 * h)
    return gradient


def hessian_fd(Ls: Kernels, V: Array, tau: float, xi: Array, h: float = 1e-5) -> Array:
    """The Grassmann Hessian of f at V applied to xi, V^T xi = 0, by central differences.

    The gradient 2 A_perp is differenced along polar(V + t xi) and projected by I - V V^T.
    """
    forward = 2 * A_perp(Ls, polar(V + h * xi), tau)
    backward = 2 * A_perp(Ls, polar(V - h * xi), tau)
    return (np.eye(len(V)) - V @ V.T) @ (forward - backward) / (2 * h)


def view_gradients(Ls: Kernels, V: Array) -> list[Array]:
    """b_q = (I - V V^T) L_q V G_q^-1 per view: k/2 times the Grassmann gradient of g_q."""
    return [(np.eye(len(V)) - V @ V.T) @ L @ V @ np.linalg.inv(V.T @ L @ V) for L in Ls]


def schur_complements(Ls: Kernels, V: Array) -> list[Array]:
    """C_q = L_q - L_q V G_q^-1 V^T L_q: what is left of a kernel once V is known."""
    return [L - L @ V @ np.linalg.inv(V.T @ L @ V) @ V.T @ L for L in Ls]


def hessian_terms(Ls: Kernels, V: Array, tau: float, x: Array) -> tuple[Array, Array, Array]:
    """The negative Grassmann Hessian of f at V along a tangent x, in units of 2/k, as three terms.

    x - sum_q w_q C_q x G_q^-1, the transposed term sum_q w_q b_q x^T b_q, and the change of the
    weights; they add up where V is stationary.
    """
    k = V.shape[1]
    w = weights(view_values(Ls, V), tau)
    b = view_gradients(Ls, V)
    smooth, transposed = x.copy(), np.zeros_like(x)
    for w_q, L, C, b_q in zip(w, Ls, schur_complements(Ls, V), b, strict=True):
        smooth -= w_q * C @ x @ np.linalg.inv(V.T @ L @ V)
        transposed += w_q * b_q @ x.T @ b_q
    along = np.array([np.sum(b_q * x) for b_q in b])
    stiff = np.zeros_like(x)
    for w_q, a, b_q in zip(w, along, b, strict=True):
        stiff += 2 / (k * tau) * w_q * (a - w @ along) * b_q
    return smooth, transposed, stiff


# --- The operator and its spectrum (Theorem 1, Propositions 3 and 4, Corollary 1, Lemma 3) --------


def H(Ls: Kernels, V: Array, tau: float, sigma: float = 0.0) -> Array:
    """A V^T + V A^T - V V^T / k + sigma V V^T (Theorem 1, Eq. (9); shift as in Proposition 3)."""
    A_V, P = A(Ls, V, tau), V @ V.T
    return A_V @ V.T + V @ A_V.T - P / V.shape[1] + sigma * P


def closed_form_spectrum(Ls: Kernels, V: Array, tau: float, sigma: float = 0.0) -> Array:
    """All n eigenvalues of H from the singular values of A_perp, ascending (Proposition 4)."""
    n, k = V.shape
    d = 1 / k + sigma
    pairs = min(k, n - k)  # rank A_perp <= pairs; s_j = 0 gives the pair (d, 0), as it should
    s = np.linalg.svd(A_perp(Ls, V, tau), compute_uv=False)[:pairs]
    root = np.sqrt(d**2 + 4 * s**2)
    rest = [d] * (k - pairs) + [0.0] * (n - k - pairs)
    return np.sort(np.concatenate([(d + root) / 2, (d - root) / 2, rest]))


def rotation_angles(Ls: Kernels, V: Array, tau: float, sigma: float = 0.0) -> Array:
    """theta_j = arctan(2 s_j / d) / 2, the angles of one top-k step, descending (Lemma 3)."""
    s = np.linalg.svd(A_perp(Ls, V, tau), compute_uv=False)
    return np.arctan(2 * s / (1 / V.shape[1] + sigma)) / 2


def principal_angles(V: Array, W: Array) -> Array:
    """Theta(V, W), the k principal angles of the two ranges, descending (after Proposition 3)."""
    return np.sort(subspace_angles(V, W))[::-1]


def chordal(V: Array, W: Array) -> float:
    """d_ch(V, W) = ||sin Theta(V, W)||_F (before Theorem 2)."""
    return float(np.linalg.norm(np.sin(principal_angles(V, W))))


def inverse_gram_bound(L: Array, V: Array, W: Array) -> float:
    """(7/2) ||L||_2 eta / (lambda_min(V^T L V) lambda_min(W^T L W)) (Lemma 2)."""
    smallest = [np.linalg.eigvalsh(X.T @ L @ X)[0] for X in (V, W)]
    return float(3.5 * np.linalg.norm(L, 2) * chordal(V, W) / (smallest[0] * smallest[1]))


# --- Algorithm 1 ----------------------------------------------------------------------------------


def polar(X: Array) -> Array:
    """The orthogonal polar factor U W^T of X = U Sigma W^T (Algorithm 1)."""
    U, _, Wt = np.linalg.svd(X, full_matrices=False)
    return U @ Wt


def top_eigenvectors(X: Array, k: int) -> Array:
    """TopEigvecs_k, an orthonormal basis of the top-k eigenspace (Eq. (7))."""
    return np.linalg.eigh(X)[1][:, -k:]


def align_and_damp(V_new: Array, V: Array, alpha: float) -> Array:
    """Gauge alignment, damping and polar factor: the last two lines of Algorithm 1's loop."""
    Q = polar(V_new.T @ V)
    return polar(alpha * V_new @ Q + (1 - alpha) * V)


def scf_step(Ls: Kernels, V: Array, tau: float, alpha: float = 1.0, sigma: float = 0.0) -> Array:
    """One step of Algorithm 1 with the dense n x n operator H_{tau,sigma}(V)."""
    return align_and_damp(top_eigenvectors(H(Ls, V, tau, sigma), V.shape[1]), V, alpha)


def scf_step_compressed(
    Ls: Kernels, V: Array, tau: float, alpha: float = 1.0, sigma: float = 0.0
) -> Array:
    """The same step through the 2k x 2k matrix M_sigma (Lemma 4); needs n >= 2k."""
    n, k = V.shape
    assert n >= 2 * k, "Lemma 4 assumes n >= 2k"
    normal = A_perp(Ls, V, tau)
    # QR of both blocks, so that Q2 is orthogonal to V also where A_perp is rank deficient.
    Q2 = np.linalg.qr(np.hstack([V, normal]))[0][:, k:]
    R22 = Q2.T @ normal
    M_sigma = np.block([[(1 / k + sigma) * np.eye(k), R22.T], [R22, np.zeros((k, k))]])
    return align_and_damp(np.hstack([V, Q2]) @ top_eigenvectors(M_sigma, k), V, alpha)


def scf(
    Ls: Kernels,
    V0: Array,
    tau: float,
    alpha: float = 1.0,
    sigma: float = 0.0,
    tol: float = 1e-8,
    max_steps: int = 1000,
) -> tuple[Array, list[tuple[float, float]]]:
    """Algorithm 1 with its stopping rule ||A - V/k||_F < tol, unscaled.

    Returns the last frame, and (f(V_t), ||A_t - V_t/k||_F) for each t at which the rule was tested.
    """
    V, history = V0, []
    for _ in range(max_steps):
        residual = float(np.linalg.norm(A(Ls, V, tau) - V / V.shape[1]))
        history.append((f(Ls, V, tau), residual))
        if residual < tol:
            return V, history
        V = scf_step(Ls, V, tau, alpha, sigma)
    return V, history


# --- Rounding (Section 4.4) -----------------------------------------------------------------------


def leverage(V: Array) -> Array:
    """l_i = ||e_i^T V||^2, summing to k (Section 4.4, item 1)."""
    return np.array([np.dot(row, row) for row in V])


def shortlist(leverage: Array, k: int, c: float) -> NDArray[np.int64]:
    """The min(n, ceil(c k)) largest leverages, ties to the lowest index (Section 4.4, item 2)."""
    n = len(leverage)
    order = sorted(range(n), key=lambda i: (-leverage[i], i))
    return np.array(order[: min(n, math.ceil(c * k))], dtype=np.int64)


def fair_greedy(
    Ls: Kernels,
    k: int,
    tau: float,
    candidates: Subset | None = None,
    fixed: Subset = (),
) -> list[int]:
    """Add the item with the best F_tau(S + i) until |S| = k (Section 4.4, item 3).

    d_q is normalised by |S + i|, ties go to the lowest index, and `fixed` items come first.
    """
    S = [int(i) for i in fixed]
    pool = sorted(int(i) for i in (range(len(Ls[0])) if candidates is None else candidates))
    while len(S) < k:
        scores = {i: fair_score(Ls, [*S, i], tau) for i in pool if i not in S}
        best = max(scores.values())
        S.append(min(i for i, score in scores.items() if score >= best - TIE))
    return S


def swap_values(Ls: Kernels, S: Subset, tau: float) -> Array:
    """F_tau of S with slot j replaced by i, as (i, j); -inf for i in S (Section 4.4, item 3)."""
    n, k = len(Ls[0]), len(S)
    values = np.full((n, k), -math.inf)
    for i in set(range(n)) - {int(s) for s in S}:
        for j in range(k):
            values[i, j] = fair_score(Ls, [*S[:j], i, *S[j + 1 :]], tau)
    return values


def row_scores(Phis: Sequence[Array], eps: Sequence[float], S: Subset) -> Array:
    """d_q(S) from singular values of the rows, which a small ridge costs no digits."""
    scores = []
    for Phi, e in zip(Phis, eps, strict=True):
        squares = np.linalg.svd(Phi[list(S)], compute_uv=False) ** 2
        missing = len(S) - len(squares)  # eigenvalues of the kernel that are zero
        scores.append((np.log(squares + e).sum() + missing * math.log(e)) / len(S))
    return np.array(scores)


def row_swap_values(Phis: Sequence[Array], eps: Sequence[float], S: Subset, tau: float) -> Array:
    """`swap_values` by `row_scores`."""
    n, S = len(Phis[0]), [int(i) for i in S]
    values = np.full((n, len(S)), -math.inf)
    for i in set(range(n)) - set(S):
        for j in range(len(S)):
            values[i, j] = soft_min(row_scores(Phis, eps, [*S[:j], i, *S[j + 1 :]]), tau)
    return values


def one_swap_search(Ls: Kernels, S: Subset, tau: float, tol: float = TIE) -> list[int]:
    """Best one-item swaps until none gains more than tol (Section 4.4, item 3).

    Slots keep their place; ties go to the lowest row, then to the lowest slot.
    """
    S = [int(i) for i in S]
    while True:
        values = swap_values(Ls, S, tau)
        best = values.max()
        if not best > fair_score(Ls, S, tau) + tol:
            return S
        i, j = np.argwhere(values >= best - TIE)[0]  # row-major: lowest row, then lowest slot
        S[j] = int(i)


# --- Metrics and neighbours of the method (Sections 2, 3.1, 6.2; docs/method.md#concave-bound) ----


def shrinkage_level(M: Array, C: Array, eps: float, k: int) -> float:
    """mu by bisection, as if M were diagonal in the eigenvectors of (M C M)^1/2."""
    squares, U = np.linalg.eigh(M @ C @ M)
    s, m = np.sqrt(squares), np.array([u @ M @ u for u in U.T])
    low, high = 0.0, ((m + eps) / s).max()  # of 1 / sqrt(mu)
    for _ in range(200):
        t = (low + high) / 2.0
        low, high = (t, high) if np.clip((t * s - m) / eps, 0.0, 1.0).sum() < k else (low, t)
    return 1.0 / high**2


def shrinkage(M: Array, C: Array, eps: float, level: float) -> Array:
    """D = eps Y (eps Y + M)^-1 for Y = ((M C M)^1/2 / sqrt(mu) - M) / eps, clipped to [0, 1]."""
    squares, U = np.linalg.eigh(M @ C @ M)
    lam, V = np.linalg.eigh((U @ np.diag(np.sqrt(squares / level)) @ U.T - M) / eps)
    Y = V @ np.diag(np.clip(lam, 0.0, 1.0)) @ V.T
    return eps * Y @ np.linalg.inv(eps * Y + M)


def explained(Phi: Array, eps: float, S: Subset, weights: Array | None = None) -> float:
    """The share of the rows' (weighted) squared lengths that ridge regression on rows S explains:
    1 - eps tr(C (M_S + eps I)^-1) / tr C, M_S = sum of phi_i phi_i^T over S (DESIGN 3.9)."""
    w = np.ones(len(Phi)) if weights is None else weights
    C = sum(w[t] * np.outer(Phi[t], Phi[t]) for t in range(len(Phi)))
    M = sum((np.outer(Phi[i], Phi[i]) for i in S), np.zeros_like(C))
    inverse = np.linalg.inv(M + eps * np.eye(len(C)))
    return float(1.0 - eps * np.trace(C @ inverse) / np.trace(C))


def nearness(Phis: Sequence[Array], q: int, company: float, power: int) -> Array:
    """(n, n) similarity of rows in view q: ((1 + cosine) / 2)^power of centred rows, and so much of
    the mean of that over all views."""
    similarities = []
    for Phi in Phis:
        X = Phi - Phi.mean(axis=0)
        lengths = np.array([np.linalg.norm(x) or 1.0 for x in X])
        cosines = (X @ X.T) / np.outer(lengths, lengths)
        similarities.append(((1.0 + cosines) / 2.0) ** power)
    mean = sum(similarities) / len(similarities)
    return (1.0 - company) * similarities[q] + company * mean


def coverage(K: Array, S: Subset) -> float:
    """C_q(S) = (1/n) sum_i min_{j in S} (1 - cos(b_i, b_j)) (Section 6.2); K has no ridge.

    The cosine with a zero row is 0.
    """
    n = len(K)
    total = 0.0
    for i in range(n):
        cosines = []
        for j in S:
            length = math.sqrt(K[i, i] * K[j, j])
            cosines.append(K[i, j] / length if length > 0 else 0.0)
        total += min(1 - cosine for cosine in cosines)
    return total / n


def cosine(K: Array, i: int, j: int) -> float:
    """cos(b_i, b_j) from a kernel without ridge; 0 with a zero row."""
    length = math.sqrt(K[i, i] * K[j, j])
    return float(K[i, j] / length) if length > 0 else 0.0


def nearest_distance(K: Array, i: int) -> float:
    """The cosine distance of row i to the nearest other row."""
    return max(0.0, min(1 - cosine(K, i, j) for j in range(len(K)) if j != i))


def far_out(values: Sequence[float]) -> float:
    """Tukey's outer fence Q3 + 3 (Q3 - Q1), quartiles by linear interpolation."""
    ordered = sorted(values)

    def quartile(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    return quartile(0.75) + 3 * (quartile(0.75) - quartile(0.25))


def isolated(K: Array, S: Subset, sample: Subset) -> list[int]:
    """Positions in S of rows farther from any other than the fence of the sampled rows."""
    fence = far_out([nearest_distance(K, i) for i in sample])
    return [j for j, i in enumerate(S) if nearest_distance(K, i) > fence + 1e-9]


def density(K: Array, i: int, sample: Subset, neighbours: int) -> float:
    """The mean cosine of row i with its nearest rows of a sample, itself excluded."""
    others = sorted((cosine(K, i, j) for j in sample if j != i), reverse=True)
    return sum(others[:neighbours]) / neighbours


# --- Questions about a subset ---------------------------------------------------------------------


def contributions(L: Array, S: Subset) -> Array:
    """What log det L_S loses without each item in turn."""
    whole = logdet(L[np.ix_(S, S)])
    losses = []
    for j in range(len(S)):
        rest = [*S[:j], *S[j + 1 :]]
        losses.append(whole - (logdet(L[np.ix_(rest, rest)]) if rest else 0.0))
    return np.array(losses)


def assignment(Ks: Kernels, S: Subset) -> list[tuple[int, float]]:
    """Per row (position in S, mean cosine) of its nearest pick; ties to the earlier, picks to
    themselves."""
    found = []
    for i in range(len(Ks[0])):
        means = [sum(cosine(K, i, j) for K in Ks) / len(Ks) for j in S]
        place = min(p for p, mean in enumerate(means) if mean >= max(means) - TIE)
        place = list(S).index(i) if i in S else place
        found.append((place, means[place]))
    return found


def knee(sizes: Sequence[int], values: Sequence[float]) -> int:
    """The size whose value is farthest from the straight line between the end points."""
    bends = {}
    for size, value in zip(sizes, values, strict=True):
        share = (size - sizes[0]) / (sizes[-1] - sizes[0])
        bends[size] = abs(value - (1 - share) * values[0] - share * values[-1])
    return max(bends, key=lambda size: (bends[size], -size))


def dpp_probability(L: Array, S: Subset) -> float:
    """det L_S / det(I + L), the L-ensemble (Eq. (4))."""
    return float(np.linalg.det(L[np.ix_(S, S)]) / np.linalg.det(np.eye(len(L)) + L))


def kdpp_probabilities(L: Array, k: int) -> dict[tuple[int, ...], float]:
    """The L-ensemble conditioned on |S| = k, by enumeration (after Eq. (4))."""
    dets = {S: np.linalg.det(L[np.ix_(S, S)]) for S in combinations(range(len(L)), k)}
    total = sum(dets.values())
    return {S: float(det / total) for S, det in dets.items()}


def softmax_extension(L: Array, x: Array) -> float:
    """log det(I + diag(x)(L - I)), Gillenwater et al. (Eq. (1))."""
    return logdet(np.eye(len(L)) + np.diag(x) @ (L - np.eye(len(L))))


def design_value(Phi: Array, lam: float, x: Array) -> float:
    """log det(sum_i x_i a_i a_i^T + lam I), the simplex relaxation's objective (Eq. (2))."""
    p = Phi.shape[1]
    terms = [x_i * np.outer(a_i, a_i) for x_i, a_i in zip(x, Phi, strict=True)]
    return logdet(sum(terms, lam * np.eye(p)))


def gradient_fd(f: Callable[[Array], float], x: Array, h: float = 1e-6) -> Array:
    """The gradient of a function of a vector by central differences."""
    steps = h * np.eye(len(x))
    return np.array([(f(x + step) - f(x - step)) / (2 * h) for step in steps])


def capped_simplex(y: Array, k: int) -> Array:
    """The nearest point with 0 <= x <= 1 and sum x = k, by halving the range of its shift."""
    low, high = min(y) - 1.0, max(y)
    for _ in range(200):
        shift = (low + high) / 2
        total = sum(min(max(y_i - shift, 0.0), 1.0) for y_i in y)
        low, high = (shift, high) if total > k else (low, shift)
    return np.array([min(max(y_i - low, 0.0), 1.0) for y_i in y])


def linear_gap(gradient: Array, x: Array, k: int) -> float:
    """max over 0 <= v <= 1, sum v = k of <gradient, v - x>: the gap of Frank and Wolfe."""
    return float(sum(sorted(gradient)[-k:]) - gradient @ x)


def design_maximum(Phi: Array, lam: float, k: int) -> float:
    """The maximum of Eq. (2) over 0 <= x <= 1, sum x = k, by sequential quadratic programs."""
    n = len(Phi)
    result = minimize(
        lambda x: -design_value(Phi, lam, x),
        np.full(n, k / n),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * n,
        constraints={"type": "eq", "fun": lambda x: np.sum(x) - k},
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert result.success
    return -float(result.fun)


def truncated_mean(Ls: Kernels, S: Subset, unit: float, level: float) -> float:
    """(1/M) sum_q min(f_q(S), level) for f_q(S) = log det(L_S / unit), Krause et al. 2008.

    Sets that bring every f_q to the level are told apart by the mean of f_q.
    """
    values = [logdet(L[np.ix_(S, S)] / unit) for L in Ls]
    if min(values) < level:
        values = [min(value, level) for value in values]
    return sum(values) / len(values)


def saturate(Ls: Kernels, unit: float, k: int, rounds: int = 20) -> list[int]:
    """The best worst view among greedy sets for the levels of a bisection, Krause et al. 2008."""
    low, high = math.log(unit), min(diagonal_value(L, k) for L in Ls)
    sets: list[list[int]] = []
    for _ in range(rounds):
        level, S = (low + high) / 2, list[int]()
        while len(S) < k:
            target = k * (level - math.log(unit))
            rest = [i for i in range(len(Ls[0])) if i not in S]
            scores = {i: truncated_mean(Ls, [*S, i], unit, target) / (len(S) + 1) for i in rest}
            best = max(scores.values())
            S.append(min(i for i, score in scores.items() if score >= best - TIE))
        sets.append(S)
        low, high = (level, high) if min(subset_scores(Ls, S)) >= level else (low, level)
    chosen = sets[0]
    for S in sets[1:]:
        if min(subset_scores(Ls, S)) > min(subset_scores(Ls, chosen)) + TIE:
            chosen = S
    return chosen


def gamma(Phi: Array, eps: float, x: Array, k: int) -> float:
    """Gamma_q(x) / k, the concave top-k relaxation of d_q (docs/method.md#concave-bound)."""
    lam = np.zeros(max(k, Phi.shape[1]))  # a narrow view has zeros for its missing eigenvalues
    lam[: Phi.shape[1]] = np.linalg.eigvalsh(Phi.T @ np.diag(x) @ Phi)[::-1].clip(min=0)
    # The least r with tail mean >= lambda_{r+1} (lam[r] here) is the unique r of the definition:
    # where r - 1 failed, lambda_r exceeds the mean that still held it, hence the one without it.
    for r in range(k):
        tail = sum(lam[r:]) / (k - r)
        if tail >= lam[r]:
            break
    return float((sum(np.log(lam[:r] + eps)) + (k - r) * math.log(tail + eps)) / k)


def top_k_split(lam: Array, k: int) -> tuple[int, float]:
    """The r < k with lambda_r > m >= lambda_{r+1}, m = (sum_{i>r} lambda_i)/(k - r), and m."""
    padded = [math.inf, *sorted(lam, reverse=True), *([0.0] * (k + 1))]
    for r in range(k):
        m = math.fsum(padded[r + 1 :]) / (k - r)
        if padded[r] > m >= padded[r + 1]:
            return r, m
    raise AssertionError("there is always one")


def gamma_gradient(Phi: Array, eps: float, x: Array, k: int) -> Array:
    """The gradient of k gamma: phi_i^T W phi_i, W formed, p x p (docs/method.md#concave-bound)."""
    p = Phi.shape[1]
    lam, U = np.linalg.eigh(Phi.T @ np.diag(x) @ Phi)
    lam, U = lam[::-1].clip(min=0), U[:, ::-1]
    r, m = top_k_split(lam, k)
    w = [1 / (lam[j] + eps) if j < r else 1 / (m + eps) for j in range(p)]
    W = U @ np.diag(w) @ U.T
    return np.array([phi @ W @ phi for phi in Phi])


def relaxed_value(Phis: Kernels, eps: Sequence[float], x: Array, k: int, tau: float) -> float:
    """F_tau of the relaxation: the soft-min of Gamma_q(x)/k (docs/method.md#concave-bound)."""
    return soft_min(np.array([gamma(Phi, e, x, k) for Phi, e in zip(Phis, eps, strict=True)]), tau)


def relaxed_maximum(Phis: Kernels, eps: Sequence[float], k: int, tau: float) -> float:
    """The maximum over 0 <= x <= 1, sum x = k, by sequential quadratic programs from two starts."""
    n = len(Phis[0])
    starts = [np.full(n, k / n), np.linspace(0.5, 1.5, n) * k / n]
    found = [
        minimize(
            lambda x: -relaxed_value(Phis, eps, x.clip(0, 1), k, tau),
            start,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * n,
            constraints={"type": "eq", "fun": lambda x: np.sum(x) - k},
            options={"ftol": 1e-12, "maxiter": 400},
        )
        for start in starts
    ]
    return -float(min(result.fun for result in found))


def conjugate(w: float, eps: float) -> float:
    """h(w) = max over t >= 0 of log(t + eps) - w t, at its stationary point or at the edge."""
    t = max(1 / w - eps, 0.0)
    return math.log(t + eps) - w * t if t + eps > 0 else -math.inf


def dual_bound(
    Phis: Kernels,
    eps: Sequence[float],
    k: int,
    tau: float,
    omega: Array,
    slopes: Sequence[Array],
    allowed: Sequence[Subset],
) -> float:
    """What weights and slopes W_q, p x p, prove of all sets (docs/method.md#concave-bound)."""
    n, M = len(Phis[0]), len(Phis)
    prices = np.zeros(n)
    total = 0.0 if math.isinf(tau) else tau * sum(w * math.log(M * w) for w in omega if w > 0)
    for Phi, e, w, W in zip(Phis, eps, omega, slopes, strict=True):
        values = np.sort(np.linalg.eigvalsh(W))
        if w == 0:
            continue
        if values[0] <= 0:
            return math.inf
        total += w * sum(conjugate(value, e) for value in values[:k]) / k
        total += w * max(k - len(values), 0) * math.log(e) / k  # eigenvalues that must be zero
        prices += w / k * np.array([phi @ W @ phi for phi in Phi])
    return total + max(sum(prices[i] for i in S) for S in allowed)


def entropy_projection(
    y: Array,
    k: int,
    fixed_in: Subset = (),
    fixed_out: Subset = (),
    groups: Subset | None = None,
    least: Subset = (),
    most: Subset = (),
) -> Array:
    """argmin sum_i x_i log(x_i/y_i) over 0 <= x <= 1, sum x = k and the rules, by bisection twice.

    With a multiplier per group, x_i = min(1, t_g y_i): for a common t every group takes what that
    gives it, moved into its quota, and t makes the sum right.
    """
    n = len(y)
    logs = np.log(y)
    groups = [0] * n if groups is None else groups
    count = max(groups) + 1
    least, most = least or [0] * count, most or [n] * count

    def filled(rows: Subset, log_t: float) -> dict[int, float]:
        return {i: math.exp(min(0.0, log_t + logs[i])) for i in rows}

    def reach(rows: Subset, target: float) -> dict[int, float]:
        """min(1, t y) over these rows, with the sum `target`."""
        low, high = -2000.0, 2000.0
        for _ in range(200):
            middle = (low + high) / 2
            if math.fsum(filled(rows, middle).values()) < target:
                low = middle
            else:
                high = middle
        return filled(rows, high)

    free = [
        [i for i in range(n) if groups[i] == g and i not in fixed_in and i not in fixed_out]
        for g in range(count)
    ]
    taken = [sum(groups[i] == g for i in fixed_in) for g in range(count)]

    def shares(log_t: float) -> list[float]:
        return [
            min(
                max(math.fsum(filled(rows, log_t).values()), least[g] - taken[g]),
                min(most[g] - taken[g], len(rows)),
            )
            for g, rows in enumerate(free)
        ]

    low, high = -2000.0, 2000.0
    for _ in range(200):
        middle = (low + high) / 2
        if math.fsum(shares(middle)) < k - len(fixed_in):
            low = middle
        else:
            high = middle
    x = np.zeros(n)
    x[list(fixed_in)] = 1.0
    for rows, share in zip(free, shares(high), strict=True):
        for i, value in (reach(rows, share) if share > 0 else {}).items():
            x[i] = value
    return x


def swap_responses(Ls: Sequence[tuple[Array, float]], S: Subset) -> tuple[Array, Array]:
    """v_i = L_S^-1 K[S, i] as (n, M, k) and c_i = L_ii - K[i, S] v_i as (n, M), L = K + ridge I.

    `Ls` are pairs (L, ridge); K carries no ridge, also between a row and itself.
    """
    n, S = len(Ls[0][0]), list(S)
    v, c = np.zeros((n, len(Ls), len(S))), np.zeros((n, len(Ls)))
    for q, (L, ridge) in enumerate(Ls):
        K = L - ridge * np.eye(n)
        inverse = np.linalg.inv(L[np.ix_(S, S)])
        for i in range(n):
            v[i, q] = inverse @ K[S, i]
            c[i, q] = L[i, i] - K[i, S] @ v[i, q]
    return v, c


def view_scores(Ls: Kernels, subsets: Sequence[Subset]) -> Array:
    """d_q(S) of many subsets of one size, (number of subsets, M)."""
    S = np.array(subsets)
    logdets = [np.linalg.slogdet(L[S[:, :, None], S[:, None, :]])[1] for L in Ls]
    return np.stack(logdets, axis=1) / S.shape[1]


def prioritized(d: Array, tau: float, priorities: Array) -> float:
    """-tau log sum_q pi_q exp(-d_q/tau): the soft-min with weights of its own."""
    return float(-tau * np.logaddexp.reduce(np.log(priorities) - np.asarray(d) / tau))


def tiered_greedy(Ls: Kernels, shards: Sequence[Subset], k: int, tau: float) -> list[int]:
    """Fair greedy within every shard, then among all that were chosen; or what one shard chose,
    if that is better."""
    chosen = [fair_greedy(Ls, min(k, len(rows)), tau, rows) for rows in shards]
    best = fair_greedy(Ls, k, tau, sorted(i for S in chosen for i in S))
    for S in sorted((S for S in chosen if len(S) == k), key=lambda S: -fair_score(Ls, S, tau)):
        if fair_score(Ls, S, tau) > fair_score(Ls, best, tau) + TIE:
            best = S
    return best


# --- Local convergence (Theorem 2; docs/method.md#local-convergence) ------------------------------


def tangent_basis(V: Array) -> list[Array]:
    """An orthonormal basis of the tangents x with V^T x = 0, k (n - k) of them."""
    n, k = V.shape
    rest = np.linalg.qr(np.hstack([V, np.eye(n)]))[0][:, k:]
    return [np.outer(rest[:, i], np.eye(k)[j]) for i in range(n - k) for j in range(k)]


def scf_jacobian(Ls: Kernels, V: Array, tau: float, alpha: float, sigma: float) -> Array:
    """The derivative of a step of Algorithm 1 at a stationary V, by central differences."""
    basis, h = tangent_basis(V), 1e-5
    columns = []
    for x in basis:
        ahead = scf_step(Ls, polar(V + h * x), tau, alpha, sigma)
        behind = scf_step(Ls, polar(V - h * x), tau, alpha, sigma)
        columns.append([float(np.sum(y * (ahead - behind)) / (2 * h)) for y in basis])
    return np.array(columns).T


def sensitivity(Ls: Kernels, V: Array, tau: float, sigma: float, x: Array) -> float:
    """||H(V + h x) - H(V)||_2 over the chordal distance of the two, whose supremum is Theorem 2's
    C."""
    near = polar(V + 1e-6 * x)
    change = H(Ls, near, tau, sigma) - H(Ls, V, tau, sigma)
    return float(np.linalg.norm(change, 2) / chordal(near, V))


# --- Eigenvalues from above (docs/method.md#eigenvalues-from-above) -------------------------------


def largest_by_lagrange(
    low: Array, total: float, squares: float, rank: int, k: int, a: float, b: float
) -> float:
    """What multipliers a (any) and b > 0 prove of sum_{i <= k} log lambda_i, with `low` <= lambda,
    sum lambda = total, sum lambda^2 <= squares: the maximum of the Lagrangian, value by value."""
    value = a * total + b * squares
    for i in range(rank):
        least = float(low[i]) if i < len(low) else 0.0
        if i < k:  # log x - a x - b x^2 is largest where 2 b x^2 + a x = 1
            x = max(least, (-a + math.sqrt(a * a + 8 * b)) / (4 * b))
            value += math.log(x) - a * x - b * x * x
        else:
            x = max(least, -a / (2 * b))
            value += -a * x - b * x * x
    return value


def principal_components(Phi: Array, count: int = 2) -> tuple[Array, Array]:
    """(n, count) coordinates of rows about their mean along the directions of largest variance, and
    the share of all variance along each."""
    centred_rows = Phi - Phi.mean(axis=0)
    U, singular, _ = np.linalg.svd(centred_rows, full_matrices=False)
    return U[:, :count] * singular[:count], singular[:count] ** 2 / (singular**2).sum()
