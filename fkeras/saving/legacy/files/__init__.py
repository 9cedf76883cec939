"""The origin of a legacy file, and the graph in its configuration."""
