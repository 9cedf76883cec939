"""Rows of the layer table: layers that merge a list of tensors."""

from fkeras import layers
from tests.cases import Case

_PAIR = ([(2, 3, 4), (2, 3, 4)],)
_THREE = ([(2, 4), (2, 4), (2, 4)],)
_BROADCAST = ([(2, 3, 4), (2, 1, 4)],)
_RANKS = ([(2, 3, 4), (2, 4)],)

CASES = (
    Case(layers.Add(), _THREE),
    Case(layers.Add(), _BROADCAST),
    Case(layers.Add(), _RANKS),
    Case(layers.Subtract(), _PAIR),
    Case(layers.Subtract(), _RANKS),
    Case(layers.Multiply(), _THREE),
    Case(layers.Multiply(), _BROADCAST),
    Case(layers.Average(), _THREE),
    Case(layers.Average(), _RANKS),
    Case(layers.Maximum(), _THREE),
    Case(layers.Maximum(), _BROADCAST),
    Case(layers.Minimum(), _THREE),
    Case(layers.Minimum(), _BROADCAST),
    Case(layers.Concatenate(), ([(2, 3, 4), (2, 3, 5), (2, 3, 1)],)),
    Case(layers.Concatenate(axis=1), ([(2, 3, 4), (2, 5, 4)],)),
    # test_merge_masks compares these with Keras, which has no such argument
    Case(layers.Add(masks="any"), _THREE, keras=False),
    Case(layers.Subtract(masks="any"), _PAIR, keras=False),
    Case(layers.Multiply(masks="any"), _BROADCAST, keras=False),
    Case(layers.Average(masks="any"), _RANKS, keras=False),
    Case(layers.Maximum(masks="any"), _RANKS, keras=False),
    Case(layers.Minimum(masks="any"), _THREE, keras=False),
    Case(layers.Concatenate(1, masks="any"), ([(2, 3, 4), (2, 5, 4)],), keras=False),
    Case(layers.Dot(axes=1), ([(3, 4), (3, 4)],)),
    Case(layers.Dot(axes=(1, 2)), ([(2, 3, 5), (2, 4, 3)],)),
    Case(layers.Dot(axes=-1, normalize=True), ([(2, 3, 5), (2, 4, 5)],)),
    Case(layers.Dot(axes=(2, 1)), ([(2, 3, 5), (2, 5)],)),
    Case(layers.Dot(axes=(1, 3)), ([(2, 5), (2, 3, 4, 5)],)),
    Case(layers.Dot(axes=(2, 1)), ([(2, 3, 5, 4), (2, 5, 3, 6)],)),
)
