"""Feeds: split arrays and streams into batches."""
