"""Weights of subclassed Keras models, loaded into `fk.Model` with the same fields and back."""

import typing

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
KEY = jax.random.key(1)


def _dense(module):
    """Layers of equal sizes, so that a wrong order changes values but no shapes."""
    return [module.layers.Dense(6, activation=name) for name in ("tanh", "sigmoid", "relu", "elu")]


class KerasBlock(keras.layers.Layer):
    def __init__(self, rate=0.1, name=None):
        super().__init__(name=name)
        self.norm = keras.layers.LayerNormalization()
        self.ahead, self.outwards, self.middle, _ = _dense(keras)
        self.drop = keras.layers.Dropout(rate)

    def call(self, x):
        return x + self.drop(self.outwards(self.middle(self.ahead(self.norm(x)))))


class KerasInner(keras.Model):
    def __init__(self):
        super().__init__()
        self.zero, self.one, self.block, _ = [*_dense(keras)[:2], KerasBlock(), None]

    def call(self, x):
        return self.one(self.block(self.zero(x)))


class KerasFlat(keras.Model):
    """Attributes before and after "layers" in the alphabet, and an attribute that is visited last."""

    def __init__(self):
        super().__init__()
        self.stem, self.body, self.out, self._hidden = _dense(keras)

    def call(self, x):
        return self._hidden(self.out(self.body(self.stem(x))))


class KerasLists(keras.Model):
    def __init__(self):
        super().__init__()
        self.stack = [KerasBlock(), *_dense(keras)]
        self.blocks = [KerasBlock(), KerasBlock()]
        self.pairs = {"b": keras.layers.Dense(6), "a": keras.layers.Dense(6)}
        self.deep = [[keras.layers.Dense(6)], [keras.layers.Dense(6)]]

    def call(self, x):
        for layer in (*self.stack, *self.blocks, self.pairs["a"], self.pairs["b"]):
            x = layer(x)
        return self.deep[1][0](self.deep[0][0](x))


class KerasShared(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second, _, _ = _dense(keras)
        self.again = [self.second, self.first]

    def call(self, x):
        for layer in (self.first, self.second, self.first, *self.again):
            x = layer(x)
        return x


class KerasMixed(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.Sequential([keras.layers.Dense(6), keras.layers.BatchNormalization()])
        self.tail = keras.Sequential([keras.layers.Dense(6), keras.layers.BatchNormalization()])
        self.mixed = keras.layers.MultiHeadAttention(2, 3)
        self.rnn = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))
        self.inner = KerasInner()
        self.within = KerasInner()

    def call(self, x):
        x = self.tail(self.head(x))
        return self.within(self.inner(self.rnn(self.mixed(x, x))))


class Block(fk.Model):
    norm: fk.Layer
    ahead: fk.Layer
    outwards: fk.Layer
    middle: fk.Layer
    drop: fk.Layer

    def call(self, x):
        return x + self.drop(self.outwards(self.middle(self.ahead(self.norm(x)))))


class Inner(fk.Model):
    zero: fk.Layer
    one: fk.Layer
    block: fk.Layer

    def call(self, x):
        return self.one(self.block(self.zero(x)))


class Flat(fk.Model):
    stem: fk.Layer
    body: fk.Layer
    out: fk.Layer
    _hidden: fk.Layer

    call = KerasFlat.call


class Lists(fk.Model):
    stack: tuple
    blocks: tuple
    pairs: typing.Any
    deep: tuple

    call = KerasLists.call


class Shared(fk.Model):
    first: fk.Layer
    second: fk.Layer
    again: tuple

    call = KerasShared.call


class Mixed(fk.Model):
    head: fk.Layer
    tail: fk.Layer
    mixed: fk.Layer
    rnn: fk.Layer
    inner: fk.Layer
    within: fk.Layer

    call = KerasMixed.call


def _block():
    return Block(layers.LayerNormalization(), *_dense(fk)[:3], layers.Dropout(0.1))


def _inner():
    return Inner(*_dense(fk)[:2], _block())


def _shared():
    first, second, _, _ = _dense(fk)
    return Shared(first, second, [second, first])


def _tail():
    return fk.Sequential([layers.Dense(6), layers.BatchNormalization()])


def _mixed():
    rnn = layers.Bidirectional(layers.LSTM(3, return_sequences=True))
    return Mixed(_tail(), _tail(), layers.MultiHeadAttention(2, 3), rnn, _inner(), _inner())


def _lists():
    pairs = {"b": layers.Dense(6), "a": layers.Dense(6)}
    deep = [[layers.Dense(6)], [layers.Dense(6)]]
    return Lists([_block(), *_dense(fk)], [_block(), _block()], pairs, deep)


PAIRS = {
    "flat": (KerasFlat, lambda: Flat(*_dense(fk))),
    "inner": (KerasInner, _inner),
    "lists": (KerasLists, _lists),
    "shared": (KerasShared, _shared),
    "mixed": (KerasMixed, _mixed),
}


# Keras stores layers in lists under their class names
for _theirs, _ours in ((KerasBlock, "Block"), (KerasInner, "Inner")):
    _theirs.__name__ = _ours


def _drawn(theirs):
    """A model of Keras with random weights."""
    draw = np.random.default_rng(3)
    with keras_rules():
        model = theirs()
        model(X)
        model.set_weights([draw.uniform(0.5, 1.5, w.shape) for w in model.get_weights()])
    return model


