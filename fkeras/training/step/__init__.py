"""Pure functions of one batch: objective, gradients, update, metrics."""
