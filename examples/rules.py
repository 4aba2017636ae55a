"""Items that are in or out, classes in proportion, a view that must keep a level."""

import numpy as np

import fairnepv

rng = np.random.default_rng(2)
data = {"text": rng.standard_normal((300, 20)), "vision": rng.standard_normal((300, 30))}
classes = rng.choice(["cat", "dog", "owl"], size=300, p=[0.6, 0.3, 0.1])

chosen = fairnepv.select(
    data,
    k=15,
    include=[3, 14],  # labelled already
    exclude=np.arange(100, 120),  # known to be broken
    groups=classes,
    quotas={"owl": 4, "cat": (None, 7)},  # exactly four owls, at most seven cats
    floors={"text": -1.0},
    effort="fast",
)
names, counts = np.unique(classes[chosen.indices], return_counts=True)
print(dict(zip(names.tolist(), counts.tolist(), strict=True)))
assert chosen.indices[:2].tolist() == [3, 14]
assert chosen.scores["text"] >= -1.0
