"""One call of a layer: its context, masks and checks, on arrays and on symbolic tensors."""
