"""`Stream`: order of the shuffle buffer, batches of samples and blocks, resumed trainings, Parquet files."""

import itertools

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.utils import Stream, parquet_dataset

ROWS = np.arange(100, dtype="float32")


def pairs():
    return ((x, {"twice": 2 * x}) for x in ROWS)


def values(stream, step=0):
    return np.concatenate([x for x, _ in stream.pass_at(step)])


@pytest.mark.parametrize(("shuffle", "size"), [(0, 7), (1, 7), (5, 7), (30, 7), (500, 7), (10, 1)])
def test_a_pass_has_each_sample_once_in_full_batches(shuffle, size):
    stream = Stream(pairs, size, shuffle)
    batches = list(stream)
    assert [len(x) for x, _ in batches] == [size] * (100 // size) + [100 % size] * (100 % size > 0)
    assert all((y["twice"] == 2 * x).all() for x, y in batches)
    found = values(stream)
    np.testing.assert_array_equal(np.sort(found), ROWS)
    assert (found == ROWS).all() == (shuffle < 2)
    np.testing.assert_array_equal(values(stream), found)
    assert shuffle < 2 or (values(stream, 5) != found).any()
    assert shuffle < 2 or (values(Stream(pairs, size, shuffle, seed=1)) != found).any()


def test_the_buffer_mixes_and_bounds_what_is_read_ahead():
    # a sample can leave the buffer at most `shuffle` samples early
    found = values(Stream(pairs, 5, 20))
    early = ROWS.astype(int)[found.astype(int)] - np.arange(100)
    assert early.max() <= 20 + 5
    # positions are spread: the mean distance of neighbours is that of a random order of 20 samples
    assert 4 < np.abs(np.diff(found[:80])).mean() < 20
    read = itertools.count()
    next(iter(Stream(lambda: ((next(read), 0) for _ in range(1000)), 5, 20)))
    assert next(read) <= 30


def test_blocks_of_any_size_are_cut_into_batches():
    blocks = [ROWS[:3], ROWS[3:3], ROWS[3:50], ROWS[50:51], ROWS[51:]]
    stream = Stream([(b, -b) for b in blocks], 8, batched=True)
    np.testing.assert_array_equal(values(stream), ROWS)
    assert [len(x) for x, _ in stream] == [8] * 12 + [4]
    whole = Stream([(b, -b) for b in blocks], 8, 16, batched=True, drop_remainder=True)
    assert [len(x) for x, _ in whole] == [8] * 12
    assert all((x == -y).all() for x, y in whole)


def test_functions_sources_and_strings():
    stream = Stream(lambda rng: iter(rng.permutation(4)), 4)
    orders = [next(stream.pass_at(step)).tolist() for step in (0, 0, 3)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == [0, 1, 2, 3]
    words = Stream(["a", "long", "words"], 2, 3).map(lambda text: [len(word) for word in text])
    assert sorted(itertools.chain(*words)) == [1, 4, 5]
    once = Stream(iter([(1.0, 2.0)] * 3), 2)
    assert len(list(once)) == 2 and list(once) == []
    lists = Stream([([1, 2], 0), ([3, 4], 1)], 2)
    assert next(iter(lists))[0].tolist() == [[1, 2], [3, 4]]


def test_frames_are_dictionaries_of_columns():
    pandas = pytest.importorskip("pandas", reason="the docs extra has pandas")
    parts = [pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "longer"]}) for _ in range(3)]
    batches = list(Stream(parts, 4, batched=True))
    assert [batch["a"].tolist() for batch in batches] == [[1, 2, 1, 2], [1, 2]]
    assert batches[1]["b"].tolist() == ["x", "longer"]


TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(fk.Sequential([fk.Input((1,)), layers.Dense(1)]), jax.random.key(0))
NUMBERS = Stream(lambda: (((x,), (2 * x,)) for x in ROWS / 100), 16, 40).map(
    lambda x, y: (np.stack(x, -1), np.stack(y, -1))
)


def test_fit_takes_another_order_in_each_epoch():
    seen = []
    watched = NUMBERS.map(lambda x, y: seen.append(x.ravel()) or (x, y))
    run, history = TRAINER.fit(RUN, watched, epochs=2, verbose=0)
    first, second = np.concatenate(seen[:7]), np.concatenate(seen[7:])
    assert (first != second).any() and (np.sort(first) == np.sort(second)).all()
    assert history["loss"][1] < history["loss"][0] and int(run.step) == 14


