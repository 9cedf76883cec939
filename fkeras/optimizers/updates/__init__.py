"""Functions on weights, gradients and optimizer states, shared by all optimizers."""
