"""Rows of the layer table: normalization of batches, examples, groups, vectors, features."""

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
    Case(
        layers.BatchNormalization(trainable=False, frozen="batch"),
        ((4, 3),),
        training=True,
        keras=False,
    ),
    Case(
        layers.BatchNormalization(frozen="batch", renorm=True, trainable=False),
        ((3, 4, 2),),
        mask=(3, 4),
        training=True,
        keras=False,
    ),
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
    Case(layers.GroupNormalization(2), ((2, 3, 4),), mask=(2, 3), keras=False),
    Case(layers.GroupNormalization(-1, axis=1, epsilon=1e-2), ((2, 3, 4, 4),)),
    Case(
        layers.GroupNormalization(
            2, -1, 1e-3, True, True, "ones", "random_normal", "l1", "l2", "non_neg", "non_neg"
        ),
        ((2, 3, 3, 4),),
    ),
    Case(layers.GroupNormalization(1, center=False, scale=False), ((4, 3),)),
    Case(layers.RMSNormalization(), ((4, 3),)),
    Case(layers.RMSNormalization(axis=(1, 2), epsilon=1e-3), ((2, 3, 4),)),
    Case(layers.RMSNormalization(scale_offset=1.0), ((4, 3),), keras=False),
    Case(layers.UnitNormalization(), ((4, 3),)),
    Case(layers.UnitNormalization(axis=(1, 2)), ((2, 3, 4),)),
    Case(layers.Normalization(), ((4, 3),)),
    Case(layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 1.0, 0.5]), ((2, 5, 3),)),
    Case(
        layers.Normalization(axis=(1, -1), mean=[1.0, 2.0], variance=[0.0, 4.0], invert=True),
        ((2, 3, 2),),
    ),
    Case(layers.Normalization(axis=None, mean=0.5, variance=2.0), (("int32", (2, 3), 9),)),
    Case(layers.Rescaling(1 / 255), (("uint8", (2, 3, 3, 2), 255),)),
    Case(layers.Rescaling([0.5, 2.0], [1, -1]), ((3, 2),)),
)
