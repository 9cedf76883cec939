"""Dataset files: locations, downloads, and readers that run no code of a file."""
