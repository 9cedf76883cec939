"""Sources of other libraries as they are, named batches, tables of Arrow, and `workers=`."""

import gc
import itertools
import threading
import time

import chex
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

RNG = np.random.default_rng(5)
X = RNG.normal(size=(44, 3)).astype("float32")
Y = (X[:, :1] * 2 - X[:, 1:2]).astype("float32")
TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(fk.Sequential([fk.Input((3,)), layers.Dense(1)]), jax.random.key(1))
EXPECTED = TRAINER.fit(RUN, X, Y, 8, epochs=2, shuffle=False, verbose=0)


def batches():
    return [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 44, 8)]


def check(source, **options):
    """Compares a training on a source, an evaluation and predictions with those on arrays."""
    run, history = TRAINER.fit(RUN, source, epochs=2, verbose=0, **options)
    chex.assert_trees_all_close(run.model, EXPECTED.run.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history["loss"], EXPECTED.history["loss"], rtol=1e-5)
    return run


def check_all(source):
    run = check(source)
    expected = TRAINER.evaluate(run, X, Y, verbose=0)["loss"]
    assert TRAINER.evaluate(run, source, verbose=0)["loss"] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(TRAINER.predict(run, source), TRAINER.predict(run, X), rtol=1e-5)


def package(name, command):
    return pytest.importorskip(name, reason=f"{name} is no dependency: {command}")


def test_batches_by_name():
    named = [{"y": y, "x": x} for x, y in batches()]
    check_all(named)
    weights = [
        {**batch, "sample_weight": np.full(len(batch["x"]), 0.5, "float32")} for batch in named
    ]
    logs = TRAINER.evaluate(RUN, weights, verbose=0)
    assert logs["loss"] == pytest.approx(
        TRAINER.evaluate(RUN, X, Y, verbose=0)["loss"] / 2, rel=1e-5
    )
    one, _ = TRAINER.step(RUN, named[0])
    two, _ = TRAINER.step(RUN, batches()[0])
    chex.assert_trees_all_equal(one.model, two.model)
    held = TRAINER.fit(RUN, named, validation_data=named, verbose=0).history
    assert "val_loss" in held.history


def test_a_dictionary_of_the_inputs_of_a_model_is_x():
    x, y = fk.Input((3,), name="x"), fk.Input((1,), name="y")
    model = fk.Model([x, y], layers.Dense(1)(layers.Concatenate()([x, y])))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, jax.random.key(0))
    rows = [{"x": a, "y": b} for a, b in batches()]
    assert trainer.predict(run, rows).shape == (44, 1)
    with pytest.raises(TypeError, match="received a dictionary of 'x', 'y'"):
        _ = trainer.fit(run, rows, verbose=0)
    run, _ = trainer.fit(run, [{"x": row, "y": row["y"]} for row in rows], verbose=0)


def test_other_names_of_a_batch_are_reported():
    with pytest.raises(
        TypeError, match=r"received a dictionary of 'pixels', 'label'.*keys 'x', 'y'"
    ):
        _ = TRAINER.fit(RUN, iter([{"pixels": X, "label": Y}]), verbose=0)


def test_tables_of_arrow_are_arrays():
    arrow = package("pyarrow", "pip install pyarrow")
    table = arrow.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y[:, 0]})
    run, _ = TRAINER.fit(
        RUN, table.select(["a", "b", "c"]), table["y"], 8, epochs=2, shuffle=False, verbose=0
    )
    chex.assert_trees_all_close(run.model, EXPECTED.run.model, rtol=1e-6)


def test_a_loader_of_torch():
    torch = package("torch", "pip install torch")
    data = torch.utils.data
    rows = data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    check_all(data.DataLoader(rows, batch_size=8))

    class Named(data.Dataset):
        def __len__(self):
            return 44

        def __getitem__(self, index):
            return {"x": X[index], "y": Y[index]}

    check(data.DataLoader(Named(), batch_size=8), workers=2)


