"""LearningRateScheduler sets the rates of a run."""

import math

import keras
import numpy as np
import pytest

from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    LambdaCallback,
    LearningRateScheduler,
)
from tests.support.callback_runs import RUN, drive_keras, fit, pickled
from tests.support.keras_oracle import keras_rules


def test_learning_rate_scheduler():
    seen, rates = [], []

    def schedule(epoch, lr):
        seen.append((epoch, round(lr, 6)))
        return lr * np.float32(0.5) if epoch else lr

    theirs = keras.callbacks.LearningRateScheduler(
        lambda epoch, lr: lr * 0.5 if epoch else lr, verbose=0
    )
    with keras_rules():
        _, _, expected = drive_keras(theirs, [{}] * 3)
    watch = LambdaCallback(
        on_epoch_end=lambda epoch, run, logs: rates.append(float(run.opt_state.learning_rate))
    )
    run, history = fit(LearningRateScheduler(schedule), watch, epochs=3)
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    np.testing.assert_allclose(history.history["learning_rate"], expected, rtol=1e-6)
    assert seen == [(0, 0.1), (1, 0.1), (2, 0.05)]
    # a training that goes on within an epoch does not halve the rate twice
    halving = LearningRateScheduler(lambda epoch, lr: lr / 2, name="halving")
    run = halving.on_epoch_begin(4, RUN)
    again, _ = hooks.call((halving,), "on_epoch_begin", pickled(run), 4)
    assert float(again.opt_state.learning_rate) == pytest.approx(0.05)
    run = halving.on_epoch_end(4, again, {})
    assert float(halving.on_epoch_begin(4, run).opt_state.learning_rate) == pytest.approx(0.025)


class Halved:
    def __call__(self, epoch):
        return self.rate(epoch, 2.0)

    def rate(self, epoch, lr):
        return lr / (epoch + 1)


def test_a_schedule_may_take_the_epoch_alone():
    schedules = (
        lambda epoch: 0.5 / (epoch + 1),
        Halved(),
        Halved().rate,
        lambda *values: values[1],
    )
    rates = [
        LearningRateScheduler(schedule).on_epoch_begin(3, RUN).opt_state.learning_rate
        for schedule in schedules
    ]
    old = float(RUN.opt_state.learning_rate)
    np.testing.assert_allclose(rates, [0.125, 0.5, old / 4, old], rtol=1e-6)


@pytest.mark.parametrize("value", [None, "0.1", math.nan, -1.0, [0.1], print], ids=str)
def test_a_schedule_must_return_a_rate(value):
    with pytest.raises(ValueError, match="epoch 1: expected schedule.epoch, lr. to return a numb"):
        LearningRateScheduler(lambda epoch, lr: value).on_epoch_begin(0, RUN)


def test_wrong_arguments_of_scheduler(capsys):
    with pytest.raises(ValueError, match="schedule: expected a function, received 0.1"):
        LearningRateScheduler(0.1)
    LearningRateScheduler(lambda epoch, lr: 1, verbose=1).on_epoch_begin(0, RUN)
    assert capsys.readouterr().out == "Epoch 1: the learning rate is 1.\n"
