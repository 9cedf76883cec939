"""Callbacks: what each does to a run, with Keras's as the oracle, and what each says."""

import csv
import io
import math
import os
import pathlib
import pickle
import re
import struct
import sys

import chex
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.optimizers.updates.rates import learning_rate, with_learning_rate
from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    Profiler,
    ProgressBar,
    ReduceLROnPlateau,
    Stop,
    SwapEMAWeights,
    TensorBoard,
    TerminateOnNaN,
    load_weights,
    save_weights,
)
from fkeras.training.callbacks.base import events, monitor
from tests.support.keras_oracle import keras_rules

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("float32")
Y = X @ np.ones((3, 1), "float32")
TRAINER = fk.Trainer(fk.optimizers.SGD(0.1), "mse")


def network():
    x = fk.Input((3,), name="x")
    h = layers.BatchNormalization(name="norm")(layers.Dense(2, name="body")(x))
    return fk.Model(x, layers.Dense(1, name="head")(h))


RUN = TRAINER.init(network(), KEY)


def shifted(run, number):
    """The run with other numbers in all weights and states."""
    model, state = jax.tree.map(lambda a: a + jnp.asarray(number, a.dtype), (run.model, run.state))
    return run.replace(model=model, state=state)


def drive(callback, sequence, run=RUN, first=0, through=lambda run: run):
    """`(run, epochs)` after the hooks of a training with these logs, without a training."""
    (callback,) = hooks.check_callbacks(callback)
    one = (callback,)
    run, stop = hooks.call(one, "on_train_begin", run)
    epochs = 0
    for epoch, logs in enumerate(sequence, first):
        if stop:
            break
        run, _ = hooks.call(one, "on_epoch_begin", run, epoch)
        run = shifted(run, 1.0)
        run, stop = hooks.call(one, "on_epoch_end", run, epoch, logs)
        run = through(run)
        epochs += 1
    run, _ = hooks.call(one, "on_train_end", run)
    return run, epochs


def pickled(run):
    return pickle.loads(pickle.dumps(run))


def fit(*callbacks, run=RUN, epochs=2, **options):
    options = {"batch_size": 8, "shuffle": False, "verbose": 0} | options
    return TRAINER.fit(run, X, Y, epochs=epochs, callbacks=list(callbacks), **options)


LOSSES = (1.0, 0.8, 0.81, 0.79, 0.9, 0.7, 0.72, 0.71, 0.7, 0.69, 0.8, 0.9, 1.0)


class Counter(Callback):
    def on_epoch_end(self, epoch, run, logs):
        return self.remember(run, {"epochs": int(self.recall(run, {"epochs": 0})["epochs"]) + 1})


def test_names_are_unique_and_memory_is_by_name():
    given = hooks.check_callbacks([Counter(), Counter(name="counter_1"), Counter(), CSVLogger("a")])
    assert [one.name for one in given] == ["counter", "counter_1", "counter_2", "csv_logger"]
    assert hooks.check_callbacks(None) == ()
    assert hooks.check_callbacks(Counter()) == (Counter(name="counter"),)
    run, _ = fit(Counter(), Counter(name="mine"), epochs=3)
    assert {name: int(kept["epochs"]) for name, kept in run.memory.items()} == {
        "counter": 3,
        "mine": 3,
    }
    run, _ = fit(Counter(), run=pickled(run), epochs=1)
    assert int(run.memory["counter"]["epochs"]) == 4
    assert int(Counter(name="other").recall(run, 7)) == 7
    assert RUN.memory == {}


def test_callbacks_are_values():
    for one in (EarlyStopping(patience=2), LambdaCallback(), Profiler("a"), CSVLogger("a")):
        assert pickle.loads(pickle.dumps(one)) == one
        assert len({one, pickle.loads(pickle.dumps(one))}) == 1
    config = ReduceLROnPlateau("loss", 0.5).get_config()
    assert ReduceLROnPlateau.from_config(config) == ReduceLROnPlateau("loss", 0.5)


def test_the_base_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"two named 'a'. Rename one: Counter\(..., name='a_1'\)"):
        hooks.check_callbacks([Counter(name="a"), Counter(name="a")])
    with pytest.raises(TypeError, match="Write Counter\\(\\)"):
        hooks.check_callbacks([Counter])
    with pytest.raises(TypeError, match="received <lambda>. Subclass Callback"):
        hooks.check_callbacks(lambda: None for _ in range(1))
    with pytest.raises(TypeError, match="'mine': expected arrays and numbers to remember.*'word'"):
        Callback(name="mine").remember(RUN, {"a": "word"})
    wrong = LambdaCallback(on_epoch_end=lambda epoch, run, logs: 3)
    with pytest.raises(TypeError, match="expected None, a TrainState or a Stop, returned int"):
        fit(wrong)


def test_hooks_are_called_with_what_they_say():
    seen = []
    tell = LambdaCallback(
        on_train_begin=lambda run: seen.append("begin"),
        on_epoch_begin=lambda epoch, run: seen.append(epoch),
        on_batch_end=lambda step, run, logs: seen.append((step, *logs)),
        on_epoch_end=lambda epoch, run, logs: Stop(run.replace(step=jnp.int32(9))),
        on_train_end=lambda run: seen.append("end"),
    )
    run, history = fit(tell, epochs=3, steps_per_execution=3)
    assert seen == ["begin", 0, (3, "loss"), "end"]
    assert int(run.step) == 9
    assert history.epoch == [0]
    assert tell.watches_batches
    assert not LambdaCallback().watches_batches
    assert not Callback().watches_batches
    assert LambdaCallback().on_test_begin(RUN) is None
    with pytest.raises(ValueError, match="on_epoch_end: expected a function or None, received 3"):
        LambdaCallback(on_epoch_end=3)
    with pytest.raises(TypeError, match="no argument 'on_epoch_ends'. Did you mean"):
        LambdaCallback(on_epoch_ends=print)


