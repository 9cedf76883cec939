"""`Network`: a layer that runs a graph; its summary and its drawing."""
