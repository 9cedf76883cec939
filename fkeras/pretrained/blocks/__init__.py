"""Parts of graphs that several families share."""
