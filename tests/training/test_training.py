"""The Trainer: pure steps, loops, padding, shared programs, wrong input."""

import io
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training import Progress
from fkeras.training.data import host_arrays
from tests.support.compile_counts import count_compiles
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32") + (X[:, 1] > 0)
KEY = jax.random.key(0)


def classifier(units=6):
    x = fk.Input((4,), name="x")
    h = layers.Dense(units, "relu")(x)
    h = layers.Dropout(0.1)(layers.BatchNormalization(momentum=0.5)(h))
    return fk.Model(x, layers.Dense(3, "softmax", name="out")(h))


def linear():
    x = fk.Input((4,))
    return fk.Model(x, layers.Dense(1)(x))


TRAINER = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
RUN = TRAINER.init(classifier(), KEY)


def test_fit_learns_and_does_not_change_its_run():
    before = jax.tree.map(np.array, RUN.replace(key=jax.random.key_data(RUN.key)))
    trainer = fk.Trainer(fk.optimizers.Adam(0.03), TRAINER.loss, metrics=["accuracy"])
    start = trainer.init(classifier(), KEY)
    run, history = trainer.fit(start, X, Y, epochs=12, batch_size=16, verbose=0)
    assert history.history["loss"][-1] < 0.6 * history.history["loss"][0]
    assert history.epoch == list(range(12))
    assert history.params == {"epochs": 12, "steps": 4, "batch_size": 16, "samples": 50}
    assert int(run.step) == 48
    name = "batch_normalization"
    assert not np.array_equal(run.state[name]["moving_mean"], start.state[name]["moving_mean"])
    logs = trainer.evaluate(run, X, Y, batch_size=16, verbose=0)
    assert list(logs) == ["loss", "accuracy"]
    assert all(isinstance(v, float) for v in logs.values())
    probabilities = trainer.predict(run, X, batch_size=16)
    assert isinstance(probabilities, np.ndarray)
    assert np.mean(probabilities.argmax(-1) == Y) == pytest.approx(logs["accuracy"], abs=1e-6)
    after = jax.tree.map(np.array, RUN.replace(key=jax.random.key_data(RUN.key)))
    chex.assert_trees_all_equal(before, after)


