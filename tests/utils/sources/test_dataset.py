"""`Dataset`: order of passes, positions, and resumed training."""

import json
import threading

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

pytest.importorskip("grain")
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(44, 3)).astype("float32"), RNG.normal(size=(44, 1)).astype("float32")
TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(fk.Sequential([fk.Input((3,)), layers.Dense(1)]), jax.random.key(0))


def _rows(ids):
    return X[ids], Y[ids]


def _data(**options):
    return fk.utils.Dataset(44, _rows, **{"batch_size": 8, "shuffle": True, "seed": 3, **options})


def _order(batches):
    return np.concatenate([x for x, _ in batches])


def test_the_order_of_a_pass_depends_on_its_first_step():
    data = _data()
    first = _order(data)
    np.testing.assert_array_equal(first, _order(data))
    second = _order(data.pass_at(6))
    assert (first != second).any()
    np.testing.assert_array_equal(np.sort(first, axis=0), np.sort(second, axis=0))
    np.testing.assert_array_equal(_order(_data(shuffle=False).pass_at(6)), X)
    with pytest.raises(AttributeError):
        data.seed = 4


def test_background_threads_read_the_batches():
    names = []

    def read(ids):
        names.append(threading.current_thread().name)
        return _rows(ids)

    list(fk.utils.Dataset(44, read, 8))
    assert threading.main_thread().name not in names and len(names) == 6


def test_positions_are_json_and_fit_only_their_data():
    data = _data()
    batches = list(data.pass_at(6))
    iterator = data.pass_at(6)
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    restored = iter(data)
    restored.set_state(state)
    for batch, expected in zip(restored, batches[3:], strict=True):
        chex.assert_trees_all_equal(batch, expected)
    for changed in (_data(seed=4), _data(batch_size=4), _data(file_paths=("a",))):
        with pytest.raises(ValueError, match="expected the data of the checkpoint"):
            iter(changed).set_state(state)


def _power_cut(at_step):
    def stop(step, run, logs):
        if step == at_step:
            raise OSError("power cut")

    return fk.callbacks.LambdaCallback(on_batch_end=stop)


@pytest.mark.exhaustive
@pytest.mark.parametrize("steps", [None, 4], ids=["complete passes", "steps"])
def test_a_killed_training_resumes_bit_for_bit(tmp_path, steps):
    options = {"epochs": 3, "verbose": 0, "steps_per_epoch": steps, "steps_per_execution": 1}
    uninterrupted, history = TRAINER.fit(
        RUN, _data(), validation_data=_data(shuffle=False), **options
    )
    for step in (2, 6, 9):  # in the middle and at the end of an epoch
        with pytest.raises(OSError, match="power cut"):
            _ = TRAINER.fit(
                RUN,
                _data(),
                validation_data=_data(shuffle=False),
                checkpoint=fk.Checkpoint(str(tmp_path), every=1),
                callbacks=[_power_cut(step)],
                **options,
            )
    run, resumed = TRAINER.fit(
        RUN,
        _data(),
        validation_data=_data(shuffle=False),
        checkpoint=fk.Checkpoint(str(tmp_path), every=1),
        **options,
    )
    chex.assert_trees_all_equal(run.model, uninterrupted.model)
    assert resumed.history == history.history


@pytest.mark.exhaustive
def test_fit_requests_a_pass_for_each_epoch():
    first_steps = []

    class Spy(fk.utils.Dataset):
        def pass_at(self, step):
            first_steps.append(step)
            return super().pass_at(step)

    _ = TRAINER.fit(RUN, Spy(44, _rows, 8, True), epochs=3, verbose=0)
    assert first_steps == [0, 6, 12]


@pytest.mark.exhaustive
def test_map_and_take():
    data = _data(shuffle=False).map(lambda x, y: (x * 2, y)).take(2)
    assert len(data) == len(list(data)) == 2
    np.testing.assert_array_equal(_order(data), X[:16] * 2)
    singles = list(_data(shuffle=False, batch_size=None).take(3))
    assert [x.shape for x, _ in singles] == [(3,)] * 3
    named = fk.utils.Dataset(4, lambda ids: {"a": ids}, None)
    assert [int(row["a"]) for row in named] == [0, 1, 2, 3]


@pytest.mark.exhaustive
def test_to_grain_accepts_transformations():
    batches = _data(shuffle=False).to_grain().map(lambda batch: batch[0].sum())
    assert len(batches) == 6
    np.testing.assert_allclose(batches[1], X[8:16].sum(), rtol=1e-6)


def test_an_exception_while_reading_reaches_the_caller():
    def read(ids):
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        _ = TRAINER.fit(RUN, fk.utils.Dataset(8, read), verbose=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fk.utils.Dataset(0, _rows), "count: expected a positive integer"),
        (lambda: fk.utils.Dataset(4, X), "read: expected a function"),
        (lambda: _data(batch_size=-1), "batch_size: expected a positive integer"),
        (lambda: _data(shuffle=1), "shuffle: expected True or False"),
        (lambda: _data(seed=2**32), "seed: expected an integer from 0"),
        (lambda: _data(shard=(1, 1)), "shard: expected"),
        (lambda: _data(shard=(0, 1, 2)), "shard: expected"),
        (lambda: _data(shard=3), "shard: expected"),
        (lambda: _data(limit=0), "limit: expected"),
        (lambda: _data().map(3), "Dataset.map: expected a function"),
        (lambda: _data().take(0), "Dataset.take: count: expected"),
    ],
)
def test_invalid_arguments_are_reported(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_repr_is_short():
    names, files = tuple("abcdefg"), tuple(map(str, range(44)))
    data = _data(class_names=names, file_paths=files, shard=(0, 2))
    assert repr(data) == (
        "<Dataset of 44 samples, 6 batches of 8, shuffled with seed 3, share 0 of 2, "
        "7 classes: a, b, c, d, e, ...>"
    )
    assert repr(fk.utils.Dataset(5, _rows, batch_size=None)) == "<Dataset of 5 samples>"
