"""Several devices: the numbers of one device, batches that do not divide, wrong rules."""

import chex
import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import fkeras as fk
from fkeras import layers
from fkeras.training.data import array_feed

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
RNG = np.random.default_rng(8)
X = RNG.normal(size=(50, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
KEY = jax.random.key(0)
AUTO = AxisType.Auto


def model():
    x = fk.Input((4,))
    h = layers.BatchNormalization(momentum=0.5)(layers.Dense(8, "relu")(x))
    return fk.Model(x, layers.Dense(2, "softmax")(layers.Dropout(0.2)(h)))


def trainer(**options):
    return fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], **options)


ONE = trainer()
RUN = ONE.init(model(), KEY)
MESHES = {
    "data": ((8,), ("data",), None),
    "rows first": ((4, 2), ("rows", "model"), {"*/kernel": (None, "model")}),
    "model first": ((2, 4), ("model", "batch"), {"dense/*": ("model",), "*": ()}),
}


def sharded(name):
    sizes, names, rules = MESHES[name]
    mesh = jax.make_mesh(sizes, names, axis_types=(AUTO,) * len(names))
    return trainer(mesh=mesh, sharding=rules)


# a mesh takes seconds to compile for: one of the two with two axes is left to CI
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["data", "rows first", pytest.param("model first", marks=pytest.mark.exhaustive)]
)
def test_several_devices_compute_the_numbers_of_one(name):
    many = sharded(name)
    run, history = many.fit(many.init(model(), KEY), X, Y, 16, epochs=2, verbose=0)
    alone, expected = ONE.fit(RUN, X, Y, 16, epochs=2, verbose=0)
    chex.assert_trees_all_close(run.model, alone.model, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(run.state, alone.state, rtol=1e-5, atol=1e-6)
    for log, values in expected.history.items():
        np.testing.assert_allclose(history.history[log], values, rtol=1e-5)
    kernel, slot = run.model.layers["dense"].kernel, run.opt_state.slots["momentum"]["dense/kernel"]
    expected_spec = (MESHES[name][2] or {}).get(
        "dense/*" if name == "model first" else "*/kernel", ()
    )
    for array in (kernel, slot):
        assert tuple(array.sharding.spec) == tuple(expected_spec)
        assert len(array.sharding.device_set) == 8
    assert many.evaluate(run, X, Y, verbose=0) == pytest.approx(
        ONE.evaluate(alone, X, Y, verbose=0), rel=1e-5
    )
    np.testing.assert_allclose(many.predict(run, X), ONE.predict(alone, X), rtol=1e-5)
    assert many.predict(run, X[:3]).shape == (3, 2)


@pytest.mark.exhaustive
def test_rows_that_are_sent_are_split_too(monkeypatch):
    many = sharded("data")
    resident_run, _ = many.fit(many.init(model(), KEY), X, Y, 16, verbose=0)
    monkeypatch.setattr(array_feed, "MEMORY", 16)
    sent_run, _ = many.fit(many.init(model(), KEY), X, Y, 16, verbose=0)
    chex.assert_trees_all_close(resident_run.model, sent_run.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_one_step_is_split_over_the_devices():
    many = sharded("data")
    run, logs = many.step(many.init(model(), KEY), (X[:16], Y[:16]))
    alone, expected = ONE.step(RUN, (X[:16], Y[:16]))
    chex.assert_trees_all_close(run.model, alone.model, rtol=1e-5, atol=1e-6)
    assert float(logs["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)


@pytest.mark.exhaustive
def test_batches_that_do_not_divide_are_reported():
    many = sharded("data")
    run = many.init(model(), KEY)
    with pytest.raises(ValueError, match="received 30 rows. Use a batch size of 32"):
        _ = many.fit(run, X, Y, 30, verbose=0)
    with pytest.raises(ValueError, match="received 10 rows. Use a batch size of 16"):
        many.step(run, (X[:10], Y[:10]))
    with pytest.raises(ValueError, match="received 25 rows"):
        _ = many.fit(run, [(X[:25], Y[:25])], verbose=0)


def mesh(**options):
    return jax.make_mesh((8,), ("data",), **{"axis_types": (AUTO,), **options})


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: {"mesh": "gpu"}, "received str. For example"),
        (lambda: {"mesh": mesh(axis_types=(AxisType.Manual,))}, "axes of type Auto"),
        (lambda: {"sharding": {"*": ("data",)}}, "sharding: missing mesh"),
        (lambda: {"mesh": mesh(), "sharding": [("*", "data")]}, "as a dictionary, received list"),
        (lambda: {"mesh": mesh(), "sharding": {"dens/*": ("data",)}}, "matches no weight"),
        (lambda: {"mesh": mesh(), "sharding": {"*": ("dat",)}}, "Did you mean 'data'"),
        (lambda: {"mesh": mesh(), "sharding": {"*": ("data", None, None)}}, "has 3 entries"),
        (lambda: {"mesh": mesh(), "sharding": {"*/kernel": ("data",)}}, "into 8 parts"),
    ],
)
def test_wrong_meshes_and_rules_are_reported(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        trainer(**options()).init(model(), KEY)


def test_rules_may_be_partition_specs_and_trainers_stay_equal():
    rules = {"*/kernel": PartitionSpec(None, "data")}
    one, two = trainer(mesh=mesh(), sharding=rules), trainer(mesh=mesh(), sharding=rules)
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.exhaustive
def test_init_places_one_layer_after_the_other():
    x = fk.Input((8,))
    inner = fk.Sequential([fk.Input((64,)), layers.Dense(128, name="wide")], name="inner")
    network = fk.Model(
        x, layers.Dense(64, "softmax", name="out")(inner(layers.Dense(64, name="in")(x)))
    )
    many = trainer(mesh=mesh(), sharding="fsdp")
    for new, placed in ((network, 8), (network.build(KEY), 8)):
        run = many.init(new, KEY)
        assert run.model == network.build(KEY)
        assert {len(a.devices()) for a in jax.tree.leaves(run)} == {placed}
    kernel = run.model.layers["inner"].layers["wide"].kernel
    assert kernel.sharding.spec == PartitionSpec(None, "data")


GROUPED = {
    "depthwise": layers.DepthwiseConv2D(3, depth_multiplier=2),
    "separable": layers.SeparableConv2D(16, 3),
    "groups": layers.Conv2D(8, 1, groups=4),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(GROUPED))
@pytest.mark.parametrize("rules", [None, {"hidden": "model"}, "fsdp"], ids=str)
def test_gradients_of_grouped_convolutions_are_those_of_one_device(name, rules):
    x = fk.Input((6, 6, 8))
    h = GROUPED[name](layers.Conv2D(8, 1)(x))  # "hidden" splits the channels before
    h = layers.Conv2D(8, 1, groups=4)(h)
    network = fk.Model(x, layers.Dense(4)(layers.Flatten()(h))).build(KEY)
    images = RNG.normal(size=(8, 6, 6, 8)).astype("float32")
    targets = RNG.normal(size=(8, 4)).astype("float32")
    grid = jax.make_mesh((4, 2), ("data", "model"))
    runs = []
    for options in ({}, {"mesh": grid, "sharding": rules}):
        one = fk.Trainer("sgd", "mse", **options)
        run, _ = one.step(one.init(network, KEY), (images, targets))
        runs.append((run.model, one.predict(run, images)))
    chex.assert_trees_all_close(*(jax.device_get(run) for run in runs), rtol=1e-4, atol=1e-6)
