"""Rows of the layer table: mixtures of experts."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.MixtureOfExperts(3, 5, load_balancing=0.1), ((2, 4, 6),), keras=False),
    Case(
        layers.MixtureOfExperts(4, 3, 1, "gelu", renormalize=False, kernel_initializer="he_normal"),
        ((2, 6),),
        keras=False,
    ),
    Case(
        layers.MixtureOfExperts(6, 3, router="sigmoid", corrected=True, groups=3, top_groups=2),
        ((2, 6),),
        keras=False,
    ),
    Case(
        layers.MixtureOfExperts(4, 3, 1, renormalize=False, router="sigmoid", weighted_inputs=True),
        ((2, 6),),
        keras=False,
    ),
    Case(
        layers.MixtureOfExperts(5, 3, use_bias=True, limit=0.7, gate_scale=1.7, up_offset=1.0),
        ((2, 6),),
        keras=False,
    ),
    Case(layers.MixtureOfExperts(3, 5, load_balancing=0.1), ((2, 4, 6),), mask=(2, 4), keras=False),
)
