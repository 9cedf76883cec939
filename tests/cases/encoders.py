"""Rows of the layer table: layers of pretrained encoders."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.LearnedTokens(3), ((2, 5, 4),), keras=False),
    Case(layers.LearnedTokens(1, "ones"), ((2, 3, 2, 4),), keras=False),
    Case(layers.MaskedPatches(), ((2, 3, 4),), mask=(2, 3), keras=False),
    Case(layers.MaskedPatches("ones"), ((2, 3, 2, 4), ("int32", (2, 3, 2), 2)), keras=False),
    Case(layers.PatchSequence((3, 2)), ((2, 3, 2, 4),), keras=False),
    Case(layers.PatchSequence(3, 1, antialias=True), ((2, 2, 5, 4),), keras=False),
    Case(layers.Bias("normal"), ((2, 5, 3),), mask=(2, 5), keras=False),
    Case(layers.LogitScale(), ((2, 3),), keras=False),
    Case(layers.LogitScale(True, "zeros", "ones"), ((2, 5, 3),), mask=(2, 5), keras=False),
    Case(layers.TokenTypes(), (("int32", (2, 5), 7),), mask=(2, 5), keras=False),
    Case(layers.TokenTypes(), (("int32", (2, 5), 7), ("int32", (2, 5), 2)), keras=False),
)
