"""Rows of the layer table: convolutional LSTMs.

Keras broadcasts the mask of a scanned step along wrong axes and fails; the unrolled form works. Rows with
a mask are therefore unrolled. tests/layers/recurrent/test_conv_lstm.py checks that scans equal them.
"""

from fkeras import layers
from tests.cases import Case

IMAGES = ((2, 3, 4, 5, 2),)
MASK = (2, 3)

CASES = (
    Case(
        layers.ConvLSTM1D(2, 2, 2, "same", "channels_first", return_state=True, unroll=True),
        ((2, 4, 3, 5),),
        mask=(2, 4),
    ),
    Case(
        layers.ConvLSTM1D(2, 2, dilation_rate=2, unit_forget_bias=False, return_sequences=True),
        ((2, 3, 5, 2),),
        exhaustive=True,  # one implementation serves one, two and three axes
    ),
    Case(
        layers.ConvLSTM2D(
            2,
            (2, 3),
            (2, 1),
            activation="relu",
            recurrent_activation="hard_sigmoid",
            bias_initializer="ones",
            kernel_regularizer="l2",
            recurrent_regularizer="l1",
            bias_regularizer="l2",
            kernel_constraint="max_norm",
            recurrent_constraint="unit_norm",
            bias_constraint="non_neg",
            go_backwards=True,
            return_sequences=True,
            unroll=True,
        ),
        IMAGES,
        mask=MASK,
    ),
    Case(layers.ConvLSTM2D(2, 2, padding="same", use_bias=False, return_state=True), IMAGES),
    # Keras's stateless_call does not penalize activity
    Case(
        layers.ConvLSTM2D(
            2, 2, return_sequences=True, zero_output_for_mask=True, activity_regularizer="l2"
        ),
        IMAGES,
        mask=MASK,
        keras=False,
    ),
    Case(
        layers.ConvLSTM2D(2, 2, dropout=0.3, recurrent_dropout=0.2, seed=3),
        IMAGES,
        training=True,
        keras=False,
    ),
    Case(layers.ConvLSTM2D(2, 2, stateful=True), IMAGES, mask=MASK, keras=False),
    Case(layers.ConvLSTM3D(2, (1, 2, 2), data_format="channels_first"), ((2, 2, 2, 2, 3, 2),)),
    Case(
        layers.ConvLSTM3D(1, (2, 1, 2), padding="same", use_bias=False, return_sequences=True),
        ((2, 2, 2, 2, 2, 1),),
        exhaustive=True,
    ),
)
