"""`Model` and `Sequential`, and the partition of their weights."""
