"""Rows of the layer table: convolutions."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.Conv1D(3, 2), ((2, 6, 4),)),
    Case(layers.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="tanh"), ((2, 7, 3),)),
    Case(layers.Conv1D(4, 3, 2, "same", use_bias=False, groups=2), ((2, 7, 4),)),
    Case(layers.Conv1D(2, 3, 2, "causal", "channels_first"), ((2, 3, 8),)),
    Case(layers.Conv2D(3, 2), ((2, 5, 4, 2),)),
    Case(layers.Conv2D(4, (3, 2), (2, 1), "same", activation="relu"), ((2, 6, 5, 3),)),
    Case(layers.Conv2D(4, 3, padding="same", dilation_rate=(1, 2), groups=2), ((2, 6, 7, 2),)),
    Case(layers.Conv2D(6, 3, 2, data_format="channels_first", groups=3), ((2, 3, 7, 6),)),
    Case(
        layers.Conv2D(
            2,
            1,
            kernel_initializer="he_normal",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            kernel_constraint="max_norm",
            bias_constraint="non_neg",
        ),
        ((2, 3, 3, 4),),
    ),
    # Keras's stateless_call does not penalize activity
    Case(layers.Conv2D(2, 2, activity_regularizer="l2"), ((2, 3, 3, 2),), keras=False),
    Case(layers.Conv2D(2, 2), (("int32", (2, 3, 3, 2), 9),)),
    Case(layers.Conv3D(2, 2), ((2, 3, 4, 3, 2),)),
    Case(layers.Conv3D(2, (1, 2, 3), 2, "same", "channels_first"), ((2, 2, 3, 4, 5),)),
)
