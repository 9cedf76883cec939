"""Quirks: behaviour of Keras versions that files do not record; see `table`."""