def test_directions_are_those_of_keras():
    for metric in (
        keras.metrics.BinaryAccuracy(),
        keras.metrics.AUC(),
        keras.metrics.Precision(),
        keras.metrics.Recall(),
        keras.metrics.MeanSquaredError(),
        keras.metrics.MeanAbsolutePercentageError(),
        keras.metrics.RootMeanSquaredError(),
        keras.metrics.KLDivergence(),
        keras.metrics.CategoricalHinge(),
        keras.metrics.LogCoshError(),
        keras.metrics.CosineSimilarity(),
        keras.metrics.F1Score(),
        keras.metrics.R2Score(),
        keras.metrics.TopKCategoricalAccuracy(),
        keras.metrics.MeanIoU(2),
    ):
        way = {"up": "max", "down": "min"}[metric._direction]
        plain = re.sub(r"_\d+$", "", metric.name)  # Keras numbers the metrics of a process
        for name in (plain, f"val_{plain}", f"head_{plain}", f"{plain}_1", f"{plain}_4_1"):
            assert monitor.direction("A", name, "auto") == way, name
    assert monitor.direction("A", "val_loss", "auto") == "min"
    assert monitor.direction("A", "acc", "min") == "min"
    with pytest.raises(ValueError, match=r"EarlyStopping\(monitor='val_mine', mode=\"max\"\)"):
        monitor.direction("EarlyStopping", "val_mine", "auto")


@pytest.mark.parametrize(
    "make",
    [EarlyStopping, ReduceLROnPlateau, lambda m: ModelCheckpoint("a.npz", m, save_best_only=True)],
)
def test_unknown_logs_are_told(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no log named 'los'. Did you mean 'loss'. The logs are"):
        drive(make("los"), [{"loss": 1.0, "val_loss": 1.0}])
    with pytest.raises(ValueError, match="Did you mean 'val_loss'"):
        hooks.check_logs([make("val_los")], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="has no validation .*monitor='loss'"):
        hooks.check_logs([make("val_loss")], ["loss"])
    hooks.check_logs([make("val_loss"), Callback()], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="cannot be told by its name"):
        hooks.check_logs([make("mine")], ["mine"])
    with pytest.raises(ValueError, match="'loss' is 2 numbers"):
        drive(make("loss"), [{"loss": [1.0, 2.0]}])
    # an epoch without validation does not count, a training without any is told
    with pytest.warns(UserWarning, match="no epoch had a log named 'val_loss'"):
        drive(make("val_loss"), [{"loss": 1.0}])
    drive(make("val_loss"), [{"loss": 1.0}, {"loss": 1.0, "val_loss": 1.0}])


def test_bad_arguments_are_told():
    with pytest.raises(ValueError, match="patience: expected an integer of 0 or more"):
        EarlyStopping(patience=-1)
    with pytest.raises(ValueError, match="mode: expected 'auto', 'min' or 'max', received 'low'"):
        EarlyStopping(mode="low")
    with pytest.raises(ValueError, match="factor: expected a number between 0 and 1, received 1.0"):
        ReduceLROnPlateau(factor=1.0)
    with pytest.raises(TypeError, match="EarlyStopping: there is no argument 'patients'"):
        EarlyStopping(patients=3)


class Stub:
    """What Keras's callbacks need of a model."""

    def __init__(self):
        self.stop_training, self.weights = False, 0.0
        self.optimizer = keras.optimizers.SGD(0.1)

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


def drive_keras(callback, sequence):
    model = Stub()
    callback.set_model(model)
    callback.on_train_begin()
    epochs, rates = 0, []
    for epoch, logs in enumerate(sequence):
        if model.stop_training:
            break
        callback.on_epoch_begin(epoch)
        model.weights += 1.0
        callback.on_epoch_end(epoch, dict(logs))
        rates.append(float(model.optimizer.learning_rate))
        epochs += 1
    callback.on_train_end()
    return model, epochs, rates


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 1},
        {"patience": 2, "min_delta": 0.05},
        {"patience": 3, "restore_best_weights": True},
        {"patience": 20, "restore_best_weights": True},
        {"patience": 2, "baseline": 0.5, "restore_best_weights": True},
        {"patience": 2, "start_from_epoch": 4, "restore_best_weights": True},
        {"patience": 1, "mode": "max", "restore_best_weights": True},
    ],
    ids=str,
)
def test_early_stopping_decides_as_keras_does(options):
    sequence = [{"val_loss": value} for value in LOSSES]
    with keras_rules():
        model, epochs, _ = drive_keras(keras.callbacks.EarlyStopping(**options), sequence)
    run, ours = drive(EarlyStopping(**options), sequence)
    assert ours == epochs
    chex.assert_trees_all_close(run.model, shifted(RUN, model.weights).model, rtol=1e-6)
    chex.assert_trees_all_close(run.state, shifted(RUN, model.weights).state, rtol=1e-6)


