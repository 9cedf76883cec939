"""Trainings, evaluations and predictions that any number of processes computes alike."""

import os
import warnings
from unittest import mock

import jax
import numpy as np

import fkeras as fk
from fkeras import layers
from fkeras.training.data import array_feed
from fkeras.utils.sources.dataset import Dataset

ROWS, SIZE = 50, 8


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 6)).astype("float32"), rng.integers(0, 3, ROWS).astype("int32")


def network(units=8):
    inputs = fk.Input((6,))
    x = layers.Dense(units, activation="relu", name="hidden")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Dropout(0.3)(x)
    return fk.Model(inputs, layers.Dense(3)(x))


def loss():
    return fk.losses.SparseCategoricalCrossentropy(from_logits=True)


def trainer(**options):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    options = {"metrics": ["accuracy"], "mesh": mesh, **options}
    return fk.Trainer("adam", loss(), **options)


class Rows:
    """Batches of the share of a process; the last batch has fewer rows, and none in some processes."""

    def __init__(self, share):
        self.share = share

    def __iter__(self):
        x, y = data()
        index, count = self.share
        block = SIZE // count
        for start in range(0, ROWS, SIZE):
            rows = slice(start + index * block, min(start + (index + 1) * block, ROWS))
            if rows.start < rows.stop:
                yield x[rows], y[rows]


def arrays(rank):
    """fit, evaluate and predict on arrays."""
    x, y = data()
    train = trainer()
    run = train.init(network(), jax.random.key(0))
    run, history = train.fit(run, x, y, SIZE, epochs=2, validation_split=0.2, verbose=2)
    weighted = train.fit(run, x, y, SIZE, class_weight={0: 2.0, 1: 1.0, 2: 0.5}, verbose=0)
    return {
        "history": history.history,
        "params": history.params,
        "step": int(run.step),
        "evaluate": train.evaluate(run, x, y, SIZE, verbose=0),
        "predict": train.predict(run, x, SIZE),
        "class_weight": weighted.history.history,
    }


def sources(rank):
    """Sources of the rows of a process: an iterable, a Dataset, a function of the step."""
    x, y = data()
    train = trainer()
    index, count = train.share
    block = SIZE // count
    run = train.init(network(), jax.random.key(0))
    results = {}

    def keep(name, *args, **options):
        nonlocal run
        run, history = train.fit(run, *args, verbose=0, **options)
        results[name] = history.history

    keep("iterable", Rows(train.share), epochs=2)
    # epochs that end within a pass
    keep("steps", Rows(train.share), epochs=2, steps_per_epoch=9)
    # epochs that end with a pass
    keep("passes", Rows(train.share), epochs=2, steps_per_epoch=7)
    rows = slice(index * block, (index + 1) * block)
    keep("function", lambda step: (x[rows] * (step % 3), y[rows]), epochs=2, steps_per_epoch=3)
    dataset = Dataset(
        ROWS, lambda ids: (x[ids], y[ids]), SIZE, shuffle=True, seed=3, shard=train.share
    )
    keep("dataset", dataset, epochs=2, validation_data=Rows(train.share))
    validation = {"validation_data": dataset, "validation_steps": 3}
    keep("validation of some steps", Rows(train.share), epochs=2, **validation)
    results["evaluate"] = train.evaluate(run, Rows(train.share), verbose=0)
    results["evaluate some steps"] = train.evaluate(run, Rows(train.share), steps=3, verbose=0)
    return results


