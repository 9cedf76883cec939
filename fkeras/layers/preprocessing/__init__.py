"""Layers that prepare data: categories, bins, numbers, sounds, and chains of such layers."""
