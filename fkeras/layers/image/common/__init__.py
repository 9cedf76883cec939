"""Base classes and argument rules of image layers."""
