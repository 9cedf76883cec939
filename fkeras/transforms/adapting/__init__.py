"""Adapters of frozen models: adapting, taking adapters out and in, merging."""
