"""`fk.find_nan` names the layer that computes the first NaN or infinity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, losses
from fkeras.training.nonfinite.find_nan import find_nan
from fkeras.training.nonfinite.nan_report import Finding, count, span
from fkeras.transforms.intercepting import intercept, trace_gradients, trace_values

X = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(4, 3)
Y = np.ones((4, 1), "float32")


def _log(name="log"):
    return layers.Lambda(jnp.log, name=name)


def _run(outputs, inputs=None, loss="mse", **options):
    model = fk.Model(inputs, outputs)
    trainer = fk.Trainer("sgd", loss, **options)
    return trainer.init(model, jax.random.key(0)), trainer


def _check(found, phase, path, *words):
    assert isinstance(found, Finding), found
    assert (found.phase, found.path) == (phase, path)
    assert all(word in found.message for word in words), found.message
    assert found.message.startswith(found.where) and str(found) == found.message


def _spoil(tree, row, value):
    def spoiled(leaf):
        array = np.array(leaf)
        array[row] = value
        return array

    return jax.tree.map(spoiled, tree)


@pytest.fixture
def x():
    return fk.Input((3,), name="x")


class TestBatchAndWeights:
    def test_inputs(self, x):
        run, trainer = _run(layers.Dense(1)(x), x)
        bad = X.copy()
        bad[2, 1] = np.nan
        _check(find_nan(run, (bad, Y), trainer), "batch", "x", "1 nan among 12", "[2, 1]", "rows")
        _check(find_nan(run, bad), "batch", "x")
        _check(find_nan(run, X.astype("float64") * 1e300), "batch", "x", "12 inf")

    def test_targets_weights_and_dictionaries(self, x):
        other = fk.Input((3,), name="b")
        h = layers.Add()([x, other])
        run, trainer = _run(layers.Dense(1)(h), {"a": x, "b": other})
        bad = np.where(Y == 1, np.inf, Y)
        inputs = {"a": X, "b": X}
        _check(find_nan(run, (inputs, bad), trainer), "batch", "y", "4 inf")
        _check(find_nan(run, (inputs, Y, bad[:, 0]), trainer), "batch", "sample_weight", "[0]")
        _check(find_nan(run, ({"a": X, "b": X * np.nan}, Y), trainer), "batch", "x['b']")
        assert find_nan(run, (inputs, Y), trainer) is None

    def test_weights_in_the_order_of_the_model(self, x):
        inner = fk.Sequential([fk.Input((3,)), layers.Dense(3, name="z")], name="inner")
        run, trainer = _run(layers.Dense(1, name="a")(inner(x)), x)
        spoiled = run.replace(model=_spoil(run.model, -1, np.inf))
        finding = find_nan(spoiled, (X, Y), trainer)
        _check(finding, "weights", "inner/z/kernel", "weight", "learning rate", "[2, 0]")

    def test_state(self, x):
        run, trainer = _run(layers.Dense(1)(layers.BatchNormalization(name="bn")(x)), x)
        spoiled = run.replace(state=_spoil(run.state, 1, np.nan))
        finding = find_nan(spoiled, (X, Y), trainer)
        _check(finding, "weights", "bn/moving_mean", "state 'bn/moving_mean'")


class TestForward:
    @pytest.mark.exhaustive
    def test_nested_networks(self, x):
        block = [layers.Dense(3), _log("bad"), layers.Dense(2)]
        inner = fk.Sequential([fk.Input((3,)), *block], name="block")
        outer = fk.Sequential([fk.Input((3,)), inner, layers.Dense(2)], name="encoder")
        run, trainer = _run(layers.Dense(1)(outer(x)), x)
        finding = find_nan(run, (X, Y), trainer)
        _check(
            finding, "forward", "encoder/block/bad", "call 0", "operation log", "maximum(x, 1e-7)"
        )
        assert "(Lambda)" in finding.where and "its inputs: from -" in finding.message

    def test_the_call_of_a_shared_layer(self, x):
        shared = _log("shared")
        run, trainer = _run(layers.Dense(1)(shared(shared(x))), x)
        finding = find_nan(run, (np.ones_like(X), Y), trainer)
        _check(finding, "forward", "shared", "'shared' (Lambda), call 1", "from 0 to 0")

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (lambda v: v / (v - v), ["division by zero"]),
            (lambda v: jnp.exp(1000 * v), ["exp", "log_softmax"]),
            (lambda v: jnp.sqrt(v), ["square root of a negative number"]),
            (lambda v: v * 1e38 * 1e38, ["learning rate", "clipnorm"]),
            (lambda v: jnp.where(v > 0, v, -jnp.inf), ["inf among"]),
        ],
    )
    def test_remedies(self, x, function, words):
        run, _ = _run(layers.Dense(1)(layers.Lambda(function, name="f")(x)), x)
        _check(find_nan(run, X), "forward", "f", *words)

    @pytest.mark.exhaustive
    def test_a_step_of_a_cell(self):
        class Cell(fk.Layer):
            state_size = 3

            def call(self, x, states):
                return jnp.log(x), [states[0]]

        s = fk.Input((5, 3))
        cells = [layers.SimpleRNNCell(3, activation="sigmoid"), Cell()]
        run, trainer = _run(layers.Dense(1)(layers.RNN(cells, name="rnn")(s)), s)
        assert find_nan(run, (np.ones((2, 5, 3), "float32"), Y[:2]), trainer) is None
        one, _ = _run(layers.Dense(1)(layers.RNN(Cell(), name="rnn")(s)), s)
        rows = np.ones((2, 5, 3), "float32")
        rows[1, 3, 2] = 0
        _check(find_nan(one, rows), "forward", "rnn/cell", "call 3", "[1, 2]", "log")

    @pytest.mark.exhaustive
    def test_composite_layers(self):
        s = fk.Input((5, 3))
        lstm = layers.LSTM(3, activation=lambda v: v / 0.0)
        run, _ = _run(layers.Dense(1)(layers.Bidirectional(lstm, name="bi")(s)), s)
        rows = np.ones((2, 5, 3), "float32")
        _check(find_nan(run, rows), "forward", "bi/forward_layer", "(LSTM)", "div")
        timed = layers.TimeDistributed(layers.Lambda(lambda v: v / 0.0), name="timed")
        run, _ = _run(layers.Dense(1)(layers.Flatten()(timed(s))), s)
        _check(find_nan(run, rows), "forward", "timed", "TimeDistributed")

    def test_a_model_that_is_a_single_layer(self, x):
        class Scaled(fk.Model):
            def call(self, x):
                return _log("inner")(layers.Dense(3, name="first")(x))

        run, trainer = _run(Scaled(name="whole")(x), x)
        _check(find_nan(run, (X, np.ones_like(X)), trainer), "forward", "whole/inner")
        alone = Scaled().build(jax.random.key(0), (None, 3))
        _check(find_nan(run.replace(model=alone, state={}), X), "forward", "inner")
        leaf = layers.Lambda(jnp.log)
        finding = find_nan(run.replace(model=leaf, state={}), X)
        _check(finding, "forward", "", "Lambda", "log")

    @pytest.mark.exhaustive
    def test_dropout_repeats_the_draw_of_the_step(self, x):
        drop = layers.Dropout(0.5)
        h = layers.Lambda(lambda v: 1 / v, name="inverse")(drop(x))
        run, trainer = _run(layers.Dense(1)(h), x)
        run = run.replace(step=run.step + 3)
        key = fk.engine.subkey(run.key, run.step)
        fresh = run.model.apply(X, training=True, key=key).value
        calls = trace_values(run.model, fk.Context(training=True, key=key), jnp.asarray(X))
        np.testing.assert_array_equal(calls[-1].output.value, fresh)
        _check(find_nan(run, (X + 2, Y), trainer), "forward", "inverse", "div")
        assert find_nan(run, (X + 2, Y), trainer, training=False) is None

    def test_a_new_state(self, x):
        class Counter(fk.Layer):
            def init_state(self, x):
                return {"total": jnp.zeros(())}

            def forward(self, context, x):
                return fk.Output(x, updates={"total": jnp.log(context.state["total"])})

        run, trainer = _run(layers.Dense(1)(Counter(name="counter")(x)), x)
        _check(find_nan(run, (X, Y), trainer), "forward", "counter", "its new state has -inf")


class TestLosses:
    def test_of_layers_and_weights(self, x):
        activity = layers.Dense(1, name="d", activity_regularizer=lambda v: jnp.log(v - v).sum())
        run, trainer = _run(activity(x), x)
        _check(find_nan(run, (X, Y), trainer), "loss", "d", "its added loss is -inf")
        penalty = layers.Dense(1, name="d", kernel_regularizer=lambda v: 1 / (v - v).sum())
        run, trainer = _run(penalty(x), x)
        _check(find_nan(run, (X, Y), trainer), "loss", "d", "weight 'd/kernel'", "it is inf")

    def test_of_an_output(self, x):
        class Log(losses.Loss):
            def call(self, y_true, y_pred):
                return jnp.mean(jnp.log(y_true) + 0 * y_pred, axis=-1)

        one, two = layers.Dense(1, name="one")(x), layers.Dense(1, name="two")(x)
        run, trainer = _run({"two": two, "one": one}, x, {"one": "mse", "two": Log()})
        zero = Y.copy()
        zero[2] = 0
        finding = find_nan(run, (X, {"one": Y, "two": zero}), trainer)
        _check(
            finding, "loss", "two", "Log, the loss of the output 'two'", "[2]", "targets: from 0"
        )
        assert find_nan(run, (X, {"one": Y, "two": Y}), trainer) is None

    def test_in_total(self, x):
        run, trainer = _run(layers.Dense(1)(x), x, loss_weights=3e38)
        _check(find_nan(run, (X, Y * 100), trainer), "loss", "", "the total loss", "it is inf")


class TestBackward:
    def _root(self, function, x, **options):
        h = layers.Dense(3, kernel_initializer="zeros", name="first", **options)(x)
        return _run(layers.Dense(1)(layers.Lambda(function, name="root")(h)), x)

    @pytest.mark.exhaustive
    @pytest.mark.parametrize(
        "function",
        [jnp.sqrt, lambda v: jnp.where(v > 0, jnp.sqrt(jnp.abs(v)), v), jnp.linalg.norm],
        ids=["sqrt", "where", "norm"],
    )
    def test_infinite_derivatives_at_zero(self, x, function):
        if function is jnp.linalg.norm:
            function = lambda v: jnp.linalg.norm(v, axis=-1, keepdims=True)  # noqa: E731
        run, trainer = self._root(function, x)
        finding = find_nan(run, (X, Y), trainer)
        _check(finding, "backward", "root", "call 0", "gradient for its input", "sqrt(x + 1e-7)")
        assert "its inputs: from 0 to 0" in finding.message

    def test_only_gradients_of_trainable_weights_count(self, x):
        run, trainer = self._root(jnp.sqrt, x, trainable=False)
        assert find_nan(run, (X, Y), trainer) is None
        _check(find_nan(run, (X, Y)), "backward", "root")

    def test_the_innermost_layer(self, x):
        block = [layers.Dense(3, kernel_initializer="zeros"), layers.Lambda(jnp.sqrt, name="root")]
        inner = fk.Sequential([fk.Input((3,)), *block], name="inner")
        run, trainer = _run(layers.Dense(1)(inner(x)), x)
        _check(find_nan(run, (X, Y), trainer), "backward", "inner/root")

    @pytest.mark.exhaustive
    def test_a_weight(self, x):
        class Root(fk.Layer):
            factor: jax.Array | None = fk.weight(initializer=jax.nn.initializers.zeros)

            def build(self, key, x):
                return self.with_weights(key, factor=(3,))

            def call(self, x):
                return x + jnp.sqrt(fk.engine.align(self.factor, x.ndim))

        shared = Root(name="shared")
        run, trainer = _run(layers.Dense(1)(shared(shared(x))), x)
        finding = find_nan(run, (X, Y), trainer)
        _check(finding, "backward", "shared", "call 1", "gradient for its weights has", "inf")

    def test_a_loss(self, x):
        class Root(losses.Loss):
            def call(self, y_true, y_pred):
                return jnp.mean(jnp.sqrt(jnp.abs(y_pred - y_pred)), axis=-1)

        one, two = layers.Dense(1, name="one")(x), layers.Dense(1, name="two")(x)
        run, trainer = _run([one, two], x, ["mse", Root()])
        finding = find_nan(run, (X, [Y, Y]), trainer)
        _check(finding, "backward", "two", "the gradient for the predictions has 4 nan")

    def test_a_penalty(self, x):
        penalty = {"kernel_initializer": "zeros", "kernel_regularizer": lambda v: jnp.sqrt(v.sum())}
        run, trainer = _run(layers.Dense(1, name="d", **penalty)(x), x)
        _check(find_nan(run, (X, Y), trainer), "backward", "d", "penalty on the weight 'd/kernel'")

    @pytest.mark.exhaustive
    def test_gradients_of_calls(self, key, x):
        shared = layers.Dense(3, name="s", use_bias=False)
        model = fk.Model(x, layers.Dropout(0.5)(shared(shared(x)))).build(key)
        context, array = fk.Context(training=True, key=key), jnp.asarray(X)
        calls = trace_values(model, context, array)
        loss = lambda _, out: jnp.sum(out.value**2)  # noqa: E731
        weights, finding = trace_gradients(model, context, (array,), calls, loss)

        def total(model, x):
            return jnp.sum(model.apply(x, training=True, key=key).value ** 2)

        direct, at_x = jax.grad(total, argnums=(0, 1))(model, array)
        kernel = direct.layers["s"].kernel
        np.testing.assert_allclose(weights["s/kernel"], kernel, rtol=1e-5, atol=1e-6)
        first = next(call for call in calls if (call.path, call.number) == ("s", 0))
        np.testing.assert_allclose(finding[first.ticket][1][0], at_x, rtol=1e-5, atol=1e-6)


class TestFine:
    @pytest.mark.exhaustive
    def test_state_masks_and_integers(self):
        x = fk.Input((2,), dtype="int32", batch_size=2)
        h = layers.Embedding(5, 3, mask_zero=True)(x)
        h = layers.BatchNormalization()(h)
        model = fk.Model(x, layers.Dense(2)(layers.LSTM(3, stateful=True)(h)))
        model = model.build(jax.random.key(0))
        trainer = fk.Trainer("adam", fk.losses.SparseCategoricalCrossentropy(from_logits=True))
        rows = np.array([[1, 0], [3, 4]], "int32")
        run = trainer.init(model, jax.random.key(0))
        assert find_nan(run, (rows, np.array([0, 1])), trainer) is None

    @pytest.mark.exhaustive
    def test_half_precision(self, x):
        dense = [layers.Dense(n, dtype="mixed_bfloat16") for n in (3, 1)]
        run, trainer = _run(dense[1](dense[0](x)), x)
        assert find_nan(run, (X, Y, Y[:, 0]), trainer) is None

    @pytest.mark.exhaustive
    def test_find_nan_does_not_change_the_run(self, x):
        run, trainer = _run(layers.Dense(1)(layers.Dropout(0.5)(x)), x)
        before = jax.tree.map(np.array, run)
        assert find_nan(run, (X, Y), trainer) is None
        assert jax.tree.all(jax.tree.map(np.array_equal, before, run))

    def test_interception_keeps_weights_and_values(self, x, key):
        model = fk.Model(x, layers.Dense(2)(layers.Dense(3, kernel_regularizer="l2")(x))).build(key)
        seen = []

        def around(path, layer, context, inputs, options):
            seen.append(path)
            return context.run(layer, *inputs, **options)

        copy = intercept(model, around)
        out, again = model.apply(X), copy.apply(X)
        np.testing.assert_allclose(again.value, out.value, rtol=1e-6)
        np.testing.assert_allclose(again.losses, out.losses, rtol=1e-6)
        assert seen == ["", "dense", "dense_1"]
        assert all(a is b for a, b in zip(*map(jax.tree.leaves, (model, copy)), strict=True))
        assert copy.graph is not None and copy.built and copy._where == model._where


class TestBadInput:
    def test_messages(self, x):
        run, trainer = _run(layers.Dense(1)(x), x)
        for call, words in (
            (
                lambda: find_nan(run.model, X),
                ["expected a TrainState", "received Model", "trainer.init"],
            ),
            (lambda: find_nan(run, X, trainer), ["(x, y)", "received 1 part", "find_nan(run, x)"]),
            (lambda: find_nan(run, (X, Y, Y, Y)), ["received 4 parts"]),
            (lambda: find_nan(run, ([["a"]], Y)), ["find_nan: x", "expected numbers"]),
            (lambda: find_nan(run, (X, "a")), ["find_nan: y", "received str"]),
        ):
            with pytest.raises(TypeError) as error:
                call()
            assert all(word in str(error.value) for word in words), str(error.value)

    def test_text_of_counts_and_ranges(self):
        assert count(np.arange(3)) == "" and count(jnp.asarray(X)) == "" and count("a") == ""
        assert count(jnp.float32(np.nan)) == "nan"
        mixed = np.array([[1, np.inf], [np.nan, 2]])
        assert count(mixed) == "1 nan and 1 inf among 4 numbers, the first at [0, 1]"
        assert span([mixed, np.arange(2)]) == "from 1 to 2"
        assert span(np.array([np.nan])) == "none finite"
        assert count(np.full((1,), np.inf, jnp.bfloat16)).startswith("1 inf")