def test_a_dataset_of_tensorflow():
    tensorflow = package("tensorflow", "pip install tensorflow")
    data = tensorflow.data.Dataset
    check_all(data.from_tensor_slices((X, Y)).batch(8))
    check_all(data.from_tensor_slices({"x": X, "y": Y}).batch(8).prefetch(2))
    check(data.from_tensor_slices((X, Y)).batch(8).repeat(), steps_per_epoch=6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_dataset_of_hugging_face():
    hub = package("datasets", "pip install datasets")
    rows = hub.Dataset.from_dict({"y": Y, "x": X, "name": ["a"] * 44})
    check(rows, batch_size=8, shuffle=False)
    run, history = TRAINER.fit(RUN, rows, batch_size=8, epochs=5, validation_data=rows, verbose=0)
    assert history["val_loss"][-1] < history["val_loss"][0]
    np.testing.assert_allclose(TRAINER.predict(run, rows), TRAINER.predict(run, X), rtol=1e-5)
    columns = rows.select_columns(["x", "y"])
    check_all(columns.to_iterable_dataset().with_format("numpy").batch(8))
    stream = fk.utils.Stream(columns.to_iterable_dataset(), 8).map(
        lambda row: {name: array.astype("float32") for name, array in row.items()}
    )
    check(stream)
    read = columns.with_format("numpy").__getitem__
    check(fk.utils.Dataset(44, read, 8).map(lambda row: (row["x"], row["y"])))
    with pytest.raises(ValueError, match="columns 'x', 'y' .* received 'pixels', 'label'"):
        _ = TRAINER.fit(RUN, columns.rename_columns({"x": "pixels", "y": "label"}), verbose=0)


class Table:
    """A table with the methods of `datasets.Dataset`, for machines without the package."""

    def __init__(self, **columns):
        self.columns = columns

    column_names = property(lambda self: list(self.columns))

    def with_format(self, name):
        assert name == "numpy"
        return self

    def select_columns(self, names):
        return Table(**{name: self.columns[name] for name in names})

    def __len__(self):
        return 44

    def __getitem__(self, ids):
        return {name: column[ids] for name, column in self.columns.items()}


def test_a_table_of_samples():
    table = Table(x=X, y=Y, name=np.arange(44))
    check(table, batch_size=8, shuffle=False)
    shuffled = TRAINER.fit(RUN, table, batch_size=8, epochs=2, verbose=0)
    again = TRAINER.fit(RUN, table, batch_size=8, epochs=2, verbose=0)
    chex.assert_trees_all_equal(shuffled.run.model, again.run.model)
    assert not np.allclose(shuffled.history["loss"], EXPECTED.history["loss"], rtol=1e-5)
    with pytest.raises(ValueError, match="expected a Table with the columns 'x', 'y'"):
        _ = TRAINER.fit(RUN, Table(a=X, y=Y), verbose=0)


class Indexed:
    """Batches by number, as in Keras's `PyDataset`."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return batches()[index]


def _reusing():
    """Yields each batch in the same memory."""
    x, y = np.empty((8, 3), "float32"), np.empty((8, 1), "float32")
    for a, b in batches():
        x[: len(a)], y[: len(b)] = a, b
        yield x[: len(a)], y[: len(b)]


class Restarting:
    def __iter__(self):
        return _reusing()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["list", "index", "reused memory", "step", "iterator"])
def test_workers_give_the_same_batches(kind, workers):
    before = threading.active_count()
    source, steps = {
        "list": (batches(), None),
        "index": (Indexed(), None),
        "reused memory": (Restarting(), None),
        "step": (lambda step: batches()[step % 6], 6),
        "iterator": ((b for _ in range(2) for b in _reusing()), 6),
    }[kind]
    check(source, workers=workers, steps_per_epoch=steps)
    del source
    gc.collect()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before  # no thread outlives the training


def test_workers_read_at_the_same_time():
    waiting = threading.Barrier(3, timeout=20)

    def batch(step):
        waiting.wait()  # passes when three threads are here
        return batches()[0]

    _ = TRAINER.fit(RUN, batch, steps_per_epoch=6, workers=3, verbose=0)


def test_a_failing_source_fails_at_its_batch():
    def batch(step):
        if step == 3:
            raise OSError("disk")
        return batches()[0]

    with pytest.raises(OSError, match="disk") as caught:
        _ = TRAINER.fit(RUN, batch, steps_per_epoch=6, workers=2, verbose=0)
    assert int(caught.value.run.step) == 3
    assert any("batch 4" in note for note in caught.value.__notes__)


def test_workers_of_data_without_a_source():
    with pytest.raises(ValueError, match="expected a source of batches for workers=2"):
        _ = TRAINER.fit(RUN, X, Y, workers=2, verbose=0)
    with pytest.raises(ValueError, match="workers: expected"):
        _ = TRAINER.fit(RUN, batches(), workers=-1, verbose=0)
    package("grain", "pip install grain")
    dataset = fk.utils.Dataset(44, lambda ids: (X[ids], Y[ids]), 8)
    with pytest.raises(ValueError, match="received Dataset, which reads ahead"):
        _ = TRAINER.fit(RUN, dataset, workers=2, verbose=0)


def test_an_endless_iterator_is_read_ahead_by_a_few_batches():
    read = itertools.count()
    endless = ((next(read), batches()[0])[1] for _ in itertools.count())
    _ = TRAINER.fit(RUN, endless, steps_per_epoch=4, workers=2, verbose=0)
    assert 4 <= next(read) <= 4 + 3
