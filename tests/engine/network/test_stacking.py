"""Stacked blocks: values move to stacks and back, and a stacked network computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.network.stacking import Stacking
from fkeras.transforms import roll

KEY = jax.random.key(0)


def block(x):
    y = layers.BatchNormalization()(layers.Dense(6, "tanh", activity_regularizer="l2")(x))
    return x + layers.Dropout(0.4)(y)


def chain(count=4, width=6):
    x = y = fk.Input((5, width))
    for _ in range(count):
        y = block(y)
    return fk.Model(x, layers.Dense(2)(y))


def nested():
    """A network with blocks between two layers."""
    x = fk.Input((5, 6))
    inner = chain(3)
    return fk.Model(x, layers.Dense(1)(inner(layers.Dense(6)(x))))


def masked():
    """The first block receives the mask of the embedding, the others those of the blocks before."""
    x = fk.Input((5,), dtype="int32")
    y = layers.Embedding(9, 6, mask_zero=True)(x)
    for _ in range(3):
        y = layers.Masking(mask_value=3.0)(layers.Dense(6, "tanh")(y))
    return fk.Model(x, y)


def masked_inside():
    """The second block receives a mask that the first block does not receive: no loop computes them."""
    x = y = fk.Input((5, 6))
    for _ in range(3):
        y = layers.BatchNormalization()(layers.Masking()(y))
    return fk.Model(x, y)


def inputs_of(model):
    spec = model.graph.specs[model.graph.input_slots[0]]
    shape = (3, *spec.shape[1:])
    if spec.dtype == "int32":
        return jnp.array(np.random.default_rng(0).integers(0, 3, shape), "int32")
    return jax.random.normal(KEY, shape)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [chain, nested, masked, masked_inside])
def test_a_stacked_network_computes_what_single_blocks_compute(make):
    model = make().build(KEY)
    stacking, x, state = Stacking(roll(model), model), inputs_of(model), model.init_state()
    assert stacking.layers

    @jax.jit
    def call(model, state):
        return model.apply(x, state=state, training=True, key=jax.random.key(3))

    out = call(model, state)
    stacked = call(stacking.stack(model), stacking.stack_state(state))
    assert len(out.losses) == len(stacked.losses)
    for a, b in zip((out.value, out.losses), (stacked.value, stacked.losses), strict=True):
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6), a, b)
    if state:
        updates = stacking.unstack_state(stacked.updates)
        assert jax.tree.structure(updates) == jax.tree.structure(out.updates)
        jax.tree.map(
            lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6),
            updates,
            out.updates,
        )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", [chain, nested])
def test_unstack_inverts_stack(make):
    model = make().build(KEY)
    stacking, state = Stacking(roll(model), model), model.init_state()
    weights = {"slots": [fk.engine.trainable_weights(model), jnp.ones(3)]}
    assert stacking.unstack(stacking.stack(model)) == model
    back = stacking.unstack_state(stacking.stack_state(state))
    assert jax.tree.structure(back) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, back, state)
    stacked = stacking.stack_weights(weights)
    assert len(jax.tree.leaves(stacked)) < len(jax.tree.leaves(weights))
    jax.tree.map(np.testing.assert_array_equal, stacking.unstack_weights(stacked), weights)


def test_the_number_of_leaves_does_not_depend_on_the_number_of_blocks():
    counts = []
    for blocks in (2, 5):
        model = chain(blocks).build(KEY)
        counts.append(len(jax.tree.leaves(Stacking(roll(model)).stack(model))))
    assert counts[0] == counts[1]


def test_weights_with_constraints_stay_single():
    x = y = fk.Input((6,))
    for _ in range(3):
        y = layers.Dense(6, kernel_constraint="unit_norm")(layers.Dense(6)(y))
    model = fk.Model(x, y).build(KEY)
    stacking = Stacking(roll(model))
    assert [names for _, names in stacking.layers] == [("dense", "dense_2", "dense_4")]
    assert "dense_1" in stacking.stack(model).layers


def test_networks_with_a_forward_of_their_own_stay_single():
    class Doubled(fk.Model):
        def forward(self, context, x):
            return super().forward(context, 2 * x)

    x = y = fk.Input((6,))
    for _ in range(3):
        y = layers.Dense(6)(y)
    model = Doubled().replace(graph=fk.Model(x, y).graph, layers=fk.Model(x, y).layers).build(KEY)
    assert not Stacking(roll(model)).layers


def test_a_dictionary_with_the_weight_of_one_block_alone_cannot_be_stacked():
    model = chain(3).build(KEY)
    stacking = Stacking(roll(model))
    with pytest.raises(ValueError, match="different"):
        stacking.stack_weights({"dense/kernel": jnp.ones((6, 6))})
