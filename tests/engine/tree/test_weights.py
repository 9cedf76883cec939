"""Weights of layers: paths, child layers, replacement, counts."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers
from tests.support.engine_layers import Affine

KEY = jax.random.key(9)
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


class Parent(fk.Layer):
    """A layer with children in a field, a list and a dictionary."""

    kid: fk.Layer | None = fk.option(default=None)
    rows: tuple = fk.option(default=())
    named: dict = fk.option(default=fk.engine.FrozenDict())

    def build(self, key, x):
        return self.replace(
            kid=self.kid.build(fk.engine.subkey(key, "kid"), x),
            rows=[r.build(fk.engine.subkey(key, i), x) for i, r in enumerate(self.rows)],
            named={n: v.build(fk.engine.subkey(key, n), x) for n, v in self.named.items()},
        )

    def forward(self, context, x):
        y = context.child("kid").run(self.kid, x).value
        for i, row in enumerate(self.rows):
            y = y + context.child(f"rows/{i}").run(row, x).value
        for name, layer in self.named.items():
            y = y + context.child(f"named/{name}").run(layer, x).value
        return fk.Output(y)


def paths(tree):
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in flat]


def test_paths_of_weights():
    x = fk.Input((4,))
    composite = Parent(Affine(3), name="comp")
    model = fk.Model(x, layers.Dense(2, name="d")(composite(x))).build(KEY)
    golden = ["comp/kid/kernel", "comp/kid/bias", "d/kernel", "d/bias"]
    assert paths(model) == golden
    assert paths(model.layers["comp"]) == ["kid/kernel", "kid/bias"]
    outer = fk.Sequential([fk.Input((4,)), model, layers.Dense(1)], name="outer").build(KEY)
    assert paths(outer)[:2] == ["functional/comp/kid/kernel", "functional/comp/kid/bias"]


def test_child_layers_in_lists_and_dictionaries(capsys):
    parent = Parent(Affine(3), [Affine(3), Affine(3)], {"left": Affine(3)}).build(KEY, (None, 4))
    assert paths(parent) == [
        f"{child}/{name}"
        for child in ("kid", "rows/0", "rows/1", "named/left")
        for name in ("kernel", "bias")
    ]
    assert len({id(w) for w in jax.tree.leaves(parent)}) == 8
    expected = sum(
        X @ np.asarray(child.kernel) for child in (parent.kid, *parent.rows, parent.named["left"])
    )
    np.testing.assert_allclose(parent(X), expected, rtol=1e-5, atol=1e-5)
    assert capsys.readouterr().out == ""


def test_set_weights_returns_a_new_layer():
    layer = layers.Dense(2, name="d").build(KEY, (None, 3))
    weights = layer.get_weights()
    new, state = layer.set_weights([np.ones((3, 2)), np.zeros(2)])
    assert state == {}
    np.testing.assert_array_equal(new.kernel, np.ones((3, 2)))
    chex.assert_trees_all_equal(layer.get_weights(), weights)
    with pytest.raises(
        ValueError,
        match=r"'d' \(Dense\): set_weights expected 2 arrays \(kernel, bias\), received 1",
    ):
        layer.set_weights(weights[:1])
    with pytest.raises(ValueError, match=r"'kernel' of shape \(3, 2\), received shape \(2, 2\)"):
        layer.set_weights([np.ones((2, 2)), np.zeros(2)])
    with pytest.raises(ValueError, match="set_weights needs a built layer"):
        layers.Dense(2).set_weights(weights)
    model = fk.Sequential([fk.Input((3,)), layer, layers.Dense(1)]).build(KEY)
    with pytest.raises(ValueError, match="expected 4 arrays .*, received 2"):
        model.set_weights(weights)


SIZES = st.integers(1, 5)
NAMES = st.sampled_from([None, "a", "layer_1"])
CONFIGURED = st.one_of(
    st.builds(
        layers.Dense,
        SIZES,
        st.sampled_from([None, "relu", "softmax"]),
        use_bias=st.booleans(),
        kernel_initializer=st.sampled_from(["zeros", "he_normal", fk.initializers.Constant(0.5)]),
        kernel_regularizer=st.sampled_from([None, "l2", fk.regularizers.L1(0.25)]),
        kernel_constraint=st.sampled_from([None, "non_neg"]),
        trainable=st.booleans(),
        name=NAMES,
    ),
    st.builds(
        layers.LSTM,
        SIZES,
        return_sequences=st.booleans(),
        stateful=st.booleans(),
        recurrent_dropout=st.sampled_from([0.0, 0.5]),
        dtype=st.sampled_from(["float32", "mixed_bfloat16"]),
    ),
    st.builds(layers.Dropout, st.floats(0, 0.99), name=NAMES),
    st.builds(
        layers.Conv2D,
        SIZES,
        st.tuples(SIZES, SIZES),
        padding=st.sampled_from(["same", "valid"]),
        dilation_rate=SIZES,
    ),
    st.builds(layers.BatchNormalization, momentum=st.floats(0, 1), scale=st.booleans()),
    st.builds(layers.RNN, st.builds(layers.GRUCell, SIZES)),
)


@given(CONFIGURED)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_config_restores_an_equal_layer(layer):
    restored = type(layer).from_config(layer.get_config())
    assert restored == layer
    assert hash(restored) == hash(layer)
    assert restored.get_config() == layer.get_config()
    assert layers.deserialize(layers.serialize(layer)) == layer


def test_count_params_needs_no_arrays():
    assert layers.LSTM(32).build(KEY, (None, 28, 25)).count_params() == 7424
    x = fk.Input((9,))
    shared = layers.Dense(4)
    model = fk.Model(x, [shared(x), shared(x * 2)])
    assert model.build(KEY).count_params() == 40
    shapes = jax.eval_shape(lambda k: layers.LSTM(32).build(k, (None, 28, 25)), KEY)
    assert shapes.count_params() == 7424, "without one number in memory"
    with pytest.raises(
        ValueError, match=r"'ub' \(Dense\): has no weights to count.*layer\.build\("
    ):
        layers.Dense(2, name="ub").count_params()


class Three(fk.Layer):
    """Weights a and c, of which a is penalized, and state b."""

    a_regularizer: fk.regularizers.L1 | None = fk.option(default=fk.regularizers.L1(1.0))
    a: jax.Array | None = fk.weight(initializer=fk.initializers.Ones())
    c: jax.Array | None = fk.weight(initializer=fk.initializers.Zeros())

    def build(self, key, x):
        return self.with_weights(key, a=(3,), c=(2, 2))

    def init_state(self, x):
        return {"b": jnp.zeros(3)}

    def forward(self, context, x):
        return fk.Output(x, updates={"b": context.state["b"] + 1} if context.training else {})


def test_declared_weights_and_state_of_a_layer():
    layer = Three(name="w").build(KEY, (None, 4))
    state = layer.init_state((None, 4))
    assert paths(layer) == ["a", "c"]
    assert list(state) == ["b"]
    assert sum(w.size for w in layer.get_weights(state)) == 10
    assert layer.count_params() == 7
    (loss,) = layer.apply(X, state=state).losses
    assert float(loss) == 3.0
    with pytest.raises(ValueError, match=r"the undeclared weight 'd' \(declared: a, c\)"):
        layer.with_weights(KEY, d=(3,))
