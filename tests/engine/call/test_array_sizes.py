"""Bounds on the arrays of symbolic calls: XLA ends the process for a larger array."""

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.call.array_sizes import largest_array

IMAGE, OPEN, ROW = (4, 4, 3), (None, None, 3), (4,)

TOO_LARGE = {
    "padding": (layers.ZeroPadding2D(2**40), IMAGE),
    "repeated pixels": (layers.UpSampling2D(2**40), IMAGE),
    "repeated pixels of open axes": (layers.UpSampling2D(2**40), OPEN),
    "strides": (layers.Conv2DTranspose(2, 2, strides=2**40), IMAGE),
    "repeated rows": (layers.RepeatVector(2**62), ROW),
    "scores of attention": (layers.Lambda(lambda x: layers.Attention()([x, x])), (2**32, 4)),
    "window of a pooling": (layers.AveragePooling2D(2**62, padding="same"), IMAGE),
    "a new size": (layers.Resizing(2**40, 2**40), IMAGE),
    "an inner layer": (layers.TimeDistributed(layers.RepeatVector(2**62)), (3, 4)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_calls_beyond_64_bits_are_rejected_with_the_name_of_the_layer(name):
    layer, shape = TOO_LARGE[name]
    words = rf"{type(layer).__name__}.*less than 2\*\*63 bytes, received .* array of shape \("
    with pytest.raises(fk.FKerasError, match=words):
        layer(fk.Input(shape))


def test_operations_and_inputs_have_the_same_bound():
    with pytest.raises(fk.FKerasError, match=r"fk.ops.tile: expected arrays of less than 2\*\*63"):
        fk.ops.tile(fk.Input((4,)), (1, 2**62))
    with pytest.raises(ValueError, match=r"fewer than 2\*\*60 numbers, received \(None, 10995"):
        fk.Input((2**40, 2**40))
    fk.Input((2**40, 0, 2**40))  # an array without numbers


def test_calls_below_the_bound_are_recorded_with_their_largest_array():
    call = layers.UpSampling2D(2**20)(fk.Input(OPEN)).node.signature
    assert call.largest_bytes == 4 * 3 * 2**40
    # the input of one sample and the matrix of weights are smaller than the scores (12, 12)
    call = layers.Lambda(lambda x: jnp.einsum("bid,bjd->bij", x, x))(fk.Input((12, 2)))
    assert call.node.signature.largest_bytes == 4 * 12 * 12


def test_the_largest_array_may_lie_in_an_inner_program():
    def outer(x):
        return jax.lax.scan(lambda c, _: (c, jnp.outer(c, c).sum()), x, None, length=2)[1].sum()

    assert largest_array(jax.make_jaxpr(outer)(jnp.ones(5)).jaxpr) == (4 * 25, (5, 5))

    def conditional(x):
        return jax.lax.cond(x.sum() > 0, lambda: jnp.outer(x, x).sum(), lambda: 0.0)

    assert largest_array(jax.make_jaxpr(conditional)(jnp.ones(5)).jaxpr) == (4 * 25, (5, 5))


@pytest.mark.parametrize("layer", [layers.Dense(2**40), layers.LSTM(2**40), layers.GRU(2**62)])
def test_axes_of_weights_have_fewer_than_2_to_the_31_numbers(layer):
    words = rf"{type(layer).__name__}: the weight 'kernel' needs axes of fewer than 2\*\*31"
    with pytest.raises(ValueError, match=words):
        layer(fk.Input((3, 4)))
    with pytest.raises(ValueError, match=words):
        layer.build(jax.random.key(0), (None, 3, 4))


class Fixed(fk.Layer):
    """Reshapes a batch to fixed sizes."""

    shape: tuple

    def call(self, x):
        return jax.jit(lambda x: jnp.reshape(x, self.shape))(x)


def test_a_reshape_of_the_batch_to_fixed_sizes_is_an_error():
    message = r"reshapes an array of shape \(b, 4\) to \(6, 2\), which fits one size.*batch axis"
    by_jax = "reshape total size must be unchanged"  # an error of jax 0.7 itself
    with pytest.raises((fk.engine.FKerasError, TypeError), match=f"Fixed: {message}|{by_jax}"):
        Fixed((6, 2))(fk.Input((4,)))
    by_jax = r"expected 12 elements, for the shape \(6, 2\), received \(b, 4\)"
    with pytest.raises((fk.engine.FKerasError, ValueError), match=f"{message}|{by_jax}"):
        fk.ops.reshape(fk.Input((4,)), (6, 2))
    assert Fixed((6, 2))(fk.Input((4,), batch_size=3)).shape == (6, 2)
    # a batch without rows, a sum over the batch and constants have no rows that a reshape could lose
    x = fk.Input((4,))
    assert fk.ops.lift(lambda a: jnp.reshape(a[:0], (0, 2)))(x).shape == (0, 2)
    assert fk.ops.reshape(fk.ops.sum(x, axis=0), (2, 2)).shape == (2, 2)
    assert fk.ops.reshape(x, (-1, 2)).shape[1] == 2
