"""Trainings of several processes compute what one process computes."""

import numpy as np
import pytest

from tests.support.processes import run_processes

# several processes start and compile; by default tests of calls, files and groups run
pytestmark = pytest.mark.exhaustive

CASES = "tests.host.processes.cases.fitting"


def assert_close(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    else:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [tmp_path_factory.mktemp(name) for name in ("one", "two")]


@pytest.fixture(scope="module")
def one(folders):
    [result] = run_processes(f"{CASES}:everything", 1, 4, arguments=(str(folders[0]),))
    return result.get()


@pytest.fixture(scope="module")
def two(folders):
    return run_processes(f"{CASES}:everything", 2, 2, arguments=(str(folders[1]),))


@pytest.mark.parametrize("part", ["arrays", "sources", "roles", "callbacks", "little_memory"])
def test_two_processes_compute_what_one_process_computes(one, two, part):
    first, second = (result.get()[part] for result in two)
    assert_close(second, first)
    if part == "roles":
        # the processes split the weights: both have all rows
        assert (one[part].pop("share"), first.pop("share")) == ((0, 1), (0, 1))
    assert_close(first, one[part])


def test_only_the_first_process_prints_and_writes_logs(two, folders):
    first, second = (result.output for result in two)
    assert "Epoch 1/2" in first and "reduced the learning rate" in first
    assert "Epoch" not in second
    names = {path.name for path in folders[1].iterdir()}
    assert {"log0.csv", "events0", "best.npz"} == names


def test_callbacks_decide_alike_in_all_processes(two):
    for result in two:
        assert result.get()["callbacks"]["epochs"] == [0, 1]


@pytest.mark.exhaustive
def test_four_processes_compute_what_one_process_computes(one, tmp_path):
    results = run_processes(f"{CASES}:everything", 4, 1, arguments=(str(tmp_path),), timeout=300)
    values = [result.get() for result in results]
    for value in values:
        value["roles"].pop("share")
    one["roles"].pop("share", None)
    for value in values:
        assert_close(value, one)


@pytest.fixture(scope="module")
def mistakes():
    first, second = run_processes(f"{CASES}:mistakes", 2, 2)
    return first.get(), second.get()


@pytest.mark.parametrize(
    ("name", "words", "step"),
    [
        ("hook", "process 1 left the call with an exception: OSError: no space", 7),
        ("run", "step was", 7),
        ("batch", "batch_size was 8, is 16", 0),
        ("data", "x has other contents", 0),
        ("key", "expected the same key, weights and state in every process", None),
        ("source", "process 1 left the call with an exception: ValueError: bad file", 4),
        ("empty", "expected batches, received an empty source", 0),
        (
            "shuffled",
            "expected the same rows from the processes 0 and 1, which have the same share",
            0,
        ),
        ("calls", "process 1 calls Trainer.predict while process 0 calls Trainer.evaluate", None),
    ],
)
def test_processes_that_differ_are_reported(mistakes, name, words, step):
    first = mistakes[0][name]
    assert first["type"] == "ProcessError" and first["process"] == 1
    assert words in first["text"]
    assert first["step"] == step


def test_the_process_that_fails_has_its_own_error_and_the_same_run(mistakes):
    first, second = mistakes
    for name, kind in {"hook": "OSError", "source": "ValueError", "empty": "ValueError"}.items():
        assert second[name]["type"] == kind
        assert second[name]["step"] == first[name]["step"]


def test_a_dataset_without_the_share_of_the_process_is_an_error(mistakes):
    for process, problems in enumerate(mistakes):
        assert problems["shard"]["type"] == "ValueError"
        assert (
            f"shard=({process}, 2), received a dataset with shard=(0, 1)"
            in problems["shard"]["text"]
        )


def test_processes_with_equal_rows_are_warned_about_once(mistakes):
    first, second = (problems["all_rows"] for problems in mistakes)
    assert len(first) == 2 and not second
    assert "the processes 0 and 1 begin with the same rows" in first[0]


def test_processes_that_split_only_weights_train_on_equal_rows(mistakes):
    assert all(problems["equal"] is None for problems in mistakes)


def test_a_step_that_is_not_finite_is_the_same_error_in_all_processes(mistakes):
    for problems in mistakes:
        assert problems["nan"]["type"] == "NonFiniteError" and problems["nan"]["step"] == 7


def test_calls_after_an_error_work(mistakes):
    assert all(problems["after"] is None for problems in mistakes)
