"""Adjustments of colors: gradients where channels are equal."""

import jax
import numpy as np
import pytest

from fkeras.nn.image.adjustments import adjust_hue, adjust_saturation
from fkeras.nn.image.colors import rgb_to_hsv

# pixels with equal channels or at the lowest value, and a neighbor of each with a slightly larger hue
PIXELS = np.array(
    [
        [[0.6, 0.2, 0.6], [0.6, 0.2, 0.59]],
        [[0.6, 0.6, 0.2], [0.59, 0.6, 0.2]],
        [[0.2, 0.6, 0.6], [0.2, 0.59, 0.6]],
        [[0.2, 0.6, 0.2], [0.2, 0.6, 0.21]],
        [[0.2, 0.2, 0.6], [0.21, 0.2, 0.6]],
        [[0.6, 0.2, 0.2], [0.6, 0.21, 0.2]],
        [[0.6, 0.0, 0.3], [0.6, 0.0, 0.29]],
        [[0.4, 0.4, 0.4], [0.41, 0.4, 0.43]],
    ],
    "float32",
)


def jacobians(function):
    """The derivatives of each pixel, and of its neighbor."""

    @jax.jit
    @jax.vmap
    def each(pixel):
        return jax.jacobian(lambda p: function(p[None, None])[0, 0])(pixel)

    return np.split(np.asarray(each(PIXELS.transpose(1, 0, 2).reshape(-1, 3))), 2)


@pytest.mark.parametrize("turns", [0.0, 0.02, 1 / 6, -0.5])
def test_rotations_have_the_gradient_of_a_larger_hue(turns):
    equal, neighbor = jacobians(lambda x: adjust_hue(x, turns, (-1, 2)))
    np.testing.assert_allclose(equal, neighbor, atol=1e-5)
    if turns == 0:
        np.testing.assert_allclose(equal, np.broadcast_to(np.eye(3), equal.shape), atol=1e-6)


@pytest.mark.parametrize("factor", [0.4, 1.0])
def test_saturations_have_the_gradient_of_a_larger_hue(factor):
    equal, neighbor = jacobians(lambda x: adjust_saturation(x, factor, (0, 1)))
    np.testing.assert_allclose(equal, neighbor, atol=1e-5)
    if factor == 1:
        np.testing.assert_allclose(equal, np.broadcast_to(np.eye(3), equal.shape), atol=1e-6)


def test_hue_saturation_and_value_follow_the_same_channels():
    equal, neighbor = jacobians(rgb_to_hsv)
    # without the grey pixel, whose hue has no derivative
    np.testing.assert_allclose(equal[:-1], neighbor[:-1], rtol=0.1, atol=0.02)


def test_pure_colors_stay_in_the_range():
    x = np.random.default_rng(0).random((1, 400, 3), "float32")
    pure = np.asarray(jax.jit(lambda x: adjust_saturation(x, 5.0, (0, 1)))(x))
    saturated = 5 * (x.max(-1) - x.min(-1)) > x.max(-1)
    assert saturated.mean() > 0.5
    np.testing.assert_array_equal(pure.min(-1)[saturated], 0)
    np.testing.assert_array_equal(pure.max(-1), x.max(-1))
    grey = adjust_saturation(x, -1.0, (0, 1))
    np.testing.assert_array_equal(grey, np.broadcast_to(x.max(-1, keepdims=True), x.shape))