# the model of all layer types compiles as long as all other models together
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.exhaustive if n == "mixed" else ()) for n in PAIRS],
)
def test_weights_round_trip(tmp_path, name):
    theirs, ours = PAIRS[name]
    source = _drawn(theirs)
    with keras_rules():
        source.compile("sgd", "mse")
        expected = source(X)
        source.save_weights(tmp_path / "theirs.weights.h5")
    model, state = fk.load_weights(tmp_path / "theirs.weights.h5", _resolved(ours()))
    np.testing.assert_allclose(model(X, state=state), expected, rtol=2e-5, atol=1e-5)
    fk.save_weights(tmp_path / "ours.weights.h5", model, state)
    with keras_rules():
        fresh = theirs()
        fresh(X)
        fresh.load_weights(tmp_path / "ours.weights.h5")
        values = fresh(X)
    np.testing.assert_allclose(values, expected, rtol=2e-5, atol=1e-5)
    restored, state = fk.load_weights(tmp_path / "ours.weights.h5", fk.engine.unbuilt(model), state)
    assert restored == model


def _resolved(model):
    return model.build(KEY, (None, *X.shape[1:]))


def test_fields_in_another_order_match_by_layer_names(tmp_path):
    class Named(keras.Model):
        def __init__(self):
            super().__init__()
            self.two = keras.layers.Dense(6, name="two")
            self.one = keras.layers.Dense(6, name="one")

        def call(self, x):
            return self.two(self.one(x))

    class Ours(fk.Model):
        one: fk.Layer
        two: fk.Layer

        def call(self, x):
            return self.two(self.one(x))

    source = _drawn(Named)
    with keras_rules():
        source.save_weights(tmp_path / "w.weights.h5")
        expected = source(X)
    model = _resolved(Ours(layers.Dense(6), layers.Dense(6)))
    model, _ = fk.load_weights(tmp_path / "w.weights.h5", model)
    np.testing.assert_allclose(model(X), expected, rtol=2e-5)


@pytest.mark.exhaustive
def test_custom_layers_inside_a_functional_model(tmp_path):
    with keras_rules():
        x = keras.Input(X.shape[1:])
        keras_model = keras.Model(x, KerasBlock(name="b")(KerasInner()(x)))
        draw = np.random.default_rng(3)
        keras_model.set_weights(
            [draw.uniform(0.5, 1.5, w.shape) for w in keras_model.get_weights()]
        )
        expected = keras_model(X)
        keras_model.save_weights(tmp_path / "w.weights.h5")
    x = fk.Input(X.shape[1:])
    model = fk.Model(x, _block().replace(name="b")(_inner()(x))).build(KEY)
    model, _ = fk.load_weights(tmp_path / "w.weights.h5", model)
    np.testing.assert_allclose(model(X), expected, rtol=2e-5)
    fk.save_weights(tmp_path / "back.weights.h5", model)
    with keras_rules():
        keras_model.set_weights([w + 1 for w in keras_model.get_weights()])
        keras_model.load_weights(tmp_path / "back.weights.h5")
        np.testing.assert_allclose(keras_model(X), expected, rtol=2e-5)


def test_weights_of_the_plain_graph_load_into_the_composed_model(tmp_path):
    """Weights saved from the plain graph of a composed model load into the composed model."""
    model = _resolved(_lists())
    fk.save_weights(tmp_path / "plain.weights.h5", model.functional())
    restored, _ = fk.load_weights(tmp_path / "plain.weights.h5", fk.engine.unbuilt(model))
    assert restored == model


@pytest.mark.exhaustive
def test_a_subclassed_model_of_keras_opens_with_its_class(tmp_path):
    class Net(keras.Model):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = units
            self.stem, self.body = keras.layers.Dense(units), keras.layers.Dense(units)

        def call(self, x):
            return self.body(self.stem(x))

        def get_config(self):
            return {"units": self.units}

    class Ours(fk.Model):
        units: int
        stem: fk.Layer = None
        body: fk.Layer = None

        def __post_init__(self):
            super().__post_init__()
            for name in ("stem", "body"):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, layers.Dense(self.units))

        def call(self, x):
            return self.body(self.stem(x))

    with keras_rules():
        source = Net(6)
        source(X)
        source.save(tmp_path / "net.keras")
        expected = source(X)
    model, _ = fk.load_model(tmp_path / "net.keras", custom_objects={"Net": Ours})
    np.testing.assert_allclose(model(X), expected, atol=1e-5)


def test_wrong_fields_are_listed(tmp_path):
    with keras_rules():
        _drawn(KerasFlat).save_weights(tmp_path / "w.weights.h5")
    with pytest.raises(fk.FileError, match=r"block/norm/gamma"):
        fk.load_weights(tmp_path / "w.weights.h5", _resolved(_inner()))


def test_a_model_has_no_policy_that_its_layers_would_not_follow():
    x = fk.Input((3,))
    for make in (
        lambda **options: fk.Model(x, layers.Dense(2)(x), **options),
        lambda **options: fk.Sequential([layers.Dense(2)], **options),
    ):
        with pytest.raises(ValueError, match=r"dtype: expected no .*fk.cast\(model, 'bfloat16'\)"):
            make(dtype="bfloat16")
        with pytest.raises(ValueError, match="no dtype policy 'half'"):
            make(dtype="half")
        assert make(dtype="float32") == make()
    # the policies of Keras's files stay
    config = {**fk.Sequential([layers.Dense(2)]).get_config(), "dtype": "mixed_bfloat16"}
    model = fk.Sequential.from_config(config)
    assert model.add(layers.Dense(2)).dtype.name == model.dtype.name == "mixed_bfloat16"
