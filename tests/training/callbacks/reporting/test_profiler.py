"""Profiler records a trace of some steps."""

import jax
import pytest

from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    LambdaCallback,
    Profiler,
)
from tests.support.callback_runs import RUN, fit, pickled


@pytest.mark.exhaustive
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


def test_wrong_arguments_of_profiler(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Write first=5, last=9"):
        Profiler("a", 9, 5)
    with pytest.raises(ValueError, match="first: expected a positive integer, received 0"):
        Profiler("a", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Profiler: expected log_dir in a writable folder"):
        Profiler(tmp_path / "file").on_train_begin(RUN)

    def busy(folder):
        raise RuntimeError("Profile has already been started.")

    monkeypatch.setattr(jax.profiler, "start_trace", busy)
    with pytest.raises(RuntimeError, match="another trace is active .*stop_trace"):
        Profiler(tmp_path, 1).on_train_begin(RUN)
