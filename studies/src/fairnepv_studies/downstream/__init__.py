"""Does the chosen subset train a better model? The second half of the paper's section 6."""
