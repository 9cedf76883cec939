"""Where models are split behind their frozen part, and the two networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.transforms.frozen_part import find_cut
from fkeras.transforms.splitting import (
    feature_coordinates,
    front_of,
    front_weights,
    repeated_layers,
    rest_of,
)

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


def frozen(units, name):
    return layers.Dense(units, "tanh", name=name, trainable=False)


def chain(*members):
    return fk.Sequential([fk.Input((4,)), *members]).build(KEY)


def nested():
    x = fk.Input((4,))
    hidden = frozen(3, "a")(x)
    inner = fk.Model(x, frozen(3, "b")(layers.Dropout(0.5)(hidden)) + hidden, name="inner")
    image = fk.Input((4,))
    scaled = layers.Rescaling(2.0, name="scale")(image)
    return fk.Model(image, layers.Dense(2, name="head")(inner(scaled) * scaled[:, :1])).build(KEY)


def twice_nested():
    x = fk.Input((4,))
    deep = fk.Model(x, layers.Dropout(0.5)(frozen(3, "a")(x)), name="deep")
    inner = fk.Model(x, layers.Dense(2, name="mid")(deep(x)), name="inner")
    image = fk.Input((4,))
    return fk.Model(image, layers.Dense(2, name="head")(inner(image))).build(KEY)


def without_rows():
    x = fk.Input((4,))
    positions = fk.ops.lift(lambda a: jnp.arange(a.shape[1]))(x)
    table = layers.Embedding(4, 4, name="table", trainable=False)(positions)
    hidden = frozen(4, "a")(x) + table[:1]
    return fk.Model(x, layers.Dense(2, name="head")(hidden) + table[:1, :2]).build(KEY)


def batch_mean():
    x = fk.Input((4,))
    hidden = frozen(4, "a")(x)
    mean = fk.ops.mean(hidden, axis=0, keepdims=True)
    return fk.Model(x, layers.Dense(2, name="head")(hidden - mean)).build(KEY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [nested, twice_nested, without_rows, batch_mean])
def test_the_two_parts_compute_the_model(make):
    model = make()
    cut = find_cut(model, X).cut
    front, rest = front_of(model, cut), rest_of(model, cut)
    features = front.apply(X).value
    for training in (False, True):
        found = rest.apply(features, training=training, key=KEY).value
        # the same keys: Dropout in the rest draws the numbers of the whole model
        np.testing.assert_array_equal(found, model.apply(X, training=training, key=KEY).value)
    assert all(feature.shape[0] == len(X) for feature in features)
    missing = fk.engine.replace_weights(model, dict.fromkeys(front_weights(model, cut)))
    np.testing.assert_array_equal(rest_of(missing, cut).apply(features).value, model(X))


def test_a_nested_network_is_split_inside():
    model = nested()
    part = find_cut(model, X)
    assert front_weights(model, part.cut) == ("inner/a/kernel", "inner/a/bias")
    assert repeated_layers(model, part.cut) == ["inner/b"]
    assert ("inner/a", 0, 0) in feature_coordinates(model, part.cut)
    assert part.reasons == ("'inner/dropout' (Dropout) draws random numbers",)


def test_a_nested_network_with_two_calls_is_whole():
    x = fk.Input((4,))
    twice = fk.Model(x, frozen(4, "a")(x), name="inner")
    noisy = fk.Model(x, layers.Dropout(0.5)(frozen(4, "b")(x)), name="noisy")
    model = fk.Model(x, layers.Dense(2)(noisy(twice(twice(x))) + noisy(x))).build(KEY)
    part = find_cut(model, X)
    assert front_weights(model, part.cut) == ("inner/a/kernel", "inner/a/bias")
    assert part.reasons == ("'noisy' (Model) draws random numbers",)


class Sampled(layers.Layer):
    """Draws in every mode."""

    def forward(self, context, x):
        return fk.Output(x + jax.random.normal(context.key, x.shape))


class Doubled(layers.Layer):
    """Computes other values in training."""

    def forward(self, context, x):
        return fk.Output(2 * x if context.training else x)


class Reported(layers.Layer):
    """Reports a metric."""

    def forward(self, context, x):
        return fk.Output(x, metrics={"mean": x.mean()})


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (layers.Dropout(0.5), "draws random numbers"),
        (Sampled(), "draws random numbers"),
        (Doubled(), "computes other values in training"),
        (Reported(), "reports a metric"),
        (layers.ActivityRegularization(0.1), "adds a loss"),
        (layers.BatchNormalization(center=False, scale=False), "changes its state in training"),
        (layers.Dense(4), "has trained weights"),
        (
            layers.Lambda(lambda x: x - x.mean(0, keepdims=True)),
            "may compute a row from other rows of the batch",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_reason_of_each_kind_is_named(layer, reason):
    layer = layer.replace(name="end")
    part = find_cut(chain(frozen(4, "a"), layer, frozen(4, "b"), layers.Dense(1)), X)
    assert f"'end' ({type(layer).__name__}) {reason}" in part.reasons
    assert part.cut.front == (1,)


def test_a_pinned_mode_and_a_frozen_normalization_change_nothing():
    x = fk.Input((4,))
    noisy = fk.Model(x, layers.Dropout(0.5)(x), name="noisy")
    norm = layers.BatchNormalization(name="norm", trainable=False)
    model = fk.Model(x, layers.Dense(1)(norm(noisy(x, training=False)))).build(KEY)
    assert front_weights(model, find_cut(model, X).cut) == ("norm/gamma", "norm/beta")


def test_a_state_that_another_call_changes_ends_the_front():
    x = fk.Input((4,))
    norm = layers.BatchNormalization(name="norm", center=False, scale=False)
    model = fk.Model(x, layers.Dense(1)(norm(x, training=False) + norm(x))).build(KEY)
    part = find_cut(model, X)
    assert part.reasons == ("'norm' (BatchNormalization) changes its state in training",)
    assert part.cut.front == ()


def test_a_layer_called_in_both_parts_keeps_its_weights():
    x = fk.Input((4,))
    shared = frozen(4, "shared")
    model = fk.Model(x, shared(layers.Dense(4, name="mid")(shared(x)))).build(KEY)
    assert front_weights(model, find_cut(model, X).cut) == ()
