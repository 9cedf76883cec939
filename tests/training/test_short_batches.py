"""A batch is exactly its rows: `fit` and `evaluate` equal steps over batches of exactly the rows.

Each problem is a model, a loss and metrics in which the batch may matter as a whole. The tests compare
with `trainer.step` on every batch, including the last batch with fewer rows.
"""

import functools

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers, losses, ops
from fkeras.training.inputs.padding import fills_up
from tests.support.compile_counts import count_compiles
from tests.support.quick_cases import quick_cases

KEY = jax.random.key(0)
TRAINER = fk.Trainer("sgd", "mse")
WIDTH = 4


class CodeLoss(fk.Layer):
    """Returns its input, and the mean square of the batch as a loss, as a variational autoencoder."""

    def call(self, x):
        return x

    def forward(self, context, x):
        return fk.Output(x, losses=(jnp.mean(x**2),), metrics={"size": jnp.mean(jnp.abs(x))})


@jax.custom_vjp
def centered_gradient(x):
    return x


centered_gradient.defvjp(lambda x: (x, None), lambda _, g: (g - jnp.mean(g, 0, keepdims=True),))


def _dense(x):
    return layers.Dense(3, "softmax")(layers.Dense(5, "relu", kernel_regularizer="l2")(x))


def _normalized(x):
    return layers.Dense(3, "softmax")(layers.BatchNormalization(momentum=0.5)(x))


def _times(x):
    x = layers.Reshape((2, 2))(x)
    x = layers.TimeDistributed(layers.BatchNormalization(momentum=0.5))(x)
    return layers.Dense(3, "softmax")(layers.Flatten()(x))


def _masked(x):
    x = layers.Masking()(layers.Reshape((2, 2))(ops.relu(x)))
    x = layers.BatchNormalization(momentum=0.5)(x)
    return layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x))


def _active(x):
    return layers.Dense(3, "softmax")(layers.Dense(5, activity_regularizer="l2")(x))


def _penalized(x):
    return layers.Dense(3, "softmax")(layers.ActivityRegularization(l1=0.1, l2=0.1)(x))


def _coded(x):
    return layers.Dense(3, "softmax")(CodeLoss()(layers.Dense(2)(x)))


def _across(x):
    return layers.Dense(3, "softmax")(x - ops.mean(x, axis=0, keepdims=True))


def _shared(x):
    return x / x.shape[0]


def _size(x):
    return layers.Dense(3, "softmax")(layers.Lambda(_shared)(x))


def _dropped(x):
    x = layers.Dropout(0.5)(layers.Dense(8, "tanh")(x))
    return layers.Dense(3, "softmax")(layers.GaussianNoise(0.1)(x))


def _recurrent(x):
    x = layers.GRU(4)(layers.Masking()(layers.Reshape((2, 2))(ops.relu(x))))
    return layers.Dense(3, "softmax")(x)


def _attentive(x):
    x = layers.Reshape((2, 2))(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 2, dropout=0.2)(x, x))
    return layers.Dense(3, "softmax")(layers.Flatten()(x))


def _convolved(x):
    x = layers.Conv1D(3, 2, padding="same")(layers.Reshape((4, 1))(x))
    x = layers.MaxPooling1D(2)(x)
    return layers.Dense(3, "softmax")(layers.Flatten()(x))


def _custom_gradient(x):
    return layers.Dense(3, "softmax")(layers.Lambda(centered_gradient)(layers.Dense(4)(x)))


# each model, and whether a step of a training may fill up its batches
MODELS = {
    "dense": (_dense, True),
    "dropout": (_dropped, True),
    "gru": (_recurrent, True),
    "attention": (_attentive, True),
    "convolution": (_convolved, True),
    "batch normalization": (_normalized, False),
    "batch normalization of time steps": (_times, False),
    "masked batch normalization": (_masked, False),
    "activity regularizer": (_active, False),
    "ActivityRegularization": (_penalized, False),
    "a layer's loss": (_coded, False),
    "mean over the batch": (_across, False),
    "number of rows": (_size, False),
    "custom gradient": (_custom_gradient, False),
}


def scaled(y_true, y_pred):
    """Loss of a user that divides by a sum over the batch."""
    return jnp.abs(y_true - y_pred) / jnp.sum(jnp.abs(y_pred))


