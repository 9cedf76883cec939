"""Files of a training that two processes hold together: equal to files of one process."""

import zipfile

import jax
import jax.export
import numpy as np
import pytest

import fkeras as fk
from tests.host.processes.cases import files
from tests.support.processes import run_processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def results(folder):
    case = "tests.host.processes.cases.files:run"
    return [result.get() for result in run_processes(case, 2, arguments=(folder,))]


def test_the_first_process_writes_all_files(results):
    first, second = results
    assert first["spread"] and second["spread"]
    assert {*files.PATHS, "m.jax.json", "s.jax.json", "s.jax.npz"} == set(first["written"])
    assert second["written"] == []


@pytest.mark.exhaustive
def test_all_processes_return_when_the_files_are_complete(results):
    first, second = results
    assert second["complete"] == sorted(first["written"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*files.WEIGHTS, "r.npz", "s.jax.npz"])
def test_files_equal_those_of_one_process(name, results, folder):
    assert (folder / "together" / name).read_bytes() == (folder / "alone" / name).read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["m.keras", "t.keras"])
def test_archives_equal_those_of_one_process(name, results, folder):
    with zipfile.ZipFile(folder / "together" / name) as new:
        with zipfile.ZipFile(folder / "alone" / name) as old:
            assert new.namelist() == old.namelist()
            for member in ("config.json", "model.weights.h5"):  # the metadata have a date
                assert new.read(member) == old.read(member)


@pytest.mark.exhaustive
def test_a_training_resumes(results, folder):
    trainer, run = fk.load_training(folder / "together/t.keras")
    _, other = fk.load_training(folder / "alone/t.keras")
    assert int(run.step) == 1
    assert files.equal(run, other)
    assert trainer == files.TRAINER


@pytest.mark.exhaustive
def test_programs_equal_those_of_one_process(results, folder):
    def call(name, *arguments):
        for where in ("together", "alone"):
            yield jax.export.deserialize((folder / where / name).read_bytes()).call(*arguments)

    assert files.equal(*call("m.jax", files.X))
    with np.load(folder / "together/s.jax.npz") as file:
        run = dict(file)
    assert files.equal(*call("s.jax", run, files.X, files.Y))


def test_arrays_and_keys_are_gathered_in_every_process(results):
    expected = [jax.random.key(3), jax.random.split(jax.random.key(4), 4)]
    for facts in results:
        assert facts["gathered"]
        assert facts["keys are keys"]
        assert facts["keys"] == [jax.random.key_data(key).tolist() for key in expected]
        assert facts["moved"] == [[4, 2], True]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["m.keras", *files.WEIGHTS, "kept"])
def test_each_process_loads_its_shards(name, results):
    for facts in results:
        assert facts["loaded"][name] == [True, True]


def test_an_error_of_the_writer_reaches_every_process(results):
    (first, text), (second, message) = (facts["errors"]["folder"] for facts in results)
    assert first in ("FileExistsError", "NotADirectoryError")
    assert second == "ProcessError"
    assert "process that writes the file" in message and first in message and text in message


@pytest.mark.parametrize("case", ["path", "model path"])
def test_another_path_is_an_error_in_every_process(case, results):
    for facts in results:
        name, message = facts["errors"][case]
        assert name == "ProcessError"
        assert "other-0" in message and "other-1" in message
    assert [facts["written after errors"] for facts in results] == [[], []]


def test_get_weights_names_the_split_array(results):
    for facts in results:
        name, message = facts["errors"]["get_weights"]
        assert name == "ValueError"
        assert "expected arrays of this process, received 'up/kernel'" in message
        assert "process_allgather" in message


@pytest.mark.exhaustive
def test_calls_continue_after_errors(results, folder):
    assert (folder / "after.npz").read_bytes() == (folder / "together/w.npz").read_bytes()
