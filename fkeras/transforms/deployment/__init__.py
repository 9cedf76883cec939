"""Models for inference: folded calls and quantized weights."""
