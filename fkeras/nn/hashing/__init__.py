"""Hashes of integers and strings, bit-identical to TensorFlow's."""
