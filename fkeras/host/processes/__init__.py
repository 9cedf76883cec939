"""Calls of a trainer that several processes make together.

JAX computes with arrays that span processes, but each process runs its own Python program. A `Group`
makes the programs take equal decisions, and turns a process that has ended into an error.
"""
