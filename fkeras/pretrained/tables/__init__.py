"""Configurations, and tables of the names of tensors."""