def test_step_is_pure_jits_scans_and_donates():
    batches = (X[:48].reshape(3, 16, 4), Y[:48].reshape(3, 16))
    by_hand, losses = RUN, []
    step = jax.jit(TRAINER.step)
    for batch in zip(*batches, strict=True):
        by_hand, logs = step(by_hand, batch)
        losses.append(logs["loss"])
    scanned, logs = jax.lax.scan(TRAINER.step, RUN, batches)
    chex.assert_trees_all_close(scanned.model, by_hand.model, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logs["loss"], np.stack(losses), rtol=1e-4)
    donated = jax.jit(TRAINER.step, donate_argnums=0)
    copy = jax.jit(lambda run: jax.tree.map(jnp.copy, run))(RUN)
    again, _ = donated(copy, (X[:16], Y[:16]))
    one, _ = step(RUN, (X[:16], Y[:16]))
    chex.assert_trees_all_close(again.model, one.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_equal_trainers_over_equal_models_share_one_compiled_step():
    def make():
        trainer = fk.Trainer(
            fk.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
        return trainer, trainer.init(classifier(units=5), KEY)

    (one, run), (two, other) = make(), make()
    assert one == two
    assert hash(one) == hash(two)
    with count_compiles() as first:
        _ = one.fit(run, X, Y, epochs=1, batch_size=16, verbose=0)
    with count_compiles() as second:
        _ = two.fit(other, X, Y, epochs=2, batch_size=16, verbose=0)
        _ = two.fit(other, X, Y, epochs=1, batch_size=16, verbose=0)
    assert len(first) >= 1
    assert len(second) == 0


@pytest.mark.exhaustive
def test_the_last_smaller_batch_costs_no_second_compile():
    with count_compiles() as full:
        trainer = fk.Trainer("sgd", "mse")
        run = trainer.init(linear(), KEY)
        _ = trainer.fit(run, X[:48], X[:48, :1], batch_size=16, verbose=0)
    with count_compiles() as partial:
        _ = trainer.fit(run, X[:50], X[:50, :1], batch_size=16, verbose=0)
    assert len(full) >= 1
    assert len(partial) == 0


def test_the_last_smaller_batch_gives_no_wrong_mean():
    trainer = fk.Trainer("sgd", "mse", metrics=["mae"])
    run = trainer.init(linear(), KEY)
    y = X[:, :1] * 3 + 1
    predictions = np.asarray(run.model(X))
    logs = trainer.evaluate(run, X, y, batch_size=16, verbose=0)
    assert logs["loss"] == pytest.approx(np.mean((predictions - y) ** 2), rel=1e-5)
    name = next(n for n in logs if n != "loss")
    assert logs[name] == pytest.approx(np.mean(np.abs(predictions - y)), rel=1e-5)


@pytest.mark.exhaustive
def test_padded_training_step_equals_the_step_on_the_small_batch():
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    run = trainer.init(linear(), KEY)
    y = X[:, :1] * 2
    fitted, _ = trainer.fit(run, X[:18], y[:18], batch_size=16, shuffle=False, verbose=0)
    by_hand = run
    for rows in (slice(0, 16), slice(16, 18)):
        by_hand, _ = trainer.step(by_hand, (X[rows], y[rows]))
    chex.assert_trees_all_close(fitted.model, by_hand.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_order_of_the_rows_is_the_same_from_the_host():
    for count, step in ((1, 0), (20, 3), (40_000, 70)):
        expected = host_arrays.order_of(count, count + 8, KEY, step)
        found = host_arrays.host_order(count, count + 8, jax.random.key_data(KEY), step)
        np.testing.assert_array_equal(found, expected)


def test_order_of_the_rows_is_a_function_of_key_and_epoch():
    order_of = jax.jit(host_arrays.order_of, static_argnums=(0, 1))
    one, two, other = (np.asarray(order_of(20, 24, KEY, step)) for step in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    assert sorted(one[:20].tolist()) == list(range(20))
    np.testing.assert_array_equal(one[20:], [one[19]] * 4)
    first, _ = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=16, verbose=0)
    second, _ = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=16, verbose=0)
    chex.assert_trees_all_equal(first.model, second.model)


def test_sample_and_class_weights_multiply():
    trainer = fk.Trainer(
        fk.optimizers.SGD(0.0), "sparse_categorical_crossentropy", weighted_metrics=["accuracy"]
    )
    run = trainer.init(fk.Sequential([fk.Input((4,)), layers.Dense(3, "softmax")]), KEY)
    weights = RNG.random(50).astype("float32")
    table = {0: 1.0, 1: 2.0, 2: 0.5}
    _, history = trainer.fit(
        run,
        X,
        Y,
        batch_size=50,
        shuffle=False,
        verbose=0,
        sample_weight=weights,
        class_weight=table,
    )
    probabilities = np.asarray(run.model(X))
    losses = -np.log(probabilities[np.arange(50), Y])
    total = weights * np.array([table[c] for c in Y])
    assert history.history["loss"][0] == pytest.approx(np.sum(losses * total) / 50, rel=1e-4)
    _, logs = trainer.step(run, (X, Y, total))  # Keras's train_on_batch with both weights
    assert float(logs["loss"]) == pytest.approx(history.history["loss"][0], rel=1e-6)
    right = probabilities.argmax(-1) == Y
    expected = np.sum(right * total) / np.sum(total)
    assert history.history["accuracy"][0] == pytest.approx(expected, rel=1e-4)


def two_outputs():
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    joined = layers.Add()([a, b])
    left = layers.Dense(1, name="left")(joined)
    right = layers.Dense(3, "softmax", name="right")(joined)
    model = fk.Model({"a": a, "b": b}, {"left": left, "right": right})
    trainer = fk.Trainer(
        "adam",
        loss={"left": "mse", "right": "sparse_categorical_crossentropy"},
        loss_weights={"left": 0.5},
        metrics={"right": ["accuracy"]},
    )
    return trainer, trainer.init(model, KEY), {"a": X, "b": X}, {"left": X[:, :1], "right": Y}


def test_losses_of_several_outputs_by_name():
    trainer, run, x, y = two_outputs()
    logs = trainer.evaluate(run, x, y, verbose=0)
    assert set(logs) == {"loss", "left_loss", "right_loss", "right_accuracy"}
    assert list(logs)[0] == "loss"
    assert logs["loss"] == pytest.approx(0.5 * logs["left_loss"] + logs["right_loss"], rel=1e-5)


@pytest.mark.exhaustive
def test_several_inputs_and_outputs_by_name():
    trainer, run, x, y = two_outputs()
    run, history = trainer.fit(run, x, y, epochs=2, batch_size=25, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]
    predictions = trainer.predict(run, x)
    assert predictions["left"].shape == (50, 1)
    assert predictions["right"].shape == (50, 3)


def test_layer_losses_and_metrics_are_counted():
    class Reports(fk.Layer):
        def forward(self, context, x):
            return fk.Output(x, losses=(jnp.float32(2.0),), metrics={"size": jnp.mean(x)})

    x = fk.Input((4,))
    dense = layers.Dense(1, kernel_regularizer="l2", name="dense")
    model = fk.Model(x, dense(Reports()(x)))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    logs = trainer.evaluate(run, X, X[:, :1], batch_size=50, verbose=0)
    kernel = np.asarray(run.model.layers["dense"].kernel)
    mse = np.mean((np.asarray(run.model(X)) - X[:, :1]) ** 2)
    assert logs["loss"] == pytest.approx(mse + 2.0 + 0.01 * np.sum(kernel**2), rel=1e-4)
    assert logs["size"] == pytest.approx(np.mean(X), rel=1e-3, abs=1e-6)


@pytest.mark.exhaustive
def test_frozen_weights_stay_bit_equal_and_cost_no_optimizer_memory():
    model = fk.freeze(classifier().build(KEY), "dense")
    trainer = fk.Trainer(
        fk.optimizers.AdamW(0.1, weight_decay=0.1), "sparse_categorical_crossentropy"
    )
    run = trainer.init(model, KEY)
    after, _ = trainer.fit(run, X, Y, epochs=2, batch_size=16, verbose=0)
    chex.assert_trees_all_equal(after.model.layers["dense"], run.model.layers["dense"])
    assert after.model.layers["out"] != run.model.layers["out"]
    frozen = {w.shape for w in jax.tree.leaves(run.model.layers["dense"])}
    slots = [a.shape for a in jax.tree.leaves(run.opt_state) if a.ndim]
    trained = len(jax.tree.leaves(fk.partition(run.model)[0]))
    assert len(slots) == 2 * trained
    assert (4, 6) in frozen
    assert (4, 6) not in slots


def two_layers():
    x = fk.Input((4,))
    return fk.Model(x, layers.Dense(3, "softmax", name="out")(layers.Dense(6, "relu")(x)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("optimizer", "model"),
    [
        ("adam", classifier),
        ("sgd", two_layers),
        (fk.optimizers.SGD(0.1, momentum=0.9), two_layers),
        (optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9)), two_layers),
    ],
    ids=["adam", "sgd", "momentum", "optax"],
)
def test_freezing_in_the_middle_of_a_run_keeps_the_remaining_optimizer_state(optimizer, model):
    trainer = fk.Trainer(optimizer, "sparse_categorical_crossentropy")
    run, _ = trainer.fit(trainer.init(model(), KEY), X, Y, batch_size=25, verbose=0)
    frozen = run.replace(model=fk.freeze(run.model, "dense"))
    stepped, _ = trainer.step(frozen, (X, Y))
    fitted, _ = trainer.fit(frozen, X, Y, batch_size=50, shuffle=False, verbose=0)
    chex.assert_trees_all_close(stepped.model, fitted.model, rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_equal(
        stepped.model.layers["dense"].kernel, run.model.layers["dense"].kernel
    )
    # what is trained moves as it would have: its momenta went on
    free, _ = trainer.step(run, (X, Y))
    chex.assert_trees_all_close(
        stepped.model.layers["out"], free.model.layers["out"], rtol=1e-5, atol=1e-6
    )
    again, _ = trainer.step(stepped.replace(model=fk.unfreeze(stepped.model)), (X, Y))
    assert jax.tree.structure(again.opt_state) == jax.tree.structure(run.opt_state)
    assert np.any(again.model.layers["dense"].kernel != run.model.layers["dense"].kernel)


@pytest.mark.exhaustive
def test_a_callback_may_freeze_and_unfreeze():
    class Thaw(fk.Callback):
        def on_epoch_begin(self, epoch, run):
            change = fk.freeze if epoch == 0 else fk.unfreeze
            return run.replace(model=change(run.model, "dense"))

    run = fk.Trainer("adam", TRAINER.loss).init(classifier(), KEY)
    kernels = [run.model.layers["dense"].kernel]
    for epoch in range(2):
        run, _ = fk.Trainer("adam", TRAINER.loss).fit(
            run, X, Y, epochs=epoch + 1, initial_epoch=epoch, callbacks=Thaw(), verbose=0
        )
        kernels.append(run.model.layers["dense"].kernel)
    chex.assert_trees_all_equal(kernels[0], kernels[1])
    assert np.any(kernels[1] != kernels[2])


@pytest.mark.exhaustive
def test_the_optimizer_state_of_another_model_is_reported():
    other = fk.Trainer("adam", "mse").init(linear(), KEY)
    with pytest.raises(fk.FKerasError, match=r"(?s)expected the state of .*trainer.init"):
        _ = TRAINER.fit(RUN.replace(opt_state=other.opt_state), X, Y, verbose=0)
    with pytest.raises(fk.FKerasError, match=r"different in run.opt_state: .*momentum"):
        fk.Trainer("sgd", TRAINER.loss).step(RUN, (X, Y))
    wider = TRAINER.init(classifier(7), KEY)
    with pytest.raises(fk.FKerasError, match="belongs to another model"):
        TRAINER.step(wider.replace(opt_state=RUN.opt_state), (X, Y))


def test_constraints_hold_after_every_step():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dense(3, kernel_constraint="non_neg")(x))
    trainer = fk.Trainer(fk.optimizers.SGD(1.0), "mse")
    run, _ = trainer.step(trainer.init(model, KEY), (X, -np.ones((50, 3), "float32")))
    assert (np.asarray(run.model.layers["dense"].kernel) >= 0).all()


@pytest.mark.exhaustive
def test_any_optax_transformation_is_accepted():
    trainer = fk.Trainer(optax.chain(optax.clip(1.0), optax.sgd(0.1)), "mse")
    run = trainer.init(linear(), KEY)
    _, history = trainer.fit(run, X, X[:, :1], epochs=3, batch_size=25, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]


def stateful_model(batch=2):
    x = fk.Input((3, 4), batch_size=batch)
    h = layers.LSTM(3, stateful=True, name="lstm")(x)
    return fk.Model(x, layers.Dense(1)(h))


@pytest.mark.exhaustive
def test_a_stateful_network_carries_its_state_through_predict_and_fit():
    trainer = fk.Trainer(fk.optimizers.SGD(0.0), "mse")
    run = trainer.init(stateful_model(), KEY)
    sequences = RNG.normal(size=(2, 6, 4)).astype("float32")
    halves = np.concatenate([sequences[:, :3], sequences[:, 3:]])  # two batches of two rows
    predicted = trainer.predict(run, halves, batch_size=2)
    layer = run.model.layers["lstm"]
    stateless = layers.LSTM(3).build(KEY, sequences).set_weights(layer.get_weights())[0]
    last = stateless(sequences)
    expected = run.model.layers["dense"](last)
    np.testing.assert_allclose(predicted[2:], expected, rtol=1e-4, atol=1e-5)
    fitted, _ = trainer.fit(
        run, halves, np.zeros((4, 1), "float32"), batch_size=2, shuffle=False, verbose=0
    )
    np.testing.assert_allclose(
        jax.tree.leaves(fitted.state)[0], last, rtol=1e-4, atol=1e-5, err_msg=str(fitted.state)
    )
    assert float(jnp.abs(jax.tree.leaves(run.state)[0]).sum()) == 0.0
    with pytest.raises(ValueError, match="shuffle=False"):
        _ = trainer.fit(run, halves, np.zeros((4, 1), "float32"), batch_size=2)
    with pytest.raises(ValueError, match=r"batch size 2 divides, received 3"):
        trainer.predict(run, halves[:3], batch_size=2)


def test_evaluate_does_not_change_moving_statistics():
    before = jax.tree.map(np.array, RUN.state)
    TRAINER.evaluate(RUN, X, Y, batch_size=16, verbose=0)
    chex.assert_trees_all_equal(before, jax.tree.map(np.array, RUN.state))


@pytest.mark.exhaustive
def test_validation_split_and_data_agree():
    _, one = TRAINER.fit(RUN, X, Y, validation_split=0.2, batch_size=16, verbose=0)
    _, two = TRAINER.fit(
        RUN, X[:40], Y[:40], validation_data=(X[40:], Y[40:]), batch_size=16, verbose=0
    )
    assert one.history == two.history
    assert list(one.history) == ["loss", "accuracy", "val_loss", "val_accuracy"]


def test_steps_per_epoch_and_initial_epoch():
    run, history = TRAINER.fit(
        RUN, X, Y, epochs=3, initial_epoch=1, steps_per_epoch=2, batch_size=16, verbose=0
    )
    assert history.epoch == [1, 2]
    assert int(run.step) == 4


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_line_for_each_epoch_without_a_terminal(capsys):
    _ = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=16)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    form = r"Epoch 2/2  4/4 ━+ [\d.]+ (us|ms|s)/step  \d+ ex/s  loss \d\.\d{4}  accuracy \d\.\d{4}"
    assert re.match(form, lines[1]), lines[1]
    assert "\r" not in "".join(lines)


