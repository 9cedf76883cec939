"""Comparison of two models: differences, patches, fingerprints and agreement."""
