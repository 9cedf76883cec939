"""Activation layers with parameters: edge values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
EXTREME = jnp.array([[-jnp.inf, -1e9, -1e4, 0.0, 1e4, 1e9, jnp.inf]])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "layer",
    [
        layers.ReLU(),
        layers.ReLU(max_value=2.0, threshold=0.5),
        layers.ReLU(negative_slope=0.1),
        layers.LeakyReLU(),
        layers.ELU(),
        layers.PReLU("ones"),
    ],
    ids=str,
)
def test_extreme_inputs_give_no_nan(layer):
    layer = layer.build(KEY, EXTREME)
    assert not bool(jnp.isnan(layer(EXTREME)).any())
    finite = EXTREME[:, 1:-1]
    layer = fk.engine.unbuilt(layer).build(KEY, finite)
    grads = jax.grad(lambda x: layer(x).sum())(finite)
    assert bool(jnp.isfinite(grads).all())
    half = layer.replace(dtype="mixed_bfloat16")
    assert half(finite).dtype == jnp.bfloat16


@pytest.mark.exhaustive
def test_prelu_learns_one_slope_per_channel():
    x = jnp.full((2, 3, 4, 5), -2.0)
    layer = layers.PReLU("zeros", shared_axes=(1, 2)).build(KEY, (None, None, None, 5))
    assert layer.alpha.shape == (1, 1, 5)
    grads = jax.grad(lambda layer: layer(x).sum())(layer)
    np.testing.assert_allclose(grads.alpha, np.full((1, 1, 5), -2.0 * 2 * 3 * 4))
    # negative axes count from the end; Keras shares the preceding axis
    assert layers.PReLU(shared_axes=-1).build(KEY, x).alpha.shape == (3, 4, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.ReLU(max_value=-1.0), r"ReLU: max_value.*-1\.0"),
        (lambda: layers.ReLU(negative_slope=None), r"negative_slope.*None"),
        (lambda: layers.ReLU(threshold=-1), r"threshold.*0 or more.*-1"),
        (lambda: layers.LeakyReLU(-0.1), r"LeakyReLU: negative_slope.*-0\.1"),
        (lambda: layers.PReLU(shared_axes=0), r"shared_axes.*other than 0"),
        (lambda: layers.PReLU(shared_axes=3).build(KEY, (None, 2, 3)), r"axes \(3,\).*\(b, 2, 3\)"),
        (lambda: layers.PReLU().build(KEY, (None, None, 3)), r"'alpha'.*known sizes"),
        (lambda: layers.PReLU().build(KEY, (2, 3))(jnp.ones((2, 4))), r"\{1: 3\}|axis 1|\(2, 4\)"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises(ValueError, match=message):
        make()
