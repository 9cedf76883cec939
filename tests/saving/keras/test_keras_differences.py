"""Behavior of Keras that is easy to miss, compared with Keras in calls and in files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(3, 4, 6)).astype("float32")
# the last step of the first row and the first step of the second row are masked
MASK = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 0, 0]], bool)


def as_float32(value):
    return np.asarray(value, "float32")


def round_trip(tmp_path, theirs, inputs, tolerance=1e-6):
    """Compares the outputs of a Keras model after both round trips; returns the opened model."""
    with keras_rules():
        theirs.save(tmp_path / "theirs.keras")
        # the outputs of Keras's reopened file: paths of layers differ from the first build
        expected = keras.models.load_model(tmp_path / "theirs.keras")(inputs)
    model, state = fk.load_model(tmp_path / "theirs.keras")
    value = model(inputs, state=state)
    assert str(value.dtype) == str(expected.dtype)
    np.testing.assert_allclose(as_float32(value), as_float32(expected), atol=tolerance)
    fk.save_model(tmp_path / "ours.keras", model, state)
    with keras_rules():
        again = keras.models.load_model(tmp_path / "ours.keras")(inputs)
    np.testing.assert_allclose(as_float32(again), as_float32(expected), atol=tolerance)
    assert fk.load_model(tmp_path / "ours.keras")[0] == model
    return model


RELU_OPTIONS = [
    {},
    {"negative_slope": 0.3},
    {"max_value": 6.0},
    {"max_value": 2.0},
    {"threshold": 1.0},
    {"threshold": -1.0, "max_value": 2.0},
    {"negative_slope": 0.3, "max_value": 6.0},
    {"negative_slope": 0.3, "max_value": 2.0},
    {"negative_slope": 0.3, "threshold": 1.0},
    {"negative_slope": 0.3, "threshold": -1.0, "max_value": 2.0},
]
POINTS = jnp.array([-6.0, -3.0, -2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 6.0, 7.0])
NAMES = [
    "celu elu exponential gelu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu linear",
    "log_sigmoid mish relu relu6 selu sigmoid silu soft_shrink softplus softsign",
    "sparse_plus sparse_sigmoid squareplus tanh tanh_shrink",
]
FUNCTIONS = [(name, {}) for line in NAMES for name in line.split()]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "options"), FUNCTIONS + [("relu", options) for options in RELU_OPTIONS[1:]]
)
def test_values_and_gradients_at_the_kinks_equal_those_of_keras(name, options):
    def at_points(function):
        return jax.value_and_grad(lambda x: (y := function(x, **options)).sum() + 0 * y[0])(POINTS)

    ours = getattr(fk.activations, name)
    value, slope = ours(POINTS, **options), at_points(ours)[1]
    with keras_rules():
        theirs = getattr(keras.activations, name)
        expected, expected_slope = theirs(POINTS, **options), at_points(theirs)[1]
    np.testing.assert_allclose(value, expected, atol=1e-6)
    np.testing.assert_allclose(slope, expected_slope, atol=1e-6)


@pytest.mark.exhaustive
def test_relu_layers_have_keras_slopes_at_0():
    point = jnp.zeros((1, 1))
    slope = jax.grad(lambda x: layers.ReLU(negative_slope=0.3)(x).sum())
    assert slope(point) == 1 == jax.grad(lambda x: layers.LeakyReLU(0.3)(x).sum())(point)
    assert jax.grad(lambda x: layers.ReLU()(x).sum())(point) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"go_backwards": True}, marks=pytest.mark.exhaustive),
        pytest.param({"unroll": True}, marks=pytest.mark.exhaustive),
    ],
)
def test_a_last_output_is_zero_where_the_last_step_is_masked(tmp_path, options):
    with keras_rules():
        x, steps = keras.Input((4, 6)), keras.Input((4,), dtype="bool")
        common = {"zero_output_for_mask": True, **options}
        outputs = [
            keras.layers.LSTM(2, **common)(x, mask=steps),
            keras.layers.GRU(2, **common)(x, mask=steps),
            keras.layers.RNN(keras.layers.SimpleRNNCell(2), **common)(x, mask=steps),
        ]
        theirs = keras.Model([x, steps], keras.ops.concatenate(outputs, axis=-1))
    model = round_trip(tmp_path, theirs, [X, MASK])
    zero = (as_float32(model([X, MASK])) == 0).all(axis=-1)
    masked = MASK[:, 0] if options.get("go_backwards") else MASK[:, -1]
    assert (zero == (~masked & (not options.get("unroll")))).all()


@pytest.mark.exhaustive
def test_without_steps_the_last_output_is_zero():
    layer = layers.LSTM(2, zero_output_for_mask=True).build(jax.random.key(0), (None, None, 3))
    out = layer(jnp.ones((2, 0, 3)), mask=jnp.ones((2, 0), bool))
    assert out.shape == (2, 2) and (out == 0).all()


@pytest.mark.exhaustive
def test_an_unrolled_loop_starts_from_an_output_of_zeros():
    ours = layers.GRU(2, unroll=True, return_sequences=True).build(jax.random.key(0), X.shape)
    first = jnp.ones((3, 2))
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(ours))
        theirs.build(X.shape)
        theirs.set_weights(ours.get_weights())
        expected = theirs(X, initial_state=[first], mask=jnp.asarray(MASK))
    outputs = ours(X, initial_state=[first], mask=jnp.asarray(MASK))
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert (outputs[1, 0] == 0).all()


STATEFUL = [
    (layers.LSTM(2, stateful=True), (3, 4, 6)),
    (layers.Bidirectional(layers.GRU(2, stateful=True)), (3, 4, 6)),
    (layers.RNN(layers.SimpleRNNCell(2), stateful=True), (3, 4, 6)),
    (layers.ConvLSTM1D(2, 2, stateful=True), (3, 4, 5, 2)),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("layer", "shape"), STATEFUL, ids=lambda v: type(v).__name__)
def test_weight_lists_leave_the_carry_out(layer, shape):
    layer = layer.build(jax.random.key(0), shape)
    state = jax.tree.map(lambda a: a + 7, layer.init_state(shape))
    with keras_rules():
        theirs = keras.layers.deserialize(layers.serialize(layer))
        theirs.build(shape)
        expected = [w.shape for w in theirs.get_weights()]
    values = layer.get_weights(state)
    assert [w.shape for w in values] == expected
    again, new_state = layer.set_weights([w + 1 for w in values], state)
    assert all(map(np.array_equal, again.get_weights(), [w + 1 for w in values]))
    assert jax.tree.all(jax.tree.map(lambda a: (a == 7).all(), new_state))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", [(4, None), (4, 6), (4,), 4])
@pytest.mark.parametrize("bias", [None, "c"])
def test_output_shapes_may_name_the_axes_of_an_ellipsis(tmp_path, sizes, bias):
    with keras_rules():
        x = keras.Input((4, 6))
        dense = keras.layers.EinsumDense("ab...,bc->ac...", sizes, bias_axes=bias)
        theirs = keras.Model(x, dense(x))
    round_trip(tmp_path, theirs, X)


@pytest.mark.parametrize("sizes", [(4, 5), (4, None, None), (4, 6, 6)])
def test_output_shapes_that_contradict_an_ellipsis_are_rejected(sizes):
    with pytest.raises(ValueError, match="output_shape"):
        layers.EinsumDense("ab...,bc->ac...", sizes)(fk.Input((4, 6)))


@pytest.mark.exhaustive
def test_optional_inputs_take_none(tmp_path):
    with keras_rules():
        x = keras.Input((4, 6), name="x")
        allowed = keras.Input((4, 4), dtype="bool", optional=True, name="allowed")
        y = keras.layers.MultiHeadAttention(2, 3)(x, x, attention_mask=allowed)
        inner = keras.Model([x, allowed], y)
        theirs = keras.Model([x, allowed], inner([x, allowed]))
    causal = np.broadcast_to(np.tril(np.ones((4, 4), bool)), (3, 4, 4))
    round_trip(tmp_path, theirs, [X, None])
    model = round_trip(tmp_path, theirs, [X, causal])
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    assert trainer.predict(run, [X, None]).shape == X.shape
    run, _ = trainer.fit(run, [X, None], X, epochs=1, verbose=0)
    assert trainer.evaluate(run, [X, None], X, verbose=0)["loss"] > 0
    with pytest.raises(fk.FKerasError, match=r"input 'x'.*received None.*optional=True"):
        model([None, causal])


def test_layers_that_need_an_optional_input_name_it():
    x, other = fk.Input((2,)), fk.Input((2,), optional=True)
    model = fk.Model([x, other], layers.Add()([x, other]))
    with pytest.raises(fk.FKerasError, match=r"'add'.*received None"):
        model([jnp.ones((1, 2)), None])
    assert model([jnp.ones((1, 2)), jnp.ones((1, 2))])[0, 0] == 2
    assert model != fk.Model([x, (new := fk.Input((2,)))], layers.Add()([x, new]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(6,), (4, 6), (1, 6), (4, 1), (1, 4, 6), (3, 1, 6)])
def test_softmax_aligns_a_mask_with_the_last_axes(shape):
    mask = DRAW.random(shape) > 0.4
    with keras_rules():
        expected = keras.layers.Softmax()(X, mask=mask)
    np.testing.assert_allclose(layers.Softmax()(X, mask=mask), expected, atol=1e-6)
    x = fk.Input(batch_shape=X.shape)
    model = fk.Model(x, layers.Softmax()(x, mask=mask))
    np.testing.assert_allclose(model(X), expected, atol=1e-6)


@pytest.mark.exhaustive
def test_softmax_passes_the_mask_on(tmp_path):
    with keras_rules():
        x, steps = keras.Input((6,)), keras.Input((6,), dtype="bool")
        weights = keras.layers.Softmax()(x, mask=steps)
        y = keras.layers.Reshape((6, 1))(weights)
        theirs = keras.Model([x, steps], keras.layers.LSTM(2)(y, mask=weights._keras_mask))
    keep = np.array([[1, 1, 0, 1, 0, 0]] * 3, bool)
    round_trip(tmp_path, theirs, [X[:, 0], keep])
    out = layers.Softmax().apply(X[:, 0], mask=keep)
    assert np.array_equal(out.mask, keep)
    assert layers.Softmax().apply(X, mask=np.ones((3, 1, 6), bool)).mask is None
    with pytest.raises(ValueError, match=r"expected a mask.*\(5,\)"):
        layers.Softmax()(X, mask=np.ones(5, bool))


def _map(policies, default="float32"):
    policy_map = {path: keras.DTypePolicy(name) for path, name in policies.items()}
    return keras.dtype_policies.DTypePolicyMap(default_policy=default, policy_map=policy_map)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("make", "policies", "expected"),
    [
        (lambda p: keras.layers.Dense(2, name="d", dtype=p), {"d": "mixed_bfloat16"}, "Dense"),
        (lambda p: keras.layers.Dense(2, name="d", dtype=p), {"e": "mixed_bfloat16"}, "Dense"),
        (lambda p: keras.layers.Dense(2, name="d", dtype=p), {"d.*": "mixed_bfloat16"}, "Dense"),
        (lambda p: keras.layers.LSTM(2, name="l", dtype=p), {"l": "mixed_bfloat16"}, "RNN"),
        (
            lambda p: keras.layers.LSTM(2, name="l", dtype=p),
            {"l/lstm_cell": "mixed_bfloat16"},
            "RNN",
        ),
        (lambda p: keras.layers.LSTM(2, name="l", dtype=p), {"l.*": "mixed_bfloat16"}, "LSTM"),
        (
            lambda p: keras.layers.Bidirectional(keras.layers.LSTM(2, dtype=p, name="l")),
            {"forward_l.*": "mixed_bfloat16"},
            "Bidirectional",
        ),
        (
            lambda p: keras.Sequential([keras.layers.Dense(2, name="d", dtype=p)], name="inner"),
            {"d": "mixed_bfloat16"},
            "Sequential",
        ),
    ],
)
def test_maps_of_dtype_policies(tmp_path, make, policies, expected):
    with keras_rules():
        x = keras.Input(X.shape[1:])
        layer = make(_map(policies))
        theirs = keras.Model(x, layer(x))
    model = round_trip(tmp_path, theirs, X, 1e-5)
    assert type(model.layers[layer.name]).__name__ == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("policies", [{"a/query": "mixed_bfloat16"}, {"a": "mixed_bfloat16"}])
def test_maps_of_dtype_policies_reach_the_projections_of_attention(tmp_path, policies):
    with keras_rules():
        x = keras.Input(X.shape[1:])
        attention = keras.layers.MultiHeadAttention(2, 3, name="a", dtype=_map(policies))
        theirs = keras.Model(x, attention(x, x))
    model = round_trip(tmp_path, theirs, X, 1e-5)
    dtypes = {n: getattr(model.layers["a"], n).dtype.name for n in ("query_dense", "key_dense")}
    query = policies.get("a/query", "float32")
    assert dtypes == {"query_dense": query, "key_dense": "float32"}


def test_invalid_maps_of_dtype_policies_are_rejected():
    def config(policies):
        policy = {"class_name": "DTypePolicyMap", "config": {"policy_map": policies}}
        return {"class_name": "Dense", "module": "keras.layers", "config": {
            "units": 2, "name": "a" * 40, "dtype": policy}}  # fmt: skip

    with pytest.raises(ValueError, match="policy_map.*backtrack"):
        layers.deserialize(config({"(a+)+b": "float32"}))
    with pytest.raises(ValueError, match="one pattern in 'policy_map'"):
        layers.deserialize(config({"a+": "float32", "a.*": "bfloat16"}))
    with pytest.raises(ValueError, match="'policy_map' as a dictionary"):
        layers.deserialize(config([]))
    with pytest.raises(ValueError, match="projection_dtypes.*query_dense"):
        layers.MultiHeadAttention(2, 3, projection_dtypes={"query": "bfloat16"})


@pytest.mark.exhaustive
def test_a_shared_layer_adds_its_activity_loss_in_every_call(tmp_path):
    x = np.ones((4, 3), "float32")
    with keras_rules():
        symbol = keras.Input((3,))
        shared = keras.layers.ActivityRegularization(l2=1.0)
        total = keras.layers.Add()([shared(symbol), shared(keras.layers.Rescaling(2.0)(symbol))])
        theirs = keras.Model(symbol, total)
        theirs.compile("sgd", "mse")
        theirs.save(tmp_path / "m.keras")
        theirs(x)
        expected_loss = sum(map(float, theirs.losses))
        # training on JAX calls the layers without the model's own call, and the second call of the
        # layer clears the loss of the first
        assert float(theirs.train_on_batch(x, 3 * x)) == pytest.approx(12.0)
    trainer, run = fk.load_training(tmp_path / "m.keras")
    assert expected_loss == pytest.approx(15.0)
    assert float(trainer.evaluate(run, x, 3 * x, verbose=0)["loss"]) == pytest.approx(expected_loss)
