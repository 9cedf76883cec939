"""Rows of the layer table: wrappers, and models of other libraries as layers."""

import jax
import jax.numpy as jnp

from fkeras import layers
from tests.cases import Case


def init_affine(rng, inputs):
    kernel = jax.random.normal(rng, (inputs.shape[-1], 3))
    return {"affine": {"kernel": kernel, "bias": [jnp.zeros(3)]}}


def call_affine(params, inputs):
    return inputs @ params["affine"]["kernel"] + params["affine"]["bias"][0].reshape(1, -1)


def init_counter(rng, inputs):
    return {"scale": jax.random.normal(rng, (inputs.shape[-1],))}, {"steps": jnp.zeros((), "int32")}


def call_counter(params, state, rng, inputs, training):
    y = inputs * params["scale"].reshape(1, -1)
    if training:
        y = y + jax.random.normal(rng, y.shape, y.dtype)
        state = {"steps": state["steps"] + 1}
    return y, state


def module():
    """Applies a stand-in for a Flax module; a named function, so that files can refer to it."""


def init_module(rngs, x, method=None, training=False):
    kernel = jax.random.normal(rngs["params"], (x.shape[-1], 3))
    return {"params": {"kernel": kernel}, "stats": {"mean": jnp.zeros(3)}}


def apply_module(variables, x, rngs=None, method=None, mutable=False, training=False):
    y = x @ variables["params"]["kernel"]
    updates = {name: variables[name] for name in mutable}
    if training:
        y = y * jax.random.bernoulli(rngs["dropout"], 0.5, y.shape).astype(y.dtype)
        updates["stats"] = {"mean": jnp.mean(y, 0, dtype="float32")}
    return y, updates


module.init, module.apply = init_module, apply_module


CASES = (
    Case(layers.Wrapper(layers.Dense(3)), ((2, 4, 5),), mask=(2, 4), keras=False),
    Case(
        layers.Wrapper(layers.BatchNormalization(momentum=0.5)),
        ((4, 3),),
        training=True,
        keras=False,
    ),
    Case(layers.SpectralNormalization(layers.Dense(3)), ((2, 5),), training=True),
    Case(
        layers.SpectralNormalization(layers.Conv2D(3, 2), power_iterations=3),
        ((2, 4, 4, 2),),
        training=True,
        exhaustive=True,
    ),
    Case(layers.SpectralNormalization(layers.Dense(3)), ((2, 5),)),
    # Keras casts vectors to the dtype of the ids
    Case(
        layers.SpectralNormalization(layers.Embedding(7, 3)), (("int32", (2, 5), 7),), keras=False
    ),
    Case(layers.Pipeline([layers.Rescaling(0.5, -1.0), layers.UnitNormalization()]), ((2, 3, 4),)),
    Case(
        layers.Pipeline(
            [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2)]
        ),
        ((4, 3),),
        training=True,
        keras=False,
    ),
    Case(
        layers.JaxLayer(call_affine, init_affine, call_arguments=("params", "inputs")),
        ((2, 5),),
        keras=False,
    ),
    Case(layers.JaxLayer(call_counter, init_counter), ((2, 5),), training=True, keras=False),
    Case(layers.FlaxLayer(module), ((2, 5),), keras=False),
    Case(
        layers.FlaxLayer(module, training_argument="training"),
        ((2, 5),),
        training=True,
        keras=False,
    ),
)
