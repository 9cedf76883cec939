"""Checkpoints of several processes continue in any number of processes."""

import json
import shutil

import orbax.checkpoint
import pytest

from tests.host.processes.cases.saving import KINDS
from tests.host.processes.test_fitting import assert_close
from tests.support.processes import run_processes

# `tools/stress/kill_processes.py` also runs in CI
pytestmark = pytest.mark.exhaustive
CASES = "tests.host.processes.cases.saving"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saves")


@pytest.fixture(scope="module")
def early(folder):
    results = run_processes(f"{CASES}:early_and_bits", 2, 2, arguments=(str(folder),))
    return [result.get() for result in results]


@pytest.fixture(scope="module")
def one():
    [result] = run_processes(
        f"{CASES}:continued", 1, 4, arguments=(None, ("arrays", "dataset", "split"))
    )
    return result.get()


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_ends_early_saves_its_last_step_in_all_processes(early, kind):
    first, second = (result["early"][kind] for result in early)
    assert first["step"] == second["step"] >= 9
    assert not any("could not be saved" in note for note in first["notes"] + second["notes"])
    kinds = ("Interrupted", "Interrupted") if kind == "split" else ("ProcessError", "OSError")
    assert (first["type"], second["type"]) == kinds


@pytest.mark.parametrize("kind", ["arrays", "grain"])
def test_a_signal_in_one_process_saves_in_all_and_the_training_continues_bit_for_bit(early, kind):
    first, second = (result["bits"][kind] for result in early)
    for result in (first, second):
        assert result["end"]["type"] == "Interrupted"
        assert result["same"] == [True, True]
    assert first["files"] == second["files"]


def test_orbax_alone_reads_the_folder_of_each_process(early, folder):
    [save] = (folder / "split" / "latest").glob(str(early[0]["early"]["split"]["step"]))
    arrays = json.loads((save / "manifest.json").read_text())["arrays"]
    parts = [part for facts in arrays.values() for part in facts["parts"]]
    assert {part["folder"] for part in parts} == {"arrays", "arrays-1"}
    for name in ("arrays", "arrays-1"):
        restored = orbax.checkpoint.PyTreeCheckpointer().restore(save / name)
        shapes = {part["name"]: tuple(part["shape"]) for part in parts if part["folder"] == name}
        assert {key: array.shape for key, array in restored.items()} == shapes


def _continue(folder, target, count, devices):
    shutil.copytree(folder, target)
    results = run_processes(f"{CASES}:continued", count, devices, arguments=(str(target),))
    return [result.get() for result in results]


def _check(values, one):
    for value in values:
        for kind in ("arrays", "dataset", "split"):
            assert_close(value[kind], one[kind])
        # these sources have a position, or rows, of one share
        for kind in ("list", "grain"):
            assert "another training" in value[kind] or "processes as in the save" in value[kind]


def test_one_process_continues_the_training_of_two(early, one, folder, tmp_path):
    _check(_continue(folder, tmp_path / "saves", 1, 4), one)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("count", "devices"), [(4, 1), (4, 2), (1, 8)])
def test_other_numbers_of_processes_continue_the_training_of_two(
    early, one, folder, tmp_path, count, devices
):
    _check(_continue(folder, tmp_path / "saves", count, devices), one)


@pytest.mark.exhaustive
def test_two_processes_continue_the_training_of_one(one, tmp_path):
    [result] = run_processes(f"{CASES}:ended_early", 1, 4, arguments=(str(tmp_path / "saves"),))
    result.get()
    results = run_processes(f"{CASES}:continued", 2, 2, arguments=(str(tmp_path / "saves"),))
    _check([result.get() for result in results], one)
