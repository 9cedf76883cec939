"""Batch and layer normalization beyond the layer table: moving statistics, masks, freezing, precision."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)


def _data(*shape, seed=0):
    return np.random.default_rng(seed).normal(1.0, 2.0, shape).astype("float32")


def _both(options, shape, steps=3, mask=None, training=True):
    """Returns state and last value after some calls, of fkeras and of Keras."""
    layer = layers.BatchNormalization(**options).build(KEY, shape)
    state = layer.init_state(shape)
    with keras_rules():
        reference = keras.layers.BatchNormalization(**options)
        reference.build(shape)
    for step in range(steps):
        x = _data(*shape, seed=step)
        out = layer.apply(x, state=state, training=training, mask=mask)
        state = state | out.updates
        with keras_rules():
            value = reference(x, training=training, mask=mask)
    theirs = {name: np.asarray(getattr(reference, name)) for name in state}
    return out, state, np.asarray(value), theirs


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", [None, "half"])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.7},
        {"axis": 1, "momentum": 0.5, "center": False},
        {"renorm": True, "momentum": 0.9, "renorm_momentum": 0.6},
        {
            "renorm": True,
            "renorm_clipping": {"rmin": 0.5, "rmax": 1.5, "dmax": 0.3},
            "scale": False,
            "moving_variance_initializer": "ones",
        },
    ],
    ids=str,
)
def test_moving_statistics_match_keras(options, mask):
    shape = (6, 4, 3)
    mask = None if mask is None else np.random.default_rng(5).random(shape[:2]) < 0.5
    out, state, value, theirs = _both(options, shape, mask=mask)
    np.testing.assert_allclose(out.value, value, rtol=1e-4, atol=1e-5)
    for name, array in state.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.exhaustive
def test_a_frozen_layer_runs_in_inference_mode():
    out, state, value, theirs = _both({"trainable": False}, (4, 3))
    assert out.updates == {}
    np.testing.assert_allclose(out.value, value, rtol=1e-5)
    np.testing.assert_array_equal(state["moving_mean"], theirs["moving_mean"])


FROZEN = [{}, {"renorm": True, "renorm_clipping": {"rmax": 1.2, "dmax": 0.1}}, {"axis": 1}]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", [None, "half"])
@pytest.mark.parametrize("options", FROZEN, ids=str)
def test_frozen_batch_mode_uses_batch_statistics_without_updates(options, mask):
    x = _data(6, 4, 3)
    mask = None if mask is None else np.random.default_rng(5).random(x.shape[:2]) < 0.5
    trained = layers.BatchNormalization(**options).build(KEY, x)
    state = {name: array + 0.25 for name, array in trained.init_state(x).items()}
    frozen = trained.replace(trainable=False, frozen="batch")

    def score(x, layer, training):
        out = layer.apply(x, state=state, training=training, mask=mask)
        return jnp.sum(jnp.sin(out.value)), out

    actual = jax.grad(score, has_aux=True)(x, frozen, True)
    expected = jax.grad(score, has_aux=True)(x, trained, True)
    np.testing.assert_array_equal(actual[1].value, expected[1].value)
    # the batch's statistics depend on the inputs
    np.testing.assert_array_equal(actual[0], expected[0])
    assert actual[1].updates == {} != expected[1].updates
    actual, expected = (score(x, layer, False)[1] for layer in (frozen, trained))
    np.testing.assert_array_equal(actual.value, expected.value)


@pytest.mark.exhaustive
def test_trainable_layers_ignore_the_frozen_option():
    x = _data(4, 3)
    layer = layers.BatchNormalization(frozen="batch").build(KEY, x)
    state = layer.init_state(x)
    out = layer.apply(x, state=state, training=True)
    assert set(out.updates) == set(state)


def test_frozen_is_in_the_configuration_unless_it_is_the_default():
    assert "frozen" not in layers.BatchNormalization().get_config()
    layer = layers.BatchNormalization(frozen="batch", name="norm")
    assert layers.BatchNormalization.from_config(layer.get_config()) == layer
    assert layer != layers.BatchNormalization(name="norm")
    with keras_rules():
        keras.layers.deserialize(layers.serialize(layers.BatchNormalization()))


def test_one_step_by_hand():
    layer = layers.BatchNormalization(momentum=0.9).build(KEY, (None, 1))
    state = layer.init_state((None, 1))
    out = layer.apply(jnp.array([[1.0], [3.0]]), state=state, training=True)
    np.testing.assert_allclose(out.updates["moving_mean"], [0.2], rtol=1e-6)
    # the variance is biased: 1, not 2
    np.testing.assert_allclose(out.updates["moving_variance"], [1.0], rtol=1e-6)


def test_masked_steps_do_not_count():
    x = _data(2, 4, 3)
    mask = np.array([[True, True, False, False], [True, False, False, False]])
    layer = layers.BatchNormalization(momentum=0.0).build(KEY, x)
    state = layer.init_state(x)
    out = layer.apply(x, state=state, training=True, mask=mask)
    np.testing.assert_allclose(out.updates["moving_mean"], x[mask].mean(0), rtol=1e-5)
    np.testing.assert_allclose(out.updates["moving_variance"], x[mask].var(0), rtol=1e-5)
    changed = layer.apply(
        np.where(mask[..., None], x, np.float32(99)), state=state, training=True, mask=mask
    )
    np.testing.assert_allclose(
        changed.updates["moving_mean"], out.updates["moving_mean"], rtol=1e-6
    )


def test_a_single_masked_feature_keeps_its_axis():
    x = _data(2, 4, 1)
    layer = layers.BatchNormalization().build(KEY, x)
    state = layer.init_state(x)
    out = layer.apply(x, state=state, training=True, mask=np.ones((2, 4), bool))
    assert out.updates["moving_mean"].shape == (1,)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float16"])
def test_statistics_have_full_precision_in_low_precision_layers(policy):
    x = 300 * _data(64, 3)
    layer = layers.BatchNormalization(dtype=policy).build(KEY, x)
    state = layer.init_state(x)
    out = layer.apply(x, state=state, training=True)
    assert out.value.dtype == layer.policy.compute_dtype
    assert {v.dtype.name for v in out.updates.values()} == {"float32"}
    # squares of these numbers overflow float16
    np.testing.assert_allclose(out.updates["moving_variance"], 0.99 + 0.01 * x.var(0), rtol=1e-2)
    normalized = layers.LayerNormalization(dtype=policy).build(KEY, x)(x)
    assert normalized.dtype == layer.policy.compute_dtype
    assert bool(jnp.isfinite(normalized).all())


def test_the_variance_is_precise_far_from_zero():
    x = _data(256, 2) + np.float32(3000)
    layer = layers.BatchNormalization(momentum=0.0).build(KEY, x)
    out = layer.apply(x, state=layer.init_state(x), training=True)
    np.testing.assert_allclose(
        out.updates["moving_variance"], x.astype("float64").var(0), rtol=1e-3
    )


@pytest.mark.exhaustive
def test_statistics_of_a_sharded_batch_match_the_whole_batch():
    devices = jax.devices()
    if len(devices) < 2:
        pytest.skip("needs several devices")
    mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    x = _data(4 * len(devices), 3)
    layer = layers.BatchNormalization().build(KEY, x)
    state = layer.init_state(x)
    unsharded = layer.apply(x, state=state, training=True)
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    sharded = layer.apply(jax.device_put(x, sharding), state=state, training=True)
    for name in state:
        np.testing.assert_allclose(sharded.updates[name], unsharded.updates[name], rtol=1e-5)
    np.testing.assert_allclose(sharded.value, unsharded.value, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_no_gradient_reaches_through_renormalization():
    x = _data(8, 2)
    layer = layers.BatchNormalization(renorm=True).build(KEY, x)
    state = layer.init_state(x)

    def score(state):
        return jnp.sum(jnp.square(layer.apply(x, state=state, training=True).value))

    grads = jax.grad(score)(state)
    assert all(not np.asarray(g).any() for g in grads.values())


def test_calling_with_training_would_lose_the_updates():
    layer = layers.BatchNormalization().build(KEY, (4, 3))
    with pytest.raises(ValueError, match=r"apply"):
        layer(_data(4, 3), state=layer.init_state((4, 3)), training=True)
    with pytest.raises(ValueError, match=r"moving_mean.*init_state"):
        layer(_data(4, 3))


def test_layer_normalization_over_several_axes():
    x = _data(2, 3, 4)
    layer = layers.LayerNormalization(axis=(1, 2), epsilon=0.0).build(KEY, x)
    assert layer.gamma.shape == (3, 4)
    y = np.asarray(layer(x))
    np.testing.assert_allclose(y.mean((1, 2)), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.std((1, 2)), 1.0, rtol=1e-5)


@pytest.mark.exhaustive
def test_rms_scaling_matches_keras():
    x = _data(4, 3)
    layer = layers.LayerNormalization(rms_scaling=True).build(KEY, x)
    assert layer.beta is None
    with keras_rules():
        reference = keras.layers.LayerNormalization(rms_scaling=True)
        value = np.asarray(reference(x))
    np.testing.assert_allclose(layer(x), value, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.BatchNormalization(synchronized=True), r"sharded.*whole batch"),
        (lambda: layers.BatchNormalization(momentum=1.5), r"momentum.*0 to 1.*1\.5"),
        (lambda: layers.BatchNormalization(frozen="no"), r"frozen.*'moving'.*'batch'.*'no'"),
        (lambda: layers.BatchNormalization(axis="last"), r"axis.*integer.*'last'"),
        (
            lambda: layers.BatchNormalization(renorm_clipping={"rmx": 1.0}),
            r"'rmx'.*Did you mean 'rm",
        ),
        (
            lambda: layers.BatchNormalization(renorm_clipping={"rmin": 2.0, "rmax": 1.0}),
            r"rmin <= rmax",
        ),
        (lambda: layers.BatchNormalization()(fk.Input((None,))), r"known size on axis -1"),
        (lambda: layers.BatchNormalization(axis=3)(fk.Input((4,))), r"min_ndim=4.*\(b, 4\)"),
        (lambda: layers.LayerNormalization(axis=1.5), r"axis.*integer.*1\.5"),
        (lambda: layers.LayerNormalization(axis=2)(fk.Input((4,))), r"axes 2.*\(None, 4\)"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_error_messages_for_arrays():
    x = _data(4, 3)
    layer = layers.BatchNormalization(center=False, scale=False).build(KEY, x)
    state = layer.init_state(x)
    with pytest.raises(ValueError, match=r"3 features.*\(4, 5\).*init_state"):
        layer.apply(_data(4, 5), state=state)
    with pytest.raises(ValueError, match=r"mask.*\(4, 3\)"):
        layer.apply(x, state=state, mask=np.ones((4, 3), bool))
    norm = layers.LayerNormalization().build(KEY, x)
    with pytest.raises(ValueError, match=r"\(3,\).*\(4, 5\)"):
        norm(_data(4, 5))


@pytest.mark.parametrize("options", [{}, {"renorm": True}])
def test_a_batch_without_rows_changes_no_statistics(options):
    layer = layers.BatchNormalization(**options).build(KEY, (None, 3))
    state = layer.init_state((None, 3))
    out = layer.apply(jnp.ones((0, 3)), state=state, training=True)
    assert out.value.shape == (0, 3) and out.updates == {}


def test_bounds_of_renorm_are_a_dictionary():
    with pytest.raises(
        TypeError, match="renorm_clipping: expected a dictionary with the keys rmin"
    ):
        layers.BatchNormalization(renorm=True, renorm_clipping=3)
    with pytest.raises(ValueError, match=r"renorm_clipping: expected the keys .*'rmax'\?"):
        layers.BatchNormalization(renorm=True, renorm_clipping={"rmx": 3})


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_programs_for_tpus_have_no_loops_and_do_not_read_the_moving_mean(dtype):
    layer = layers.BatchNormalization(dtype=dtype).build(KEY, (8, 3))
    call = jax.jit(lambda x, state: layer.apply(x, state=state, training=True).value)
    traced = call.trace(jax.ShapeDtypeStruct((1_000_000, 3), "float32"), layer.init_state((8, 3)))
    text = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert not any(op in text for op in ("stablehlo.while", "stablehlo.case"))
    signature = re.search(r"@main\((.*?)\) ->", text).group(1)
    assert signature.count("%arg") == 1
