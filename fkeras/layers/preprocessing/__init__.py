"""Preprocessing layers: categories, bins, scaling, audio, and pipelines of these layers."""
