"""Exceptions that leave `fit`: each carries the run, and a checkpoint resumes exactly there."""

import copy
import dataclasses
import dis
import functools
import importlib
import pathlib
import pickle
import pkgutil
import signal
import sys

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training import TrainState, run_of
from fkeras.training.data import array_feed

RNG = np.random.default_rng(11)
X = RNG.normal(size=(30, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
STEPS, EPOCHS = 3, 2


def noisy():
    x = fk.Input((4,))
    h = layers.BatchNormalization()(layers.Dropout(0.2)(layers.Dense(6, "relu")(x)))
    return fk.Model(x, layers.Dense(2, "softmax")(h))


TRAINER = fk.Trainer("adam", "sparse_categorical_crossentropy")
RUN = TRAINER.init(noisy(), jax.random.key(2))


def watching(*others):
    """`(callbacks, steps, runs)`: callbacks that change the run, and the steps they saw."""
    seen, runs = [], {}

    class Watch(fk.Callback):
        """Counts its calls in the run's memory: a hook that is repeated or left out shows."""

        def _count(self, run, name):
            counts = self.recall(run, {"batch": 0, "epoch": 0})
            return self.remember(run, {**counts, name: counts[name] + 1})

        def on_batch_end(self, step, run, logs):
            seen.append(step)
            runs[step] = run
            return self._count(run, "batch")

        def on_epoch_begin(self, epoch, run):
            return self._count(run, "epoch")

    # the rate of an epoch is that of the one before, smaller: it shows if a hook ran twice
    rate = fk.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)
    return [rate, Watch(), *others], seen, runs


def fit(callbacks=(), **options):
    defaults = {"epochs": EPOCHS, "validation_split": 0.2, "verbose": 0, "steps_per_execution": 1}
    return TRAINER.fit(RUN, X, Y, 8, callbacks=list(callbacks), **{**defaults, **options})


@functools.cache
def undisturbed_training():
    """The result of a training without interruption, and the run after each step."""
    callbacks, _, runs = watching()
    return fit(callbacks), {0: RUN, **runs}


def assert_same_run(run, expected):
    """Everything but the place and what callbacks remember."""
    assert isinstance(run, TrainState)
    fields = {"position": np.zeros(2, "int32"), "memory": {}}
    chex.assert_trees_all_equal(run.replace(**fields), expected.replace(**fields))


def assert_resumes(folder, callbacks):
    """The same call ends as the training that nothing disturbed."""
    run, history = fit(callbacks, checkpoint=folder)
    (expected, logs), _ = undisturbed_training()
    chex.assert_trees_all_equal(run, expected)
    assert history == logs


# exceptions of every kind, in every hook


class ReadOnly(Exception):
    @property
    def run(self):
        return "mine"


class Own(Exception):
    run = "mine"


class Slots(Exception):
    __slots__ = ("run",)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    run: str = "mine"


class Sealed(Exception):
    def __setattr__(self, name, value):
        raise TypeError("sealed")


class Broken(Exception):
    @property
    def run(self):
        raise OSError("broken")

    def add_note(self, text):
        raise OSError("broken")


KINDS = (OSError, KeyboardInterrupt, SystemExit, ReadOnly, Own, Slots, Frozen, Sealed, Broken)
HOOKS = {
    "on_train_begin": 1,
    "on_epoch_begin": 2,
    "on_batch_end": 5,
    "on_test_begin": 2,
    "on_epoch_end": 1,
    "on_train_end": 1,
}
# the last step before the call of that number
AFTER = {
    "on_train_begin": 0,
    "on_epoch_begin": 3,
    "on_batch_end": 5,
    "on_test_begin": 6,
    "on_epoch_end": 3,
    "on_train_end": 6,
}


def at(hook, number, act):
    """A callback whose hook acts at its call of that number."""
    calls = []

    def run(self, *arguments):
        calls.append(1)
        if len(calls) == number:
            act()

    return type("At", (fk.Callback,), {hook: run})()


def throw(kind):
    def act():
        raise kind()

    return act


@pytest.mark.exhaustive
@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_of_a_hook_carries_the_run(hook):
    for kind in KINDS:
        callbacks, _, _ = watching(at(hook, HOOKS[hook], throw(kind)))
        with pytest.raises(kind) as caught:
            fit(callbacks)
        assert_same_run(run_of(caught.value), undisturbed_training()[1][AFTER[hook]])
        if kind in (ReadOnly, Broken):
            assert "fk.training.run_of" in caught.value.__notes__[0]
        else:
            assert caught.value.run is run_of(caught.value)
        if kind in (Own, Frozen):
            assert "previous value was 'mine'" in caught.value.__notes__[0]


@pytest.mark.exhaustive
@pytest.mark.one_in(12)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ReadOnly])
def test_an_exception_of_a_hook_is_resumed_exactly(tmp_path, hook, kind):
    callbacks, _, _ = watching(at(hook, HOOKS[hook], throw(kind)))
    plan = fk.Checkpoint(str(tmp_path), every=100)
    with pytest.raises(kind) as caught:
        fit(callbacks, checkpoint=plan)
    assert_same_run(run_of(caught.value), undisturbed_training()[1][AFTER[hook]])
    if hook != "on_train_begin":
        saved = max(int(path.name) for path in (tmp_path / "latest").iterdir())
        assert saved == AFTER[hook]
    callbacks, seen, _ = watching()
    assert_resumes(plan, callbacks)
    # only the hooks of the step whose hook raised are called again
    first = AFTER[hook] + (hook != "on_batch_end")
    assert seen == list(range(first, STEPS * EPOCHS + 1))


