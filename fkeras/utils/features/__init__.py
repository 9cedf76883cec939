"""Preprocessing of table columns: numbers and categories become vectors."""
