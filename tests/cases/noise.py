"""Rows of the layer table: noise and variants of dropout."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.GaussianNoise(0.5), ((2, 5),)),
    Case(layers.GaussianNoise(0.5, 3), ((2, 3, 4),), mask=(2, 3), training=True, keras=False),
    Case(layers.GaussianDropout(0.5), ((2, 5),)),
    Case(layers.GaussianDropout(0.25, 3), ((2, 3, 4),), training=True, keras=False),
    Case(layers.AlphaDropout(0.5), ((2, 5),)),
    Case(layers.AlphaDropout(0.25, (None, 1, None), 3), ((2, 3, 4),), training=True, keras=False),
    Case(layers.SpatialDropout1D(0.5, 3), ((2, 3, 4),), training=True, keras=False),
    Case(layers.SpatialDropout1D(0.2), ((2, 3, 4),)),
    Case(layers.SpatialDropout2D(0.5), ((2, 3, 3, 4),)),
    Case(layers.SpatialDropout3D(0.3), ((2, 3, 2, 2, 4),)),
    Case(
        layers.SpatialDropout2D(0.5, "channels_first"), ((2, 3, 3, 4),), training=True, keras=False
    ),
    # at this rate Keras drops everything
    Case(layers.SpatialDropout3D(1.0, "channels_first"), ((2, 3, 2, 2, 4),), training=True),
)
