"""Rows of the layer table: layers with quantized weights or float8 products."""

from fkeras import layers, quantizers
from tests.cases import Case

_WEIGHTS_ALONE = quantizers.Int8QuantizationConfig(activation_quantizer=None)
_BLOCKS = quantizers.Int4QuantizationConfig(block_size=2)
_INPUTS_TOO = quantizers.Int4QuantizationConfig(
    activation_quantizer=quantizers.AbsMaxQuantizer(), block_size=None
)
_GPTQ = quantizers.GPTQConfig(weight_bits=3, group_size=2)
_AWQ = quantizers.AWQConfig(group_size=-1)


def _dense(**options):
    return layers.Dense(3, "tanh", name="head", bias_regularizer="l2", **options)


def _einsum(**options):
    return layers.EinsumDense("abde,dec->abc", (None, 5), bias_axes="c", **options)


def _experts(**options):
    return layers.MixtureOfExperts(4, 3, load_balancing=0.1, name="experts", **options)


CASES = (
    Case(layers.QuantizedDense(_dense(), "int8"), ((2, 4, 5),)),
    Case(
        layers.QuantizedDense(_dense(use_bias=False), _WEIGHTS_ALONE),
        ((2, 5),),
        exhaustive=True,  # tests/saving/weights/test_quantized_codes.py compares the outputs of Keras's files
    ),
    Case(layers.QuantizedDense(_dense(), "int4"), ((2, 5),)),
    Case(layers.QuantizedDense(_dense(bias_constraint="non_neg"), _BLOCKS), ((2, 4, 5),)),
    Case(layers.QuantizedDense(_dense(), _INPUTS_TOO), ((2, 5),), exhaustive=True),
    # Keras computes with these modes only after loading a file
    Case(layers.QuantizedDense(_dense(), _GPTQ), ((2, 5),), keras=False),
    Case(layers.QuantizedDense(_dense(), _AWQ), ((2, 5),), keras=False, exhaustive=True),
    Case(layers.QuantizedDense(_einsum(), "int8"), ((2, 4, 3, 2),)),
    Case(layers.QuantizedDense(_einsum(), _BLOCKS), ((2, 4, 3, 2),), exhaustive=True),
    Case(
        # Keras quantizes no equation with an ellipsis
        layers.QuantizedDense(layers.EinsumDense("...x,xy->...y", 3, bias_axes="y"), "int8"),
        ((2, 4, 5),),
        keras=False,
    ),
    # Keras lists these weights in another order; the tests of files compare the outputs
    Case(layers.Float8Dense(_dense(), "float8"), ((2, 5),), keras=False),
    Case(
        layers.Float8Dense(_einsum(), quantizers.Float8QuantizationConfig(4)),
        ((2, 4, 3, 2),),
        training=True,
        keras=False,
    ),
    Case(
        layers.QuantizedEmbedding(layers.Embedding(7, 3, mask_zero=True), "int8"),
        (("int32", (2, 5), 7),),
    ),
    Case(layers.QuantizedEmbedding(layers.Embedding(7, 3), _BLOCKS), (("int32", (2, 5), 7),)),
    Case(
        # in Keras only the scale of the inputs passes gradients
        layers.QuantizedEmbedding(layers.ReversibleEmbedding(7, 3, logit_soft_cap=2.0), "int8"),
        ((2, 5, 3),),
        {"reverse": True},
        keras=False,
    ),
    Case(
        layers.QuantizedEmbedding(layers.ReversibleEmbedding(7, 3, False), _BLOCKS),
        ((2, 5, 3),),
        {"reverse": True},
    ),
    Case(layers.QuantizedMixtureOfExperts(_experts(), "int8"), ((2, 4, 6),), keras=False),
    Case(
        layers.QuantizedMixtureOfExperts(_experts(use_bias=True), _BLOCKS), ((2, 6),), keras=False
    ),
    Case(layers.MultiHeadAttention(2, 3, name="att", quantization="int8"), ((2, 4, 5), (2, 4, 5))),
)