# each loss, and whether it may fill up batches
LOSSES = {
    "mse": ("mse", True),
    "crossentropy": ("categorical_crossentropy", True),
    "huber sum": (losses.Huber(reduction="sum"), True),
    "weighted mean": (losses.MeanAbsoluteError(reduction="mean_with_sample_weight"), True),
    "dice": (losses.Dice(), False),
    "dice of each row": (losses.Dice(axis=-1), True),
    "tversky": (losses.Tversky(), False),
    "function": (scaled, False),
}


@functools.cache
def problem(model, loss, devices=1, accumulate=None):
    """The trainer and the run of a model and a loss, once for all tests."""
    x = fk.Input((WIDTH,))
    optimizer = fk.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=accumulate)
    mesh = jax.make_mesh((devices,), ("data",)) if devices > 1 else None
    options = {"metrics": ["mae", fk.metrics.R2Score()], "weighted_metrics": ["mse"], "mesh": mesh}
    trainer = fk.Trainer(optimizer, LOSSES[loss][0], **options)
    return trainer, trainer.init(fk.Model(x, MODELS[model][0](x)), KEY)


def data(rows, weighted=False):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, WIDTH)).astype("float32")
    y = np.eye(3, dtype="float32")[rng.integers(0, 3, rows)]
    return (x, y, rng.random(rows).astype("float32")) if weighted else (x, y)


def exact_batches(arrays, size):
    return [
        tuple(a[start : start + size] for a in arrays) for start in range(0, len(arrays[0]), size)
    ]


def by_steps(trainer, run, batches, epochs=1):
    """The run after steps over batches, and the mean loss of the last epoch."""
    for _ in range(epochs):
        run, values = trainer.reset_metrics(run), []
        for batch in batches:
            run, logs = trainer.step(run, batch)
            values.append(float(logs["loss"]))
    return run, np.average(values, weights=[len(batch[0]) for batch in batches])


def by_evaluations(trainer, run, batches):
    """The mean loss of evaluations of single batches, which have no padding."""
    values = [trainer.evaluate(run, *b, batch_size=len(b[0]), verbose=0)["loss"] for b in batches]
    return np.average(values, weights=[len(batch[0]) for batch in batches])


