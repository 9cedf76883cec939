"""Layers of encoders beyond the layer table: resized positions, masked patches, types, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers


@pytest.mark.exhaustive
def test_positions_are_resized_only_for_another_grid():
    layer = layers.PatchSequence((2, 3), prefix=1)
    layer = layer.build(jax.random.key(0), (None, 2, 3, 4))
    table = layer.embeddings
    y = layer(jnp.zeros((2, 2, 3, 4)))
    np.testing.assert_array_equal(y[0, 1:], table[1:])
    np.testing.assert_array_equal(y[:, 0], jnp.stack([layer.tokens[0] + table[0]] * 2))
    wide = layer(jnp.zeros((1, 2, 6, 4)))
    assert wide.shape == (1, 13, 4)
    np.testing.assert_array_equal(wide[:, 0], y[:1, 0])
    # cubic interpolation keeps a constant table
    flat = layer.replace(embeddings=jnp.ones_like(table))
    np.testing.assert_allclose(flat(jnp.zeros((1, 5, 1, 4)))[:, 1:], 1.0, atol=1e-6)


@pytest.mark.exhaustive
def test_masked_patches_have_the_learned_vector_and_its_gradient():
    layer = layers.MaskedPatches().build(jax.random.key(0), (None, 2, 2, 3))
    x = jnp.ones((1, 2, 2, 3))
    masked = jnp.array([[[True, False], [False, True]]])
    y = layer(x, masked)
    np.testing.assert_array_equal(y[0, 0, 0], layer.token)
    np.testing.assert_array_equal(y[0, 0, 1], x[0, 0, 1])
    grads = jax.grad(lambda layer: layer(x, masked).sum())(layer)
    np.testing.assert_array_equal(grads.token, [2.0, 2.0, 2.0])


def test_wrong_masks_and_types_are_rejected():
    layer = layers.MaskedPatches().build(jax.random.key(0), (None, 4, 3))
    with pytest.raises(ValueError, match="one value for each patch"):
        layer(jnp.ones((1, 4, 3)), jnp.ones((1, 3), bool))
    with pytest.raises(ValueError, match="a type for each token"):
        layers.TokenTypes()(jnp.ones((1, 4), "int32"), jnp.ones((1, 3), "int32"))
    with pytest.raises(ValueError, match="grid"):
        layers.PatchSequence((0, 2))
    with pytest.raises(ValueError, match="prefix"):
        layers.PatchSequence((2, 2), prefix=-1)
    with pytest.raises(ValueError, match="count"):
        layers.LearnedTokens(0)


def test_the_mask_of_the_ids_is_that_of_the_types():
    mask = jnp.array([[True, False]])
    out = layers.TokenTypes().apply(jnp.ones((1, 2), "int32"), mask=mask)
    np.testing.assert_array_equal(out.mask, mask)