def test_early_stopping_goes_on_where_it_was():
    sequence = [{"val_loss": value} for value in LOSSES]
    stopping = EarlyStopping(patience=3, restore_best_weights=True)
    whole, epochs = drive(stopping, sequence)
    pieces, ours = drive(stopping, sequence, through=pickled)
    assert ours == epochs
    chex.assert_trees_all_equal(pieces.memory, whole.memory)
    # interrupted after two epochs: the hooks before it, and those of another process
    (named,) = hooks.check_callbacks(stopping)
    run = RUN
    for epoch in range(2):
        run = named.on_epoch_end(epoch, shifted(run, 1.0), sequence[epoch])
    run, after = drive(stopping, sequence[2:], run=pickled(run), first=2)
    assert after + 2 == epochs
    chex.assert_trees_all_equal(run.memory, whole.memory)
    chex.assert_trees_all_equal(run.model, whole.model)
    # a training from the beginning counts anew
    again, ours = drive(stopping, sequence, run=run)
    assert ours == epochs
    assert int(again.memory["early_stopping"]["best_epoch"]) == 5


def test_early_stopping_ignores_nan_and_tells(capsys):
    sequence = [{"loss": v} for v in (math.nan, 2.0, 1.0, math.nan, 3.0)]
    stopping = EarlyStopping("loss", patience=2, verbose=1, restore_best_weights=True)
    run, epochs = drive(stopping, sequence)
    assert epochs == 5
    chex.assert_trees_all_close(run.model, shifted(RUN, 3.0).model, rtol=1e-6)
    said = capsys.readouterr().out
    assert "Epoch 5: stopped, loss has been no better since epoch 3." in said
    assert "those of epoch 3, the best" in said


def test_the_best_state_comes_back_from_fit():
    kept = []
    watch = LambdaCallback(on_epoch_end=lambda epoch, run, logs: kept.append(run))
    stopping = EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)
    run, history = fit(watch, stopping, epochs=9)
    assert history.epoch == [0, 1, 2]
    chex.assert_trees_all_equal((run.model, run.state), (kept[0].model, kept[0].state))
    assert int(run.step) == int(kept[2].step)
    # frozen weights come back too, and freezing does not confuse the paths
    frozen = RUN.replace(model=fk.freeze(RUN.model, "body"))
    run, _ = fit(stopping, run=frozen, epochs=3)
    assert not run.model.layers["body"].trainable


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 2, "factor": 0.5},
        {"patience": 1, "cooldown": 2},
        {"patience": 1, "min_lr": 0.03},
        {"patience": 2, "min_delta": 0.05},
        {"patience": 2, "mode": "max", "factor": 0.3},
    ],
    ids=str,
)
def test_reduce_lr_on_plateau_decides_as_keras_does(options):
    sequence = [{"val_loss": value} for value in LOSSES]
    with keras_rules():
        _, _, theirs = drive_keras(keras.callbacks.ReduceLROnPlateau(**options), sequence)
    rates = []

    def through(run):
        rates.append(float(run.opt_state.learning_rate))
        return pickled(run)

    drive(ReduceLROnPlateau(**options), sequence, through=through)
    np.testing.assert_allclose(rates, theirs, rtol=1e-6)
    assert len(set(rates)) > 1


def test_plateau_in_fit_and_what_it_says(capsys):
    run, _ = fit(ReduceLROnPlateau("loss", mode="max", patience=1, verbose=1), epochs=2)
    assert "Epoch 2: the learning rate is 0.01 from now on, 0.1 before." in capsys.readouterr().out
    np.testing.assert_allclose(run.opt_state.learning_rate, 0.01, rtol=1e-6)
    for scheduled in (ReduceLROnPlateau("loss"), LearningRateScheduler(lambda epoch, lr: lr)):
        trainer = fk.Trainer(fk.optimizers.SGD(lambda step: 0.1), "mse")
        with pytest.raises(ValueError, match="comes from a schedule"):
            trainer.fit(trainer.init(RUN.model, KEY), X, Y, verbose=0, callbacks=[scheduled])


def test_learning_rate_scheduler():
    seen, rates = [], []

    def schedule(epoch, lr):
        seen.append((epoch, round(lr, 6)))
        return lr * np.float32(0.5) if epoch else lr

    theirs = keras.callbacks.LearningRateScheduler(
        lambda epoch, lr: lr * 0.5 if epoch else lr, verbose=0
    )
    with keras_rules():
        _, _, wanted = drive_keras(theirs, [{}] * 3)
    watch = LambdaCallback(
        on_epoch_end=lambda epoch, run, logs: rates.append(float(run.opt_state.learning_rate))
    )
    run, _ = fit(LearningRateScheduler(schedule), watch, epochs=3)
    np.testing.assert_allclose(rates, wanted, rtol=1e-6)
    assert seen == [(0, 0.1), (1, 0.1), (2, 0.05)]
    # a training that goes on within an epoch does not halve the rate twice
    halving = LearningRateScheduler(lambda epoch, lr: lr / 2, name="halving")
    run = halving.on_epoch_begin(4, RUN)
    again, _ = hooks.call((halving,), "on_epoch_begin", pickled(run), 4)
    assert float(again.opt_state.learning_rate) == pytest.approx(0.05)
    run = halving.on_epoch_end(4, again, {})
    assert float(halving.on_epoch_begin(4, run).opt_state.learning_rate) == pytest.approx(0.025)


@pytest.mark.parametrize("value", [None, "0.1", math.nan, -1.0, [0.1], print], ids=str)
def test_a_schedule_must_return_a_rate(value):
    with pytest.raises(ValueError, match="epoch 1: expected schedule.epoch, lr. to return a numb"):
        LearningRateScheduler(lambda epoch, lr: value).on_epoch_begin(0, RUN)


def test_scheduler_says_what_is_wrong(capsys):
    with pytest.raises(ValueError, match="schedule: expected a function, received 0.1"):
        LearningRateScheduler(0.1)
    LearningRateScheduler(lambda epoch, lr: 1, verbose=1).on_epoch_begin(0, RUN)
    assert capsys.readouterr().out == "Epoch 1: the learning rate is 1.\n"


