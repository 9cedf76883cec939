"""Rows of the layer table: activation layers with parameters."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.ReLU(), ((2, 5),)),
    Case(layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.3), ((2, 3, 5),)),
    Case(layers.LeakyReLU(), ((2, 5),)),
    Case(layers.LeakyReLU(0.1), ((2, 3, 5),), mask=(2, 3), keras=False),
    Case(layers.ELU(), ((2, 5),)),
    Case(layers.ELU(0.5), ((2, 5),)),
    Case(layers.PReLU("random_normal"), ((2, 3, 5),)),
    Case(
        layers.PReLU("ones", "l2", "non_neg", shared_axes=(1, 2)),
        ((2, 3, 4, 5),),
    ),
)
