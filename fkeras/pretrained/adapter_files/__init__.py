"""Adapters in the files of PEFT and KerasHub."""
