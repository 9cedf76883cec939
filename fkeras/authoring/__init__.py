"""Names of the core for wings: all that a wing imports beside the public names, one file a package."""
