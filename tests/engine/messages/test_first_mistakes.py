"""Mistakes of new users: each message has the line to write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
X = np.ones((2, 4), "float32")


class Silent(fk.Layer):
    """Computes a value and does not return it."""

    def call(self, x):
        x * 2


def model():
    x = fk.Input((4,))
    return fk.Model(x, layers.Dense(3, name="a")(x))


def built():
    return model().build(KEY)


def chain():
    return fk.Sequential([fk.Input((4,)), layers.Dense(3, name="a")]).build(KEY)


def swapped():
    x = fk.Input((4,))
    return fk.Model(layers.Dense(3)(x), x)


def unpacked():
    y, updates = built().apply(X)
    return y, updates


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: Silent(name="s")(fk.Input((4,))), "'s' .*received None. Return the result"),
        (lambda: layers.Lambda(lambda x: None)(fk.Input((4,))), "received None"),
        (swapped, r"Inputs come first: fk.Model\(inputs, outputs\)"),
        (lambda: built().apply({"params": {"a": X}}, X), r"model.apply\(x, state=state\)"),
        (lambda: built().apply({"params": 1}, X), r"model.apply\(x, state=state\)"),
        (lambda: model().init(KEY, X), r"model = model.build\(jax.random.key\(0\)\)"),
        (lambda: list(built()), r"model.layers\[0\]"),
        (lambda: model()(X), r"`model = model.build\(jax.random.key\(0\)\)`"),
        (lambda: jax.jit(lambda m, x: m(x))(model(), X), "`model = model.build"),
        (lambda: layers.Dense(2)(X), "`layer = layer.build"),
        (lambda: built().apply(X) + 1, "out.value"),
        (lambda: X - built().apply(X), "out.value"),
        (lambda: jnp.asarray(X) * built().apply(X), "out.value"),
        (lambda: built().apply(X)[0], "out.value"),
        (lambda: np.asarray(built().apply(X)), "out.value"),
        (unpacked, "y, updates = out.value, out.updates"),
        (lambda: built().apply(X).shape, "`out.value.shape`"),
    ],
)
def test_the_message_has_the_line_to_write(mistake, words):
    with pytest.raises((TypeError, ValueError, AttributeError), match=words):
        mistake()


def test_layers_join_with_dictionaries():
    layer_dict, new = chain().layers, layers.Dense(2)
    assert layer_dict | {"b": new} == {**layer_dict, "b": new}
    assert {"b": new} | layer_dict == {"b": new, **layer_dict}
    assert [layer.name for layer in chain()] == ["a"]
