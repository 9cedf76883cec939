"""Reads and writes `.keras` files, including options of layers that Keras does not have."""
