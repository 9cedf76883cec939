"""Callbacks that report a training: to files, streams, notebooks and tracking services."""
