"""Keys of layers and weights."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine import subkey
from fkeras.engine.values import random
from tests.support.compile_counts import count_compiles
from tests.support.value_data import KEY


def test_keys_are_derived_as_jax_derives_them():
    for data in (0, 7, 2**31):
        assert random.fold_in(KEY, data) == jax.random.fold_in(KEY, np.uint32(data))
    first, second = subkey(KEY, "dense"), subkey(KEY, "dense_1")
    assert first != second
    assert jax.jit(lambda k: subkey(k, "dense"))(KEY) == first
    for invalid in (jax.random.PRNGKey(0), 3, None):
        with pytest.raises(TypeError, match=r"jax\.random\.key"):
            random.fold_in(invalid, 1)


@pytest.mark.exhaustive
def test_uniform_weights_are_the_bits_of_jax_and_compile_nothing():
    key = jax.random.key(11)
    with count_compiles() as compiles:
        weights = random.uniform(key, (70_000,), 0.5)
        random.uniform(subkey(key, "a"), (3, 5, 7), 0.1)
        fk.initializers.Zeros()(key, (11,))
    assert len(compiles) == 0
    bits = np.asarray(jax.random.bits(key, (70_000,), "uint32"))
    expected = ((bits >> 9).astype("int32") * 2 + 1 - 2**23).astype("float32")
    np.testing.assert_array_equal(weights, expected * np.float32(0.5 * 2.0**-23))
    assert abs(weights).max() < 0.5


def test_another_layer_changes_no_other_layers_weights():
    def build(*units):
        x = h = fk.Input((4,))
        for number, n in enumerate(units):
            h = fk.layers.Dense(n, name=f"layer{number}")(h)
        return fk.Model(x, h).build(KEY)

    short, long = build(3, 5), build(3, 5, 6)
    assert short.layers["layer0"] == long.layers["layer0"]
    assert short.layers["layer1"] == long.layers["layer1"]
