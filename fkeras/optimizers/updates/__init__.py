"""Functions of weights, gradients and optimizer states that all optimizers share."""