WEIGHTS = {"w": jnp.ones(2)}
INJECTED = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)


@pytest.mark.parametrize(
    "optimizer",
    [
        fk.optimizers.Adam(0.5).transformation(),
        INJECTED,
        optax.chain(optax.clip(1.0), INJECTED),
        optax.chain(optax.clip(1.0), optax.chain(fk.optimizers.SGD(0.5).transformation())),
        optax.masked(INJECTED, {"w": True}),
        optax.multi_transform({"a": INJECTED, "b": optax.set_to_zero()}, {"w": "a"}),
    ],
)
def test_rates_are_read_and_replaced(optimizer):
    state = optimizer.init(WEIGHTS)
    assert float(learning_rate(state)) == 0.5
    new = with_learning_rate(state, 0.25)
    assert float(learning_rate(new)) == 0.25
    assert float(learning_rate(state)) == 0.5
    chex.assert_trees_all_equal_shapes_and_dtypes(new, state)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    gradients = {"w": jnp.ones(2)}
    slow = optimizer.update(gradients, new, WEIGHTS)[0]["w"]
    np.testing.assert_allclose(slow * 2, optimizer.update(gradients, state, WEIGHTS)[0]["w"], 1e-5)
    traced = jax.jit(lambda s: with_learning_rate(s, learning_rate(s) * 3))(state)
    assert float(learning_rate(traced)) == 1.5


def test_a_new_rate_is_no_new_program():
    step = jax.jit(lambda state: learning_rate(state) * 2)
    state = fk.optimizers.SGD(0.5).transformation().init(WEIGHTS)
    step(state)
    step(with_learning_rate(state, 0.1))
    assert step._cache_size() == 1


def test_rates_of_a_population():
    optimizer = fk.optimizers.SGD(0.5).transformation()
    state = jax.vmap(optimizer.init)({"w": jnp.ones((3, 2))})
    assert learning_rate(state).shape == (3,)
    np.testing.assert_allclose(learning_rate(with_learning_rate(state, 0.1)), [0.1] * 3)
    new = with_learning_rate(state, np.asarray([1, 2, 3]))
    np.testing.assert_array_equal(learning_rate(new), [1, 2, 3])
    with pytest.raises(ValueError, match=r"array of shape \(3,\), received shape \(2,\)"):
        with_learning_rate(state, [1.0, 2.0])


def test_rates_say_what_is_wrong():
    plain = optax.adam(0.1).init(WEIGHTS)
    with pytest.raises(ValueError, match=r"holds none: .*optax.inject_hyperparams\(optax.adam\)"):
        learning_rate(plain)
    schedule = fk.optimizers.SGD(lambda step: 0.1).transformation().init(WEIGHTS)
    with pytest.raises(ValueError, match="learning_rate: .* comes from a schedule"):
        learning_rate(schedule)
    injected = optax.inject_hyperparams(optax.sgd)(optax.constant_schedule(0.5)).init(WEIGHTS)
    assert float(learning_rate(injected)) == 0.5
    with pytest.raises(ValueError, match="with_learning_rate: .* comes from a schedule"):
        with_learning_rate(injected, 0.1)
    two = optax.chain(INJECTED, INJECTED).init(WEIGHTS)
    with pytest.raises(ValueError, match=r"holds 2, at \[0\], \[1\]. Replace them"):
        with_learning_rate(two, 0.1)
    state = fk.optimizers.SGD(0.5).transformation().init(WEIGHTS)
    for value in (-1.0, math.nan, "fast"):
        with pytest.raises(ValueError, match="expected a number of 0 or more, received"):
            with_learning_rate(state, value)


def test_models_and_weights_are_saved_in_keras_form(tmp_path):
    """Keras and `fk.load_model` read what the callback wrote after an epoch."""
    model = fk.Sequential([fk.Input((3,)), layers.BatchNormalization(), layers.Dense(2)])
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    x, y = np.ones((4, 3), "float32"), np.zeros((4, 2), "float32")
    saves = [
        ModelCheckpoint(tmp_path / "{epoch:02d}.keras"),
        ModelCheckpoint(tmp_path / "best.weights.h5", save_weights_only=True),
    ]
    run, _ = trainer.fit(run, x, y, epochs=2, callbacks=saves, verbose=0)
    assert sorted(os.listdir(tmp_path)) == ["01.keras", "02.keras", "best.weights.h5"]
    loaded, state = fk.load_model(tmp_path / "02.keras")
    chex.assert_trees_all_equal((loaded, state), (run.model, run.state))
    again, state = fk.load_weights(tmp_path / "best.weights.h5", run.model.unbuilt())
    chex.assert_trees_all_equal((again, state), (run.model, run.state))
    with keras_rules():
        theirs = keras.models.load_model(tmp_path / "02.keras")
        expected = theirs.predict(x, verbose=0)
        theirs.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_allclose(run.model(x, state=run.state), expected, atol=1e-6)


