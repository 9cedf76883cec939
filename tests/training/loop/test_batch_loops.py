"""Several steps in one call, callbacks, and Keras's fit as the oracle of the logs."""

import dataclasses
import functools
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.nn.convolution import convolve
from fkeras.training import Callback, Stop
from fkeras.training.data import array_feed
from fkeras.training.loop import batch_loops, epoch_loop
from fkeras.training.step import step
from fkeras.training.step.blocks import flat
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(1)
X = RNG.normal(size=(90, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32") + (X[:, 1] > 0)
KEY = jax.random.key(3)


def noisy():
    x = fk.Input((4,))
    h = layers.Dropout(0.3)(layers.Dense(5, "relu")(x))
    return fk.Model(x, layers.Dense(3, "softmax")(layers.BatchNormalization()(h)))


TRAINER = fk.Trainer("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
RUN = TRAINER.init(noisy(), KEY)


@pytest.mark.exhaustive
def test_the_number_of_steps_a_call_changes_nothing(monkeypatch):
    many, first = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=8, verbose=0)
    monkeypatch.setattr(batch_loops, "_DISPATCH", 0.0)  # one step a call
    single, second = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=8, verbose=0)
    chex.assert_trees_all_equal(many, single)
    assert first == second


@pytest.mark.exhaustive
def test_runs_whose_copy_takes_long_train_by_single_steps_on_a_cpu(monkeypatch):
    modes = []
    choose = batch_loops.CallSize.choose

    def record(*arguments):
        modes.append(choose(*arguments))
        return modes[-1]

    monkeypatch.setattr(batch_loops.CallSize, "choose", record)
    looped, first = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=8, verbose=0)
    assert set(modes) == {"loop"}
    monkeypatch.setattr(epoch_loop, "_COPIED", 100)
    modes.clear()
    single, second = TRAINER.fit(RUN, X, Y, epochs=2, batch_size=8, verbose=0)
    assert set(modes) == {"once" if jax.default_backend() == "cpu" else "loop"}
    chex.assert_trees_all_close(looped, single, rtol=1e-5, atol=1e-6)
    assert second["loss"] == pytest.approx(first["loss"], rel=1e-5)
    modes.clear()
    _ = TRAINER.fit(RUN, X, Y, epochs=1, batch_size=8, steps_per_execution=3, verbose=0)
    assert set(modes) == {"loop"}


def test_fit_equals_steps_by_hand_with_the_same_keys():
    fitted, history = TRAINER.fit(RUN, X[:24], Y[:24], batch_size=8, shuffle=False, verbose=0)
    run, losses = RUN, []
    for start in (0, 8, 16):
        run, logs = TRAINER.step(run, (X[start : start + 8], Y[start : start + 8]))
        losses.append(float(logs["loss"]))
    chex.assert_trees_all_close(fitted.model, run.model, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(fitted.state, run.state, rtol=1e-4, atol=1e-6)
    assert history.history["loss"][0] == pytest.approx(np.mean(losses), rel=1e-5)


def test_copies_of_the_last_row_fill_the_last_batch():
    feed = array_feed.feed_of(np.arange(10), 4)
    (chunk, counts), count = array_feed.Epoch(feed, feed.order(None), 2).take(5)
    np.testing.assert_array_equal(chunk[0], [8, 9, 9, 9])
    assert (count, counts[0]) == (1, 2)
    resident_feed = array_feed.placed(feed)
    rows, _ = resident_feed.epoch(RUN, 0).take(3)
    batch_at = jax.jit(step.batch_at)
    seen = [jax.device_get(batch_at(rows, np.int32(number))) for number in range(3)]
    order = np.concatenate([batch[valid] for batch, valid in seen])
    np.testing.assert_array_equal(np.sort(order), np.arange(10))
    np.testing.assert_array_equal(seen[2][0][2:], [seen[2][0][1]] * 2)
    np.testing.assert_array_equal(feed.batch(2), [8, 9, 9, 9])
    assert array_feed.feed_of(np.arange(3), 4).size == 3
    assert array_feed.feed_of(np.zeros((100, 1 << 18), "float32"), 8).capacity == 1


def blurred(x):
    numbers = ("NHWC", "HWIO", "NHWC")
    kernel = jnp.ones((3, 3, 1, 1))
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("layer", "mode"), [(layers.Conv2D(2, 3), "loop"), (layers.Lambda(blurred), "once")]
)
def test_convolutions_by_xla_run_without_a_loop_on_a_cpu(layer, mode):
    x = fk.Input((6, 6, 1))
    model = fk.Model(x, layers.Dense(1)(layers.Flatten()(layer(x))))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    images = RNG.normal(size=(12, 6, 6, 1)).astype("float32")
    fitted, _ = trainer.fit(run, images, images[:, 0, 0], batch_size=4, shuffle=False, verbose=0)
    by_hand = run
    for start in (0, 4, 8):
        rows = slice(start, start + 4)
        by_hand, _ = trainer.step(by_hand, (images[rows], images[rows, 0, 0]))
    chex.assert_trees_all_close(fitted.model, by_hand.model, rtol=1e-4, atol=1e-6)
    feed = array_feed.placed(array_feed.feed_of((images, images[:, 0, 0], None), 4))
    structure, *arrays = flat(trainer, run)[:3]
    rows, _ = feed.epoch(run, 0).take(1)
    call = (
        step.compiled_train.by_default,
        (trainer, structure, "loop"),
        (*arrays, rows, np.int32(1)),
    )
    assert batch_loops.CallSize().choose(False, *call) == mode
    assert batch_loops.CallSize(2).choose(False, *call) == "loop"


