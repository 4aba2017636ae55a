"""Questions about a choice: why these, what does each stand for, how many are enough."""

import numpy as np

import fairnepv

rng = np.random.default_rng(4)
data = {"text": rng.standard_normal((150, 12)), "vision": rng.standard_normal((150, 18))}
chosen = fairnepv.select(data, k=8, effort="fast")

first = fairnepv.explain(chosen).rows()[0]
print(f"row {first['row']}: the best rival is {first['rival_row']}, {first['margin']:.4f} behind")
print("items that each pick stands for:", fairnepv.assign(chosen).counts.tolist())
print("the curve bends at", fairnepv.curve(data, 30).knee, "items")
print("picks that no other tau, ridge or seed changes:", fairnepv.stability(chosen).core.tolist())
for row in fairnepv.compare(data, k=8, methods=["auto", "text-only", "random"], effort="fast"):
    print(f"{row.method}: worst view {row.worst_view} at {row.minimum:.3f}")
