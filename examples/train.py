"""Choose 40 of 1,797 digits to label, train a probe on them, and see what the objective changes."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import fairnepv

digits = load_digits()
pixels = digits.data / 16.0
spectra = np.abs(np.fft.rfft2(digits.images)).reshape(len(pixels), -1)  # a second look at them
views = {"pixels": pixels, "spectra": spectra}
features = np.hstack(
    [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in views.values()]
)


def accuracy(rows):
    """Of a linear probe that has seen the labels of these rows alone, on all others."""
    probe = LogisticRegression(C=10.0, max_iter=2000).fit(features[rows], digits.target[rows])
    others = np.setdiff1d(np.arange(len(features)), rows)
    return probe.score(features[others], digits.target[others])


k, options = 40, {"effort": "fast", "certify": False}  # a quick look; leave these out for more
chosen = {
    o: fairnepv.select(views, k, objective=o, **options) for o in ("diverse", "representative")
}
rng = np.random.default_rng(0)
drawn = [accuracy(rng.choice(len(features), k, replace=False)) for _ in range(5)]

print(f"random picks: {np.mean(drawn):.1%} of the other digits are read right")
for objective, selection in chosen.items():
    print(f"{objective} picks: {accuracy(selection.indices):.1%}")
explained = chosen["representative"]
for view, share in explained.scores.items():
    print(f"{k} representative digits explain {share:.1%} of the variance of their {view}")
weights = fairnepv.assign(explained).weights  # how many digits each pick stands for
print(f"the pick that stands for most weighs {weights.max():.1f} times as much as the average one")
assert accuracy(explained.indices) > max(np.mean(drawn), accuracy(chosen["diverse"].indices))
