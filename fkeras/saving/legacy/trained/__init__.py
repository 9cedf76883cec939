"""Losses, metrics and optimizers of legacy files."""
