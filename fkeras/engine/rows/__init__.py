"""Reads from programs whether the rows of a batch are independent of rows that fill the batch up."""
