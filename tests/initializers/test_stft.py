"""Kernels of the Fourier transform against Keras."""

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules
from tests.support.value_data import KEY

WINDOWS = ("hann", "hamming", "blackman", "boxcar", "nuttall", "blackmanharris", "flattop", "tukey")


@pytest.mark.one_in(14)
@pytest.mark.parametrize(
    "window", [*WINDOWS, "bartlett", "triang", "cosine", "bohman", None, "own"]
)
def test_kernels_of_the_fourier_transform_equal_keras(window):
    window = np.linspace(0.5, 1.0, 6).astype("float32") if window == "own" else window

    @jax.jit
    def both():
        kernels = []
        for side, scaling, periodic in (("real", "density", False), ("imag", "spectrum", True)):
            arguments = (side, window, scaling, periodic)
            kernel = fk.initializers.STFT(*arguments)(KEY, (6, 1, 5))
            with keras_rules():
                expected = keras.initializers.STFT(*arguments)((6, 1, 5), "float32")
            kernels.append((kernel, expected))
        return kernels

    for pair in both():
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)
    low = jax.eval_shape(
        lambda: fk.initializers.STFT("real", window, None)(KEY, (6, 3, 4), "bfloat16")
    )
    assert (low.dtype, low.shape) == ("bfloat16", (6, 3, 4))
