"""Rows of the layer table: batch and layer normalization."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.BatchNormalization(), ((4, 3),)),
    Case(layers.BatchNormalization(), ((4, 3),), training=True),
    Case(layers.BatchNormalization(momentum=0.9, epsilon=1e-2), ((2, 4, 4, 3),), training=True),
    Case(layers.BatchNormalization(axis=1), ((2, 3, 4, 4),), training=True),
    Case(layers.BatchNormalization(center=False), ((4, 3),), training=True),
    Case(layers.BatchNormalization(scale=False), ((4, 3),), training=True),
    Case(layers.BatchNormalization(center=False, scale=False), ((2, 5, 3),), training=True),
    Case(
        layers.BatchNormalization(
            beta_initializer="ones",
            gamma_initializer="zeros",
            moving_mean_initializer="ones",
            moving_variance_initializer="ones",
            beta_regularizer="l1",
            gamma_regularizer="l2",
            beta_constraint="non_neg",
            gamma_constraint="non_neg",
        ),
        ((4, 3),),
    ),
    Case(layers.BatchNormalization(), ((3, 4, 2),), mask=(3, 4), training=True),
    Case(layers.BatchNormalization(), ((3, 4, 2),), mask=(3, 4)),
    # test_normalization compares these with Keras by the names of the state and weights
    Case(layers.BatchNormalization(trainable=False), ((4, 3),), training=True, keras=False),
    Case(layers.BatchNormalization(renorm=True), ((4, 3),), training=True, keras=False),
    Case(layers.BatchNormalization(renorm=True), ((4, 3),)),
    Case(
        layers.BatchNormalization(
            renorm=True,
            renorm_clipping={"rmax": 1.1, "rmin": 0.9, "dmax": 0.1},
            renorm_momentum=0.8,
            center=False,
        ),
        ((2, 5, 3),),
        training=True,
        keras=False,
    ),
    Case(layers.LayerNormalization(), ((4, 3),)),
    Case(layers.LayerNormalization(epsilon=1e-6), ((2, 5, 8),), mask=(2, 5), keras=False),
    Case(layers.LayerNormalization(axis=(1, 2)), ((2, 3, 4),)),
    Case(layers.LayerNormalization(axis=(-1, 1)), ((2, 3, 4, 5),)),
    Case(layers.LayerNormalization(axis=1), ((2, 3, 4),)),
    Case(layers.LayerNormalization(center=False, gamma_regularizer="l2"), ((4, 3),)),
    Case(layers.LayerNormalization(scale=False, beta_regularizer="l1"), ((4, 3),)),
    Case(layers.LayerNormalization(gamma_initializer="zeros", beta_initializer="ones"), ((4, 3),)),
)
