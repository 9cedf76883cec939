"""Signals of unknown and of short length."""

import jax
import numpy as np
import pytest

from fkeras.nn.signal import stft


@pytest.mark.one_in(5)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 40])
def test_centered_frames_reflect_both_ends(steps):
    x = np.random.default_rng(0).normal(size=(2, steps)).astype("float32")
    padded = np.pad(x, [(0, 0), (8, 8)], mode="reflect")
    both = jax.jit(lambda x, y: (stft(x, 6, 3, 16), stft(y, 6, 3, 16, center=False)))
    for found, part in zip(*both(x, padded), strict=True):
        np.testing.assert_allclose(found, part, atol=1e-5)


@pytest.mark.exhaustive
def test_a_program_of_signals_of_unknown_length():
    (steps,) = jax.export.symbolic_shape("t", constraints=["t >= 1"])
    program = jax.jit(lambda x: stft(x, 6, 3, 16))
    exported = jax.export.export(program)(jax.ShapeDtypeStruct((2, steps), "float32"))
    x = np.random.default_rng(0).normal(size=(2, 21)).astype("float32")
    for found, part in zip(exported.call(x), program(x), strict=True):
        np.testing.assert_allclose(found, part, atol=1e-5)
