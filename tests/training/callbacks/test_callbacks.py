"""What all callbacks share: names, memory, values, wrong arguments."""

import io
import pickle

import jax.numpy as jnp
import pytest

from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    ModelCheckpoint,
    Profiler,
    ProgressBar,
    ReduceLROnPlateau,
    Stop,
    SwapEMAWeights,
)
from tests.support.callback_runs import RUN, Counter, drive, fit, pickled


def test_names_are_unique_and_memory_is_by_name():
    callbacks = hooks.check_callbacks(
        [Counter(), Counter(name="counter_1"), Counter(), CSVLogger("a")]
    )
    assert [one.name for one in callbacks] == ["counter", "counter_1", "counter_2", "csv_logger"]
    assert hooks.check_callbacks(None) == ()
    assert hooks.check_callbacks(Counter()) == (Counter(name="counter"),)
    run, _ = fit(Counter(), Counter(name="mine"), epochs=3)
    assert {name: int(memory["epochs"]) for name, memory in run.memory.items()} == {
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


def test_hooks_receive_the_documented_arguments():
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
    assert tell._watches_batches
    assert not LambdaCallback()._watches_batches
    assert not Callback()._watches_batches
    assert LambdaCallback().on_test_begin(RUN) is None
    with pytest.raises(ValueError, match="on_epoch_end: expected a function or None, received 3"):
        LambdaCallback(on_epoch_end=3)
    with pytest.raises(TypeError, match="no argument 'on_epoch_ends'. Did you mean"):
        LambdaCallback(on_epoch_ends=print)


@pytest.mark.parametrize(
    "make",
    [EarlyStopping, ReduceLROnPlateau, lambda m: ModelCheckpoint("a.npz", m, save_best_only=True)],
)
def test_unknown_logs_are_reported(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="unknown log 'los'. Did you mean 'loss'. The logs are"):
        drive(make("los"), [{"loss": 1.0, "val_loss": 1.0}])
    with pytest.raises(ValueError, match="Did you mean 'val_loss'"):
        hooks.check_logs([make("val_los")], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="has no validation .*monitor='loss'"):
        hooks.check_logs([make("val_loss")], ["loss"])
    hooks.check_logs([make("val_loss"), Callback()], ["loss", "val_loss"])
    with pytest.raises(ValueError, match="does not show whether"):
        hooks.check_logs([make("mine")], ["mine"])
    with pytest.raises(ValueError, match="'loss' has 2 values"):
        drive(make("loss"), [{"loss": [1.0, 2.0]}])
    # an epoch without validation does not count, a training without any is told
    with pytest.warns(UserWarning, match="no epoch had a log named 'val_loss'"):
        drive(make("val_loss"), [{"loss": 1.0}])
    drive(make("val_loss"), [{"loss": 1.0}, {"loss": 1.0, "val_loss": 1.0}])


def test_wrong_arguments_are_reported():
    with pytest.raises(ValueError, match="patience: expected an integer of 0 or more"):
        EarlyStopping(patience=-1)
    with pytest.raises(ValueError, match="mode: expected 'auto', 'min' or 'max', received 'low'"):
        EarlyStopping(mode="low")
    with pytest.raises(ValueError, match="factor: expected a number between 0 and 1, received 1.0"):
        ReduceLROnPlateau(factor=1.0)
    with pytest.raises(TypeError, match="EarlyStopping: there is no argument 'patients'"):
        EarlyStopping(patients=3)


@pytest.mark.exhaustive
def test_memory_of_a_run_too_large_to_keep_twice(monkeypatch, tmp_path):
    # its arrays are copied to the device at every call, what is remembered too
    monkeypatch.setattr("fkeras.training.data.array_feed.device_bytes", lambda: 0)
    stream = io.StringIO()
    callbacks = (
        SwapEMAWeights(0.5),
        EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True),
        CSVLogger(tmp_path / "log.csv"),
        ModelCheckpoint(tmp_path / "{step}.npz", save_freq=2),
        ProgressBar(stream, every=1),
    )
    run, history = fit(*callbacks, epochs=9, steps_per_execution=1)
    assert history.epoch == [0, 1, 2]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert len(list(tmp_path.glob("*.npz"))) == 4
    assert len(stream.getvalue().splitlines()) == 12
    assert int(run.memory["early_stopping"]["best_epoch"]) == 0
    fit(*callbacks, run=pickled(run), epochs=4, initial_epoch=3)


def test_all_callbacks_of_the_package_reporting_run_in_one_process():
    classes = [getattr(hooks, name) for name in hooks.__all__]
    kinds = [c for c in classes if isinstance(c, type) and issubclass(c, Callback)]
    only = {c.__name__ for c in kinds if c.reports_only}
    assert only == {c.__name__ for c in kinds if ".reporting." in c.__module__}
    assert {"CSVLogger", "MlflowCallback", "ProgressBar"} <= only
