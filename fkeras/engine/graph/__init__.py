"""The closed graph: a table of calls, closing, and queries."""
