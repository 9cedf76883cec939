"""Plugin of pytest: a limit on the time of each test, and a line of JSON for its result.

Tests that have a line do not run, so that a new process runs those that are left.
"""

import json
import os
import re
import signal
import threading

import pytest

from fka import names

# TensorFlow is missing, or calls a layer inside a graph of its own
_TENSORFLOW = re.compile("No module named 'tensorflow|requires the tensorflow module|in user code:")


def pytest_configure(config):
    for marker in ("requires_trainable_backend", "multi_device", "skip_if"):
        config.addinivalue_line("markers", marker)


def _expired(*_):
    raise TimeoutError("the test takes too long")


def pytest_collection_modifyitems(items):
    with open(os.environ["FKA_RESULTS"]) as results:
        done = {(e["file"], e["test"]) for e in map(json.loads, results)}
    items[:] = [item for item in items if _place(item) not in done]


def _place(item):
    file, _, test = item.nodeid.partition("::")
    return file, test


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    file, test = _place(item)
    _write(file=file, test=test, outcome="failed", error="the process ended in this test")
    seconds = int(os.environ["FKA_SECONDS"])
    signal.signal(signal.SIGALRM, _expired)
    signal.alarm(seconds)
    stuck = threading.Timer(2 * seconds, os._exit, [70])  # in a compiler, which takes no signals
    stuck.start()
    names.USES.clear()
    yield
    signal.alarm(0)
    stuck.cancel()


def _write(**entry):
    with open(os.environ["FKA_RESULTS"], "a") as results:
        results.write(json.dumps(entry) + "\n")


def pytest_collectreport(report):
    if not report.passed:
        error = str(report.longrepr).splitlines()[-1][:600]
        outcome = "skipped" if _TENSORFLOW.search(error) else report.outcome
        _write(file=report.nodeid, test="collection", outcome=outcome, error=error)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return
    file, test = _place(item)
    error = "" if call.excinfo is None else f"{call.excinfo.type.__name__}: {call.excinfo.value}"
    outcome = report.outcome if names.USES or not report.passed else "unjudged"
    if _TENSORFLOW.search(error):
        outcome = "skipped"
    _write(file=file, test=test, outcome=outcome, error=error[:600])
