"""The server in examples/: batches, overload, bad requests, errors of the program."""

import contextlib
import importlib.util
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support.paths import ROOT

uvicorn = pytest.importorskip("uvicorn", reason="the extra 'examples' brings uvicorn and starlette")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr("fkeras.utils.cache_programs", lambda: None)
    spec = importlib.util.spec_from_file_location("server", ROOT / "examples" / "server.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("digits_data", None)


@contextlib.contextmanager
def running(module, program):
    """Serves a program of rows of three numbers; yields the address."""
    config = uvicorn.Config(module.make_app(program, (3,)), port=0, log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def requests(module, url, count):
    rows = np.arange(3 * count, dtype="float32").reshape(count, 3)
    with ThreadPoolExecutor(count) as clients:
        return rows, list(clients.map(lambda row: module.ask(url, row), rows.tolist()))


@pytest.mark.exhaustive
def test_concurrent_requests_share_batches_and_get_their_own_rows(server):
    sizes = []

    def program(rows):
        sizes.append(len(rows))
        time.sleep(0.02)
        return rows * 2

    with running(server, program) as url:
        rows, answers = requests(server, url, 24)
    assert [status for status, _ in answers] == [200] * 24
    np.testing.assert_array_equal([answer["scores"] for _, answer in answers], rows * 2)
    calls = sizes[len(server.SIZES) :]
    assert set(sizes) <= set(server.SIZES) and len(calls) < 24


def test_hostile_requests_are_refused(server):
    def post(url, body):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    with running(server, lambda rows: rows) as url:
        for row in ("[" * 200_000, "9" * 400, "9" * 5000, "1e400", "1e39", '{"a": 1}', '"\xff"'):
            assert post(f"{url}/predict", f'{{"row": [1, 2, {row}]}}'.encode("latin1")) == 400, row
        assert post(f"{url}/predict", b" " * (server.MOST + 1)) == 413
        assert server.ask(url, [1.0, 2.0, 3.0])[0] == 200


def test_overload_is_answered_with_503_and_the_server_goes_on(server, monkeypatch):
    monkeypatch.setattr(server, "QUEUE", 2)
    monkeypatch.setattr(server, "SIZES", (1,))

    def program(rows):
        time.sleep(0.2)
        return rows

    with running(server, program) as url:
        _, answers = requests(server, url, 16)
        statuses = [status for status, _ in answers]
        assert set(statuses) == {200, 503}
        assert {a["error"] for s, a in answers if s == 503} == {"overload, try again"}
        assert server.ask(url, [1.0, 2.0, 3.0])[0] == 200


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ([1.0, 2.0], "received the shape (2,)"),
        ([1.0, 2.0, float("inf")], "expected finite numbers"),
        ("text", "expected JSON such as"),
        (None, "expected finite numbers"),
    ],
)
def test_bad_rows_are_answered_with_400(server, row, text):
    with running(server, lambda rows: rows) as url:
        status, answer = server.ask(url, row)
    assert status == 400 and text in answer["error"]


def test_an_error_of_the_program_reaches_its_clients_only(server):
    broken = []

    def program(rows):
        if broken:
            broken.clear()
            raise ValueError("a broken call")
        return rows

    with running(server, program) as url:
        broken.append(True)
        assert server.ask(url, [1.0, 2.0, 3.0])[0] == 500
        assert server.ask(url, [1.0, 2.0, 3.0])[0] == 200