def assert_same_run(run, expected, logs=None):
    parts = ("model", "state", "opt_state", "step")
    one, two = ({name: getattr(r, name) for name in parts} for r in (run, expected))
    chex.assert_trees_all_close(one, two, rtol=2e-4, atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "model", quick_cases(MODELS, "dense", "convolution", "batch normalization", "a layer's loss")
)
def test_fit_equals_steps_over_exact_batches(model):
    trainer, run = problem(model, "mse")
    x, y = data(11)
    batches = exact_batches((x, y), 8)
    expected, loss = by_steps(problem(model, "mse")[0], run, batches)
    fitted, history = trainer.fit(run, x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same_run(fitted, expected)
    np.testing.assert_allclose(history.history["loss"], [loss], rtol=1e-5)
    fitted, history = trainer.fit(run, batches, verbose=0)
    assert_same_run(fitted, expected)
    np.testing.assert_allclose(history.history["loss"], [loss], rtol=1e-5)
    logs = trainer.evaluate(run, x, y, batch_size=8, verbose=0)
    np.testing.assert_allclose(logs["loss"], by_evaluations(trainer, run, batches), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", quick_cases(LOSSES, "crossentropy", "dice", "weighted mean"))
def test_losses_are_those_of_exact_batches(loss):
    trainer, run = problem("dense", loss)
    batches = exact_batches(data(11), 8)
    expected, value = by_steps(trainer, run, batches)
    fitted, history = trainer.fit(run, *data(11), batch_size=8, shuffle=False, verbose=0)
    assert_same_run(fitted, expected)
    np.testing.assert_allclose(history.history["loss"], [value], rtol=1e-5)
    logs = trainer.evaluate(run, *data(11), batch_size=8, verbose=0)
    np.testing.assert_allclose(logs["loss"], by_evaluations(trainer, run, batches), rtol=1e-5)


@pytest.mark.exhaustive
def test_the_program_decides_which_batches_are_filled_up():
    batch = *data(8), None
    for name, (_, expected) in MODELS.items():
        assert fills_up(*problem(name, "mse"), batch, 3, True) == expected, name
    for name, (_, expected) in LOSSES.items():
        assert fills_up(*problem("dense", name), batch, 3, True) == expected, name
        assert fills_up(*problem("dense", name), batch, 3, False) == expected, name
    # in an evaluation, BatchNormalization computes row by row
    assert fills_up(*problem("batch normalization", "mse"), batch, 3, False)
    # dropout draws numbers by position: padded rows between real rows would change them
    assert not fills_up(*problem("dropout", "mse"), batch, 3, True, ordered=False)
    assert fills_up(*problem("dense", "mse"), batch, 3, True, ordered=False)


@pytest.mark.exhaustive
def test_a_short_batch_compiles_only_where_rows_depend_on_each_other():
    for model, expected in (("dense", 0), ("batch normalization", 1)):
        trainer, run = problem(model, "crossentropy")
        _ = trainer.fit(run, *data(16), batch_size=8, steps_per_execution=2, verbose=0)
        with count_compiles() as compiles:
            _ = trainer.fit(run, *data(20), batch_size=8, steps_per_execution=2, verbose=0)
        assert len(compiles) == expected


@pytest.mark.one_in(14)
@pytest.mark.parametrize("model", MODELS)
def test_predictions_are_those_of_exact_batches(model):
    trainer, run = problem(model, "mse")
    x = data(11)[0]
    expected = [run.model(batch, state=run.state) for (batch,) in exact_batches((x,), 8)]
    found = trainer.predict(run, x, batch_size=8)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-5, atol=1e-6)
    # one short batch, as an array of floats and as any other
    for rows in (x[:3], [x[:3]]):
        few = trainer.predict(run, rows)
        np.testing.assert_allclose(few, run.model(x[:3], state=run.state), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_predictions_of_many_numbers_of_rows_share_programs():
    x = fk.Input((WIDTH,))
    run = fk.Trainer("sgd", "mse").init(fk.Model(x, layers.Dense(7)(x)), KEY)
    rows = data(128)[0]
    with count_compiles() as compiles:
        for count in range(1, 129):
            found = TRAINER.predict(run, rows[:count], batch_size=128)
            assert found.shape == (count, 7)
    assert len(compiles) == 8
    one = TRAINER.predict(run, rows[:1], batch_size=128)
    np.testing.assert_allclose(found[:1], one, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_predictions_of_stateful_layers_keep_the_number_of_rows():
    x = fk.Input((3, 2), batch_size=6)
    model = fk.Model(x, layers.LSTM(2, stateful=True)(x))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    times = np.ones((6, 3, 2), "float32")
    np.testing.assert_allclose(
        trainer.predict(run, times, batch_size=6), run.model.apply(times, state=run.state).value
    )


def test_a_model_of_a_fixed_number_of_rows():
    x = fk.Input((WIDTH,), batch_size=8)
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    run = trainer.init(fk.Model(x, layers.Dense(3)(x)), KEY)
    free = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    y = fk.Input((WIDTH,))
    expected, _ = by_steps(
        free, free.init(fk.Model(y, layers.Dense(3)(y)), KEY), exact_batches(data(11), 8)
    )
    fitted, _ = trainer.fit(run, *data(11), batch_size=8, shuffle=False, verbose=0)
    one, two = (jax.tree.leaves(r.model) for r in (fitted, expected))
    chex.assert_trees_all_close(one, two, rtol=1e-5, atol=1e-6)
    assert trainer.predict(run, data(11)[0], batch_size=8).shape == (11, 3)
    model = fk.Model(x, layers.Dense(3)(layers.BatchNormalization()(x)))
    message = "expected batches of 8 rows, received a last batch of 3 rows, which this model"
    with pytest.raises(ValueError, match=message):
        _ = trainer.fit(trainer.init(model, KEY), *data(11), batch_size=8, verbose=0)


@pytest.mark.exhaustive
def test_circle_loss_of_a_short_batch():
    x, labels = data(12)[0], np.arange(12, dtype="int32") % 3
    inputs = fk.Input((WIDTH,))
    trainer = fk.Trainer(fk.optimizers.SGD(1e-3), losses.Circle())
    model = fk.Model(inputs, layers.UnitNormalization()(layers.Dense(3)(inputs)))
    run = trainer.init(model, KEY)
    expected, loss = by_steps(trainer, run, exact_batches((x, labels), 8))
    fitted, history = trainer.fit(run, x, labels, batch_size=8, shuffle=False, verbose=0)
    assert_same_run(fitted, expected)
    np.testing.assert_allclose(history.history["loss"], [loss], rtol=1e-5)


class Refilled:
    """Batches in one buffer that the source writes again for each batch."""

    def __init__(self, arrays, size):
        self.batches = exact_batches(arrays, size)

    def __iter__(self):
        buffers = [np.empty_like(a) for a in self.batches[0]]
        for batch in self.batches:
            for buffer, part in zip(buffers, batch, strict=True):
                buffer[: len(part)] = part
            yield tuple(buffer[: len(batch[0])] for buffer in buffers)


def _interrupted(trainer, run, folder, stop, *args, **options):
    """Fits a run that stops at a step, and fits it again from its checkpoint."""

    def hook(step, run, logs):
        if step >= stop:
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, fk.training.Interrupted)):
        callback = fk.callbacks.LambdaCallback(on_batch_end=hook)
        _ = trainer.fit(run, *args, callbacks=[callback], checkpoint=folder, **options)
    return trainer.fit(run, *args, checkpoint=folder, **options)


def check(folder, model, loss, rows, size, source, weighted, devices, calls, accumulate, stop):
    trainer, run = problem(model, loss, devices, accumulate)
    plain, plain_run = problem(model, loss, 1, accumulate)
    # the devices of a mesh share the rows of full batches
    rows += 8 if devices > 1 else 0
    arrays = data(rows, weighted)
    batches = exact_batches(arrays, min(size, rows))
    expected, value = by_steps(plain, plain_run, batches, epochs=2)
    source = {"arrays": None, "list": batches, "buffer": Refilled(arrays, min(size, rows))}[source]
    options = {"epochs": 2, "verbose": 0, "shuffle": False, "steps_per_execution": calls}
    held = data(rows + 1)
    options |= {"validation_data": held, "validation_batch_size": 8}
    if source is None:
        names = ("x", "y", "sample_weight")[: len(arrays)]
        options |= dict(zip(names, arrays, strict=True)) | {"batch_size": size}
        args = ()
    else:
        args = (source,)
    if stop and stop < 2 * len(batches):
        fitted, history = _interrupted(trainer, run, folder, stop, *args, **options)
    else:
        fitted, history = trainer.fit(run, *args, **options)
    assert_same_run(fitted, expected)
    np.testing.assert_allclose(history.history["loss"][-1], value, rtol=1e-4)
    validation = by_evaluations(plain, expected, exact_batches(held, 8))
    np.testing.assert_allclose(history.history["val_loss"][-1], validation, rtol=1e-4)
    if source is None and not stop:
        pure, logs = plain.run(plain_run, arrays, 2, size, shuffle=False)
        assert_same_run(pure, expected)
        np.testing.assert_allclose(logs["loss"][-1], value, rtol=1e-4)


# few sizes, so that the examples share compiled programs
TRAININGS = {
    "model": st.sampled_from(list(MODELS)),
    "loss": st.sampled_from(list(LOSSES)),
    "rows": st.sampled_from([3, 11, 16, 19]),
    "size": st.just(8),
    "source": st.sampled_from(["arrays", "list", "buffer"]),
    "weighted": st.booleans(),
    "devices": st.sampled_from([1, 1, 1, 8]),
    "calls": st.sampled_from([None, 1, 2]),
    "accumulate": st.sampled_from([None, None, 2]),
    "stop": st.sampled_from([0, 0, 1, 2, 3]),
}


@pytest.mark.exhaustive
@hypothesis.settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[hypothesis.Phase.generate],
)
@hypothesis.given(**TRAININGS)
def test_trainings_equal_steps_over_exact_batches(tmp_path_factory, **training):
    check(tmp_path_factory.mktemp("saves"), **training)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_more_trainings_equal_steps_over_exact_batches(tmp_path_factory, seed):
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=8, deadline=None, database=None, phases=[hypothesis.Phase.generate]
    )
    @hypothesis.given(**TRAININGS)
    def trainings(**training):
        check(tmp_path_factory.mktemp("saves"), **training)

    trainings()
