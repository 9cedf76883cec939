"""TerminateOnNaN ends a training with NaN or infinity in its logs."""

import math

import pytest

import fkeras as fk
from fkeras.training.callbacks import (
    TerminateOnNaN,
)
from tests.support.callback_runs import KEY, RUN, X, Y, network


def test_terminate_on_nan(capsys):
    trainer = fk.Trainer(fk.optimizers.SGD(1e30), "mse", on_nonfinite="ignore")
    run = trainer.init(network(), KEY)
    _, history = trainer.fit(run, X, Y, epochs=9, callbacks=[TerminateOnNaN()], verbose=0)
    assert len(history.epoch) < 9
    assert not math.isfinite(history.history["loss"][-1])
    output = capsys.readouterr().out
    assert f"epoch {history.epoch[-1] + 1}: expected a finite loss, received" in output
    assert "The run before this epoch is not available" in output
    with pytest.raises(fk.training.NonFiniteError, match="TerminateOnNaN, epoch 3"):
        TerminateOnNaN(raise_error=True).on_epoch_end(2, RUN, {"loss": math.inf})
    assert TerminateOnNaN().on_epoch_end(0, RUN, {}) is None
