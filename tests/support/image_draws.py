"""Helpers for random image layers: images, draws, Keras's layers, one program for each test."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import layers
from fkeras.layers.image.common.base import ImageShape
from tests.support.keras_oracle import keras, keras_rules
from tests.support.quick_keys import QUICK

KEY = jax.random.key(3, impl=QUICK)
UNIT = (0, 1)
SHAPE = ImageShape(3, 4, 5, 3)


def pictures(shape=SHAPE, seed=0):
    return np.random.default_rng(seed).random(shape).astype("float32")


def channels_first(x):
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def compiled(function, *args):
    """The values of a function, computed by one compiled program."""
    return jax.device_get(jax.jit(function)(*args))


@functools.cache
def drawing(layer, shape):
    """A function from a seed to the draws of a layer."""
    draw = functools.partial(layer.draw, shape=ImageShape(*shape))
    # eager draws share the compiled programs of their distributions
    kinds = layers.AugMix | layers.RandAugment
    if isinstance(layer, kinds):
        return lambda seed: draw(jax.random.key(seed))
    program = jax.jit(draw)
    return lambda seed: program(jax.random.key(seed, impl=QUICK))


@functools.cache
def drawn_once(layer, shape, seed):
    return jax.device_get(drawing(layer, shape)(seed))


def fresh_draw(layer, shape=SHAPE, seed=6):
    return jax.tree.map(
        lambda v: v, drawn_once(layer, shape, seed)
    )  # a new dictionary for each test


def oracle(layer):
    with keras_rules():
        return keras.layers.deserialize(layers.serialize(layer))


def by_keras(keras_layer, images, transformation):
    with keras_rules():
        return keras_layer.transform_images(jnp.asarray(images), transformation, training=True)


def trained(layer, x, key=KEY):
    return layer(x, training=True, key=key)