@pytest.mark.exhaustive
def test_a_gpu_knows_the_number_of_steps_that_the_user_chose(monkeypatch):
    modes, train = [], step._train

    def traced(trainer, structure, mode, *arrays):
        modes.append(mode)  # once for each compiled program
        return train(trainer, structure, mode, *arrays)

    compiled = step.compiled(traced, static_argnums=(0, 1, 2))
    monkeypatch.setattr(step, "compiled_train", compiled)
    options = {"batch_size": 8, "steps_per_execution": 3, "epochs": 2, "verbose": 0}
    expected = TRAINER.fit(RUN, X[:40], Y[:40], **options)
    assert modes == ["loop"]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    known = TRAINER.fit(RUN, X[:40], Y[:40], **options)
    assert modes == ["loop", 3]  # three steps, then the other two of the epoch
    chex.assert_trees_all_equal(known[0], expected[0])
    assert known[1] == expected[1]
    _ = TRAINER.fit(RUN, X[:16], Y[:16], **options)
    assert modes == ["loop", 3]
    # the bound of the loop is a constant of the program
    structure, *arrays = flat(step.training_form(TRAINER), RUN)[:3]
    rows, _ = array_feed.placed(array_feed.feed_of((X[:40], Y[:40], None), 8)).epoch(RUN, 0).take(3)
    kinds = {
        mode: {
            equation.primitive.name
            for equation in compiled.by_default.trace(
                step.training_form(TRAINER), structure, mode, *arrays, rows, np.int32(3)
            ).jaxpr.eqns
        }
        & {"while", "scan"}
        for mode in ("loop", 3)
    }
    assert kinds == {"loop": {"while"}, 3: {"scan"}}


@pytest.mark.parametrize(("read", "compute"), [(0.005, 0.005), (0.02, 0.005), (0.005, 0.02)])
def test_reading_and_computing_overlap(monkeypatch, read, compute):
    """A simulation of `EpochLoop.train` with a clock of its own: calls of equal size hide each other."""
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(batch_loops.time, "perf_counter", lambda: clock.now)
    size, busy, older, done = batch_loops.CallSize(), 0.0, None, 0
    size.start()
    while done < 600:
        number, fresh = size.batches, size.fresh
        clock.now += number * read
        busy = max(busy, clock.now) + number * compute
        # the first call is settled at once, each later call after the next is dispatched
        for call in [(busy, number)] if fresh else [older] if older else []:
            clock.now = max(clock.now, call[0])
            size.measured(call[1])
        older, done = (None if fresh else (busy, number)), done + number
    assert max(clock.now, busy) / done < 1.15 * max(read, compute)


def test_the_key_is_plain_where_it_crosses_a_dispatch():
    assert all(not jnp.issubdtype(a.dtype, jax.dtypes.prng_key) for a in jax.tree.leaves(RUN))
    assert bool(RUN.key == KEY)
    other = RUN.replace(key=jax.random.key(7))
    assert bool(other.key == jax.random.key(7))
    assert RUN.replace(step=jnp.int32(5)).impl == RUN.impl
    init = jax.vmap(lambda key: TRAINER.init(noisy().build(KEY), key))
    runs = jax.jit(lambda: init(jax.random.split(KEY, 3)))()
    assert runs.key.shape == (3,)
    with pytest.raises(AttributeError, match=r"run\.replace\(step="):
        RUN.step = 3


def test_init_accepts_a_trained_state():
    state = {"batch_normalization": {k: v + 1 for k, v in _statistics(RUN).items()}}
    run = TRAINER.init(RUN.model, KEY, state=state)
    chex.assert_trees_all_equal(run.state, state)


def _statistics(run):
    return run.state["batch_normalization"]


