"""The arguments of `fit`, `evaluate` and `predict`: checks, and conversion to batches."""
