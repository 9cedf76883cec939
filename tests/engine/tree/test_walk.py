"""The walker over layers inside layers, and the list of a model's arrays."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.tree.array_list import arrays_of, replace_leaves, weights_by_path
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import children, map_children, replace_children, sublayers
from fkeras.engine.tree.walk import layers_in, map_layers

KEY = jax.random.key(0)


class Nested(fk.Layer):
    inner: tuple
    named: object = fk.option(default=None)


def nested():
    dense = layers.Dense(2)
    return Nested(((dense, 3), layers.ReLU()), {"gate": layers.Bidirectional(layers.GRU(2))})


def model():
    x = fk.Input((4, 3))
    y = layers.Bidirectional(layers.LSTM(2, return_sequences=True), name="both")(x)
    y = layers.BatchNormalization(name="norm")(y)
    y = layers.TimeDistributed(layers.SpectralNormalization(layers.Dense(2)), name="time")(y)
    inner = fk.Sequential([fk.Input((4, 2)), layers.Dense(3, name="d")], name="inner")
    return fk.Model(x, inner(y))


@pytest.mark.exhaustive
def test_paths_and_layers_come_in_the_order_of_the_leaves():
    layer = nested()
    assert [path for path, _ in children(layer)] == ["inner/0/0", "inner/1", "named/gate"]
    built = model().build(KEY)
    paths = [path for path, _ in sublayers(built)]
    assert paths[0] == "" and "time/layer/layer" in paths
    names = [
        array.path for _, _, arrays in arrays_of(built, {}) for array in arrays
    ]  # the leaves of a built model, except missing weights
    present = {path for path, leaf in weights_by_path(built).items() if leaf is not None}
    assert names == [name for name in skeleton_of(built).names if name in present]


def test_a_value_is_rebuilt_with_other_layers_in_the_same_containers():
    layer = nested()
    renamed = map_children(layer, lambda path, child: child.replace(name=path.replace("/", "_")))
    assert [child_layer.name for _, child_layer in layers_in(renamed["inner"])] == [
        "inner_0_0",
        "inner_1",
    ]
    assert renamed["inner"][0][1] == 3
    assert map_layers({"a": (1, 2)}, lambda path, child: None) == {"a": (1, 2)}
    assert replace_children(layer, lambda path, child: child) is layer
    assert replace_children(layer, lambda path, child: child.replace(name="other")) != layer


def test_keras_order_holds_every_array_of_the_list_once():
    built = model().build(KEY)
    state = built.init_state()
    entries = [array for _, _, arrays in arrays_of(built, state) for array in arrays]
    stored = built.get_weights(state)
    assert len(stored) == len(entries)
    assert sorted(a.shape for a in stored) == sorted(np.shape(a.value) for a in entries)
    restored, restored_state = built.set_weights(stored, state)
    assert restored == built
    assert jax.tree.structure(restored_state) == jax.tree.structure(state)


def test_leaves_are_replaced_by_path():
    built = layers.Dense(2).build(KEY, (None, 3))
    assert replace_leaves(built, {"bias": np.ones(2)}).bias.tolist() == [1, 1]
    with pytest.raises(KeyError):
        replace_leaves(built, {"biases": np.ones(2)})
