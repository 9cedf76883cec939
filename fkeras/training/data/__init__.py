"""Batches out of arrays and streams."""
