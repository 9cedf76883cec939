"""Heartbeats: their contents, and when a process counts as ended."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from fkeras.host.processes import deadlock, heartbeat
from fkeras.host.processes.service import ProcessError, _gone

SPACE = heartbeat._pid_space()
linux = pytest.mark.skipif(SPACE is None, reason="the system does not name its processes' space")


class Texts:
    """A service of one process."""

    def __init__(self):
        self.texts, self.history, self.lost = {}, [], False

    def put(self, key, text):
        if self.lost:
            raise ProcessError("lost", 0)
        self.texts[key] = text
        self.history.append(json.loads(text))

    def peek(self, key):
        return self.texts.get(key)

    def is_same(self, other):
        return self is other


def facts(**changes):
    return {"pid": os.getpid(), "host": "here", "space": SPACE, "ended": False, **changes}


@pytest.fixture
def service():
    texts = Texts()
    yield texts
    texts.lost = True
    for thread in threading.enumerate():
        if isinstance(thread, heartbeat.Heartbeat) and thread.service is texts:
            thread.end()


def test_a_heartbeat_reports_the_awaited_text(service, monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    beats = heartbeat.start_heartbeat(service, 3)
    beats.waits_for = "main/1/0"
    deadline = time.monotonic() + 10
    while len(service.history) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    beats.end()
    assert not beats.is_alive()
    assert list(service.texts) == [heartbeat.key_of(3)]
    assert [facts["beat"] for facts in service.history[:3]] == [1, 2, 3]
    last = service.history[-1]
    assert (last["waits_for"], last["pid"]) == ("main/1/0", os.getpid())
    # only the last one says that the program ends
    assert [facts["ended"] for facts in service.history] == [False] * (len(service.history) - 1) + [
        True
    ]


def test_a_connection_has_one_heartbeat(service, monkeypatch):
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    first = heartbeat.start_heartbeat(service, 0)
    assert heartbeat.start_heartbeat(service, 0) is first
    # a second jax.distributed.initialize
    other = Texts()
    second = heartbeat.start_heartbeat(other, 0)
    assert second is not first
    second.end()
    # the thread of a lost connection ends by itself
    service.lost = True
    first.join(10)
    assert not first.is_alive()


@linux
def test_processes_of_this_machine_end():
    assert not heartbeat.has_ended(facts())
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        deadline = time.monotonic() + 30
        # the child has ended, but this process has not noticed: it keeps its number
        while not heartbeat.has_ended(facts(pid=child.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert heartbeat.has_ended(facts(pid=child.pid))
    assert heartbeat.has_ended(facts(pid=child.pid))


def test_processes_of_other_machines_end_by_silence_alone():
    assert not heartbeat.has_ended(facts(pid=1 << 30, space="another machine"))
    assert not heartbeat.has_ended(facts(pid=1 << 30, space=None))
    assert heartbeat.has_ended(facts(space=None, ended=True))


def test_errors_of_the_service_name_process_0():
    error = _gone(RuntimeError("UNAVAILABLE: Socket closed\nmore"))
    assert error.process == 0
    assert "UNAVAILABLE: Socket closed" in str(error)
    assert "more" not in str(error)


class TestDeadlock:
    """Process 0 waits for process 1; the heartbeats of the others vary."""

    KEY = "fkeras/0-1-2/7/main/2/1"

    def cycle(self, waiting, beat=5, texts=()):
        service = Texts()
        for process, key in waiting.items():
            text = json.dumps({"waits_for": key, "beat": beat})
            service.texts[heartbeat.key_of(process)] = text
        service.texts.update(dict.fromkeys(texts, "[]"))
        return deadlock.find_cycle(service, 0, self.KEY)

    def test_two_processes_wait_for_each_other(self):
        other = "fkeras/0-1-2/7/0-1-2/1/main/1/0"
        cycle = self.cycle({1: other})
        assert cycle == [(0, self.KEY, 0), (1, other, 5)]
        assert cycle[1].awaited == 0
        assert cycle[1].path == "fkeras/0-1-2/7/0-1-2/1"

    def test_a_process_at_work_ends_the_chain(self):
        assert self.cycle({}) is None
        assert self.cycle({1: None}) is None
        # process 1 makes another call with process 2, which computes
        assert self.cycle({1: "fkeras/1-2/1/main/1/2", 2: None}) is None

    def test_a_text_that_has_arrived_ends_the_chain(self):
        other = "fkeras/0-1/1/main/1/0"
        assert self.cycle({1: other}, texts=[self.KEY]) is None
        assert self.cycle({1: other}, texts=[other]) is None

    def test_the_cycle_of_others(self):
        waiting = {1: "fkeras/1-2/1/main/1/2", 2: "fkeras/0-1-2/7/main/3/1"}
        assert [entry.process for entry in self.cycle(waiting)] == [0, 1, 2]

    def test_two_new_signs_of_life_prove_a_deadlock(self):
        other = "fkeras/0-1/1/main/1/0"
        first = self.cycle({1: other}, beat=5)
        assert not deadlock.is_deadlock(None, first)
        assert not deadlock.is_deadlock(first, None)
        assert not deadlock.is_deadlock(first, self.cycle({1: other}, beat=6))
        assert deadlock.is_deadlock(first, self.cycle({1: other}, beat=7))
        assert not deadlock.is_deadlock(first, self.cycle({1: "fkeras/0-1/2/main/1/0"}, beat=7))
