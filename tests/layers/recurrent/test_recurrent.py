"""Recurrent layers: behavior that the layer table does not cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
X = np.random.default_rng(0).normal(size=(2, 6, 3)).astype("float32")
MASK = np.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 0]], bool)
KINDS = (layers.SimpleRNN, layers.LSTM, layers.GRU)


class Leaky(fk.Layer):
    """A cell whose output is not its state."""

    units: int = fk.option()
    kernel: jax.Array | None = fk.weight(initializer=jax.nn.initializers.ones)

    @property
    def state_size(self):
        return self.units

    def build(self, key, x, states=None):
        return self.with_weights(key, kernel=(x.shape[-1], self.units))

    def call(self, x, states):
        total = 0.5 * states[0] + x @ self.kernel
        return -total, [total]


def _split_call(layer, state, cut, x=X, mask=None):
    outputs = []
    for s in (slice(None, cut), slice(cut, None)):
        out = layer.apply(x[:, s], state=state, mask=None if mask is None else mask[:, s])
        outputs.append(out.value)
        assert jax.tree.structure(out.updates) == jax.tree.structure(state)
        state = state | out.updates
    return outputs, state


@pytest.mark.exhaustive
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "stack"])
def test_stateful_halves_equal_the_whole_sequence(kind, masked):
    mask = MASK if masked else None

    def make(**options):
        if kind == "stack":
            return layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)], **options)
        return kind(4, **options)

    layer = make(stateful=True, return_sequences=True).build(KEY, X)
    state = layer.init_state(X)
    outputs, _ = _split_call(layer, state, 2, mask=mask)
    expected = make(return_sequences=True).build(KEY, X).apply(X, mask=mask).value
    np.testing.assert_allclose(jnp.concatenate(outputs, axis=1), expected, rtol=1e-6, atol=1e-6)


def test_stateful_state_advances_in_training_and_inference_and_resets():
    layer = layers.GRU(4, stateful=True).build(KEY, X)
    state = layer.init_state(X)
    assert {k: v.shape for k, v in state.items()} == {"state_0": (2, 4)}
    for training in (False, True):
        updates = layer.apply(X, state=state, training=training).updates
        assert float(jnp.abs(updates["state_0"]).max()) > 0
    assert layer.stateful
    assert not layers.GRU(4).stateful
    assert layers.GRU(4).init_state(X) == {}
    zero = layer.reset_state(updates)
    assert jax.tree.map(jnp.shape, zero) == jax.tree.map(jnp.shape, state)
    assert not jax.tree.leaves(zero)[0].any()
    with pytest.raises(fk.FKerasError, match="state"):
        layer(X)
    with pytest.raises(ValueError, match="lose it"):
        layer(X, state=state)


def test_stateful_layer_in_a_model():
    x = fk.Input((3, 3), batch_size=2)
    model = fk.Model(x, layers.LSTM(4, stateful=True, name="lstm")(x)).build(KEY)
    state = model.init_state()
    outputs, state = _split_call(model, state, 3)
    stateless = layers.LSTM(4)
    inner = model.layers["lstm"]
    stateless = stateless.build(KEY, X).set_weights(inner.get_weights())[0]
    np.testing.assert_allclose(outputs[1], stateless(X), rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_masked_steps_are_skipped(kind):
    x = fk.Input((None,), dtype="int32")
    y = layers.Embedding(5, 3, mask_zero=True)(x)
    model = fk.Model(x, kind(4)(y)).build(KEY)
    padded, short = np.array([[1, 2, 0, 0]], "int32"), np.array([[1, 2]], "int32")
    np.testing.assert_array_equal(model(padded), model(short))


@pytest.mark.exhaustive
@pytest.mark.parametrize("unroll", [False, True])
def test_output_masks(unroll):
    layer = layers.LSTM(4, return_sequences=True, return_state=True, unroll=unroll).build(KEY, X)
    mask = layer.apply(X, mask=MASK).mask
    assert [m is not None for m in mask] == [True, False, False]
    np.testing.assert_array_equal(mask[0], MASK)
    assert layers.LSTM(4).build(KEY, X).apply(X, mask=MASK).mask is None
    bidirectional = layers.Bidirectional(
        layers.GRU(4, return_sequences=True, return_state=True), None
    )
    mask = bidirectional.build(KEY, X).apply(X, mask=MASK).mask
    assert [m is not None for m in mask] == [True, True, False, False]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_initial_state_against_keras(kind):
    count = 2 if kind is layers.LSTM else 1
    states = [np.full((2, 4), 0.3 + i, "float32") for i in range(count)]
    layer = kind(4, return_sequences=True).build(KEY, X)
    theirs = getattr(keras.layers, kind.__name__)(4, return_sequences=True)
    with keras_rules():
        theirs.build(X.shape)
        theirs.set_weights(layer.get_weights())
        expected = np.asarray(theirs(X, initial_state=states, mask=MASK))
    actual = layer.apply(X, initial_state=states, mask=MASK).value
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    if count == 1:
        np.testing.assert_array_equal(
            layer.apply(X, initial_state=states[0], mask=MASK).value, actual
        )


@pytest.mark.exhaustive
def test_initial_state_as_tensors_makes_edges():
    x = fk.Input((None, 3), name="x")
    h, c = fk.Input((4,), name="h"), fk.Input((4,), name="c")
    y = layers.LSTM(4, name="lstm")(x, initial_state=[h, c])
    assert [t.name for t in y.node.inputs] == ["x", "h", "c"]
    model = fk.Model([x, h, c], y).build(KEY)
    a, b = np.ones((2, 4), "float32"), np.full((2, 4), 0.5, "float32")
    inner = model.layers["lstm"]
    expected = inner(X, initial_state=[a, b])
    np.testing.assert_array_equal(model([X, a, b]), expected)
    assert np.abs(expected - inner(X)).max() > 1e-3
    encoder = layers.LSTM(4, return_state=True)
    _, *states = encoder(x)
    assert layers.LSTM(4, return_sequences=True)(x, initial_state=states).shape == (None, None, 4)


@pytest.mark.exhaustive
def test_initial_state_of_arrays_beside_tensors():
    x, h = fk.Input((None, 3), batch_size=2), fk.Input((4,), batch_size=2)
    zeros = np.zeros((2, 4), "float32")
    model = fk.Model([x, h], layers.LSTM(4)(x, initial_state=[h, zeros])).build(KEY)
    assert model([X, zeros]).shape == (2, 4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("merge_mode", ["concat", "sum", None])
def test_bidirectional_state_and_initial_state_against_keras(merge_mode):
    states = [np.full((2, 4), 0.1 * i, "float32") for i in range(4)]
    inner = {"return_sequences": True, "return_state": True}
    layer = layers.Bidirectional(layers.LSTM(4, **inner), merge_mode=merge_mode).build(KEY, X)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(4, **inner), merge_mode=merge_mode)
    with keras_rules():
        theirs.build(X.shape)
        theirs.set_weights(layer.get_weights())
        expected = theirs(X, initial_state=states, mask=MASK)
    outputs = layer.apply(X, initial_state=states, mask=MASK).value
    assert len(outputs) == len(expected)
    for actual, expected_array in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(actual, np.asarray(expected_array), rtol=1e-5, atol=1e-6)


def test_bidirectional_stateful_weights_and_configuration():
    layer = layers.Bidirectional(layers.GRU(4, stateful=True), merge_mode="sum")
    assert (layer.stateful, layer.return_sequences, layer.return_state) == (True, False, False)
    assert layer.backward_layer.go_backwards
    assert layer.backward_layer.name == "backward_gru"
    built = layer.build(KEY, X)
    state = built.init_state(X)
    assert set(state) == {"forward_layer", "backward_layer"}
    out = built.apply(X, state=state)
    assert jax.tree.structure(out.updates) == jax.tree.structure(state)
    assert not any(v.any() for v in jax.tree.leaves(built.reset_state(out.updates)))
    values = [w + 1 for w in built.get_weights()]
    again = layers.Bidirectional(layers.GRU(4), weights=values).build(KEY, X)
    for actual, expected in zip(again.get_weights(), values, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.exhaustive
def test_activity_regularizer_against_keras():
    layer = layers.LSTM(4, activity_regularizer="l2", kernel_regularizer="l1").build(KEY, X)
    theirs = keras.layers.LSTM(4, activity_regularizer="l2", kernel_regularizer="l1")
    with keras_rules():
        theirs.build(X.shape)
        theirs.set_weights(layer.get_weights())
        theirs(X)
        expected = float(sum(theirs.losses))
    np.testing.assert_allclose(sum(layer.apply(X).losses), expected, rtol=1e-5)


def test_forget_bias():
    bias = layers.LSTM(2, bias_initializer=fk.initializers.Constant(3.0)).build(KEY, X).bias
    np.testing.assert_array_equal(bias, [3, 3, 1, 1, 3, 3, 3, 3])
    assert not layers.LSTM(2, unit_forget_bias=False).build(KEY, X).bias.any()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("return_sequences", [False, True])
@pytest.mark.parametrize("go_backwards", [False, True])
def test_custom_cell(return_sequences, go_backwards):
    options = {"return_sequences": return_sequences, "go_backwards": go_backwards}
    layer = layers.RNN(Leaky(2), return_state=True, **options).build(KEY, X)
    value, last = layer.apply(X, mask=MASK).value
    state, output, outputs = np.zeros((2, 2)), np.zeros((2, 2)), []
    for t in range(5, -1, -1) if go_backwards else range(6):
        keep = MASK[:, t, None]
        new = 0.5 * state + X[:, t].sum(-1, keepdims=True)
        output, state = np.where(keep, -new, output), np.where(keep, new, state)
        outputs.append(output)
    expected = np.stack(outputs, 1) if return_sequences else output
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, state, rtol=1e-4, atol=1e-5)
    again = layers.deserialize(
        layers.serialize(fk.engine.unbuilt(layer)), custom_objects={"Leaky": Leaky}
    )
    assert again == fk.engine.unbuilt(layer)


@pytest.mark.exhaustive
def test_stacked_cells_equal_stacked_layers():
    stack = layers.RNN([layers.LSTMCell(4), Leaky(2), layers.GRUCell(3)]).build(KEY, X)
    lstm, leaky, gru = (c.get_weights() for c in stack.cell.cells)
    y = layers.LSTM(4, return_sequences=True).build(KEY, X).set_weights(lstm)[0](X)
    y = layers.RNN(Leaky(2), return_sequences=True).build(KEY, y).set_weights(leaky)[0](y)
    expected = layers.GRU(3).build(KEY, y).set_weights(gru)[0](y)
    np.testing.assert_allclose(stack(X), expected, rtol=1e-5, atol=1e-6)
    assert stack.cell.state_size == [[4, 4], 2, 3]
    assert stack.cell.output_size == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [layers.LSTM, lambda u, **k: layers.RNN(layers.LSTMCell(u, **k))])
def test_dropout_is_drawn_once_per_sequence(make):
    ones = np.ones((4, 6, 8), "float32")
    layer = make(8, dropout=0.5).build(KEY, ones)
    value = layer.apply(ones, training=True, key=KEY).value
    np.testing.assert_array_equal(value, layer.apply(ones, training=True, key=KEY).value)
    assert np.abs(value - layer.apply(ones, training=True, key=jax.random.key(9)).value).max() > 0
    np.testing.assert_array_equal(layer.apply(ones, key=KEY).value, layer(ones))
    with pytest.raises(ValueError, match="key"):
        layer.apply(ones, training=True)


@pytest.mark.exhaustive
def test_dropout_masks_stay_the_same_along_time():
    # with a recurrent kernel of zeros and linear activations, all steps compute the same product
    layer = layers.SimpleRNN(
        8, activation=None, recurrent_initializer="zeros", dropout=0.5, return_sequences=True
    )
    ones = np.ones((4, 6, 8), "float32")
    y = layer.build(KEY, ones).apply(ones, training=True, key=KEY).value
    np.testing.assert_allclose(y, jnp.broadcast_to(y[:, :1], y.shape), rtol=1e-6)
    assert np.ptp(np.asarray(y[:, 0]), axis=0).max() > 0


def test_kept_inputs_are_scaled():
    options = {"kernel_initializer": "ones", "recurrent_initializer": "zeros", "dropout": 0.2}
    ones = np.ones((40, 1, 1), "float32")
    layer = layers.SimpleRNN(1, activation=None, **options).build(KEY, ones)
    assert set(np.unique(layer.apply(ones, training=True, key=KEY).value)) == {0.0, 1.25}


@pytest.mark.exhaustive
def test_training_without_dropout_needs_no_key():
    for layer in (
        layers.LSTM(4),
        layers.RNN(layers.GRUCell(4)),
        layers.Bidirectional(layers.GRU(4)),
    ):
        built = layer.build(KEY, X)
        np.testing.assert_array_equal(built.apply(X, training=True).value, built(X))


def test_time_distributed_carries_state_from_step_to_step():
    layer = layers.TimeDistributed(layers.BatchNormalization(momentum=0.5)).build(KEY, X)
    state = layer.init_state(X)
    out = layer.apply(X, state=state, training=True)
    mean = np.zeros(3)
    for t in range(6):
        mean = 0.5 * mean + 0.5 * X[:, t].mean(0)
    np.testing.assert_allclose(out.updates["layer"]["moving_mean"], mean, rtol=1e-4, atol=1e-5)
    assert layer.apply(X, state=state).updates == {}
    assert layer(X, state=state).shape == X.shape


@pytest.mark.exhaustive
def test_time_distributed_draws_for_each_step():
    ones = np.ones((2, 5, 64), "float32")
    layer = layers.TimeDistributed(layers.Dropout(0.5))
    y = layer.apply(ones, training=True, key=KEY).value
    assert all(bool((y[:, 0] != y[:, t]).any()) for t in range(1, 5))


def test_time_distributed_masks():
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 2)).astype("float32")
    mask = np.random.default_rng(2).random((2, 3, 4)) < 0.6
    inner = layers.LSTM(4)
    layer = layers.TimeDistributed(inner).build(KEY, x)
    out = layer.apply(x, mask=mask)
    for t in range(3):
        expected = layer.layer.apply(x[:, t], mask=mask[:, t]).value
        np.testing.assert_allclose(out.value[:, t], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out.mask, mask.any(-1))
    dense = layers.TimeDistributed(layers.Dense(2)).build(KEY, X).apply(X, mask=MASK)
    np.testing.assert_array_equal(dense.mask, MASK)


@pytest.mark.exhaustive
def test_unknown_time_axis_is_recorded():
    x = fk.Input((None, 3))
    y = layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)
    y = layers.TimeDistributed(layers.Dense(2))(y)
    assert y.shape == (None, None, 2)
    model = fk.Model(x, y).build(KEY)
    assert model(X).shape == (2, 6, 2)
    assert model(X[:, :4]).shape == (2, 4, 2)


@pytest.mark.exhaustive
def test_mixed_precision():
    layer = layers.RNN(
        layers.LSTMCell(4, dtype="mixed_bfloat16"), dtype="mixed_bfloat16", stateful=True
    )
    layer = layer.build(KEY, X)
    out = layer.apply(X, state=layer.init_state(X))
    assert out.value.dtype == jnp.bfloat16
    assert out.updates["state_0"].dtype == jnp.float32


def _raises(pattern, function, *args, **kwargs):
    with pytest.raises(ValueError, match=pattern):
        function(*args, **kwargs)


@pytest.mark.exhaustive
def test_errors_name_a_remedy():
    x = fk.Input((None, 3))
    lstm = layers.LSTM(4).build(KEY, X)
    four, three = np.zeros((2, 4), "float32"), np.zeros((2, 3), "float32")
    _raises(r"expected 2 states .*received 1", lstm.apply, X, initial_state=[four])
    _raises(r"initial_state\[1\] of shape \(2, 4\)", lstm.apply, X, initial_state=[four, three])
    _raises(r"2 samples, received 3 samples", lstm.apply, X[[0, 1, 1]], initial_state=[four, four])
    # constant states fix the number of samples
    assert layers.LSTM(4)(x, initial_state=[four, four]).shape == (2, 4)
    _raises(r"fk\.Input\(\.\.\., batch_size=n\)", layers.LSTM(4, stateful=True), x)
    stateful = layers.GRU(4, stateful=True).build(KEY, X)
    state = stateful.init_state(X)
    _raises(r"2 samples, received 3", stateful.apply, X[[0, 1, 1]], state=state)
    _raises(r"mask of shape \(b, t\)", lstm.apply, X, mask=np.ones((2, 6, 3), bool))
    _raises(r"expected a cell, received Dense", layers.RNN, layers.Dense(3))
    _raises(r"expected a list of cells", layers.StackedRNNCells, [])
    _raises(
        r"opposite directions", layers.Bidirectional, layers.GRU(4), backward_layer=layers.GRU(4)
    )
    _raises(r"merge_mode.*'concat'", layers.Bidirectional, layers.GRU(4), merge_mode="concta")
    _raises(r"expected a recurrent layer, received Dense", layers.Bidirectional, layers.Dense(3))
    backward = layers.GRU(4, go_backwards=True, return_sequences=True)
    _raises(
        r"the same return_sequences", layers.Bidirectional, layers.GRU(4), backward_layer=backward
    )
    bidirectional = layers.Bidirectional(layers.LSTM(4)).build(KEY, X)
    _raises(r"even number of states", bidirectional.apply, X, initial_state=[four, four, four])
    _raises(r"at least three axes", layers.TimeDistributed(layers.Dense(3)).build, KEY, (None, 3))
    _raises(r"LSTM: units: expected a positive integer", layers.LSTM, 0)
    _raises(r"from 0 to 1", layers.LSTM, 4, dropout=20)


def test_cells_that_break_the_protocol_are_rejected():
    class NoStates(fk.Layer):
        state_size = 3

        def call(self, x, states):
            return x

    class TooMany(fk.Layer):
        state_size = 3

        def call(self, x, states):
            return x, [x, x]

    _raises(r"return output, \[new_state\]", layers.RNN(NoStates()).build(KEY, X), X)
    _raises(r"expected 1 new states.*received 2", layers.RNN(TooMany()).build(KEY, X), X)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "LSTMCell", "GRUCell"])
def test_implementation_0_of_old_code_and_files_is_2(name):
    with keras_rules():
        config = keras.layers.serialize(getattr(keras.layers, name)(4, implementation=0))
    config["config"]["implementation"] = 0
    for layer in (getattr(layers, name)(4, implementation=0), layers.deserialize(config)):
        assert layer.implementation == 2
    with pytest.raises(ValueError, match="implementation"):
        getattr(layers, name)(4, implementation=3)
