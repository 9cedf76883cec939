"""A second Keras 3 with the NumPy backend: an oracle that compiles nothing."""

import os
import sys
import warnings

import numpy as np

from tests.support.keras_oracle import keras as keras_on_jax


def _take():
    """Removes Keras's modules from `sys.modules` and returns them."""
    names = [name for name in sys.modules if name.partition(".")[0] == "keras"]
    return {name: sys.modules.pop(name) for name in names}


def _second():
    first, backend = _take(), os.environ["KERAS_BACKEND"]
    try:
        os.environ["KERAS_BACKEND"] = "numpy"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import keras as second
    finally:
        os.environ["KERAS_BACKEND"] = backend
        _take()
        sys.modules.update(first)
    assert (second.backend.backend(), keras_on_jax.backend.backend()) == ("numpy", "jax")
    return second


keras = _second()


def quietly(call, *args):
    """Calls a function of Keras without NumPy's warnings about values that Keras discards."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args)