def test_before_the_first_step_exceptions_carry_the_original_run(tmp_path):
    with pytest.raises(ValueError, match="validation_split") as caught:
        fit(validation_data=(X, Y))
    assert caught.value.run is RUN
    with pytest.raises(ValueError, match="epochs") as caught:
        fit(epochs=0)
    assert caught.value.run is RUN
    with pytest.raises(OSError) as caught:
        fit([at("on_epoch_begin", 1, throw(OSError))], checkpoint=tmp_path)
    assert caught.value.run is RUN
    with pytest.raises(TypeError, match="TrainState") as caught:
        _ = TRAINER.fit(RUN.model, X, Y)
    assert not hasattr(caught.value, "run")


def test_run_of_follows_chained_exceptions():
    def act():
        try:
            fit(watching(at("on_epoch_end", 1, throw(ReadOnly)))[0])
        except ReadOnly as error:
            raise LookupError("elsewhere") from error

    with pytest.raises(LookupError) as caught:
        act()
    assert_same_run(run_of(caught.value), undisturbed_training()[1][3])
    assert run_of(ValueError("no training")) is None


# every statement of the loop

PACKAGE = pathlib.Path(fk.__file__).parent / "training"
LOOP = {
    str(PACKAGE / name)
    for name in (
        "loop/fitting.py",
        "loop/epoch_loop.py",
        "loop/batch_loops.py",
        "loop/journal.py",
        "loop/saver.py",
        "inputs/sources.py",
        "data/stream_feed.py",
        "data/array_feed.py",
        "records/progress.py",
        "callbacks/base/callback.py",
        "checkpoint/store.py",
    )
}


def test_the_files_of_the_loop_exist():
    assert all(pathlib.Path(name).is_file() for name in LOOP)


class Fault(Exception):
    pass


def with_fault(number, kind, act):
    """Calls `act`, in which statement `number` of the loop raises; how many statements it has."""
    count = 0

    def local(frame, event, _):
        nonlocal count
        # CPython handles no interrupt at a NOP, as of `try:`, and no `with` around a NOP would end
        if event == "line" and frame.f_code.co_code[frame.f_lasti] != dis.opmap["NOP"]:
            count += 1
            if count == number:
                raise kind()
        return local

    def enter(frame, event, _):
        return local if frame.f_code.co_filename in LOOP else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def quick(callbacks, **options):
    return fit(callbacks, validation_split=0.0, validation_data=(X[:8], Y[:8]), **options)


@functools.cache
def quick_whole():
    callbacks, _, runs = watching()
    return quick(callbacks), {0: RUN, **runs}