class Recorder(Callback):
    write: object = fk.option()

    def on_train_begin(self, run):
        self.write("begin", run)

    def on_epoch_begin(self, epoch, run):
        self.write(f"epoch {epoch}", run)

    def on_epoch_end(self, epoch, run, logs):
        self.write(f"end {epoch} {sorted(logs)}", run)
        return Stop() if epoch == 1 else None

    def on_train_end(self, run):
        self.write("over", run)


class Reset(Callback):
    run: object = fk.option()

    def on_epoch_end(self, epoch, run, logs):
        return self.run


class Wrong(Callback):
    def on_epoch_end(self, epoch, run, logs):
        return logs


@pytest.mark.exhaustive
def test_callbacks_see_runs_that_stay_valid_and_can_stop():
    seen = []

    def write(word, run):
        seen.append((word, run))

    _, history = TRAINER.fit(
        RUN, X, Y, epochs=5, batch_size=32, verbose=0, callbacks=[Recorder(write)]
    )
    assert [word for word, _ in seen] == [
        "begin",
        "epoch 0",
        "end 0 ['accuracy', 'loss']",
        "epoch 1",
        "end 1 ['accuracy', 'loss']",
        "over",
    ]
    assert history.epoch == [0, 1]
    for _, run in seen:
        assert np.isfinite(np.asarray(jax.tree.leaves(run.model)[0])).all()


@pytest.mark.exhaustive
def test_a_callback_may_return_another_run():
    class Keep(Callback):
        def on_epoch_end(self, epoch, run, logs):
            return run.replace(step=jnp.int32(100)) if epoch == 0 else Stop(RUN)

    run, _ = TRAINER.fit(RUN, X, Y, epochs=4, batch_size=90, verbose=0, callbacks=Keep())
    assert run is RUN
    with pytest.raises(TypeError, match=r"Wrong\.on_epoch_end: expected None, a TrainState"):
        _ = TRAINER.fit(RUN, X, Y, batch_size=90, verbose=0, callbacks=[Wrong()])
    with pytest.raises(TypeError, match=r"Write Wrong\(\)"):
        _ = TRAINER.fit(RUN, X, Y, verbose=0, callbacks=[Wrong])


def _keras_pair():
    x = fk.Input((4,), name="x")
    h = layers.Dense(6, "tanh", name="h")(x)
    a = layers.Dense(1, name="a")(h)
    b = layers.Dense(3, "softmax", name="b", kernel_regularizer="l2")(h)
    ours = fk.Model(x, [a, b]).build(KEY)
    with keras_rules():
        kx = keras.Input((4,), name="x")
        kh = keras.layers.Dense(6, "tanh", name="h")(kx)
        ka = keras.layers.Dense(1, name="a")(kh)
        kb = keras.layers.Dense(3, "softmax", name="b", kernel_regularizer="l2")(kh)
        theirs = keras.Model(kx, [ka, kb])
    theirs.set_weights(ours.get_weights())
    return ours, theirs


@pytest.mark.exhaustive
def test_history_and_weights_agree_with_keras():
    ours, theirs = _keras_pair()
    config = {
        "loss": ["mse", "sparse_categorical_crossentropy"],
        "loss_weights": [0.3, 2.0],
        "metrics": [["mae"], ["accuracy"]],
        "weighted_metrics": [[], ["accuracy"]],
    }
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), **config)
    theirs.compile(optimizer=keras.optimizers.SGD(0.1), **config)
    weights = RNG.random(90).astype("float32")
    y = [X[:, 2:3], Y]
    fit = {"epochs": 2, "batch_size": 32, "shuffle": False, "verbose": 0}
    # Keras takes a weight for each output
    with keras_rules():
        expected = theirs.fit(X, y, sample_weight=[weights, weights], **fit).history
        trained = theirs.get_weights()
    run, history = trainer.fit(trainer.init(ours, KEY), X, y, sample_weight=weights, **fit)
    assert list(history.history)[0] == "loss"
    assert set(history.history) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(history.history[name], values, rtol=2e-4, err_msg=name)
    for mine, other in zip(run.model.get_weights(), trained, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)
    logs = trainer.evaluate(run, X, y, batch_size=32, verbose=0)
    with keras_rules():
        expected = theirs.evaluate(X, y, batch_size=32, verbose=0, return_dict=True)
    assert set(logs) == set(expected)
    for name, value in expected.items():
        assert logs[name] == pytest.approx(value, rel=1e-3), name


