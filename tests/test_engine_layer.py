"""Engine cases 1 to 28: what a layer is, its attributes and construction."""

import dataclasses
import json
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
X = np.ones((2, 3), "float32")


def two_calls():
    a, b = fk.Input((3,), name="a"), fk.Input((3,), name="b")
    shared = layers.Dense(2, name="shared")
    return fk.Model([a, b], [shared(a), shared(b)])


def test_row_001_a_model_is_a_layer():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(x))
    assert isinstance(model, fk.Layer)
    assert isinstance(fk.Sequential(), fk.Layer)
    built = model.build(KEY)
    assert built.replace(name="other").name == "other"
    assert built.unbuilt() == model
    assert len(built.get_weights()) == 2
    assert fk.Model.from_config(json.loads(built.to_json())) == model
    outer = fk.Sequential([fk.Input((3,)), built])
    np.testing.assert_array_equal(outer(X), built(X))


def test_row_002_ops_and_lift_take_symbols_and_arrays():
    x = fk.Input((3,))
    for op in (fk.ops.tanh, fk.ops.lift(jnp.tanh)):
        y = op(x)
        assert y.node.inputs == (x,)
        model = fk.Model(x, y)
        assert len(model.graph.calls) == 2
        np.testing.assert_allclose(model(X), jnp.tanh(X), rtol=1e-6)
        np.testing.assert_array_equal(op(X), jnp.tanh(X))


def test_row_003_initializers_are_pure():
    for name in ("glorot_uniform", "he_normal", "orthogonal", "random_normal"):
        init = fk.initializers.get(name)
        one, two = init(KEY, (64, 64)), init(KEY, (64, 64))
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, init(jax.random.key(1), (64, 64)))
    drawn = np.asarray(fk.initializers.get("glorot_uniform")(KEY, (300, 300)))
    assert drawn.std() == pytest.approx(np.sqrt(2 / 600), rel=0.01)
    assert abs(drawn).max() <= np.sqrt(6 / 600)


def test_row_004_options_are_not_passed_to_layers_that_do_not_ask():
    class Plain(fk.Layer):
        def call(self, x, **options):
            assert not options
            return x

    np.testing.assert_array_equal(Plain()(X), X)


def test_row_005_nothing_is_tracked():
    class Fails(fk.Layer):
        def __post_init__(self):
            super().__post_init__()
            raise RuntimeError("in the constructor")

    with pytest.raises(RuntimeError):
        Fails()
    cell = layers.LSTMCell(4)
    rnn = layers.RNN(cell).build(KEY, (None, 5, 3))
    assert len(jax.tree.leaves(rnn)) == 3
    assert len(set(map(id, jax.tree.leaves(rnn)))) == 3


def test_row_006_input_and_output_of_a_layer():
    x = fk.Input((3,), name="x")
    one = fk.Model(x, layers.Dense(2, name="d")(x)).graph
    assert one.layer("d").input.coord == ("x", 0, 0)
    assert one.layer("d").output.shape == (None, 2)
    with pytest.raises(fk.FKerasError, match=r"called 2 times.*get_input_at"):
        _ = two_calls().graph.layer("shared").input
    with pytest.raises(ValueError, match=r"no layer 'zz'.*Existing layers are"):
        one.layer("zz")


def test_row_007_masks_of_a_layer():
    with pytest.raises(fk.FKerasError, match="called 2 times"):
        _ = two_calls().graph.layer("shared").output_mask
    ids = fk.Input((4,), dtype="int32")
    model = fk.Model(ids, layers.Embedding(5, 2, mask_zero=True, name="e")(ids))
    assert model.graph.layer("e").output_mask.shape == (None, 4)
    assert model.graph.layer("e").input_mask is None


def test_row_008_shapes_of_a_shared_layer_agree_or_not():
    assert two_calls().graph.layer("shared").input_shape == (None, 3)
    a, b = fk.Input((4, 3)), fk.Input((3,))
    shared = layers.Dense(2, name="shared")
    graph = fk.Model([a, b], [shared(a), shared(b)]).graph
    with pytest.raises(fk.FKerasError, match=r"different input shapes.*get_input_shape_at"):
        _ = graph.layer("shared").input_shape
    assert graph.layer("shared").get_output_shape_at(0) == (None, 4, 2)


def test_row_009_index_of_a_call():
    view = two_calls().graph.layer("shared")
    with pytest.raises(fk.FKerasError, match=r"call 2, but the layer has 2 calls"):
        view.get_output_at(2)
    with pytest.raises(fk.FKerasError, match="call -1"):
        view.get_output_at(-1)


