"""Complicated sizes get names, so that deep networks for inputs of unknown size record quickly."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.values.spec import shorten


def test_names_depend_on_the_size_alone():
    for simple in ("b", "2*d1", "floordiv(floordiv(d1 - 3, 2) + 1, 2)"):
        assert shorten(simple) == simple
    long = "mod(floordiv(floordiv(max(time_steps, 3), 2) + 1, 2), 5)"
    name = shorten(long)
    assert name.isidentifier() and name.startswith("time_steps__")
    assert name == shorten(long) != shorten(long.replace("5", "7"))
    # a size in a name of a size: the name stays short
    assert shorten(long.replace("time_steps", name)).startswith("time_steps__")


def _deep(x, depth):
    for _ in range(depth):
        y = layers.Conv2D(2, 3, strides=2, padding="same")(x)
        z = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        x = layers.Add()([y, z])
        x = layers.Conv2D(2, 3)(layers.ZeroPadding2D(1)(x))
    return x


@pytest.mark.exhaustive
def test_deep_networks_for_images_of_unknown_size():
    # with full expressions the time grows exponentially with the depth
    inputs = fk.Input((None, None, 2))
    model = fk.Model(inputs, layers.GlobalAveragePooling2D()(_deep(inputs, 9)))
    words = {word for spec in model.graph.specs for word in spec.words}
    assert max(map(len, words)) < 20
    model = model.build(jax.random.key(0))
    fixed = fk.Input((70, 50, 2))
    other = fk.Model(fixed, layers.GlobalAveragePooling2D()(_deep(fixed, 9)))
    other = other.build(jax.random.key(0))
    x = np.random.default_rng(0).random((1, 70, 50, 2), "float32")
    np.testing.assert_array_equal(model(x), other(x))


def test_a_nested_sequential_has_no_computed_sizes_in_files(tmp_path):
    inputs = fk.Input((None, None, 2))
    x = layers.MaxPooling2D(2)(inputs)
    x = fk.Sequential([layers.Conv2D(2, 1)], name="inner")(x)
    model = fk.Model(inputs, layers.GlobalAveragePooling2D()(x)).build(jax.random.key(0))
    inner = next(item for item in model.get_config()["layers"] if item["config"]["name"] == "inner")
    assert inner["config"]["layers"][0]["config"]["batch_shape"] == [None, None, None, 2]
    fk.save_model(tmp_path / "m.keras", model)
    assert fk.load_model(tmp_path / "m.keras")[0] == model
