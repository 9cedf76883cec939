"""Convolutional LSTMs: behavior that the layer table does not cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.recurrence import conv_lstm_step, lstm_step
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
SHAPE = (2, 3, 4, 5, 2)
X = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
MASK = np.array([[True, True, False], [False, True, True]])


def _layer(**options):
    options = {"padding": "same"} | options
    return layers.ConvLSTM2D(2, 2, bias_initializer="ones", **options).build(KEY, SHAPE)


def _close(actual, expected, tolerance=1e-5):
    assert jnp.shape(actual) == jnp.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_on_single_cells_conv_lstm_equals_lstm():
    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=(2, n)).astype("float32") for n in (3, 4, 4))
    kernel, recurrent = (rng.normal(size=(n, 16)).astype("float32") for n in (3, 4))
    common = {
        "bias": rng.normal(size=16).astype("float32"),
        "activation": jnp.tanh,
        "recurrent_activation": jax.nn.sigmoid,
    }

    @jax.jit
    def compute(x, h, c):
        return lstm_step(
            x, [h, c], kernel=kernel, recurrent_kernel=recurrent, **common
        ), conv_lstm_step(
            x[:, None],
            [h[:, None], c[:, None]],
            kernel=kernel[None],
            recurrent_kernel=recurrent[None],
            strides=(1,),
            **common,
        )

    (y, states), (wide, states_wide) = jax.device_get(compute(x, h, c))
    _close(wide[:, 0], y)
    _close(states_wide[1][:, 0], states[1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"go_backwards": True}])
def test_masked_scans_equal_unrolled_loops(options):
    scanned = _layer(return_sequences=True, return_state=True, **options)
    unrolled = scanned.replace(unroll=True)
    compute = jax.jit(lambda x: [layer.apply(x, mask=MASK).value for layer in (scanned, unrolled)])
    for actual, expected in zip(*compute(X), strict=True):
        _close(actual, expected)


@pytest.mark.exhaustive
def test_zero_output_for_mask_has_no_effect_in_unrolled_loops():
    unrolled = _layer(return_sequences=True, unroll=True)
    zeros = unrolled.replace(zero_output_for_mask=True)
    _close(zeros.apply(X, mask=MASK).value, unrolled.apply(X, mask=MASK).value)
    assert (
        _layer(return_sequences=True, zero_output_for_mask=True).apply(X, mask=MASK).value[~MASK]
        == 0
    ).all()


@pytest.mark.exhaustive
def test_a_masked_step_keeps_the_states():
    layer = _layer()
    _close(layer.apply(X, mask=MASK).value[0], layer(X[:1, :2])[0])
    _close(layer.apply(X, mask=MASK).value[1], layer(X[1:, 1:])[0])


@pytest.mark.exhaustive
def test_an_all_false_mask_gives_zeros_and_finite_gradients():
    mask = np.zeros((2, 3), bool)
    layer = _layer()

    def total(layer, x):
        return layer.apply(x, mask=mask).value.sum()

    value, grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))(layer, X)
    assert value == 0
    assert all((np.asarray(g) == 0).all() for g in jax.tree.leaves(grads))


def test_a_sequence_of_no_steps_gives_zeros():
    y = _layer()(jnp.zeros((2, 0, 4, 5, 2)))
    assert y.shape == (2, 4, 5, 2)
    assert bool(jnp.all(y == 0))


@pytest.mark.exhaustive
def test_channels_first_is_the_same_with_other_axes():
    last = _layer(return_sequences=True, padding="valid", strides=2)
    first = last.replace(data_format="channels_first")
    actual, expected = jax.jit(lambda x: (first(jnp.moveaxis(x, -1, 2)), last(x)))(X)
    _close(actual, np.moveaxis(expected, -1, 2))


@pytest.mark.exhaustive
def test_initial_states_match_keras():
    layer = _layer(return_state=True)
    start = [np.full((2, 4, 5, 2), 0.5, "float32"), np.full((2, 4, 5, 2), -0.5, "float32")]
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(layer))
        theirs.build(SHAPE)
        theirs.set_weights(layer.get_weights())
        expected = jax.jit(lambda x: theirs(x, initial_state=start))(X)
    ours = jax.jit(lambda x: layer(x, initial_state=start))(X)
    for actual, expected_array in zip(ours, expected, strict=True):
        _close(actual, expected_array)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.03), ("float16", 0.004)])
def test_low_precision_is_close(dtype, tolerance):
    layer = _layer()
    half = layer.replace(dtype=f"mixed_{dtype}")

    @jax.jit
    def compute(half, x):
        slope = jax.value_and_grad(lambda l: jnp.sum(l(1e4 * x).astype("float32")))
        return half(x), layer(x), slope(half)

    short, wide, (y, grads) = jax.device_get(compute(half, X))
    assert short.dtype == dtype
    _close(short.astype("float32"), wide, tolerance)
    assert all(np.isfinite(g).all() for g in (y, *jax.tree.leaves(grads)))


@pytest.mark.exhaustive
def test_the_key_determines_dropout_and_inference_needs_no_key():
    layer = _layer(dropout=0.5, recurrent_dropout=0.5)
    _close(layer(X), _layer()(X))
    train = jax.jit(lambda key: layer(X, training=True, key=key))
    value, same_key, other_key = (np.asarray(train(jax.random.key(n))) for n in (0, 0, 1))
    _close(value, same_key)
    assert np.abs(value - other_key).max() > 1e-3


@pytest.mark.exhaustive
def test_each_gate_has_a_separate_dropout_mask():
    # with a kernel of ones over single cells, a gate counts its inputs that are not dropped
    c, rate = 400, 0.25
    layer = layers.ConvLSTM1D(1, 1, dropout=rate, use_bias=False, kernel_initializer="ones")
    layer = layer.build(KEY, (None, None, 1, c))
    step = layer.step_function(
        fk.Context(training=True, key=KEY), jnp.ones((1, 2, 1, c), "float32")
    )
    mask = step.keywords["input_mask"].reshape(4, c)
    is_kept = np.asarray(mask) > 0
    assert np.allclose(np.asarray(mask)[is_kept], 1 / (1 - rate))
    assert np.all(np.abs(is_kept.mean(axis=1) - (1 - rate)) < 0.1)
    assert not (is_kept[0] == is_kept[1]).all()
    assert step.keywords["recurrent_mask"] is None


@pytest.mark.exhaustive
def test_dropout_of_everything_equals_zero_inputs():
    layer = _layer(dropout=1.0)
    _close(layer(X, training=True, key=KEY), layer(jnp.zeros_like(X)))


@pytest.mark.exhaustive
def test_a_stateful_layer_resumes_from_its_state():
    layer = _layer(stateful=True)
    state = layer.init_state(SHAPE)
    first = layer.apply(X[:, :2], state=state)
    second = layer.apply(X[:, 2:], state=first.updates)
    _close(second.value, _layer()(X))
    assert all(bool(jnp.all(s == 0)) for s in layer.reset_state(second.updates).values())


def test_a_stateful_layer_needs_known_sizes():
    layer = layers.ConvLSTM1D(2, 3, stateful=True, name="film")
    with pytest.raises(ValueError, match="stateful=True needs a known batch size"):
        layer.init_state((None, 3, 8, 2))
    with pytest.raises(ValueError, match=r"'film'.*known sizes.*Input the sizes of a step"):
        layer.init_state((2, 3, None, 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{"padding": "same", "strides": 2}, {"padding": "valid"}])
def test_images_of_unknown_size_are_accepted(options):
    inputs = fk.Input((None, None, None, 2))
    y = layers.ConvLSTM2D(3, 3, return_sequences=True, **options)(inputs)
    assert y.shape == (None, None, None, None, 3)
    model = fk.Model(inputs, layers.ConvLSTM2D(2, 1)(y)).build(KEY)
    for shape in ((1, 2, 7, 6, 2), (2, 3, 4, 9, 2)):
        y = jax.eval_shape(lambda x: model(x), np.ones(shape, "float32"))
        assert y.shape[0] == shape[0]


@pytest.mark.exhaustive
def test_both_directions():
    layer = layers.Bidirectional(layers.ConvLSTM1D(2, 2, return_sequences=True))
    layer = layer.build(KEY, (None, 3, 4, 2))
    x = X[:, :, 0, :4]
    back = layer.backward_layer(x)
    expected = jnp.concatenate([layer.forward_layer(x), jnp.flip(back, 1)], axis=-1)
    _close(layer(x), expected)


def test_keras_configurations_can_be_read():
    options = {"padding": "same", "dropout": 0.5, "seed": 3, "return_state": True, "name": "a"}
    for rank in (1, 2, 3):
        name = f"ConvLSTM{rank}D"
        with keras_rules():
            theirs = getattr(keras.layers, name)(4, 3, **options)
        ours = getattr(layers, name)(4, 3, **options)
        assert layers.deserialize(keras.layers.serialize(theirs)) == ours


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.ConvLSTM2D(0, 3), "filters: expected a positive integer, received 0"),
        (lambda: layers.ConvLSTM2D(4, (3, 3, 3)), "ConvLSTM2D: kernel_size: .*tuple of 2"),
        (lambda: layers.ConvLSTM1D(4, 3, 2, dilation_rate=2), r"not both.*strides=\(2,\)"),
        (lambda: layers.ConvLSTM3D(4, 3, padding="causal"), "'valid' or 'same'"),
        (lambda: layers.ConvLSTM1D(4, 3, dropout=20), "dropout: expected a number from 0 to 1"),
        (lambda: layers.ConvLSTM1D(4, 3)(fk.Input((5, 8, None))), "known number of channels"),
        (lambda: layers.ConvLSTM1D(4, 3)(fk.Input((5, 2, 3))), "at least 3 cells on axis 1"),
        (lambda: layers.ConvLSTM2D(4, 3)(fk.Input((8, 8, 3))), "ndim=5"),
        (lambda: _layer()(X[..., :1]), "size 2"),
        (lambda: _layer()(X, initial_state=[X[:, 0]]), "expected 2 states in initial_state"),
        (lambda: _layer().apply(X, mask=np.ones(X.shape, bool)), r"mask of shape \(b, t\)"),
        (lambda: _layer(dropout=0.5)(X, training=True), "key"),
    ],
)
def test_errors_name_a_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()
