"""Datasets of files and windows, loaded in the background by grain, and of streams."""
