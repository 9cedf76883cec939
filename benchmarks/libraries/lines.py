"""Counts the lines of each program of each library."""

import ast
import pathlib

FOLDER = pathlib.Path(__file__).parent
# the functions and classes of each program, whose lines count
PARTS = {
    "training": ("training", "start", "update"),
    "mlp": ("mlp", "MLP"),
    "convnet": ("convnet", "ConvNet"),
    "lstm": ("lstm", "LSTM"),
    "transformer": ("transformer", "Transformer", "Block"),
    "siamese": ("siamese", "Siamese"),
    "training_of_the_head": ("training_of_the_head",),
    "features": ("features",),
    "ensemble": ("ensemble",),
    "saved_and_loaded": ("saved_and_loaded",),
}


def count_lines(library):
    """Lines of each program without blank lines and comments."""
    source = (FOLDER / f"{library}_programs.py").read_text()
    lines, counts = source.splitlines(), {}
    nodes = {node.name: node for node in ast.parse(source).body if hasattr(node, "name")}
    for program, parts in PARTS.items():
        ranges = [nodes[part] for part in parts if part in nodes]
        text = [line for n in ranges for line in lines[n.lineno - 1 : n.end_lineno]]
        counts[program] = sum(
            bool(line.strip()) and not line.strip().startswith("#") for line in text
        )
    return counts
