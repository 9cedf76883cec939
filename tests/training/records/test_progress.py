"""The progress line of a training."""

import io
import re

import pytest

import fkeras as fk
from fkeras.training import Progress
from fkeras.training.records.progress import format_logs, format_time


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("fkeras.training.records.progress.time.perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def an_epoch(progress, clock, steps, seconds, compile_seconds=0.0):
    progress.start(2)
    progress.compile_starts()
    clock.now += compile_seconds
    progress.compiled()
    for step in range(1, steps + 1):
        clock.now += seconds
        progress.step(step, 32 * step, lambda: {"loss": 2.81634, "accuracy": 0.22061})
    progress.stop()
    clock.now += 50  # a validation is not the steps' time
    progress.end({"loss": 2.81634, "accuracy": 0.22061}, 32 * steps)


def test_the_line_of_an_epoch(clock):
    stream = io.StringIO()
    progress = Progress(2, epochs=10, steps=18, stream=stream)
    an_epoch(progress, clock, 18, 0.092)
    form = r"Epoch 3/10  18/18 ━━━━ \d+ ms/step  \d+ ex/s  loss 2\.8163  accuracy 0\.2206\n"
    assert re.fullmatch(form, stream.getvalue()), stream.getvalue()


@pytest.mark.exhaustive
def test_the_compile_is_shown_and_not_counted(clock):
    stream = Terminal()
    progress = Progress("auto", epochs=3, steps=4, stream=stream)
    an_epoch(progress, clock, 4, 0.3, compile_seconds=2.1)
    text = stream.getvalue()
    assert "Epoch 3/3  compiling ..." in text
    assert "compiled in 2.1 s" in text
    last = text.split("\r")[-1]
    assert "compile 2.1 s" in last
    assert re.search(r"4/4 .*(300|400) ms/step", last), last


def test_a_terminal_is_redrawn_ten_times_a_second_at_most(clock):
    stream = Terminal()
    progress = Progress(1, epochs=1, steps=1000, stream=stream)
    an_epoch(progress, clock, 1000, 0.002)  # two seconds of steps
    drawn = stream.getvalue().count("\r")
    assert 15 <= drawn <= 25
    assert stream.getvalue().count("\n") == 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("verbose", ["auto", 1, 2])
def test_without_a_terminal_progress_is_one_line(clock, verbose):
    stream = io.StringIO()
    an_epoch(Progress(verbose, epochs=3, steps=50, stream=stream), clock, 50, 0.5)
    assert stream.getvalue().count("\n") == 1
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.exhaustive
def test_verbose_zero_prints_nothing(clock):
    for stream in (io.StringIO(), Terminal()):
        an_epoch(Progress(0, epochs=3, steps=5, stream=stream), clock, 5, 0.5)
        assert stream.getvalue() == ""


@pytest.mark.parametrize("verbose", [3, -1, "loud", None, [1]])
def test_an_unknown_value_is_rejected(verbose):
    with pytest.raises(ValueError, match="verbose: expected 0, 1, 2 or 'auto'"):
        Progress(verbose, epochs=1, steps=1)


def test_numbers_in_their_units():
    assert format_time(3e-5) == "30 us"
    assert format_time(12.04) == "12.0 s"
    assert format_logs({"loss": 1e-5, "big": 2e6}) == "loss 1.000e-05  big 2.000e+06"
    assert format_logs({"f1_score": [0.5, 0.25]}) == "f1_score [0.5000, 0.2500]"


def test_history_plots_its_logs():
    history = fk.History({"loss": [3.0, 2.0], "acc": [0.1, 0.2], "val_loss": [2.5]}, [0, 1], {})
    figure = history.plot()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "acc"]
    assert [list(line.get_xdata()) for line in figure.axes[0].lines] == [[1, 2], [2]]
    assert len(history.plot("acc").axes) == 1
    with pytest.raises(ValueError, match=r"unknown log 'los'. Did you mean 'loss'"):
        history.plot(["los"])


@pytest.mark.exhaustive
def test_a_notebook_gets_the_line_without_codes(monkeypatch):
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    line = Progress("auto", 1, 2, stream)
    line.start(0)
    line.compile_starts()
    line.compiled()
    line.step(1, 4, lambda: {"loss": 123456.75})
    line.end({"loss": 1.0}, 8)
    text = stream.getvalue()
    assert line.verbose == 1
    assert "\x1b" not in text
    last = text.rsplit("\r", 1)[1]
    assert "loss 1.0000" in last
    assert len(last.rstrip("\n")) >= len(text.split("\r")[-2].rstrip())
