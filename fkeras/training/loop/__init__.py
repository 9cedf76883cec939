"""Loops over epochs and batches, with checkpoints, signals and recovery from NaN."""