def roles(rank):
    """Weights split over the processes, an objective, a pure run."""
    x, y = data()
    mesh = jax.make_mesh((2, jax.device_count() // 2), ("model", "data"))
    split = trainer(mesh=mesh, sharding={"hidden": "model"})
    run = split.init(network(), jax.random.key(0))
    run, history = split.fit(run, x, y, SIZE, epochs=2, verbose=0)
    fsdp = trainer(sharding="fsdp")
    fsdp_run = fsdp.init(network(16), jax.random.key(0))
    fsdp_run, fsdp_history = fsdp.fit(fsdp_run, x, y, SIZE, epochs=2, verbose=0)

    def objective(model, state, batch, key, training):
        out = model.apply(batch[0], state=state, training=training, key=key)
        return fk.Output((out.value**2).mean(), out.updates, metrics={"mean": out.value.mean()})

    free = fk.Trainer("sgd", objective=objective, mesh=trainer().mesh)
    free_run = free.init(network(), jax.random.key(0))
    pure_run, logs = trainer().run(trainer().init(network(), jax.random.key(0)), (x, y), 2, SIZE)
    return {
        "share": split.share,
        "history": history.history,
        "fsdp": fsdp_history.history,
        "predict": split.predict(run, x),
        "objective": free.fit(free_run, x[:48], y[:48], SIZE, verbose=0).history.history,
        "objective of a source": free.fit(free_run, Rows(free.share), verbose=0).history.history,
        "run": {name: np.asarray(value) for name, value in logs.items()},
        "run_step": int(pure_run.step),
    }


def callbacks(rank, folder):
    """Callbacks that decide, report and save."""
    x, y = data()
    train = fk.Trainer(fk.optimizers.Adam(0.05), loss(), mesh=trainer().mesh)
    run = train.init(network(), jax.random.key(0))
    seen = []
    hooks = fk.callbacks
    run, history = train.fit(
        run,
        x,
        y,
        SIZE,
        epochs=8,
        validation_split=0.3,
        verbose=0,
        callbacks=[
            hooks.EarlyStopping(patience=1, restore_best_weights=True, verbose=1),
            hooks.ReduceLROnPlateau(patience=0, min_delta=9, verbose=1),
            hooks.CSVLogger(os.path.join(folder, f"log{rank}.csv")),
            hooks.ModelCheckpoint(os.path.join(folder, "best.npz"), save_best_only=True),
            hooks.SwapEMAWeights(0.9, update_freq="epoch"),
            hooks.TensorBoard(os.path.join(folder, f"events{rank}"), histogram_freq=1),
            hooks.LambdaCallback(on_epoch_end=lambda epoch, run, logs: seen.append(logs["loss"])),
        ],
    )
    stop = hooks.LambdaCallback(
        on_epoch_end=lambda epoch, run, logs: (
            fk.training.Stop() if rank == jax.process_count() - 1 and epoch == 1 else None
        )
    )
    stopped = train.fit(run, x, y, SIZE, epochs=4, callbacks=[stop], verbose=0)
    return {
        "history": history.history,
        "seen": seen,
        "evaluate": train.evaluate(run, x, y, verbose=0),
        "epochs": stopped.history.epoch,
    }


def little_memory(rank):
    """Data in chunks, and calls that donate the run."""
    with mock.patch.object(array_feed, "MEMORY", 1 << 10):
        x, y = data()
        train = trainer()
        run = train.init(network(), jax.random.key(0))
        run, history = train.fit(run, x, y, SIZE, epochs=2, verbose=0)
        return {"history": history.history}


def everything(rank, folder):
    return {
        "little_memory": little_memory(rank),
        "arrays": arrays(rank),
        "sources": sources(rank),
        "roles": roles(rank),
        "callbacks": callbacks(rank, folder),
    }


def _problem(function):
    try:
        function()
    except Exception as error:
        run = getattr(error, "run", None)
        return {
            "type": type(error).__name__,
            "text": str(error),
            "process": getattr(error, "process", None),
            "step": None if run is None else int(run.step),
        }
    return None


def mistakes(rank):
    """Calls in which the processes differ; the last process is the one that fails."""
    x, y = data()
    train = trainer()
    run = train.init(network(), jax.random.key(0))
    last = rank == jax.process_count() - 1

    def fit(*args, **options):
        return lambda: train.fit(run, *args, verbose=0, **options)

    def fail(epoch, run, logs):
        if last:
            raise OSError("no space")

    def change(epoch, run, logs):
        return run.replace(step=run.step + rank)

    index, count = train.share
    block = slice(index * SIZE // count, (index + 1) * SIZE // count)

    def source():
        for number in range(6):
            if last and number == 4:
                raise ValueError("bad file")
            yield x[block], y[block]

    def overflow(step):
        return x[block] * (np.inf if step == 7 else 1), y[block]

    def all_rows():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):  # only the first calls of a source are compared
                _ = train.fit(run, lambda step: (x[:SIZE], y[:SIZE]), steps_per_epoch=2, verbose=0)
        return [str(warning.message) for warning in caught]

    # the processes split the weights only: both have all rows
    mesh = jax.make_mesh((2, jax.device_count() // 2), ("model", "data"))
    split = trainer(mesh=mesh, sharding={"hidden": "model"})
    split_run = split.init(network(), jax.random.key(0))
    order = np.random.default_rng(rank).permutation(ROWS)
    equal, shuffled = (
        Dataset(ROWS, lambda i, n=n: (x[n[i]], y[n[i]]), SIZE) for n in (np.arange(ROWS), order)
    )

    hook = fk.callbacks.LambdaCallback
    return {
        "hook": _problem(fit(x, y, SIZE, callbacks=[hook(on_epoch_end=fail)])),
        "run": _problem(fit(x, y, SIZE, callbacks=[hook(on_epoch_end=change)])),
        "batch": _problem(fit(x, y, SIZE * (rank + 1))),
        "data": _problem(fit(x + rank, y, SIZE)),
        "key": _problem(lambda: train.init(network(), jax.random.key(rank))),
        "source": _problem(fit(source())),
        "empty": _problem(fit(iter(()) if last else source())),
        "shard": _problem(fit(Dataset(ROWS, lambda ids: (x[ids], y[ids]), SIZE))),
        "all_rows": all_rows(),
        "equal": _problem(lambda: split.fit(split_run, equal, verbose=0)),
        "shuffled": _problem(lambda: split.fit(split_run, shuffled, verbose=0)),
        "nan": _problem(fit(overflow, steps_per_epoch=12)),
        "calls": _problem(
            lambda: train.predict(run, x) if last else train.evaluate(run, x, y, verbose=0)
        ),
        "after": _problem(lambda: train.predict(run, x)),
    }
