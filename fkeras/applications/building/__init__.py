"""What all architectures share: arguments, weights, heads, documentation, images and classes."""
