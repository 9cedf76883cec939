"""The pure function of one batch: objective, gradients, update, metrics."""
