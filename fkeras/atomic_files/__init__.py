"""Atomic writing of files, and the .npz format of weights."""
