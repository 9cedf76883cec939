"""Recurrent layers, their cells, `RNN` for any cell, and wrappers of recurrent layers."""
