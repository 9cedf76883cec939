"""Rows of the layer table: transposed convolutions."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.Conv1DTranspose(3, 2), ((2, 5, 4),)),
    Case(
        layers.Conv1DTranspose(2, 2, 3, output_padding=2, data_format="channels_first"),
        ((2, 3, 4),),
    ),
    Case(layers.Conv1DTranspose(2, 3, padding="same", dilation_rate=2), ((2, 6, 2),)),
    Case(
        layers.Conv2DTranspose(
            3,
            (3, 2),
            (2, 3),
            "same",
            activation="tanh",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            kernel_constraint="max_norm",
            bias_constraint="non_neg",
        ),
        ((2, 3, 4, 2),),
    ),
    Case(
        layers.Conv2DTranspose(2, (3, 4), 2, "same", (1, 0), "channels_first", use_bias=False),
        ((2, 3, 4, 3),),
    ),
    # Keras's stateless_call does not penalize activity
    Case(layers.Conv2DTranspose(2, 2, activity_regularizer="l2"), ((2, 3, 3, 2),), keras=False),
    Case(layers.Conv3DTranspose(2, 2, 2), ((2, 2, 3, 2, 2),)),
    Case(layers.Conv3DTranspose(2, (1, 2, 3), 2, "same", None, 1), ((2, 2, 2, 3, 2),)),
)
