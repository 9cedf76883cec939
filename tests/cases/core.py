"""Rows of the layer table: dense and embedding layers, dropout, masking, reshaping."""

import jax.numpy as jnp

from fkeras import layers
from tests.cases import Case


def scaled_sum(x, factor=1.0):
    return factor * jnp.sum(x, axis=-1)


CASES = (
    Case(layers.Dense(3), ((2, 5),)),
    Case(layers.Dense(4, activation="relu", use_bias=False), ((2, 3, 5),)),
    Case(
        layers.Dense(
            2,
            "tanh",
            kernel_initializer="he_normal",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            kernel_constraint="max_norm",
            bias_constraint="non_neg",
        ),
        ((3, 4, 2, 5),),
    ),
    # Keras's stateless_call takes no mask here and does not penalize activity
    Case(layers.Dense(3), ((2, 4, 5),), mask=(2, 4), keras=False),
    Case(layers.Dense(3, activity_regularizer="l2"), ((2, 5),), keras=False),
    Case(layers.Activation("relu"), ((2, 5),)),
    Case(layers.Activation("softmax"), ((2, 3, 5),), mask=(2, 3), keras=False),
    Case(layers.Identity(), ((2, 3),)),
    Case(layers.Identity(), ([(2, 3), (2, 4)],)),
    Case(layers.ActivityRegularization(l1=0.1, l2=0.2), ((4, 3),), keras=False),
    Case(layers.ActivityRegularization(l2=0.3), ((2, 3, 4),), mask=(2, 3), keras=False),
    # a custom function: loading needs custom_objects, in Keras with another function
    Case(layers.Lambda(scaled_sum, arguments={"factor": 2.0}), ((2, 3),), keras=False),
    Case(layers.Lambda(scaled_sum, (4,)), ((2, 4, 3),), keras=False),
    Case(layers.Embedding(7, 3), (("int32", (2, 5), 7),)),
    Case(layers.Embedding(7, 3, mask_zero=True), (("int32", (2, 5), 7),)),
    Case(
        layers.Embedding(
            5, 2, "ones", embeddings_regularizer="l2", embeddings_constraint="unit_norm"
        ),
        (("int32", (3, 2, 4), 5),),
    ),
    Case(layers.Masking(), ((2, 3, 4),)),
    Case(layers.Masking(mask_value=0.5), ((2, 3, 2, 4),)),
    Case(layers.Dropout(0.5), ((2, 5),)),
    Case(layers.Dropout(0.5), ((4, 5),), training=True, keras=False),
    Case(layers.Dropout(0.5, (None, 1, None), 3), ((4, 3, 2),), training=True, keras=False),
    Case(layers.Dropout(1.0), ((2, 5),), training=True),
    Case(layers.Dropout(0.0), ((2, 3, 5),), mask=(2, 3), training=True, keras=False),
    Case(layers.Flatten(), ((2, 3, 4),)),
    Case(layers.Flatten(data_format="channels_first"), ((2, 3, 4, 5),)),
    Case(layers.Flatten(), ((3,),)),
    Case(layers.Reshape((3, 4)), ((2, 12),)),
    Case(layers.Reshape((-1, 2)), ((2, 3, 4),)),
    Case(layers.Permute((2, 1)), ((2, 3, 4),)),
    Case(layers.Permute((3, 1, 2)), ((2, 3, 4, 5),)),
    Case(layers.RepeatVector(3), ((2, 4),)),
    Case(layers.RepeatVector(1), ((3, 2),)),
    Case(layers.Dense(3, name="head", trainable=False), ((2, 5),), keras=False),
    Case(layers.EinsumDense("abc,cd->abd", (None, 4), "tanh", "d"), ((2, 3, 5),)),
    Case(
        layers.EinsumDense(
            "...ab,bcd->...adc",
            (6, 4, 2),
            bias_axes="ac",
            kernel_initializer="he_normal",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            kernel_constraint="max_norm",
            bias_constraint="non_neg",
        ),
        ((2, 3, 6, 5),),
    ),
    Case(layers.EinsumDense("ab...,bc->ac...", 4, bias_axes="c"), ((2, 5, 3, 2),)),
    Case(
        layers.EinsumDense("abc,cde->abde", (None, 2, 4), axis_roles={"d": "kv_heads"}),
        ((2, 3, 6),),
        keras=False,
    ),
    Case(
        layers.ReversibleEmbedding(7, 3, mask_zero=True, embeddings_regularizer="l2"),
        (("int32", (2, 5), 7),),
    ),
    Case(
        layers.ReversibleEmbedding(7, 3, logit_soft_cap=0.05),
        ((2, 5, 3),),
        {"reverse": True},
    ),
    Case(
        layers.ReversibleEmbedding(7, 3, False, embeddings_constraint="unit_norm"),
        ((2, 5, 3),),
        {"reverse": True},
    ),
    Case(layers.Softmax(), ((2, 5),)),
    Case(layers.Softmax(axis=(1, -1)), ((2, 3, 4),), mask=(2, 3, 4)),
)
