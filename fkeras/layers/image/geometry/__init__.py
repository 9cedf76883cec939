"""Image layers that move or resize pixels."""
