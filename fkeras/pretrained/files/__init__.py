"""Folders of checkpoints and GGUF files."""
