"""Dense, EinsumDense, Embedding, Lambda, Masking, and the base class of wrappers."""
