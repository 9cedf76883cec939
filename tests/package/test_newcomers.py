"""Mistakes of the first days with fkeras, each with a part of the message that says what to do."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
X, Y = np.ones((8, 4), "float32"), np.zeros((8, 3), "float32")


def make_model():
    x = fk.Input((4,))
    hidden = layers.Dense(8, "relu", name="a")(x)
    return fk.Model(x, layers.Dense(3, name="b")(hidden)).build(KEY)


class NoBuild(fk.Layer):
    w: jax.Array | None = fk.weight()

    def call(self, x):
        return x @ self.w


class Branches(fk.Layer):
    def call(self, x):
        return x if x.sum() > 0 else -x


class UsesNumPy(fk.Layer):
    def call(self, x):
        return np.asarray(x) * 2


def one_argument(y_true):
    return y_true


# statements, with `model`, `trainer` and `run`, and the text to expect
MISTAKES = (
    ('layers.Dense("10")', "Write 10 without quotes"),
    ("layers.Dens(10)", "Did you mean 'Dense'"),
    ("fk.Dense(10)", "`fk.layers.Dense`"),
    ('layers.Dense(10, activation="rellu")', "Did you mean 'relu'"),
    ("layers.Dense(3, kernel_regularizer=0.01)", r"fk.regularizers.L2\(0.01\)"),
    ("layers.Dense(3, input_shape=(4,))", r"x = fk.Input\(\(8,\)\)"),
    ("layers.Dense(3)(X)", "Build it first"),
    ("layers.Dense(3)(4)", r"np.asarray\(x\)"),
    ("fk.Input(784)", r"fk.Input\(\(784,\)\)"),
    ("layers.Conv2D(8, 3)(fk.Input((28, 28)))", r"fk.Input\(\(28, 28, 1\)\)"),
    ("layers.LSTM(4)(fk.Input((4,)))", r"fk.Input\(\(4, 1\)\)"),
    ("layers.MultiHeadAttention(2, 8)(fk.Input((5, 8)))", r"layer\(x, x\)"),
    ("layers.Dropout(50)", "share, not a percentage"),
    ("layers.Add()(fk.Input((4,)), fk.Input((4,)))", r"layer\(\[a, b\]\)"),
    ("fk.Input((4,)) + fk.Input((5,))", r"ops.add: .*\(b, 4\) and \(b, 5\)\. .*ops.reshape"),
    ("fk.Sequential(layers.Dense(3), layers.Dense(2))", r"fk.Sequential\(\[first, second\]\)"),
    ("fk.Model(inputs=fk.Input((4,)), output=fk.Input((4,)))", "Did you mean 'outputs'"),
    ("fk.Model(X, Y)", "Start from fk.Input"),
    ("fk.Model(fk.Input((4,)), layers.Dense(2)(fk.Input((4,))))", "graph is disconnected"),
    ("bool(fk.Input((4,)) > 0)", "fk.ops.where"),
    ("jax.numpy.sin(fk.Input((4,)))", "fk.ops.name"),
    ("NoBuild()(fk.Input((4,)))", r"declares the weight 'w'.*def build\(self, key, x\)"),
    ("NoBuild().build(KEY, (None, 4))", "has no `build`"),
    ("Branches()(X)", r"Branches: an `if`.*jnp.where\(condition, a, b\)"),
    ("UsesNumPy()(X)", "UsesNumPy: .*Write jnp for np"),
    ("model(np.ones((8, 5), 'float32'))", r"expected shape \(b, 4\), received \(8, 5\)"),
    ("model(np.ones(4, 'float32'))", r"x\[None\]"),
    ("model.fit(X, Y)", "trainer.fit"),
    ("model.a", r"model.layers\['a'\]"),
    ("model['z']", "there is no layer 'z'"),
    ("model.parameters()", "jax.tree.leaves"),
    ("model.to('cuda')", "jax.device_put"),
    ("model.zero_grad()", "jax.grad"),
    ("model.eval()", "argument of the call"),
    ("model.trainable = False", "fk.freeze"),
    ("model.layers['a'].kernel = X", "layer.replace"),
    ("model - 0.1 * model", "jax.tree.map"),
    ("0.1 * model", "jax.tree.map"),
    ("model + X", "call the layer first"),
    ("fk.Trainer(model, 'adam', 'mse')", "A Trainer holds no model"),
    ("fk.Trainer('adamm', 'mse')", "Did you mean 'adam'"),
    ("fk.optimizers.Adam(lr=0.1)", "learning_rate"),
    ("trainer.init(model)", r"jax.random.key\(0\)"),
    ("trainer.init(model, 0)", r"jax.random.key\(0\)"),
    ("trainer.fit(model, X, Y)", "expected a TrainState first"),
    ("trainer.predict(X)", r"trainer.predict\(run, x\)"),
    ("trainer.step(run, X, Y)", r"trainer.step\(run, \(x, y\)\)"),
    ("trainer.step(trainer.step(run, (X, Y)), (X, Y))", "run, logs = trainer.step"),
    ("trainer.fit(run, X, Y[:7])", "x 8, y 7"),
    ("trainer.fit(run, np.full_like(X, np.nan), Y)", "fill in the values"),
    ("trainer.fit(run, X, Y, epochs='3')", "Write 3 without quotes"),
    ("trainer.fit(run, X, Y, verbose=0)['loss']", r"history\['loss'\]"),
    ("trainer.fit(run, X, Y, verbose=0).loss", r"history\[\"loss\"\]"),
    ("fk.Trainer('adam', one_argument).fit(run, X, Y)", r"def one_argument\(y_true, y_pred\)"),
    ("run(X)", r"run.model\(x, state=run.state\)"),
    ("run.fit(X, Y)", "trainer.fit"),
    (
        "fk.losses.mean_squared_error(X, Y)",
        r"expected targets of the shape.*\(8, 3\), received \(8, 4\)",
    ),
    ("fk.metrics.Accuracy().update_state(X, X)", "metric.update"),
    ("fk.transforms.replace(model, {'c': layers.Dense(3)})", "Its layers are: input_layer, a, b"),
    ("fk.utils.confusion_matrix([0], [0], names=['x'])", "Did you mean 'class_names'"),
    ("fk.utils.pad_sequences([[1]], maxlength=3)", "Did you mean 'maxlen'"),
    ("fk.plan(model)", r"fk.plan\(model, \(x, y\), trainer\)"),
    ("fk.generate(model, [[1]])", "the argument 'ids' is missing"),
    ("fk.save_model(model, 'm.keras')", r"fk.save_model\(path, model, state\)"),
    ("fk.pretrained.Tokenizer('folder')", r"Tokenizer.read\(folder\)"),
    ("fk.pretrained.load('bert-base-uncased')", "snapshot_download"),
    ("fk.Module", "subclass one of them"),
    ("fk.keras.layers", "top level"),
)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("code", "remedy"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(code, remedy):
    model, trainer = make_model(), fk.Trainer("adam", "mse")
    scope = {**globals(), "model": model, "trainer": trainer, "run": trainer.init(model, KEY)}
    statement = code if " = " in code else f"_ = {code}"
    with pytest.raises(Exception, match=f"(?s){remedy}"):
        exec(statement, scope)


def test_the_names_of_layers_in_transformers_lead_to_those_of_fkeras():
    x = fk.Input((8,))
    block = fk.Sequential([fk.Input((8,)), layers.Dense(8, name="query")], name="block")
    model = fk.Model(x, block(x)).build(KEY)
    with pytest.raises(ValueError, match=r"no layer matches '\*q_proj'. Write '\*/query'"):
        fk.freeze(model, "*q_proj")
