"""`.keras` files: reading, writing, and options of layers that Keras does not have."""
