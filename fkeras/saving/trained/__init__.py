"""The training of a saved model: compile configuration and optimizer state."""