@pytest.mark.exhaustive
def test_masked_sequences_agree_with_keras():
    ids = np.array([[1, 2, 0, 0], [3, 1, 2, 4], [4, 0, 0, 0]], "int32")
    y = np.array([[0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]], "int32")
    x = fk.Input((4,), dtype="int32")
    h = layers.Embedding(5, 3, mask_zero=True)(x)
    ours = fk.Model(x, layers.Dense(2, "softmax")(h)).build(KEY)
    with keras_rules():
        theirs = keras.Sequential(
            [
                keras.Input((4,), dtype="int32"),
                keras.layers.Embedding(5, 3, mask_zero=True),
                keras.layers.Dense(2, "softmax"),
            ]
        )
    theirs.set_weights(ours.get_weights())
    trainer = fk.Trainer("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    theirs.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    logs = trainer.evaluate(trainer.init(ours, KEY), ids, y, batch_size=2, verbose=0)
    with keras_rules():
        expected = theirs.evaluate(ids, y, batch_size=2, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert logs[name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.exhaustive
@pytest.mark.parametrize("on_nonfinite", ["raise", "ignore"])
def test_large_runs_are_overwritten_and_compute_the_same(monkeypatch, on_nonfinite):
    trainer = dataclasses.replace(TRAINER, on_nonfinite=on_nonfinite)
    small, history = trainer.fit(RUN, X, Y, 8, epochs=2, verbose=0)
    monkeypatch.setattr("fkeras.training.data.array_feed.device_bytes", lambda: 0)
    large, again = trainer.fit(RUN, X, Y, 8, epochs=2, verbose=0)
    chex.assert_trees_all_close(large.model, small.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(again.history["loss"], history.history["loss"], rtol=1e-5)


def test_only_convolutions_by_xla_are_slow_in_loops():
    x, kernel = np.ones((2, 4, 4, 1), "float32"), np.ones((3, 3, 1, 1), "float32")

    def scanned(function):
        return jax.make_jaxpr(lambda x: jax.lax.scan(lambda c, _: (function(c), None), x, None, 2))(
            x
        )

    assert step.convolves(scanned(blurred))
    conv = functools.partial(convolve, kernel=kernel, strides=(1, 1), padding="same")
    assert not step.convolves(scanned(conv))
    assert not step.convolves(scanned(jax.grad(lambda x: jnp.sum(conv(x) ** 2))))


@pytest.mark.exhaustive
def test_convolutions_train_in_loops_with_the_numbers_of_single_steps():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 6, 6, 2)).astype("float32")
    y = rng.normal(size=(24, 4)).astype("float32")
    inputs = fk.Input((6, 6, 2))
    h = fk.layers.MaxPooling2D(2)(fk.layers.Conv2D(4, 3, padding="same")(inputs))
    h = fk.layers.DepthwiseConv2D(3, padding="same")(fk.layers.BatchNormalization()(h))
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    model = fk.Model(inputs, fk.layers.GlobalAveragePooling2D()(h))
    run = trainer.init(model, jax.random.key(0))
    options = {"batch_size": 8, "shuffle": False, "verbose": 0}
    single, _ = trainer.fit(run, x, y, steps_per_execution=1, **options)
    looped, _ = trainer.fit(run, x, y, steps_per_execution=3, **options)
    pure, _ = jax.jit(lambda run: trainer.run(run, (x, y), 1, 8, shuffle=False))(run)
    for other in (looped, pure):
        chex.assert_trees_all_close(other.model, single.model, rtol=1e-5, atol=1e-6)
        chex.assert_trees_all_close(other.state, single.state, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_evaluate_counts_every_batch_in_single_steps():
    """Convolutions by XLA run in single steps on a CPU; each batch of an evaluation is one of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(72, 4, 4, 1)).astype("float32")
    y = rng.normal(size=(72, 4, 4, 1)).astype("float32")
    model = fk.Sequential([fk.Input((4, 4, 1)), fk.layers.Lambda(blurred), fk.layers.Dense(1)])
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    expected_loss = trainer.evaluate(run, x, y, batch_size=72, verbose=0)["loss"]
    expected = np.mean(np.square(trainer.predict(run, x) - y))
    np.testing.assert_allclose(expected_loss, expected, rtol=1e-5)
    for size in (6, 7):
        parts = trainer.evaluate(run, x, y, batch_size=size, verbose=0)["loss"]
        np.testing.assert_allclose(parts, expected_loss, rtol=1e-5)
    frozen = fk.Trainer(fk.optimizers.SGD(0.0), "mse")
    run, history = frozen.fit(
        frozen.init(run.model, jax.random.key(0)),
        x,
        y,
        batch_size=6,
        validation_data=(x, y),
        verbose=0,
    )
    np.testing.assert_allclose(history.history["val_loss"], [expected_loss], rtol=1e-5)
    np.testing.assert_allclose(history.history["loss"], [expected_loss], rtol=1e-5)