def fault_at(number, folder=None):
    """One fault at a statement, and the resumed training; whether there is such a statement."""
    kind = (Fault, KeyboardInterrupt)[number % 2]
    callbacks, seen, _ = watching()
    plan = None if folder is None else fk.Checkpoint(str(folder), every=100)
    try:
        with_fault(number, kind, lambda: quick(callbacks, checkpoint=plan))
    except kind as error:
        run, last = error.run, max(seen, default=0)
        (expected, logs), runs = quick_whole()
        assert last <= int(run.step) <= last + 1, f"statement {number}"
        assert_same_run(run, runs[int(run.step)])
    else:
        return False
    if folder is not None:
        callbacks, again, _ = watching()
        resumed, history = quick(callbacks, checkpoint=plan)
        chex.assert_trees_all_equal(resumed, expected)
        assert history == logs
        assert not again or again[0] >= int(run.step), f"statement {number}"
        assert {*seen, *again} == set(runs) - {0}
    return True


def statements(folder=None):
    plan = None if folder is None else fk.Checkpoint(str(folder), every=100)
    quick_whole()
    callbacks = watching()[0]  # the definition of a callback runs statements of the package too
    return with_fault(0, Fault, lambda: quick(callbacks, checkpoint=plan))


@pytest.mark.exhaustive
def test_a_fault_at_any_statement_carries_the_run():
    total = statements()
    assert total > 300
    for number in np.linspace(1, total, 60).astype(int):
        assert fault_at(int(number))


@pytest.mark.exhaustive
def test_a_fault_at_any_statement_is_resumed_exactly(tmp_path):
    total = statements(tmp_path / "whole")
    for number in np.linspace(1, total, 12).astype(int):
        assert fault_at(int(number), tmp_path / str(number))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(4))
