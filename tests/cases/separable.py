"""Rows of the layer table: depthwise and separable convolutions."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.DepthwiseConv1D(3, 2, "same", 2), ((2, 6, 3),)),
    Case(layers.DepthwiseConv1D(2, data_format="channels_first", use_bias=False), ((2, 3, 5),)),
    Case(
        layers.DepthwiseConv2D(
            (3, 2),
            activation="relu",
            bias_initializer="ones",
            depthwise_regularizer="l2",
            bias_regularizer="l1",
            depthwise_constraint="max_norm",
            bias_constraint="non_neg",
        ),
        ((2, 5, 4, 3),),
    ),
    # Keras takes strides and dilation together here
    Case(layers.DepthwiseConv2D(2, 2, "same", 2, "channels_first", 2), ((2, 2, 5, 6),)),
    # Keras does not convert integers here, and fails
    Case(layers.DepthwiseConv2D(2), (("int32", (2, 3, 3, 2), 9),), keras=False),
    Case(layers.SeparableConv1D(4, 3, 2, "same", depth_multiplier=2), ((2, 6, 3),)),
    Case(layers.SeparableConv1D(2, 2, data_format="channels_first"), ((2, 3, 5),)),
    Case(
        layers.SeparableConv2D(
            3,
            (3, 2),
            dilation_rate=(1, 2),
            depth_multiplier=2,
            activation="tanh",
            depthwise_initializer="he_normal",
            depthwise_regularizer="l2",
            pointwise_regularizer="l1",
            bias_regularizer="l2",
            depthwise_constraint="max_norm",
            pointwise_constraint="unit_norm",
            bias_constraint="non_neg",
        ),
        ((2, 5, 5, 2),),
    ),
    Case(
        layers.SeparableConv2D(3, 2, 2, "same", "channels_first", use_bias=False), ((2, 2, 5, 4),)
    ),
)
