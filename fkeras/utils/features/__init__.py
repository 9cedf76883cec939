"""Tables of numbers and categories as vectors."""
