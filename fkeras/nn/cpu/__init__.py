"""Computations for CPUs of operations that XLA's CPU backend computes slowly."""
