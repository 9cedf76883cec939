"""Finds, reports and leaves out steps whose results are not finite."""