def test_a_line_is_redrawn_on_a_terminal_and_shows_the_compile():
    stream = Terminal()
    progress = Progress("auto", epochs=1, steps=3, stream=stream)
    progress.start(0)
    progress.compile_starts()
    progress.compiled()
    progress.step(1, 16, lambda: {"loss": 1.0})
    progress.step(2, 32, lambda: {"loss": 0.5})
    progress.end({"loss": 0.25}, 48)
    text = stream.getvalue()
    assert "compiling ..." in text
    assert "compiled in" in text
    assert "1/3" in text
    assert "2/3" not in text, "drawn again within a tenth of a second"
    assert text.endswith("\n")
    assert text.count("\n") == 1
    with pytest.raises(ValueError, match="verbose"):
        Progress(7, epochs=1, steps=1)


def nan_at(row):
    x = X.copy()
    x[row, 2] = np.nan
    return x


BAD = [
    (lambda: TRAINER.fit(RUN.model, X, Y), r"expected a TrainState.*trainer\.init\(model"),
    (lambda: TRAINER.fit(X, Y), r"expected a TrainState"),
    (lambda: TRAINER.fit(RUN, X), r"received no targets"),
    (lambda: TRAINER.fit(RUN, X, Y[:40]), r"x 50, y 40"),
    (lambda: TRAINER.fit(RUN, X, Y, sample_weight=np.ones(3)), r"sample_weight 3"),
    (lambda: TRAINER.fit(RUN, X[:0], Y[:0]), r"empty"),
    (lambda: TRAINER.fit(RUN, nan_at(17), Y), r"x, row 17: .*nan.*1 of 50 rows"),
    (lambda: TRAINER.fit(RUN, X, np.where(np.arange(50) == 9, 7, Y)), r"row 9: label 7.*3 classes"),
    (lambda: TRAINER.fit(RUN, X, np.eye(3)[Y]), r"categorical_crossentropy|argmax"),
    (lambda: TRAINER.fit(RUN, X[:, :3], Y), r"expected shape \(b, 4\), received \(50, 3\)"),
    (lambda: TRAINER.fit(RUN, X.astype(str), Y), r"expected numbers"),
    (lambda: TRAINER.fit(RUN, [*X.tolist(), [1.0]], Y), r"x: .* rows of one length"),
    (lambda: TRAINER.fit(RUN, {"z": X}, Y), r"expected 1 inputs|by the names"),
    (lambda: TRAINER.fit(RUN, X, Y, batch_size=0), r"batch_size: expected a positive integer"),
    (lambda: TRAINER.fit(RUN, X, Y, epochs=-1), r"epochs: expected a positive integer"),
    (lambda: TRAINER.fit(RUN, X, Y, sample_weight=-np.ones(50)), r"row 0: .*0 or more"),
    (lambda: TRAINER.fit(RUN, X, Y, class_weight={0: 1.0, 9: 2.0}), r"unknown class 9"),
    (lambda: TRAINER.fit(RUN, X, Y, validation_split=0.999), r"leaves one part empty"),
    (lambda: TRAINER.step(RUN, X), r"trainer\.step\(run, \(x, y\)\)"),
    (lambda: TRAINER.init(classifier, KEY), r"expected a model"),
    (lambda: fk.Trainer("adam").init(classifier(), KEY), r"no loss to minimize"),
    (lambda: TRAINER.init(layers.Dense(3), KEY), r"fk\.Input"),
    (lambda: fk.Trainer("adamm", "mse"), r"Did you mean 'adam"),
    (lambda: fk.Trainer("adam", "mean_square_error"), r"Did you mean 'mean_squared_error'"),
    (lambda: fk.Trainer("adam", "mse", metrics=["acuracy"]), r"(?i)did you mean '\w*accuracy'"),
    (lambda: fk.Trainer("adam", "mse", metricss=[]), r"Did you mean 'metrics'"),
    (
        lambda: fk.Trainer("adam", {"rigth": "mse"}).init(classifier(), KEY),
        r"unknown output 'rigth'.*are: out",
    ),
    (
        lambda: fk.Trainer("adam", "categorical_crossentropy").fit(
            fk.Trainer("adam", "categorical_crossentropy").init(classifier(), KEY), X, Y
        ),
        r"sparse_categorical_crossentropy",
    ),
    (lambda: TRAINER.evaluate(RUN, X, np.full(50, -1)), r"row 0: label -1"),
    (lambda: TRAINER.predict(RUN, nan_at(3)), r"x, row 3"),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("call", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_wrong_input_is_reported_before_the_first_step(call, message):
    with (
        pytest.raises((ValueError, TypeError), match=message) as error,
        count_compiles() as compiles,
    ):
        call()
    assert len(str(error.value).splitlines()) <= 8
    assert "compiled_train" not in str(compiles)


def test_a_missing_channel_axis_is_reported():
    x = fk.Input((8, 8, 1))
    model = fk.Model(x, layers.Dense(2)(layers.Flatten()(x)))
    trainer = fk.Trainer("adam", "mse")
    run = trainer.init(model, KEY)
    with pytest.raises(fk.FKerasError, match=r"channel axis is missing: pass x\[\.\.\., None\]"):
        _ = trainer.fit(run, np.zeros((4, 8, 8), "float32"), np.zeros((4, 2), "float32"))


@pytest.mark.exhaustive
def test_metrics_in_fit_leave_out_masked_steps_as_in_evaluate():
    """Keras's `fit` counts the masked steps in its metrics, and `evaluate` does not."""
    x = np.where(np.arange(5)[:, None] < 3, RNG.normal(size=(4, 5, 2)), 0).astype("float32")
    y = RNG.normal(size=(4, 5, 2)).astype("float32")

    def model(library):
        inputs = library.Input((5, 2))
        cell = library.layers.LSTM(2, return_sequences=True, kernel_initializer="ones")
        return library.Model(inputs, cell(library.layers.Masking()(inputs)))

    trainer = fk.Trainer(fk.optimizers.SGD(0.0), "mse", ["mae"])
    run = trainer.init(model(fk), KEY)
    fitted = trainer.fit(run, x, y, verbose=0).history.history["mae"][0]
    np.testing.assert_allclose(fitted, trainer.evaluate(run, x, y, verbose=0)["mae"], rtol=1e-6)
    with keras_rules():
        theirs = model(keras)
        theirs.set_weights(run.model.get_weights(run.state))
        theirs.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
        evaluated = theirs.evaluate(x, y, verbose=0, return_dict=True)["mae"]
        np.testing.assert_allclose(fitted, evaluated, rtol=1e-5)
        assert abs(theirs.fit(x, y, verbose=0).history["mae"][0] - fitted) > 1e-3
