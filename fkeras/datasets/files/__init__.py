"""Files of datasets: places, downloads, and readers that run no code of a file."""