def test_checkpoints_hold_the_epochs_and_can_be_loaded(tmp_path, capsys):
    kept = []
    watch = LambdaCallback(on_epoch_end=lambda epoch, run, logs: kept.append(run))
    path = tmp_path / "deep" / "{epoch:02d}-{val_loss:.2f}.npz"
    saving = ModelCheckpoint(path, verbose=1)
    run, history = fit(watch, saving, epochs=2, validation_split=0.25)
    names = [f"{i + 1:02d}-{v:.2f}.npz" for i, v in enumerate(history.history["val_loss"])]
    assert sorted(os.listdir(path.parent)) == names
    assert f"Epoch 1: saved {path.parent / names[0]}." in capsys.readouterr().out
    other = TRAINER.init(network(), jax.random.key(5))
    loaded = load_weights(path.parent / names[0], other)
    chex.assert_trees_all_equal(
        (loaded.model, loaded.state, loaded.opt_state, loaded.step),
        (kept[0].model, kept[0].state, kept[0].opt_state, kept[0].step),
    )
    only = load_weights(path.parent / names[0], other, weights_only=True)
    chex.assert_trees_all_equal(only.model, kept[0].model)
    assert int(only.step) == 0
    # training goes on from there
    fit(run=loaded, epochs=1)


def test_only_the_best_is_saved_as_keras_decides(tmp_path):
    class Theirs(keras.callbacks.ModelCheckpoint):
        def _save_model(self, epoch, batch, logs):
            if self._should_save_model(epoch, batch, logs, ""):
                saved.append(epoch)

    sequence = [{"val_loss": value} for value in LOSSES]
    for options in (
        {},
        {"mode": "max"},
        {"initial_value_threshold": 0.75},
        {"save_best_only": False},
    ):
        options = {"save_best_only": True} | options
        saved, ours = [], []
        with keras_rules():
            drive_keras(Theirs("a.keras", **options), sequence)
        folder = tmp_path / str(options.get("mode", len(options)))

        def through(run):
            ours.append(sorted(os.listdir(folder)))
            return pickled(run)

        drive(ModelCheckpoint(folder / "{epoch:02d}.npz", **options), sequence, through=through)
        assert [int(name[:2]) - 1 for name in ours[-1]] == saved
        for name in ours[-1]:
            (folder / name).unlink()


def test_checkpoints_after_steps(tmp_path):
    saving = ModelCheckpoint(tmp_path / "{epoch}-{step}.npz", save_freq=2, save_weights_only=True)
    assert saving.watches_batches
    assert not ModelCheckpoint("a.npz").watches_batches
    fit(saving, epochs=2, steps_per_execution=1)
    assert sorted(os.listdir(tmp_path)) == ["1-2.npz", "2-4.npz", "2-6.npz"]
    with np.load(tmp_path / "1-2.npz") as file:
        assert sorted(file.files) == [
            "about",
            "state/norm/moving_mean",
            "state/norm/moving_variance",
            "weights/body/bias",
            "weights/body/kernel",
            "weights/head/bias",
            "weights/head/kernel",
            "weights/norm/beta",
            "weights/norm/gamma",
        ]
    assert int(load_weights(tmp_path / "1-2.npz", RUN).step) == 0


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "w.npz"
    save_weights(path, RUN)
    before = path.read_bytes()

    def full(*arguments, **arrays):
        arguments[0].write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="epoch 1: '.*w.npz' could not be written: No space left"):
        ModelCheckpoint(path).on_epoch_end(0, RUN, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["w.npz"]


def test_dtypes_that_numpy_lacks(tmp_path):
    half = jax.tree.map(lambda a: a.astype("bfloat16"), RUN.model)
    run = RUN.replace(model=half)
    save_weights(tmp_path / "w.npz", run, weights_only=False)
    loaded = load_weights(tmp_path / "w.npz", shifted(run, 1.0))
    chex.assert_trees_all_equal_shapes_and_dtypes(loaded.model, run.model)
    chex.assert_trees_all_equal(
        *(jax.tree.map(lambda a: np.asarray(a, "float32"), r.model) for r in (loaded, run))
    )


def test_checkpoints_say_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"ends in .keras, .weights.h5 or .npz.*Write 'a.keras'"):
        ModelCheckpoint("a.h5")
    with pytest.raises(ValueError, match="save_weights_only: expected True for a .weights.h5 file"):
        ModelCheckpoint("a.weights.h5")
    with pytest.raises(ValueError, match="save_weights_only: expected False for a .keras file"):
        ModelCheckpoint("a.keras", save_weights_only=True)
    with pytest.raises(ValueError, match=r"expected a .npz file.*fk.load_weights\(path, run.model"):
        load_weights("a.weights.h5", RUN)
    with pytest.raises(TypeError, match="expected a path, a string or a pathlib.Path, received 3"):
        ModelCheckpoint(3)
    with pytest.raises(
        ValueError, match="save_freq: expected 'epoch', or a positive integer, received 0"
    ):
        ModelCheckpoint("a.npz", save_freq=0)
    fields = ModelCheckpoint(tmp_path / "{val_los:.2f}.npz")
    with pytest.raises(
        ValueError, match="needs 'val_los', which is not there. Did you mean 'val_l"
    ):
        hooks.check_logs([fields], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="needs 'val_los'"):
        fields.on_epoch_end(0, RUN, {"loss": 1.0})
    with pytest.raises(ValueError, match="cannot be filled in: .*Write fields such as"):
        ModelCheckpoint(tmp_path / "{loss:02d}.npz").on_epoch_end(0, RUN, {"loss": 1.0})
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="ModelCheckpoint: expected filepath as a folder that can be"):
        ModelCheckpoint(tmp_path / "file" / "a.npz").on_train_begin(RUN)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(OSError, match="a folder stands there"):
        ModelCheckpoint(tmp_path / "folder.npz").on_epoch_end(0, RUN, {})


