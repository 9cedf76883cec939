"""Trainings with checkpoints: killed or interrupted, resumed bit for bit; mismatches are reported."""

import functools
import json
import os
import shutil
import subprocess
import sys
import types

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.loop.saver import Saver
from tests.support.paths import ROOT
from tests.support.quick_flags import QUICK

RNG = np.random.default_rng(6)
X = RNG.normal(size=(44, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
KEY = jax.random.key(2)


def noisy(units=6):
    x = fk.Input((4,))
    h = layers.BatchNormalization()(layers.Dropout(0.2)(layers.Dense(units, "relu")(x)))
    return fk.Model(x, layers.Dense(2, "softmax")(h))


TRAINER = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
RUN = TRAINER.init(noisy(), KEY)
# one program for all trainings: those of one step and of many may round differently
SINGLE = {"steps_per_execution": 1}


@functools.cache
def undisturbed_training():
    """The run and the logs of a training without interruption."""
    return TRAINER.fit(RUN, X, Y, 8, epochs=3, validation_split=0.2, verbose=0, **SINGLE)


def fit(folder, **options):
    defaults = {"epochs": 3, "validation_split": 0.2, "verbose": 0, "checkpoint": folder, **SINGLE}
    return TRAINER.fit(RUN, X, Y, 8, **{**defaults, **options})


class StopAt(fk.Callback):
    """Raises after a step, as a power cut would."""

    step: int = fk.option()

    def on_batch_end(self, step, run, logs):
        if step >= self.step:
            raise OSError("power cut")


@pytest.mark.exhaustive
def test_killed_trainings_resume_exactly():
    """A few of the kills that `.ci/run` makes by the same script."""
    done = subprocess.run(
        [sys.executable, "tools/stress/kill_training.py", "--kills", "8", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        # one device, and the quick compiler of the suite
        env={**os.environ, "XLA_FLAGS": f"{QUICK} --xla_cpu_multi_thread_eigen=false"},
        timeout=400,  # a process that forks after XLA has started waits forever
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 kills" in done.stdout
    assert "bit for bit alike" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", [None, 2])
def test_the_same_call_resumes(tmp_path, every):
    plan = fk.Checkpoint(str(tmp_path), every=every)
    for step in (1, 4, 7, 13):
        with pytest.raises(OSError, match="power cut"):
            fit(plan, callbacks=[StopAt(step)])
    run, history = fit(plan)
    expected, logs = undisturbed_training()
    chex.assert_trees_all_equal(run.model, expected.model)
    chex.assert_trees_all_equal(run.opt_state, expected.opt_state)
    chex.assert_trees_all_equal(run.state, expected.state)
    assert history == logs
    again, same = fit(plan)
    chex.assert_trees_all_equal(again.model, run.model)
    assert same.history == history.history
    longer, more = fit(plan, epochs=4)
    assert (int(longer.step), more.epoch) == (20, [0, 1, 2, 3])


def test_the_next_save_counts_the_steps_before_the_epoch():
    saver = Saver.__new__(Saver)
    saver._checkpoint = types.SimpleNamespace(every=4)
    saver.begin(types.SimpleNamespace(step=5, position=(1, 2)))  # the epoch began at step 3
    assert [saver.until(done) for done in range(4)] == [1, 4, 3, 2]


@pytest.mark.exhaustive
def test_a_training_that_stopped_at_the_last_batch_of_an_epoch_resumes(tmp_path):
    class Cut(fk.Callback):
        def on_test_begin(self, run):
            raise OSError("power cut")

    for epoch in range(3):
        with pytest.raises(OSError, match="power cut"):
            fit(fk.Checkpoint(str(tmp_path), every=1), epochs=epoch + 1, callbacks=[Cut()])
        run, history = fit(fk.Checkpoint(str(tmp_path), every=1), epochs=epoch + 1)
    expected, logs = undisturbed_training()
    chex.assert_trees_all_equal(run, expected)
    assert history == logs


@pytest.mark.exhaustive
def test_callback_memory_and_an_early_stop_are_restored(tmp_path):
    stop = fk.callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0)
    first, history = fit(tmp_path, epochs=9, callbacks=[stop])
    assert len(history.epoch) == 2
    second, same = fit(tmp_path, epochs=9, callbacks=[stop])
    assert same.epoch == history.epoch
    chex.assert_trees_all_equal(first.model, second.model)


@pytest.mark.exhaustive
def test_the_best_save_is_kept_apart(tmp_path):
    fit(fk.Checkpoint(str(tmp_path), monitor="val_loss"))
    best = int(np.argmin(undisturbed_training()[1].history["val_loss"]))
    assert [int(path.name) for path in (tmp_path / "best").iterdir()] == [5 * (best + 1)]
    assert len(list((tmp_path / "latest").iterdir())) == 2


class Loader:
    """Batches that know their place, as a loader of grain does."""

    def __init__(self, place=0):
        self.place = place

    def __iter__(self):
        return Loader()

    def __next__(self):
        if self.place == 5:
            raise StopIteration
        rows = slice(8 * self.place, 8 * self.place + 8)
        self.place += 1
        return X[rows], Y[rows]

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "steps"),
    [
        (lambda: [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)], None),
        (lambda: [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)], 3),
        (Loader, None),
        (lambda: lambda step: (X[step : step + 8], Y[step : step + 8]), 5),
    ],
    ids=["list", "list with steps", "loader with a state", "function of the step"],
)
def test_sources_of_batches_resume_too(tmp_path, source, steps):
    options = {"epochs": 3, "steps_per_epoch": steps, "verbose": 0, **SINGLE}
    expected, logs = TRAINER.fit(RUN, source(), **options)
    plan = fk.Checkpoint(str(tmp_path), every=2)
    for step in (4, 8):
        with pytest.raises(OSError, match="power cut"):
            _ = TRAINER.fit(RUN, source(), checkpoint=plan, callbacks=[StopAt(step)], **options)
    run, history = TRAINER.fit(RUN, source(), checkpoint=plan, **options)
    chex.assert_trees_all_equal(run.model, expected.model)
    assert history.history == logs.history


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": lambda: noisy(7)}, "model"),
        ({"trainer": lambda: fk.Trainer("adamw", TRAINER.loss)}, "optimizer"),
        ({"rows": lambda: (X + 1, Y)}, "data"),
        ({"rows": lambda: (X[:40], Y[:40])}, "data"),
    ],
    ids=["model", "optimizer", "numbers", "rows"],
)
def test_another_training_in_the_folder_is_reported(tmp_path, change, message):
    fit(tmp_path, epochs=1)
    trainer = change.get("trainer", lambda: TRAINER)()
    run = trainer.init(change.get("model", noisy)(), KEY)
    x, y = change.get("rows", lambda: (X, Y))()
    with pytest.raises(fk.CheckpointError, match=message):
        _ = trainer.fit(run, x, y, 8, validation_split=0.2, verbose=0, checkpoint=tmp_path)


