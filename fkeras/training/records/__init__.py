"""Values that a training returns or prints: the run, the history, the progress bar."""
