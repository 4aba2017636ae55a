"""Choose 20 of 500 items by two views, and read what comes back."""

import numpy as np

import fairnepv

rng = np.random.default_rng(0)
topics = rng.standard_normal((12, 48))
text = topics[rng.integers(12, size=500)] + 0.5 * rng.standard_normal((500, 48))  # simulated
vision = rng.standard_normal((500, 64))

chosen = fairnepv.select({"text": text, "vision": vision}, k=20)

print("rows, in order of selection:", chosen.indices.tolist())
for view, score in chosen.scores.items():
    print(f"{view}: {score:.3f} nats per item")
print(f"the worst view is {chosen.worst_view!r}; how the search ended: {chosen.status.value}")
print(f"no 20 items score above {chosen.upper_bound:.4f}: at least {chosen.efficiency:.1%} of it")