def test_loading_says_what_is_wrong(tmp_path):
    path = tmp_path / "best.npz"
    save_weights(path, RUN, weights_only=False)
    with pytest.raises(FileNotFoundError, match="Did you mean 'best.npz'. In its folder: best.npz"):
        load_weights(tmp_path / "bst.npz", RUN)
    (tmp_path / "half.npz").write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="whole file that ModelCheckpoint wrote, and .*half.npz"):
        load_weights(tmp_path / "half.npz", RUN)
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    with pytest.raises(ValueError, match=r"whole file that ModelCheckpoint wrote.*about"):
        load_weights(tmp_path / "other.npz", RUN)
    np.savez(tmp_path / "new.npz", about=np.asarray('{"format": "fkeras weights", "version": 9}'))
    with pytest.raises(ValueError, match="version 1, received 'fkeras weights', version 9"):
        load_weights(tmp_path / "new.npz", RUN)

    def run_of(model, optimizer="sgd"):
        return fk.Trainer(optimizer, "mse").init(model, KEY)

    x = fk.Input((3,))
    other = fk.Model(x, layers.Dense(1, name="heads")(x))
    with pytest.raises(ValueError, match="the weight 'heads/kernel'.*Did you mean 'head/kernel'"):
        load_weights(path, run_of(other))
    h = layers.BatchNormalization(name="norm")(layers.Dense(4, name="body")(x))
    wide = fk.Model(x, layers.Dense(1, name="head")(h))
    with pytest.raises(ValueError, match=r"'body/kernel' of shape \(3, 4\), received \(3, 2\)"):
        load_weights(path, run_of(wide))
    save_weights(tmp_path / "wide.npz", run_of(wide))
    small = fk.Model(x, layers.Dense(1, name="head")(x))
    with pytest.raises(
        ValueError, match="the run has no weight 'body/kernel'|no weight 'body/bias'"
    ):
        load_weights(tmp_path / "wide.npz", run_of(small))
    with pytest.raises(ValueError, match="weights_only=True leaves the optimizer as it is"):
        load_weights(path, run_of(network(), "adam"))


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("separator", [",", ";"])
def test_csv_files_are_those_of_keras(tmp_path, append, separator):
    options = {"append": append, "separator": separator}
    for sequence in (
        [{"loss": 0.5, "b": 2.0}, {"loss": 0.25, "b": 1.0, "val_loss": 3.0, "val_b": 1e-9}],
        [{"loss": 0.125, "b": 0.5}],
    ):
        with keras_rules():
            drive_keras(keras.callbacks.CSVLogger(tmp_path / "theirs.csv", **options), sequence)
        drive(CSVLogger(tmp_path / "ours.csv", **options), sequence)
        ours, theirs = ((tmp_path / name).read_bytes() for name in ("ours.csv", "theirs.csv"))
        assert ours == theirs


