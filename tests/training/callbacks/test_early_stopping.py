"""EarlyStopping decides as Keras does, resumes, and restores the best state."""

import math

import chex
import keras
import pytest

import fkeras as fk
from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    EarlyStopping,
    LambdaCallback,
)
from tests.support.callback_runs import LOSSES, RUN, drive, drive_keras, fit, pickled, shifted
from tests.support.keras_oracle import keras_rules


@pytest.mark.one_in(3)
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


def test_early_stopping_resumes():
    sequence = [{"val_loss": value} for value in LOSSES]
    stopping = EarlyStopping(patience=3, restore_best_weights=True)
    full_run, epochs = drive(stopping, sequence)
    pieces, ours = drive(stopping, sequence, through=pickled)
    assert ours == epochs
    chex.assert_trees_all_equal(pieces.memory, full_run.memory)
    # interrupted after two epochs: the hooks before it, and those of another process
    (named,) = hooks.check_callbacks(stopping)
    run = RUN
    for epoch in range(2):
        run = named.on_epoch_end(epoch, shifted(run, 1.0), sequence[epoch])
    run, after = drive(stopping, sequence[2:], run=pickled(run), first=2)
    assert after + 2 == epochs
    chex.assert_trees_all_equal(run.memory, full_run.memory)
    chex.assert_trees_all_equal(run.model, full_run.model)
    # a training from the beginning counts anew
    again, ours = drive(stopping, sequence, run=run)
    assert ours == epochs
    assert int(again.memory["early_stopping"]["best_epoch"]) == 5


def test_early_stopping_ignores_and_reports_nan(capsys):
    sequence = [{"loss": v} for v in (math.nan, 2.0, 1.0, math.nan, 3.0)]
    stopping = EarlyStopping("loss", patience=2, verbose=1, restore_best_weights=True)
    run, epochs = drive(stopping, sequence)
    assert epochs == 5
    chex.assert_trees_all_close(run.model, shifted(RUN, 3.0).model, rtol=1e-6)
    output = capsys.readouterr().out
    assert "Epoch 5: stopped, loss has not improved since epoch 3." in output
    assert "of the best epoch, 3." in output


@pytest.mark.exhaustive
def test_fit_returns_the_best_state():
    runs = []
    watch = LambdaCallback(on_epoch_end=lambda epoch, run, logs: runs.append(run))
    stopping = EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)
    run, history = fit(watch, stopping, epochs=9)
    assert history.epoch == [0, 1, 2]
    chex.assert_trees_all_equal((run.model, run.state), (runs[0].model, runs[0].state))
    assert int(run.step) == int(runs[2].step)
    # frozen weights come back too, and freezing does not confuse the paths
    frozen = RUN.replace(model=fk.freeze(RUN.model, "body"))
    run, _ = fit(stopping, run=frozen, epochs=3)
    assert not run.model.layers["body"].trainable
