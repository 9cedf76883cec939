"""Hashes of integers and texts, bit for bit as TensorFlow computes hashes."""