@pytest.mark.exhaustive
def test_a_resumed_training_continues_in_the_same_order(tmp_path):
    # three compiled trainings with checkpoints
    whole, _ = TRAINER.fit(RUN, NUMBERS, epochs=3, verbose=0)
    saved = fk.Checkpoint(tmp_path / "run", every=1)

    class Fails(Exception):
        pass

    calls = itertools.count()

    def failing(x, y):
        if next(calls) == 10:
            raise Fails
        return x, y

    with pytest.raises(Fails):
        _ = TRAINER.fit(RUN, NUMBERS.map(failing), epochs=3, verbose=0, checkpoint=saved)
    resumed, _ = TRAINER.fit(RUN, NUMBERS, epochs=3, verbose=0, checkpoint=saved)
    np.testing.assert_allclose(
        resumed.model.layers["dense"].kernel, whole.model.layers["dense"].kernel, rtol=1e-6
    )


BAD = {
    "batch_size": (lambda: Stream([], 0), "batch_size: expected a positive integer"),
    "shuffle": (lambda: Stream([], 2, True), "shuffle"),
    "source": (lambda: Stream(3), "expected an iterable, or a function"),
    "map": (lambda: Stream([]).map(3), "expected a function of a batch"),
    "no iterator": (lambda: list(Stream(lambda: 3)), r"iterator from source\(\), received 3"),
    "shapes": (
        lambda: list(Stream([np.ones(2), np.ones(3)], 2)),
        "samples 1 to 2: expected samples of one structure and shape",
    ),
    "structure": (lambda: list(Stream([(1, 2), (1, 2, 3)], 2)), "samples 1 to 2"),
    "keys": (lambda: list(Stream([{"a": 1}, {"b": 1}], 2)), "different keys"),
    "dtypes": (lambda: list(Stream([1, 2, 3.5], 1)), "shapes and dtypes .* as before"),
    "later shapes": (lambda: list(Stream([np.ones(2), np.ones(3)], 1)), "as before"),
    "samples as batches": (
        lambda: list(Stream([(np.ones(3), 1.0)], 2, batched=True)),
        r"batch 1 .* received \(3,\) and \(\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_explained(case):
    make, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def _parquet():
    reason = "pyarrow is an optional package: pip install pyarrow"
    arrow = pytest.importorskip("pyarrow", reason=reason)
    return arrow, pytest.importorskip("pyarrow.parquet", reason=reason)


def test_parquet_files(tmp_path):
    arrow, parquet = _parquet()
    for number in range(2):
        ids = np.arange(50 * number, 50 * (number + 1))
        table = arrow.table(
            {"id": ids, "pair": np.stack([ids, -ids], -1).tolist(), "word": map(str, ids)}
        )
        parquet.write_table(table, tmp_path / f"part{number}.parquet", row_group_size=20)
    ordered = list(parquet_dataset(tmp_path, batch_size=30))
    assert [len(batch["id"]) for batch in ordered] == [30, 30, 30, 10]
    assert ordered[1]["id"].tolist() == list(range(30, 60)) and ordered[0]["pair"].shape == (30, 2)
    assert ordered[3]["word"][-1] == "99"
    shuffled = parquet_dataset(tmp_path, ["id"], batch_size=100, shuffle=2)
    (batch,) = shuffled
    ids = batch["id"].tolist()
    # the row groups come in another order, too
    assert list(batch) == ["id"] and sorted(ids) == list(range(100)) and abs(ids[0] - ids[50]) != 50
    assert next(shuffled.pass_at(4))["id"].tolist() != ids
    one = parquet_dataset([tmp_path / "part1.parquet"], batch_size=50)
    assert next(iter(one))["id"][0] == 50


def test_mistakes_with_parquet_files(tmp_path):
    arrow, parquet = _parquet()
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"area": [1, None], "rows": [[1], [1, 2]]}), path)
    with pytest.raises(ValueError, match="has no column 'aera'. Did you mean 'area'"):
        parquet_dataset(path, ["aera"])
    with pytest.raises(ValueError, match="column 'area': .* 1 missing of 2"):
        list(parquet_dataset(path, ["area"]))
    with pytest.raises(ValueError, match="column 'rows': expected lists of one length"):
        list(parquet_dataset(path, ["rows"]))
    with pytest.raises(FileNotFoundError, match="no file"):
        parquet_dataset(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="columns: expected a list of names"):
        parquet_dataset(path, "area")
    with pytest.raises(TypeError, match="expected a path or a list of paths, received 3"):
        parquet_dataset(3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no files that end in"):
        parquet_dataset(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no file None"):
        parquet_dataset([])
