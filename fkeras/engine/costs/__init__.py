"""Costs of programs and of calls, from shapes alone."""
