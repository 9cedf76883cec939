"""Weights of legacy HDF5 files."""
