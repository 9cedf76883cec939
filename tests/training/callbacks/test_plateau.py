"""ReduceLROnPlateau decides as Keras does."""

import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras.training.callbacks import (
    LearningRateScheduler,
    ReduceLROnPlateau,
)
from tests.support.callback_runs import KEY, LOSSES, RUN, X, Y, drive, drive_keras, fit, pickled
from tests.support.keras_oracle import keras_rules


@pytest.mark.one_in(6)
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


def test_plateau_in_fit_and_its_messages(capsys):
    plateau = ReduceLROnPlateau("loss", mode="max", patience=1, verbose=1)
    run, history = fit(plateau, epochs=2)
    assert "Epoch 2: reduced the learning rate from 0.1 to 0.01." in capsys.readouterr().out
    np.testing.assert_allclose(run.opt_state.learning_rate, 0.01, rtol=1e-6)
    # as in Keras, the rate of an epoch is that before a reduction at its end
    np.testing.assert_allclose(history.history["learning_rate"], [0.1, 0.1], rtol=1e-6)
    for scheduled in (ReduceLROnPlateau("loss"), LearningRateScheduler(lambda epoch, lr: lr)):
        trainer = fk.Trainer(fk.optimizers.SGD(lambda step: 0.1), "mse")
        with pytest.raises(ValueError, match="has a schedule"):
            _ = trainer.fit(trainer.init(RUN.model, KEY), X, Y, verbose=0, callbacks=[scheduled])