@pytest.mark.parametrize("append", [False, True])
def test_a_csv_file_goes_on_below_its_own_rows(tmp_path, append):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss,val_loss\r\n0,9.0,NA\r\n")
    runs = []
    logger = CSVLogger(path, append=append)
    sequence = [{"loss": float(epoch)} for epoch in range(5)]

    def through(run):
        runs.append(pickled(run))
        return run

    drive(logger, sequence[:4], through=through)
    # the file knows four epochs and half a row, the run only two
    with path.open("a") as file:
        file.write("4,1")
    drive(logger, sequence[2:], run=runs[1], first=2)
    rows = list(csv.reader(io.StringIO(path.read_text())))
    before = ["0"] if append else []
    assert [row[0] for row in rows] == ["epoch", *before, "0", "1", "2", "3", "4"]
    assert [float(row[1]) for row in rows[1 + len(before) :]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    # the file was taken away meanwhile
    path.unlink()
    drive(logger, sequence[2:3], run=runs[1], first=2)
    assert path.read_text().splitlines() == ["epoch,loss,val_loss", "2,2.0,NA"]


def test_csv_says_what_is_wrong(tmp_path):
    path = tmp_path / "log.csv"
    drive(CSVLogger(path), [{"loss": 1.0, "f1": [0.5, 0.25]}])
    assert path.read_text().splitlines()[1] == '0,"[0.5, 0.25]",1.0,NA,NA'
    with pytest.raises(ValueError, match="columns epoch, auc, and .* has epoch, f1.*append=False"):
        drive(CSVLogger(path, append=True), [{"auc": 1.0}])
    with pytest.raises(ValueError, match="expected one character as separator, received '--'"):
        CSVLogger(path, "--")
    with pytest.raises(OSError, match="CSVLogger: expected filename as a folder"):
        CSVLogger(path / "a.csv").on_train_begin(RUN)


def test_terminate_on_nan(capsys):
    trainer = fk.Trainer(fk.optimizers.SGD(1e30), "mse", on_nonfinite="ignore")
    run = trainer.init(network(), KEY)
    _, history = trainer.fit(run, X, Y, epochs=9, callbacks=[TerminateOnNaN()], verbose=0)
    assert len(history.epoch) < 9
    assert not math.isfinite(history.history["loss"][-1])
    said = capsys.readouterr().out
    assert f"epoch {history.epoch[-1] + 1}: expected a finite loss, received" in said
    assert "The run of before this epoch is not available" in said
    with pytest.raises(fk.training.NonFiniteError, match="TerminateOnNaN, epoch 3"):
        TerminateOnNaN(raise_error=True).on_epoch_end(2, RUN, {"loss": math.inf})
    assert TerminateOnNaN().on_epoch_end(0, RUN, {}) is None


def keras_twin():
    with keras_rules():
        x = keras.Input((3,))
        h = keras.layers.BatchNormalization()(keras.layers.Dense(2)(x))
        model = keras.Model(x, keras.layers.Dense(1)(h))
    model.set_weights(RUN.model.get_weights(RUN.state))
    return model


def test_the_average_is_that_of_keras():
    model = keras_twin()
    with keras_rules():
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8)
        model.compile(optimizer, "mse")
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        theirs = model.get_weights()
    swap = SwapEMAWeights(0.8)
    run, _ = fit(swap, epochs=2, steps_per_execution=1)
    for one, other in zip(run.model.get_weights(run.state), theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    # training goes on from the weights, in one fit or two
    plain, _ = fit(epochs=4)
    half, _ = fit(swap, run=pickled(run), epochs=2, steps_per_execution=1)
    whole, _ = fit(swap, epochs=4, steps_per_execution=1)
    kept = whole.memory["swap_ema_weights"]
    chex.assert_trees_all_close(half.model, whole.model, rtol=1e-5)
    trained = fk.engine.trainable_weights(plain.model)
    chex.assert_trees_all_close(dict(kept["weights"]), trained, rtol=1e-5, atol=1e-7)


def test_the_average_stands_in_where_it_should():
    seen = {}
    early = LambdaCallback(on_epoch_begin=lambda e, run: seen.__setitem__(("begin", e), run))
    late = LambdaCallback(on_epoch_end=lambda e, run, logs: seen.__setitem__(("end", e), run))
    swap = SwapEMAWeights(0.5, swap_on_epoch=True, update_freq="epoch")
    assert not swap.watches_batches
    run, _ = fit(early, swap, late, epochs=2)
    kept = run.memory["swap_ema_weights"]
    chex.assert_trees_all_close(fk.engine.trainable_weights(run.model), dict(kept["average"]))
    first, second = (seen["end", e].memory["swap_ema_weights"] for e in (0, 1))
    wanted = jax.tree.map(lambda a, w: (a + w) / 2, first["weights"], second["weights"])
    chex.assert_trees_all_close(dict(second["average"]), dict(wanted), rtol=1e-5)
    plain, _ = fit(epochs=2)
    trained = fk.engine.trainable_weights(plain.model)
    chex.assert_trees_all_close(dict(kept["weights"]), trained, rtol=1e-5)
    # a validation sees the average, and nothing else does
    middle = swap.on_epoch_begin(1, seen["end", 0])
    tested = swap.on_test_begin(middle)
    weights = fk.engine.trainable_weights
    chex.assert_trees_all_close(weights(tested.model), dict(first["average"]))
    chex.assert_trees_all_equal(weights(middle.model), dict(first["weights"]))
    assert swap.on_test_begin(run) is None


def test_the_average_and_a_model_that_changed():
    swap = SwapEMAWeights(0.5)
    run, _ = fit(swap, epochs=1)
    # other weights were put in: they stay
    changed = shifted(run, 1.0)
    begun = swap.on_train_begin(changed)
    chex.assert_trees_all_equal(begun.model, changed.model)
    assert int(begun.memory["swap_ema_weights"]["updates"]) == 0
    frozen = run.replace(model=fk.freeze(run.model, "body"))
    fitted, _ = fit(swap, run=frozen, epochs=1)
    assert sorted(fitted.memory["swap_ema_weights"]["average"]) == [
        "head/bias",
        "head/kernel",
        "norm/beta",
        "norm/gamma",
    ]
    # n steps in one call count as n
    two = SwapEMAWeights(0.5, name="two")
    begun = two.on_train_begin(RUN)
    one = two.on_batch_end(1, shifted(begun, 1.0), {})
    jump = two.on_batch_end(3, shifted(one, 1.0), {})
    gap = float(jump.memory["two"]["average"]["head/bias"][0] - RUN.model.layers["head"].bias[0])
    assert gap == pytest.approx(0.25 * 1 + 0.75 * 2, rel=1e-5)


def test_the_average_of_half_precision():
    run = RUN.replace(model=jax.tree.map(lambda a: a.astype("bfloat16"), RUN.model))
    swap = SwapEMAWeights(0.5, name="s")
    run = swap.on_train_end(swap.on_batch_end(1, swap.on_train_begin(run), {}))
    assert run.memory["s"]["average"]["head/bias"].dtype == "float32"
    assert run.model.layers["head"].bias.dtype == "bfloat16"
    assert "weights" not in swap.on_train_begin(run).memory["s"]


def test_average_says_what_is_wrong():
    with pytest.raises(ValueError, match="momentum: expected a number from 0 to 1, received 1.5"):
        SwapEMAWeights(1.5)
    with pytest.raises(
        ValueError, match="update_freq: expected 'batch' or 'epoch', received 'step'"
    ):
        SwapEMAWeights(update_freq="step")


def test_progress_bar():
    stream = io.StringIO()
    fit(ProgressBar(stream, epochs=2, every=2), epochs=2, steps_per_execution=1)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("Epoch 1/2  2 steps  ")
    assert "  loss " in lines[1]
    assert "/step" in lines[1]
    assert lines[3].startswith("Epoch 2/2  3 steps  ")
    with pytest.raises(
        TypeError, match="expected a stream with a method write, received 'log.txt'"
    ):
        ProgressBar("log.txt")
    assert not ProgressBar(stream).watches_batches


def test_progress_bar_writes_to_the_screen(capsys):
    fit(ProgressBar(), epochs=1)
    assert capsys.readouterr().out.startswith("Epoch 1  3 steps  ")


def test_profiler(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: calls.append(folder))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: calls.append("stop"))
    steps = LambdaCallback(on_batch_end=lambda step, run, logs: calls.append(step))
    folder = str(tmp_path / "deep")
    profiler = Profiler(folder, 2, 3)
    run, _ = fit(steps, profiler, epochs=2, steps_per_execution=1)
    assert calls == [1, folder, 2, 3, "stop", 4, 5, 6]
    # once is enough, in another process too
    calls.clear()
    fit(profiler, run=pickled(run), epochs=1)
    assert calls == []
    # the training ends first; and a trace whose process died is begun again
    fit(Profiler(folder, 1, 99), epochs=1)
    assert calls == [folder, "stop"]
    calls.clear()
    (named,) = hooks.check_callbacks(profiler)
    dead = named.remember(RUN, 1)
    fit(profiler, run=dead, epochs=1, steps_per_execution=1)
    assert calls == [folder, "stop"]