def test_a_fault_at_every_statement_carries_the_run(part):
    total = statements()
    assert all([fault_at(number) for number in range(1 + part, total + 1, 4)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(8))
def test_a_fault_at_every_statement_is_resumed_exactly(tmp_path, part):
    total = statements(tmp_path / "whole")
    for number in range(1 + part, total + 1, 8):
        assert fault_at(number, tmp_path / str(number))


# sources that raise


def batches(count=6):
    return [(X[i : i + 5], Y[i : i + 5]) for i in range(0, 5 * count, 5)]


class Loader:
    """Batches that know their place; the source raises once, after it moved on."""

    def __init__(self, fails=(), place=0):
        self.fails, self.place = list(fails), place

    def __iter__(self):
        one = Loader(place=0)
        one.fails = self.fails
        return one

    def __next__(self):
        if self.place == 6:
            raise StopIteration
        self.place += 1
        if self.place in self.fails:
            self.fails.remove(self.place)
            raise OSError("the disk is gone")
        return batches()[self.place - 1]

    def get_state(self):
        return {"place": self.place}

    def set_state(self, state):
        self.place = state["place"]


def failing(fails):
    """Iterates a list of batches, and raises once before each of the named ones."""
    left = list(fails)

    class Source:
        def __iter__(self):
            for number, batch in enumerate(batches(), 1):
                if number in left:
                    left.remove(number)
                    raise OSError("the disk is gone")
                yield batch

    return Source()


def by_step(fails):
    left = list(fails)

    def source(step):
        if step + 1 in left:
            left.remove(step + 1)
            raise OSError("the disk is gone")
        return batches()[step % 6]

    return source


def bad_rows(fails):
    """Batches with a label out of range, which a check rejects."""
    left = list(fails)

    class Source:
        def __iter__(self):
            for number, (x, y) in enumerate(batches(), 1):
                if number in left:
                    left.remove(number)
                    y = y + 7
                yield x, y

    return Source()


SOURCES = {"iterable": failing, "loader": Loader, "function": by_step, "bad rows": bad_rows}


def grouped(source, **options):
    defaults = {"epochs": 2, "steps_per_epoch": 6, "verbose": 0, "steps_per_execution": 4}
    return TRAINER.fit(RUN, source, **{**defaults, **options})


@functools.cache
def grouped_whole(**options):
    return grouped(by_step(()), **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOURCES)
def test_batches_before_an_exception_of_their_source_are_trained(name, tmp_path):
    """With four steps a call of the device, the source raises inside and at the border of a call."""
    for fail in (1, 3, 5, 6):
        with pytest.raises((OSError, ValueError)) as caught:
            grouped(SOURCES[name]([fail]), epochs=1)
        run = caught.value.run
        assert int(run.step) == fail - 1 and list(run.position) == [0, fail - 1]
        if fail > 1:
            expected, _ = grouped(by_step(()), epochs=1, steps_per_epoch=fail - 1)
            assert_same_run(run, expected)
    source, plan = SOURCES[name]([3, 6]), fk.Checkpoint(str(tmp_path), every=100)
    for step in (2, 5):
        with pytest.raises((OSError, ValueError)) as caught:
            grouped(source, checkpoint=plan)
        assert int(caught.value.run.step) == step
    run, history = grouped(source, checkpoint=plan)
    expected, logs = grouped_whole()
    chex.assert_trees_all_equal(run.replace(memory={}), expected.replace(memory={}))
    assert history == logs


@pytest.mark.one_in(4)
@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize("kind", [Loader, lambda: batches()[:5] + [(X[25:28], Y[25:28])]])
def test_an_exception_after_the_last_batch_of_an_epoch_is_resumed(tmp_path, steps, kind):
    options = {"steps_per_epoch": steps, "validation_data": (X, Y), "epochs": 3}
    whole, logs = grouped(kind(), **options)
    plan = fk.Checkpoint(str(tmp_path), every=100)
    for hook in ("on_epoch_end", "on_test_begin", "on_epoch_begin", "on_train_end"):
        with pytest.raises(OSError):
            call = 1 if hook == "on_train_end" else 2 if hook == "on_epoch_begin" else 1
            grouped(kind(), checkpoint=plan, callbacks=[at(hook, call, throw(OSError))], **options)
    run, history = grouped(kind(), checkpoint=plan, **options)
    chex.assert_trees_all_equal(run, whole)
    assert history.history == logs.history


@pytest.mark.exhaustive
def test_the_validations_of_a_resumed_training_see_the_same_batches(tmp_path):
    options = {"validation_data": batches(), "validation_steps": 2, "epochs": 3}
    _, logs = grouped(by_step(()), **options)
    for call in (2, 1):
        callback = at("on_epoch_end", call, throw(OSError))
        with pytest.raises(OSError):
            grouped(by_step(()), checkpoint=tmp_path, callbacks=[callback], **options)
    assert grouped(by_step(()), checkpoint=tmp_path, **options)[1] == logs


# steps that are not finite, large runs, errors of JAX


def poisoned(number=4):
    return [(x + np.inf if i == number else x, y) for i, (x, y) in enumerate(batches(), 1)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [1 << 32, 16], ids=["small", "large"])
@pytest.mark.parametrize("group", [1, 6])
def test_a_step_that_is_not_finite_is_saved_before_its_batch(tmp_path, memory, group, monkeypatch):
    monkeypatch.setattr(array_feed, "MEMORY", memory)
    options = {"epochs": 2, "steps_per_execution": group}
    expected, _ = grouped(by_step(()), epochs=1, steps_per_epoch=3)
    skipping = fk.Trainer("adam", TRAINER.loss, on_nonfinite="skip")
    with pytest.warns(UserWarning, match="were skipped"):
        whole, logs = skipping.fit(RUN, poisoned(), verbose=0, **options)
    for _ in range(2):  # the same call begins with the same batch
        with pytest.raises(fk.training.NonFiniteError, match="batch 4") as caught:
            _ = TRAINER.fit(RUN, poisoned(), verbose=0, checkpoint=tmp_path, **options)
        run = caught.value.run
        assert (int(run.step), list(run.position)) == (3, [0, 3])
        assert_same_run(run, expected)
    with pytest.warns(UserWarning, match="were skipped"):
        run, history = skipping.fit(RUN, poisoned(), verbose=0, checkpoint=tmp_path, **options)
    chex.assert_trees_all_equal(run, whole)
    assert history.history == logs.history


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["hook", "source", "changed"])
def test_a_large_run_whose_buffers_are_overwritten_can_be_used(fault, monkeypatch, tmp_path):
    monkeypatch.setattr(array_feed, "MEMORY", 16)
    hooks = {"hook": [at("on_batch_end", 4, throw(OSError))], "changed": watching()[0]}
    source = by_step(()) if fault == "hook" else by_step([5])
    options = {"steps_per_execution": 1, "callbacks": hooks.get(fault, ())}
    with pytest.raises(OSError) as caught:
        grouped(source, checkpoint=tmp_path, **options)
    run = caught.value.run
    assert int(run.step) == 4
    if fault != "changed":
        expected, _ = grouped(by_step(()), epochs=1, steps_per_epoch=4, steps_per_execution=1)
        assert_same_run(run, expected)
    assert np.isfinite(TRAINER.evaluate(run, X, Y, verbose=0)["loss"])
    resumed, _ = grouped(by_step(()), checkpoint=tmp_path, **{**options, "callbacks": ()})
    assert int(resumed.step) == 12


