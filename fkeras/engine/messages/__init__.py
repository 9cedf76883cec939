"""Exceptions of the package, and the phrases that error messages share."""
