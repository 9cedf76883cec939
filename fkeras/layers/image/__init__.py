"""Image layers: preprocessing and augmentation, one family per file."""
