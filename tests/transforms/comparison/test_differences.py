"""`diff`: what it lists, and that it is false exactly for equal models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers, transforms
from fkeras.transforms import CallChange, ConfigChange, LayerChange, WeightChange


def mlp(*units, name="x", **options):
    x = y = fk.Input((4,), name=name)
    for number in units:
        y = layers.Dense(number, **options)(y)
    return fk.Model(x, y)


def kinds(difference):
    return {
        (c.kind, c.path) if isinstance(c, LayerChange | CallChange) else (type(c).__name__, c.path)
        for c in difference
    }


def test_a_renamed_layer_is_a_rename():
    model = mlp(3, 3, 2).build(jax.random.key(0))
    difference = transforms.diff(model, fk.rename(model, {"dense_1": "middle"}))
    assert list(difference) == [LayerChange("middle", "renamed", "dense_1", "middle")]
    assert str(difference) == "1 difference: 1 layer\nLayers\n  > middle  was dense_1"


@pytest.mark.parametrize("built", [False, True])
def test_a_layer_in_front_shifts_automatic_names_only(built):
    a, b = mlp(64, 10), mlp(32, 64, 10)
    if built:
        a, b = a.build(jax.random.key(0)), b.build(jax.random.key(1))
    layer_changes = [c for c in transforms.diff(a, b) if isinstance(c, LayerChange)]
    assert [(c.kind, c.path, c.before) for c in layer_changes] == [
        ("added", "dense", None),
        ("renamed", "dense_1", "dense"),
        ("renamed", "dense_2", "dense_1"),
    ]


def test_names_of_the_user_win_over_structure():
    x = fk.Input((4,), name="x")
    a, b = (
        fk.Model(x, layers.Dense(n, name="two")(layers.Dense(m, name="one")(x)))
        for m, n in ((2, 3), (3, 2))
    )
    assert list(transforms.diff(a, b)) == [
        ConfigChange("one", "units", 2, 3),
        ConfigChange("two", "units", 3, 2),
    ]


def test_a_renamed_layer_with_other_settings_and_weights_is_matched_by_its_inputs():
    x = fk.Input((4,), name="x")
    a = fk.Model(x, layers.Dense(2, name="head")(layers.Dense(3, name="body")(x)))
    b = fk.Model(x, layers.Dense(2, name="head")(layers.Dense(5, name="trunk")(x)))
    found = kinds(transforms.diff(a.build(jax.random.key(0)), b.build(jax.random.key(1))))
    expected = {("renamed", "trunk"), ("ConfigChange", "trunk")}
    assert found == expected | {
        ("WeightChange", p) for p in ("trunk/kernel", "trunk/bias", "head/kernel")
    }


def test_wiring_calls_and_outputs():
    x = fk.Input((4,), name="x")
    one, two = layers.Dense(4, name="one"), layers.Dense(4, name="two")
    a = fk.Model(x, two(one(x)))
    found = kinds(transforms.diff(a, fk.Model(x, one(two(x)))))
    assert found == {("changed", "one_ib-0"), ("changed", "two_ib-0"), ("changed", "outputs")}
    found = kinds(transforms.diff(a, fk.Model(x, two(one(one(x))))))
    assert found == {("added", "one_ib-1"), ("changed", "two_ib-0")}
    [change] = transforms.diff(fk.Model(x, one(x)), fk.Model(x, one(x, training=False)))
    assert (change.before, change.after) == ("one(x)", "one(x), training=False")
    [change] = transforms.diff(fk.Model(x, one(x)), fk.Model(x, {"y": one(x)}))
    assert (change.path, change.before, change.after) == ("outputs", "one", "{'y': one}")
    [change] = transforms.diff(a, transforms.roll(a))
    assert change == ConfigChange("", "depth", "unroll", "scan")


def test_layers_inside_networks_and_wrappers_have_paths():
    def model(rate, units):
        x = fk.Input((5, 4), name="x")
        block = fk.Sequential([layers.Dense(3), layers.Dropout(rate)], name="block")
        y = layers.TimeDistributed(layers.Dense(units, name="inner"), name="time")(block(x))
        return fk.Model(x, y)

    assert list(transforms.diff(model(0.1, 2), model(0.2, 3))) == [
        ConfigChange("block/dropout", "rate", 0.1, 0.2),
        ConfigChange("time/layer", "units", 2, 3),
    ]


def test_weights_of_other_values_shapes_and_dtypes():
    model = mlp(3).build(jax.random.key(0))
    kernel = np.asarray(model.layers["dense"].kernel)

    def changed(kernel):
        dense = model.layers["dense"].replace(kernel=kernel)
        return model.replace(layers={**model.layers, "dense": dense})

    [change] = transforms.diff(model, changed(kernel + np.eye(4, 3, dtype="float32")))
    assert change == WeightChange(
        *("dense/kernel", "float32[4, 3]", "float32[4, 3]"),
        pytest.approx(np.linalg.norm(kernel)),
        pytest.approx(np.sqrt(3)),
        pytest.approx(1),
        3,
    )
    [change] = transforms.diff(model, changed(jnp.zeros((5, 3))))
    assert (change.after, change.norm) == ("float32[5, 3]", None)
    [change] = transforms.diff(model, changed(kernel.astype("float64")))
    assert change.after == "float64[4, 3]"
    nan = changed(np.full_like(kernel, np.nan))
    assert not transforms.diff(nan, changed(np.full_like(kernel, np.nan)))
    assert "nan" in str(transforms.diff(nan, model))
    assert kinds(transforms.diff(mlp(3), model)) == {
        ("WeightChange", "dense/kernel"),
        ("WeightChange", "dense/bias"),
    }


def test_other_classes_and_names():
    [change] = transforms.diff(layers.Dense(3), layers.Dropout(0.5))
    assert change == LayerChange("", "replaced", "Dense(3)", "Dropout(0.5)")
    [change] = transforms.diff(layers.Dense(3), layers.Dense(3, name="a"))
    assert change == ConfigChange("", "name", None, "a")
    assert not transforms.diff(layers.Dense(3), layers.Dense(3))
    assert str(transforms.diff(layers.Dense(3), layers.Dense(3))) == "No difference"
    for pair in ((layers.Dense(3), 3), (None, layers.Dense(3)), (mlp(3), (mlp(3), {}))):
        with pytest.raises(TypeError, match=r"transforms\.diff: expected a layer or model"):
            transforms.diff(*pair)


def test_long_sections_are_cut():
    text = str(transforms.diff(mlp(*[2] * 40), mlp(*[2] * 40, use_bias=False)))
    assert "... and 16 more" in text
    assert len(text.splitlines()) < 60


@pytest.mark.exhaustive
def test_a_thousand_equal_layers_compare_quickly():
    a, b = mlp(*[4] * 1000), mlp(3, *[4] * 1000)
    assert (
        len([c for c in transforms.diff(a, b) if c.kind == "added" and isinstance(c, LayerChange)])
        == 1
    )


NUMBERS = st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf")])
MODELS = st.fixed_dictionaries(
    {
        "units": st.lists(st.sampled_from([2, 4]), min_size=1, max_size=3),
        "name": st.sampled_from([None, "head"]),
        "skip": st.booleans(),
        "bias": st.booleans(),
        "built": st.booleans(),
        "fill": NUMBERS,
        "dtype": st.sampled_from(["float32", "bfloat16", "float16"]),
    }
)


def _make(units, name, skip, bias, built, fill, dtype):
    x = y = fk.Input((4,), name="x")
    for number in units:
        y = layers.Dense(number, use_bias=bias)(y)
    y = layers.Dense(4, name=name)(y)
    model = fk.Model(x, layers.Add()([x, y]) if skip else y)
    if not built:
        return model
    shapes = jax.eval_shape(model.build, jax.random.key(0))
    return jax.tree.map(lambda s: np.full(s.shape, fill).astype(jnp.dtype(dtype)), shapes)


def _bits(model):
    return [(a.dtype, a.shape, np.asarray(a).tobytes()) for a in jax.tree.leaves(model)]


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None, derandomize=True)
@given(MODELS, MODELS)
def test_random_models_differ_exactly_if_they_are_unequal(first, second):
    a, b = _make(**first), _make(**second)
    patch = transforms.diff(a, b)
    assert bool(patch) == (a != b) == (str(patch) != "No difference")
    assert not transforms.diff(a, _make(**first))
    applied = transforms.apply(a, patch)
    assert applied == b
    assert _bits(applied) == _bits(b)
    reverted = transforms.revert(applied, patch)
    assert reverted == a
    assert _bits(reverted) == _bits(a)
    assert (transforms.fingerprint(a) == transforms.fingerprint(b)) >= (a == b)
