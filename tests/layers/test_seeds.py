"""The `seed` of random layers: equal seeds draw equally, in models, nested models and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.transforms import roll

KEY = jax.random.key(0)
LAYERS = [
    layers.Dropout(0.5),
    layers.GaussianNoise(1.0),
    layers.SpatialDropout2D(0.5),
    layers.RandomFlip(),
    layers.RandomBrightness(0.5),
    layers.TimeDistributed(layers.Dropout(0.5)),
    layers.JaxLayer(
        lambda params, rng, x: jax.random.normal(rng, x.shape),
        init_fn=lambda rng, x: {},
        call_arguments=("params", "rng", "inputs"),
    ),
]
IMAGES = np.random.default_rng(0).random((8, 4, 4, 3), "float32")


def with_seed(layer, seed, name):
    if isinstance(layer, layers.TimeDistributed):
        return layer.replace(layer=layer.layer.replace(seed=seed), name=name)
    return layer.replace(seed=seed, name=name)


def draws(model, inputs, key=KEY):
    return jax.jit(lambda inputs, key: model.apply(inputs, training=True, key=key).value)(
        inputs, key
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers_with_equal_seeds_draw_equally(layer):
    x = fk.Input((4, 4, 3), batch_size=8)
    seeds = {"a": 42, "b": 42, "c": 43, "d": None, "e": None}
    outputs = {name: with_seed(layer, seed, name)(x) for name, seed in seeds.items()}
    inner = fk.Input((4, 4, 3), batch_size=8)
    outputs["nested"] = fk.Model(inner, with_seed(layer, 42, "inside")(inner))(x)
    model = fk.Model(x, outputs).build(KEY)
    first, second = draws(model, IMAGES), draws(model, IMAGES, jax.random.key(1))
    for name in ("b", "nested"):
        np.testing.assert_array_equal(first["a"], first[name])
    different = [first[name] for name in "acde"] + [second["a"]]
    for index, value in enumerate(different):
        assert not any(np.array_equal(value, other) for other in different[:index])
    if layer.built:
        alone = with_seed(layer, 42, "other").apply(IMAGES, training=True, key=KEY).value
        np.testing.assert_array_equal(alone, first["a"])


def test_each_call_of_a_layer_with_a_seed_draws_other_numbers():
    drop, x, inner = layers.Dropout(0.5, seed=3), fk.Input((64,)), fk.Input((64,))
    twice = fk.Model(inner, [drop(inner), drop(inner)])
    model = fk.Model(x, [*twice(x), *twice(x)]).build(KEY)
    masks = draws(model, jnp.ones((2, 64)))
    assert len({np.asarray(mask).tobytes() for mask in masks}) == 4


@pytest.mark.exhaustive
def test_recurrent_layers_with_equal_seeds_drop_equally():
    x = fk.Input((5, 6))
    options = {"dropout": 0.5, "recurrent_dropout": 0.5, "bias_initializer": "ones"}
    options |= {"kernel_initializer": "ones", "recurrent_initializer": "identity"}
    outputs = [layers.SimpleRNN(6, **options, seed=seed)(x) for seed in (1, 1, 2)]
    a, b, c = draws(fk.Model(x, outputs).build(KEY), jnp.full((4, 5, 6), 0.1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shared", [False, True])
def test_loops_over_blocks_draw_the_numbers_of_single_blocks(shared):
    x = y = fk.Input((32,))
    drop = layers.Dropout(0.2, seed=5)
    for _ in range(3):
        drop = drop if shared else layers.Dropout(0.2, seed=5)
        y = drop(layers.Dense(32, "tanh")(y))
    model = fk.Model(x, y).build(KEY)
    data = jnp.ones((2, 32))
    expected = draws(model, data)
    assert "scan" in str(jax.make_jaxpr(draws, static_argnums=0)(roll(model), data))
    np.testing.assert_allclose(draws(roll(model), data), expected, rtol=1e-5)
    keys = jnp.stack([KEY, jax.random.key(1)])
    np.testing.assert_allclose(
        jax.vmap(lambda key: draws(model, data, key))(keys)[0], expected, rtol=1e-5
    )
    zeros = np.asarray(expected) == 0
    assert 0 < zeros.sum() < zeros.size
