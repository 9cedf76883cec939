"""Calls that several processes make together: equal decisions, and no process that waits forever."""

import signal
import time

import pytest

from fkeras.host.processes.alone import ALONE
from fkeras.host.processes.service import ProcessError, Service
from tests.support.processes import run_processes, start_processes

CASES = "tests.host.processes.cases.group"
# seconds of two reads of the heartbeats, on a machine that does other work, too
SOON = 30


@pytest.fixture(scope="module")
def decisions():
    return [result.get() for result in run_processes(f"{CASES}:decisions", 3, 1)]


@pytest.fixture(scope="module")
def failures():
    return [result.get() for result in run_processes(f"{CASES}:failures", 3, 1)]


def test_one_process_exchanges_nothing():
    assert (ALONE.index, ALONE.count, ALONE.leads) == (0, 1, True)
    value = object()
    assert ALONE.agree(value, "anything") == [value]
    assert ALONE.require_equal("anything", value) is None
    assert ALONE.channel("save") is ALONE


def test_several_processes_need_the_service_of_jax():
    with pytest.raises(ProcessError, match=r"expected jax\.distributed\.initialize\(\)") as caught:
        Service()
    assert caught.value.process is None


class TestDecisions:
    def test_a_group_knows_its_place(self, decisions):
        assert [result["place"] for result in decisions] == [
            (0, 3, True),
            (1, 3, False),
            (2, 3, False),
        ]
        assert decisions[0]["members"] == ((0, 1, 2), (1,), ())

    def test_values_come_in_the_order_of_processes(self, decisions):
        expected = [
            [{"step": rank, "rows": [number, None]} for rank in range(3)] for number in range(5)
        ]
        assert [result["agree"] for result in decisions] == [expected] * 3

    def test_equal_facts_pass(self, decisions):
        assert [result["equal"] for result in decisions] == [None] * 3

    def test_channels_are_independent(self, decisions):
        main = [[rank + number for rank in range(3)] for number in range(20)]
        save = [[10 * rank + number for rank in range(3)] for number in range(20)]
        assert [result["main"] for result in decisions] == [main] * 3
        assert [result["save"] for result in decisions] == [save] * 3
        # a second group of the channel would read the values of the first
        assert all(result["same channel"] for result in decisions)

    def test_a_call_within_a_call(self, decisions):
        assert [result["nested"] for result in decisions] == [[0, 1, 2]] * 3

    def test_a_mesh_of_some_processes(self, decisions):
        assert [result["some"] for result in decisions] == [[0, 2], None, [0, 2]]
        message, process, _ = decisions[1]["other"]
        assert "expected a mesh with devices of this process, 1" in message
        assert "mesh of the processes 0, 2" in message
        assert process is None

    def test_a_mesh_of_own_devices_exchanges_nothing(self, decisions):
        assert all(result["own mesh"] and result["no mesh"] for result in decisions)

    def test_calls_follow_each_other(self, decisions):
        assert [result["again"] for result in decisions] == [[[0, 1, 2]] * 4] * 3

    def test_keys_of_earlier_calls_are_removed(self, decisions):
        for result in decisions:
            # a process may look before the others have removed theirs
            assert result["kept calls"][-1] == 5
            assert min(result["kept calls"]) >= 3


