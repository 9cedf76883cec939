"""Activation layers: any function by name, and activations with arguments or weights."""
