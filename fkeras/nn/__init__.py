"""Plain functions of arrays: the mathematics under layers, losses and operations."""