def test_profiler_says_what_is_wrong(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Write first=5, last=9"):
        Profiler("a", 9, 5)
    with pytest.raises(ValueError, match="first: expected a positive integer, received 0"):
        Profiler("a", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Profiler: expected log_dir as a folder that can be written"):
        Profiler(tmp_path / "file").on_train_begin(RUN)

    def busy(folder):
        raise RuntimeError("Profile has already been started.")

    monkeypatch.setattr(jax.profiler, "start_trace", busy)
    with pytest.raises(RuntimeError, match="another trace is being recorded .*stop_trace"):
        Profiler(tmp_path, 1).on_train_begin(RUN)


def test_memory_of_a_run_too_large_to_keep_twice(monkeypatch, tmp_path):
    # its arrays are copied to the device at every call, what is remembered too
    monkeypatch.setattr("fkeras.training.data.array_feed.device_bytes", lambda: 0)
    stream = io.StringIO()
    given = (
        SwapEMAWeights(0.5),
        EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True),
        CSVLogger(tmp_path / "log.csv"),
        ModelCheckpoint(tmp_path / "{step}.npz", save_freq=2),
        ProgressBar(stream, every=1),
    )
    run, history = fit(*given, epochs=9, steps_per_execution=1)
    assert history.epoch == [0, 1, 2]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert len(list(tmp_path.glob("*.npz"))) == 4
    assert len(stream.getvalue().splitlines()) == 12
    assert int(run.memory["early_stopping"]["best_epoch"]) == 0
    fit(*given, run=pickled(run), epochs=4, initial_epoch=3)


def read_events(folder):
    """The events of a folder's only file, their checksums verified."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    (path,) = pathlib.Path(folder).iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert events._checksum(data[:8]) == data[8:12]
        body, data = data[12 : 12 + length], data[12 + length :]
        assert events._checksum(body) == data[:4]
        found.append(event_pb2.Event.FromString(body))
        data = data[4:]
    return found


def tags(found):
    return [(value.tag, event.step) for event in found for value in event.summary.value]


def test_tensorboard_writes_what_keras_writes(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, histogram_freq=2, update_freq=2)
    _, history = fit(board, epochs=2, validation_split=0.25, steps_per_execution=1)
    assert sorted(os.listdir(tmp_path)) == ["train", "validation"]
    found = read_events(tmp_path / "train")
    assert found[0].file_version == "brain.Event:2"
    names = tags(found)
    assert names[0] == ("graph/text_summary", 0)
    assert ("batch_loss", 2) in names
    assert ("epoch_loss", 0) in names
    assert ("epoch_learning_rate", 1) in names
    assert ("body/kernel/histogram", 0) in names
    assert ("body/kernel/histogram", 1) not in names
    graph = found[1].summary.value[0].tensor.string_val[0].decode()
    assert "flowchart" in graph or "graph" in graph
    losses = [v.simple_value for e in found for v in e.summary.value if v.tag == "epoch_loss"]
    np.testing.assert_allclose(losses, history.history["loss"], rtol=1e-6)
    assert tags(read_events(tmp_path / "validation")) == [("epoch_loss", 0), ("epoch_loss", 1)]


def test_tensorboard_goes_on_in_its_file(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, write_graph=False)
    drive(board, [{"loss": 1.0, "f1": [0.5, 0.25]}, {"loss": 2.0}])
    scheduled = fk.Trainer(fk.optimizers.SGD(lambda step: 0.1), "mse").init(RUN.model, KEY)
    drive(board, [{"loss": 3.0}], run=scheduled, first=1)
    found = read_events(tmp_path / "train")
    assert tags(found)[:4] == [
        ("epoch_loss", 0),
        ("epoch_f1_0", 0),
        ("epoch_f1_1", 0),
        ("epoch_learning_rate", 0),
    ]
    assert tags(found)[4:] == [("epoch_loss", 1), ("epoch_learning_rate", 1), ("epoch_loss", 1)]
    # what stood at an epoch that is written again is hidden
    assert [e.step for e in found if e.HasField("session_log")] == [0, 1, 1]
    broken = shifted(RUN, math.nan)
    drive(TensorBoard(tmp_path / "b", histogram_freq=1), [{"loss": 1.0}], run=broken)


def test_tensorboard_says_what_is_wrong(tmp_path, monkeypatch):
    assert TensorBoard(update_freq="batch").update_freq == 1
    assert not TensorBoard().watches_batches
    with pytest.raises(
        ValueError, match="'epoch' or 'batch', or a positive integer, received 'step'"
    ):
        TensorBoard(update_freq="step")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tensorboardX", None)
        without.setitem(sys.modules, "tensorboardX.summary", None)
        with pytest.raises(ImportError, match="pip install tensorboardX`"):
            TensorBoard(tmp_path).on_train_begin(RUN)
    pytest.importorskip("tensorboardX")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="TensorBoard: expected log_dir as a folder"):
        TensorBoard(tmp_path / "file").on_train_begin(RUN)