@pytest.mark.exhaustive
class TestFailures:
    @pytest.mark.parametrize(
        "name",
        [
            *("names", "facts", "plain facts", "subjects", "exception", "rescue", "no rescue"),
            *("shorter", "nested", "mesh"),
        ],
    )
    def test_the_next_call_matches(self, failures, name):
        assert [result[f"after {name}"] for result in failures] == [[0, 1, 2]] * 3

    def test_calls_of_different_names(self, failures):
        for rank, other in ((0, 1), (1, 0), (2, 1)):
            message, process, _ = failures[rank]["names"]
            names = ["Trainer.fit", "Trainer.evaluate", "Trainer.fit"]
            assert (
                f"process {other} calls {names[other]} while process {rank} calls {names[rank]}"
                in message
            )
            assert process == other

    def test_differences_in_words(self, failures):
        for result in failures:
            message, process, _ = result["facts"]
            assert message.startswith("Trainer.fit: expected the same arguments in every process")
            assert "process 0 (was) and process 2 (is) differ" in message
            assert "optimizer: rate was 0.1, is 0.2" in message
            assert "epochs" not in message
            assert process == 2
            message, process, _ = result["plain facts"]
            assert "the same seed" in message
            assert "was 0, is 1" in message

    def test_exchanges_of_different_subjects(self, failures):
        message, process, _ = failures[0]["subjects"]
        assert "process 0 exchanges 'the save', but process 1 exchanges 'the stop'" in message
        assert process == 1
        assert failures[1]["subjects"][1] == failures[2]["subjects"][1] == 0

    @pytest.mark.parametrize("name", ["exception", "rescue"])
    def test_an_exception_reaches_the_others(self, failures, name):
        assert failures[1][name] is None
        assert failures[1]["own"]
        for rank in (0, 2):
            message, process, seconds = failures[rank][name]
            assert "process 1 left the call with an exception" in message
            assert "ValueError: the callback failed" in message
            assert process == 1
            assert seconds < SOON

    def test_processes_agree_after_a_failure(self, failures):
        assert [result["rescued"] for result in failures] == [[0, 1, 2]] * 3

    def test_a_rescue_does_not_wait_for_a_process_that_has_left(self, failures):
        for rank in (0, 2):
            message, process, seconds = failures[rank]["no rescue"]
            assert "ValueError: the callback failed" in message
            assert process == 1
            assert seconds < SOON

    def test_a_process_that_makes_fewer_exchanges(self, failures):
        assert failures[0]["shorter"] is None
        for rank in (1, 2):
            message, process, _ = failures[rank]["shorter"]
            assert "process 0 has finished the call" in message
            assert process == 0

    def test_a_call_that_one_process_makes_within_a_call(self, failures):
        message, process, seconds = failures[0]["nested"]
        assert "process 1" in message
        assert process in (1, 2)
        assert seconds < SOON
        message, process, _ = failures[1]["nested"]
        assert "Trainer.evaluate" in message
        assert process in (0, 2)

    def test_calls_with_different_meshes(self, failures):
        for rank in (0, 2):
            message, process, seconds = failures[rank]["mesh"]
            assert "process 1" in message
            assert process == 1
            assert seconds < SOON
        message, process, _ = failures[1]["mesh"]
        assert "process 0" in message
        assert process == 0
        # those that find out by themselves name the other mesh
        assert any(
            "mesh of the processes 0, 1" in failures[rank]["mesh"][0] for rank in (0, 2)
        ) or ("mesh of the processes 0, 1, 2" in message)


def test_a_killed_process_is_named(tmp_path):
    with start_processes(f"{CASES}:ends", 3, 2, arguments=(str(tmp_path),)) as processes:
        for rank in range(3):
            processes.await_file(tmp_path / str(rank))
        time.sleep(0.5)
        processes.kill(2, signal.SIGKILL)
        *others, killed = processes.wait()
    assert killed.code == -signal.SIGKILL
    for result in others:
        (message, process, seconds), survivors = result.get()
        assert "process 2 (pid" in message
        assert "has ended" in message
        assert process == 2
        assert seconds < SOON
        assert survivors == [0, 1]


@pytest.mark.exhaustive
def test_process_0_ends(tmp_path):
    with start_processes(f"{CASES}:ends_first", 2, 1, arguments=(str(tmp_path),)) as processes:
        for rank in range(2):
            processes.await_file(tmp_path / str(rank))
        processes.kill(0)
        start = time.monotonic()
        _, other = processes.wait()
    assert time.monotonic() - start < SOON
    # JAX ends a process that has lost process 0
    assert other.code == -signal.SIGABRT or other.get()[1] == 0


@pytest.mark.exhaustive
def test_a_program_that_has_ended_is_named():
    waiting, _ = run_processes(f"{CASES}:returns", 2, 1)
    message, process, seconds = waiting.get()
    assert "process 1 (pid" in message
    assert process == 1
    assert seconds < SOON
