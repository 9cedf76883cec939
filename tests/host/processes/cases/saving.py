"""Trainings with checkpoints that end early, and trainings that continue them."""

import os
import signal

import grain
import jax
import numpy as np

import fkeras as fk
from fkeras.utils.sources.dataset import Dataset
from tests.host.processes.cases.fitting import ROWS, SIZE, data, network, trainer

KINDS = ("arrays", "dataset", "list", "split", "grain")
EPOCHS = 3


def _setting(kind):
    """Trainer, run and data of a training."""
    x, y = data()
    options = {}
    if kind == "split":
        mesh = jax.make_mesh((2, jax.device_count() // 2), ("model", "data"))
        options = {"mesh": mesh, "sharding": {"hidden": "model"}}
    train = trainer(**options)
    run = train.init(network(), jax.random.key(0))
    if kind in ("arrays", "split"):
        return train, run, (x, y, SIZE)
    if kind == "dataset":
        rows = Dataset(ROWS, lambda ids: (x[ids], y[ids]), SIZE, shuffle=True, shard=train.share)
        return train, run, (rows,)
    index, count = train.share
    block = SIZE // count
    if kind == "grain":
        ids = grain.MapDataset.range(48).shuffle(seed=5)[index::count].batch(block)
        return train, run, (ids.map(lambda ids: (x[ids], y[ids])).to_iter_dataset(),)
    starts = range(index * block, 48, SIZE)
    return train, run, ([(x[s : s + block], y[s : s + block]) for s in starts],)


def fit(kind, folder, epochs=EPOCHS, callbacks=(), every=4):
    """Trains with a checkpoint; returns the history and the weights that every process can read."""
    train, run, rows = _setting(kind)
    plan = None
    if folder is not None:
        plan = fk.training.Checkpoint(os.path.join(folder, kind), every=every)
    run, history = train.fit(
        run, *rows, epochs=epochs, callbacks=callbacks, checkpoint=plan, verbose=0
    )
    x, _ = data()
    return {"history": history.history, "step": int(run.step), "outputs": train.predict(run, x)}


def _at(step, action):
    def hook(number, run, logs):
        if number >= step:
            action()

    # one step in each call, so that the training ends at this step
    return [fk.callbacks.LambdaCallback(on_batch_end=hook)]


def _end(function):
    try:
        function()
    except BaseException as error:
        return {
            "type": type(error).__name__,
            "text": str(error),
            "notes": getattr(error, "__notes__", []),
            "step": int(error.run.step),
        }
    return None


def ended_early(rank, folder):
    """Trainings that the last process ends: with an exception, and by a signal."""
    last = rank == jax.process_count() - 1

    def fail():
        if last:
            raise OSError("no space")

    def end():
        if last:
            os.kill(os.getpid(), signal.SIGTERM)

    results = {}
    for kind in KINDS:
        action = end if kind == "split" else fail
        results[kind] = _end(lambda: fit(kind, folder, callbacks=_at(9, action)))  # noqa: B023
    return results


def continued(rank, folder, kinds=KINDS):
    """The same trainings, continued from their checkpoints, or from the beginning for None."""
    results = {}
    for kind in kinds:
        try:
            results[kind] = fit(kind, folder)
        except fk.training.CheckpointError as error:
            results[kind] = str(error)
    return results


def bits(rank, folder):
    """Uninterrupted trainings, and trainings that end by a signal and continue."""

    def end():
        if rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    folder, results = os.path.join(folder, "bits"), {}
    for kind in ("arrays", "grain"):
        whole = fit(kind, None)
        first = _end(lambda: fit(kind, folder, callbacks=_at(9, end)))  # noqa: B023
        again = fit(kind, folder)
        same = np.array_equal(whole["outputs"], again["outputs"])
        results[kind] = {
            "end": first,
            "same": [same, whole["history"] == again["history"]],
            "files": sorted(os.listdir(os.path.join(folder, kind, "latest"))),
        }
    return results


def early_and_bits(rank, folder):
    return {"early": ended_early(rank, folder), "bits": bits(rank, folder)}
