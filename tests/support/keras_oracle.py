"""Keras 3 as the oracle: the layer that our JSON describes, as a pure function."""

import contextlib
import inspect
import unittest.mock
import warnings

import jax
import numpy as np

from fkeras import layers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras


@contextlib.contextmanager
def keras_rules():
    """Runs Keras with JAX's standard promotion, which Keras relies on, and without warnings."""
    promotion = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with promotion[0], promotion[1], warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def mask_option(reference, mask):
    """The `mask` option of Keras's call; empty if the layer's call has no such argument."""
    takes_mask = mask is not None and "mask" in inspect.signature(reference.call).parameters
    return {"mask": mask} if takes_mask else {}


def host_weights():
    """Initializes Keras's weights with constants: the tests replace them, and drawing would compile."""
    original_initialize = keras.Variable._initialize_with_initializer

    def initialize(variable, initializer):
        if isinstance(initializer, keras.initializers.Initializer):
            number = float(isinstance(initializer, keras.initializers.Ones))
            value = np.full(variable.shape, number, jax.numpy.dtype(variable.dtype))
            variable._initialize(jax.device_put(value))
        else:  # the state of a generator of random numbers
            original_initialize(variable, initializer)

    return unittest.mock.patch.object(keras.Variable, "_initialize_with_initializer", initialize)


def _no_outputs():
    """Skips the inference of output shapes after building, which takes longer than building."""

    def first(layer, *symbols, **options):
        return jax.tree.leaves(symbols)[0]

    return unittest.mock.patch.object(keras.Layer, "symbolic_call", first)


def keras_layer(layer, inputs, options=None):
    """Keras's layer of the same config, built for these inputs, with constant weights."""
    with keras_rules(), host_weights(), _no_outputs():
        reference = keras.layers.deserialize(layers.serialize(layer))

        def symbol(x):
            if not hasattr(x, "dtype"):
                return x  # an option such as True
            return keras.KerasTensor(np.shape(x), dtype=str(x.dtype))

        symbols = jax.tree.map(symbol, list(inputs))
        option_symbols = dict(jax.tree.map(symbol, dict(options or {})))
        reference(*symbols, **option_symbols)
    return reference


def keras_function(reference, training):
    """`(weights, others, inputs, options) -> (outputs, others, losses)` of a Keras layer."""

    def function(weights, others, inputs, options):
        kwargs = dict(options)
        if _takes_training(reference):
            kwargs["training"] = training
        return reference.stateless_call(weights, others, *inputs, return_losses=True, **kwargs)

    return function


def _takes_training(reference):
    return reference._call_has_training_arg


def values(variables):
    return [np.asarray(v.value) for v in variables]
