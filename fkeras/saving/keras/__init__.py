"""`.keras` files."""
