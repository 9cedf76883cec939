"""Readers and writers of zip archives, HDF5 and JSON, with resource limits for untrusted files."""