@pytest.mark.exhaustive
@pytest.mark.parametrize("memory", [1 << 32, 16], ids=["small", "large"])
def test_an_error_inside_a_compiled_step_leaves_a_usable_run(memory, monkeypatch):
    monkeypatch.setattr(array_feed, "MEMORY", memory)
    calls = []

    def host(value):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("the host's part failed")
        return value

    def loss(y, p):
        rows = jax.numpy.square(p[:, 0] - y).mean()
        value = jax.pure_callback(
            host, jax.ShapeDtypeStruct((), rows.dtype), jax.lax.stop_gradient(rows)
        )
        return rows + value

    trainer = fk.Trainer("sgd", lambda y, p: loss(y[:, 0], p))
    run = trainer.init(fk.Sequential([fk.Input((4,)), layers.Dense(1)]), jax.random.key(0))
    data = [(x, y[:, None].astype("float32")) for x, y in batches()]
    with pytest.raises(Exception, match="host's part failed") as caught:
        _ = trainer.fit(run, data, epochs=2, verbose=0, steps_per_execution=1)
    run = run_of(caught.value)
    assert 0 <= int(run.step) <= 4
    assert int(run.step) == 4 or memory > 16  # a large run is checked after each step
    calls[:] = [0] * 9
    again, _ = trainer.fit(run, data, verbose=0, steps_per_execution=1)
    assert int(again.step) == int(run.step) + 6


def test_a_hook_that_donates_the_run_leaves_a_usable_run():
    def use_up(step, run, logs):
        if step == 4:
            jax.tree.map(lambda leaf: leaf.delete() if hasattr(leaf, "delete") else None, run)

    with pytest.raises(RuntimeError, match="deleted") as caught:
        fit([fk.callbacks.LambdaCallback(on_batch_end=use_up)])
    chex.assert_trees_all_equal(caught.value.run.model, caught.value.run.model)
    assert int(caught.value.run.step) == 3


# signals, warnings, the screen


@pytest.mark.one_in(4)
@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "on_train_begin"])
@pytest.mark.parametrize("saved", [False, True])
def test_ctrl_c_in_a_hook(hook, saved, tmp_path):
    callbacks, _, _ = watching(at(hook, HOOKS[hook], lambda: signal.raise_signal(signal.SIGINT)))
    plan = fk.Checkpoint(str(tmp_path), every=100) if saved else None
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(fk.Interrupted) as caught:
        fit(callbacks, checkpoint=plan)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    # a training that saves leaves at the next moment at which the event is over
    later = saved and hook == "on_epoch_begin"
    assert_same_run(caught.value.run, undisturbed_training()[1][AFTER[hook] + later])
    if saved:
        assert_resumes(plan, watching()[0])


def test_a_second_ctrl_c_at_once_does_not_lose_the_run():
    def twice():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(fk.Interrupted) as caught:
        fit(watching(at("on_epoch_end", 1, twice))[0])
    assert_same_run(caught.value.run, undisturbed_training()[1][3])


@pytest.mark.exhaustive
def test_a_program_with_its_own_handler_of_ctrl_c_keeps_it():
    received = []

    def act():
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        run, _ = fit(watching(at("on_epoch_end", 1, act))[0])
    finally:
        signal.signal(signal.SIGINT, before)
    assert received == [signal.SIGINT] * 3
    chex.assert_trees_all_equal(run.model, undisturbed_training()[0][0].model)