def test_row_010_two_streams_through_one_lstm():
    a, b = fk.Input((28, 25), name="a"), fk.Input((28, 25), name="b")
    lstm = layers.LSTM(32, name="lstm")
    first, second = lstm(a), lstm(b)
    model = fk.Model([a, b], layers.Concatenate()([first, second]))
    view = model.graph.layer("lstm")
    assert view.get_output_at(0).coord == ("lstm", 0, 0)
    assert view.get_output_at(1).coord == ("lstm", 1, 0)
    assert view.get_input_at(0).coord == ("a", 0, 0)
    assert view.get_input_at(1).coord == ("b", 0, 0)
    assert view.get_input_shape_at(1) == (None, 28, 25)
    assert view.get_output_shape_at(0) == (None, 32)
    assert view.get_input_mask_at(0) is None
    assert view.get_output_mask_at(1) is None


def test_row_011_input_spec_is_refined_by_build():
    layer = layers.Dense(2)
    assert layer.input_spec == fk.InputSpec(min_ndim=2)
    assert layer.build(KEY, (None, 5)).input_spec == fk.InputSpec(min_ndim=2, axes={-1: 5})


def test_row_012_input_spec_is_a_value():
    one, two = fk.InputSpec(min_ndim=2, axes={-1: 4}), fk.InputSpec(min_ndim=2, axes={-1: 4})
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == "InputSpec(min_ndim=2, axes={-1: 4})"
    assert fk.InputSpec(shape=(None, 3)).ndim == 2
    with pytest.raises(ValueError, match="axis 2"):
        fk.InputSpec(ndim=2, axes={2: 3})


def test_row_013_names():
    assert layers.Dense(2, name="d").name == "d"
    assert layers.Dense(2).name is None
    for bad in ("a/b", "", 3):
        with pytest.raises(ValueError, match="name"):
            layers.Dense(2, name=bad)


def test_row_014_the_carry_of_a_stateful_layer_is_state():
    layer = layers.SimpleRNN(2, stateful=True).build(KEY, (2, 4, 3))
    state = layer.init_state((2, 4, 3))
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    first = layer.apply(x, state=state)
    second = layer.apply(x, state=state | first.updates)
    plain = layers.SimpleRNN(2).build(KEY, (2, 8, 3)).set_weights(layer.get_weights())[0]
    np.testing.assert_allclose(second.value, plain(np.concatenate([x, x], 1)), rtol=1e-5)
    assert not np.allclose(first.value, second.value)


def test_row_015_a_mask_that_cannot_be_taken_is_an_error():
    class Plain(fk.Layer):
        def call(self, x):
            return x

    with pytest.raises(fk.FKerasError, match=r"Plain: received a mask"):
        Plain().apply(np.ones((1, 2, 3), "float32"), mask=np.ones((1, 2), bool))


def test_row_016_trainable_is_static_and_frozen_leaves_get_no_gradient():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2, name="b")(layers.Dense(3, name="a")(x))).build(KEY)
    trained, frozen = fk.partition(fk.freeze(model, "a"))
    assert len(jax.tree.leaves(trained)) == len(jax.tree.leaves(frozen)) == 2
    grads = jax.grad(lambda t: fk.combine(t, frozen)(X).sum())(trained)
    assert len(jax.tree.leaves(grads)) == 2
    assert fk.unfreeze(fk.freeze(model, "a")) == model


def test_row_017_training_matters_downstream_of_what_depends_on_it():
    x = fk.Input((8,))
    dropped = fk.Model(x, layers.Dense(2)(layers.Dropout(0.5)(x))).build(KEY)
    pinned = fk.Model(x, layers.Dropout(0.5)(x, training=True))
    ones = np.ones((1, 8), "float32")
    one = dropped.apply(ones, training=True, key=jax.random.key(1)).value
    two = dropped.apply(ones, training=True, key=jax.random.key(2)).value
    assert not np.array_equal(one, two)
    assert (np.asarray(pinned.apply(ones, key=KEY).value) == 0).any()


def test_row_018_order_of_weight_lists():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(layers.BatchNormalization()(x))).build(KEY)
    shapes = [w.shape for w in model.get_weights(model.init_state())]
    assert shapes == [(3,)] * 4 + [(3, 2), (2,)]
    assert [w.shape for w in model.get_weights()] == [(3,), (3,), (3, 2), (2,)]


@pytest.mark.parametrize(
    ("policy", "weights", "values"),
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("float16", "float16", "float16"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("mixed_float16", "float32", "float16"),
    ],
)
def test_row_019_dtype_policies(policy, weights, values):
    layer = layers.Dense(2, dtype=policy).build(KEY, (None, 3))
    assert layer.kernel.dtype == weights
    assert layer(X).dtype == values
    with pytest.raises(ValueError, match="mixed_bfloat16"):
        layers.Dense(2, dtype="mixed_bfloat")


