"""The loops over epochs and batches, with saving, interruption and recovery."""