def test_a_damaged_save_is_skipped(tmp_path):
    fit(tmp_path, epochs=2)
    newest = max((tmp_path / "latest").iterdir(), key=lambda path: int(path.name))
    manifest = newest / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="manifest"):
        run, _ = fit(tmp_path)
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0].model)


def saves_in(folder):
    return sorted((folder / "latest").iterdir(), key=lambda path: float(path.name))


@pytest.mark.exhaustive
def test_a_deleted_newest_save_is_reported(tmp_path):
    fit(tmp_path, epochs=2)
    shutil.rmtree(saves_in(tmp_path)[-1])
    with pytest.warns(UserWarning, match=r"save, of step 10.*missing.*Using step 5"):
        run, _ = fit(tmp_path)
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0].model)
    fit(tmp_path)  # the folder now records the newest one that it has
    for path in saves_in(tmp_path):
        shutil.rmtree(path)
    with pytest.warns(UserWarning, match=r"of step 15.*No other save exists"):
        run, history = fit(tmp_path)
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0].model)
    assert history.epoch == [0, 1, 2]


def test_a_deleted_second_save_of_a_step_is_reported(tmp_path):
    plan = fk.Checkpoint(str(tmp_path), every=5)
    fit(plan, epochs=1)  # in the epoch after step 5, and at its end
    assert [path.name for path in saves_in(tmp_path)] == ["5", "5.1"]
    shutil.rmtree(tmp_path / "latest" / "5.1")
    with pytest.warns(UserWarning, match="step 5"):
        fit(plan, epochs=1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("damage", ["absent", "cut", "other", "empty"])
def test_folders_without_a_readable_record_are_used_as_before(tmp_path, damage):
    fit(tmp_path, epochs=2)
    shutil.rmtree(saves_in(tmp_path)[-1])
    record = tmp_path / "last.json"
    if damage == "absent":
        record.unlink()
    else:
        record.write_text({"cut": '{"step": 1', "other": '{"step": "x"}', "empty": ""}[damage])
    run, _ = fit(tmp_path)
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0].model)