def test_more_ctrl_c_while_the_training_is_saved(tmp_path, monkeypatch, capsys):
    from fkeras.training.checkpoint.store import Store

    save, numbers = Store.save, [signal.SIGINT, signal.SIGINT]

    def saving(*arguments):
        if numbers:
            signal.raise_signal(numbers.pop())
        return save(*arguments)

    monkeypatch.setattr(Store, "save", saving)
    plan = fk.Checkpoint(str(tmp_path), every=100)
    callbacks, _, _ = watching(at("on_batch_end", 2, throw(OSError)))
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(callbacks, checkpoint=plan)
    assert isinstance(caught.value.__cause__, OSError)
    assert_same_run(caught.value.run, undisturbed_training()[1][2])
    assert "saving the training" in capsys.readouterr().err
    monkeypatch.undo()
    assert_resumes(plan, watching()[0])


def test_a_save_that_fails_does_not_hide_the_exception(tmp_path, monkeypatch):
    from fkeras.training.checkpoint import store

    def full(*_):
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(store, "write_save", full)
    plan = fk.Checkpoint(str(tmp_path), every=100)
    with pytest.raises(LookupError) as caught:
        fit(watching(at("on_batch_end", 2, throw(LookupError)))[0], checkpoint=plan)
    assert "the disk is broken" in caught.value.__notes__[0]
    assert_same_run(caught.value.run, undisturbed_training()[1][2])
    plan = fk.Checkpoint(str(tmp_path), every=1)
    with pytest.raises(fk.CheckpointError, match="the disk is broken") as caught:
        fit(watching()[0], checkpoint=plan)
    assert_same_run(caught.value.run, undisturbed_training()[1][2])


@pytest.mark.exhaustive
def test_a_warning_that_is_an_error_carries_the_run():
    skipping = fk.Trainer("adam", TRAINER.loss, on_nonfinite="skip")
    with pytest.raises(
        UserWarning, match="were skipped"
    ) as caught:  # the suite turns them into errors
        _ = skipping.fit(RUN, poisoned(), epochs=2, verbose=0)
    assert list(caught.value.run.position) == [0, 6]


def test_a_closed_output_stream_carries_the_run(monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError("nobody reads")

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(BrokenPipeError) as caught:
        fit(watching()[0], verbose=2)
    assert_same_run(caught.value.run, undisturbed_training()[1][3])


# exceptions of the package in other processes


def exception_classes():
    for info in pkgutil.walk_packages(fk.__path__, "fkeras."):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, BaseException):
                if value.__module__ == info.name:
                    yield value


MADE = {
    "FileError": lambda kind: kind("no model", file="m.keras", member="config.json", layer="dense"),
    "FKerasError": lambda kind: kind("text", layer="dense", node=1, input_index=0),
    "MissingAttributeError": lambda kind: kind(layers.Dense(3), "units_"),
    "NonFiniteError": lambda kind: kind("text", None, (X[:2], Y[:2])),
    "Interrupted": lambda kind: kind("text", None, signal.SIGTERM),
}


@pytest.mark.exhaustive
def test_every_exception_is_pickled_and_copied_with_its_run():
    classes = sorted(set(exception_classes()), key=lambda kind: kind.__name__)
    assert len(classes) > 6
    for kind in classes:
        make = MADE.get(kind.__name__, lambda kind: kind("text"))
        error = make(kind)
        error.run = RUN
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is kind and str(again) == str(error), kind
            chex.assert_trees_all_equal(again.run, RUN)
            assert vars(again).keys() == vars(error).keys()
            for name in ("file", "layer", "node", "signal"):
                assert getattr(again, name, None) == getattr(error, name, None)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_leaves_a_training_with_checkpoints_as_it_is(kind, tmp_path):
    error = kind()

    def act():
        raise error

    callbacks, _, _ = watching(at("on_epoch_end", 1, act))
    with pytest.raises(kind) as caught:
        fit(callbacks, checkpoint=str(tmp_path))
    assert type(error) is KeyboardInterrupt or caught.value is error
    assert_same_run(run_of(caught.value), undisturbed_training()[1][3])


@pytest.mark.exhaustive
def test_exceptions_of_sources_may_reject_attributes():
    for kind in (Frozen, Sealed):

        def source(kind=kind):
            yield X[:8], Y[:8]
            raise kind()

        with pytest.raises(kind) as caught:
            _ = TRAINER.fit(RUN, source(), verbose=0)
        assert "while batch 2 of Trainer.fit was read" in caught.value.__notes__
