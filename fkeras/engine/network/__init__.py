"""`Network`: a layer that runs a graph; its summary, its drawing, and its part on the host."""