@pytest.mark.exhaustive
def test_neither_retention_nor_a_kill_before_the_record_warns(tmp_path, monkeypatch):
    from fkeras.training.checkpoint.storage import writing

    plan = fk.Checkpoint(str(tmp_path), every=1, keep=2)
    fit(plan, epochs=1)
    assert len(saves_in(tmp_path)) == 2
    fit(plan, epochs=1)

    def killed(*_):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_record", killed)
        with pytest.raises(fk.CheckpointError, match="killed"):
            fit(plan, epochs=2)
    assert json.loads((tmp_path / "last.json").read_text())["step"] == 5
    run, _ = fit(plan)  # warnings are errors here
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0].model)
    # saves of a format before this version: without the record and the newer entries of its info
    assert json.loads((tmp_path / "last.json").read_text()) == {"step": 15, "again": 1}


def test_two_trainings_cannot_share_a_folder(tmp_path):
    from fkeras.training.checkpoint import open_store

    with (
        open_store(fk.Checkpoint(str(tmp_path))),
        pytest.raises(fk.CheckpointError, match="expected a folder without another run"),
    ):
        fit(tmp_path)


SLOW = """
import json, os, signal, sys, time
import numpy as np, jax, fkeras as fk, orbax.checkpoint
from fkeras import layers

def work(where, phase):
    x, y = np.ones((16, 2), "float32"), np.ones((16, 1), "float32")
    inputs = fk.Input((2,))

    def slowly(a):
        if phase == "compile" and begun:
            print("now", flush=True)
            time.sleep(60)
        return a

    def batches():
        yield x, y
        if phase == "stall":
            print("now", flush=True)
            time.sleep(60)
        while True:
            yield x, y

    class Tell(fk.Callback):
        def on_batch_end(self, step, run, logs):
            if phase == "step":
                print("now", flush=True)
                time.sleep(0.05)
        def on_test_begin(self, run):
            if phase == "validation":
                print("now", flush=True)
                time.sleep(60)

    begun = False
    model = fk.Model(inputs, fk.ops.lift(slowly)(layers.Dense(1)(inputs)))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    begun = True
    trainer.fit(
        run, batches(), epochs=100, steps_per_epoch=4, validation_data=(x, y), verbose=0,
        callbacks=[Tell()], checkpoint=fk.Checkpoint(where, every=1000),
    )

def begin(phase):
    # a training that tells when it is in its phase, in which it stays
    where, (out, into) = os.path.join(sys.argv[1], phase), os.pipe()
    number = os.fork()
    if not number:
        os.dup2(into, 1)
        os.dup2(os.open(where + ".err", os.O_CREAT | os.O_WRONLY, 0o600), 2)
        work(where, phase)
        sys.exit(0)
    os.close(into)
    return where, out, number

def send_signal(phase, where, out, number):
    # sends a signal in the phase; returns exit code, seconds until the exit, and stderr
    with os.fdopen(out) as lines:
        assert lines.readline() == "now\\n"
        time.sleep(0.2)
        began = time.monotonic()
        os.kill(number, signal.SIGINT if phase == "validation" else signal.SIGTERM)
        lines.read()
        status = os.waitpid(number, 0)[1]
    with open(where + ".err") as errors:
        return os.waitstatus_to_exitcode(status), time.monotonic() - began, errors.read()

begun = [(phase, *begin(phase)) for phase in sys.argv[2:]]
print(json.dumps({phase: send_signal(phase, *rest) for phase, *rest in begun}))
"""
PHASES = ("step", "compile", "validation", "stall")


@pytest.fixture(scope="module")
def signalled(tmp_path_factory):
    """The folder of all phases and how each ended: children of one process, which has imported all."""
    if not hasattr(os, "fork"):
        pytest.skip("each phase is a fork")
    home = tmp_path_factory.mktemp("signals")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SLOW, str(home), *PHASES],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return home, json.loads(done.stdout)


@pytest.mark.exhaustive
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_saves_and_leaves(signalled, phase):
    home, ended = signalled
    code, seconds, errors = ended[phase]
    assert seconds < 10, errors
    assert code != 0
    assert "saved in" in errors
    # the newest finished step is saved, also by the thread that ends a process that hangs
    saved = [int(path.name) for path in (home / phase / "latest").iterdir()]
    assert max(saved) == {"compile": 0, "stall": 1, "validation": 4}.get(phase, max(saved)), errors
