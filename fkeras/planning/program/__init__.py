"""Programs of operations: reading, fusion, order and memory."""
