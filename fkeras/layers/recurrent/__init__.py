"""Recurrent layers, their cells, `RNN` for any cell, and wrappers for recurrent layers."""