def test_row_020_calls_leave_a_layer_as_it_is():
    layer = layers.Dense(2)
    before, attributes = hash(layer), len(vars(layer))
    x = fk.Input((3,))
    for _ in range(1000):
        layer(x)
    assert hash(layer) == before
    assert len(vars(layer)) <= attributes + 2  # what it remembers of itself: leaves and skeleton


def test_row_021_unknown_arguments():
    with pytest.raises(TypeError, match=r"no argument 'activatoin'.*Did you mean 'activation'"):
        layers.Dense(2, activatoin="relu")


def test_row_022_automatic_names():
    class MyHTTPLayer2D(fk.Layer):
        def call(self, x):
            return x

    class _Priv(fk.Layer):
        def call(self, x):
            return x

    def model():
        x = fk.Input((3,))
        h = layers.Dense(3)(layers.Dense(3)(x))
        return fk.Model(x, _Priv()(MyHTTPLayer2D()(h)))

    names = model().graph.layers
    assert names == ("input_layer", "dense", "dense_1", "my_http_layer2d", "__priv")
    assert model().graph.layers == names
    x = fk.Input((3,))
    taken = fk.Model(x, layers.Dense(3)(layers.Dense(3, name="dense")(x)))
    assert taken.graph.layers == ("input_layer", "dense", "dense_1")


def test_row_023_fixed_batch_size():
    assert fk.Input((3,), batch_size=5).shape == (5, 3)
    assert fk.Input(batch_shape=(5, 3)).shape == (5, 3)


def test_row_024_input_is_its_own_node():
    x = fk.Input((3,), name="x")
    assert x.shape == (None, 3)
    assert x.node.inputs == ()
    for call in (
        lambda: fk.Input(),
        lambda: fk.Input((3,), batch_shape=(None, 3)),
        lambda: fk.Input(3),
        lambda: fk.Input((-3,)),
    ):
        with pytest.raises(ValueError, match="Input: "):
            call()
    assert fk.Input((None, 4), dtype="int32").dtype == "int32"
    assert fk.Input(("time", 4)).spec.dims == ("b", "time", 4)


def test_row_025_first_values_of_weights():
    layer = layers.Dense(2).build(KEY, (None, 3))
    value = np.full((3, 2), 2.0, "float32")
    assert float(layer.replace(kernel=jnp.asarray(value)).kernel.sum()) == 12.0
    with pytest.raises(ValueError, match=r"'kernel' of shape \(3, 2\), received shape \(9, 9\)"):
        layer.set_weights([np.ones((9, 9)), np.ones(2)])


def test_row_026_building_twice_gives_two_layers():
    layer = layers.Dense(2)
    assert not layer.built
    narrow, wide = layer.build(KEY, (None, 3)), layer.build(KEY, (None, 7))
    assert (narrow.kernel.shape, wide.kernel.shape) == ((3, 2), (7, 2))
    assert narrow.built
    assert not layer.built


def test_row_027_a_call_returns_a_new_tensor():
    layer = layers.Dense(2)
    twin = layers.Dense(2)
    y = layer(fk.Input((3,)))
    assert y.shape == (None, 2)
    assert layer == twin


def test_row_028_arrays_need_a_built_layer():
    with pytest.raises(fk.FKerasError, match=r"has no weights yet.*layer\.build"):
        layers.Dense(2)(X)
    with pytest.raises(TypeError, match="expected arrays"):
        layers.Flatten()([[1.0, 2.0]])
    with pytest.raises(TypeError, match="expected numbers"):
        layers.Flatten()(np.array([["a"]]))


def test_habits_of_keras_are_answered():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(x))
    for name, answer in (
        ("compile", "Trainer"),
        ("fit", r"trainer\.fit"),
        ("weights", r"jax\.tree\.leaves"),
        ("trainable_variables", "partition"),
        ("add_loss", r"fk\.Output"),
        ("save", "save_model"),
    ):
        with pytest.raises(AttributeError, match=answer):
            getattr(model, name)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"fk\.freeze"):
        model.trainable = False
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"replace\(units"):
        layers.Dense(2).units = 3
    for function in (jnp.sin, jnp.mean, lambda t: jnp.dot(t, X)):
        with pytest.raises(fk.SymbolicValueError, match=r"fk\.ops"):
            function(x)


def test_threads_share_nothing():
    found = []

    def work():
        x = fk.Input((3,))
        found.append(fk.Model(x, layers.Dense(2)(layers.Dense(3)(x))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(model == found[0] for model in found)


def test_equality_survives_pickle_in_another_process(tmp_path):
    import pickle

    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(x)).build(KEY)
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    code = (
        "import pickle, jax, fkeras as fk; from fkeras import layers;"
        f"m = pickle.load(open({str(path)!r}, 'rb')); x = fk.Input((3,));"
        "n = fk.Model(x, layers.Dense(2)(x)).build(jax.random.key(0));"
        "assert m == n and hash(m) == hash(n); print('equal')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr
