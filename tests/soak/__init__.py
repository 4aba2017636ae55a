"""Many cases of every kind, each determined by its number; `python -m soak` runs them."""
