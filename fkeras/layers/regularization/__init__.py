"""Dropout, noise and activity penalties in training."""
