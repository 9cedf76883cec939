"""Quirks: behaviour of Keras that depends on its version and that no file states; see `table`."""
