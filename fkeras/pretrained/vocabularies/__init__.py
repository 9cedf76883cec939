"""Conversion of older vocabulary files, and of those in GGUF files, to `tokenizer.json`."""
