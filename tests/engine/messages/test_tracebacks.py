"""Tracebacks without internal frames, and without a second exception."""

import traceback

import pytest

import fkeras as fk
from fkeras import layers


class Composed(fk.Model):
    def call(self, x):
        return layers.Dense(3)(layers.LSTM(3)(x))


class Failing(fk.Layer):
    def call(self, x):
        return x["a"]


MISTAKES = (
    (lambda: layers.LSTM(3)(fk.Input((4,))), "<lambda>"),
    (lambda: layers.Dense(3)(fk.Input((None,))), "<lambda>"),
    (lambda: layers.Dense(-1), "<lambda>"),
    (lambda: Composed()(fk.Input((4,))), "call"),
    (lambda: Failing()(fk.Input((4,))), "call"),
)


@pytest.mark.parametrize(("mistake", "last"), MISTAKES)
def test_a_traceback_shows_the_frames_of_the_user(monkeypatch, mistake, last):
    monkeypatch.delenv("FKERAS_TRACEBACK_FILTERING", raising=False)
    with pytest.raises((ValueError, TypeError, fk.FKerasError)) as caught:
        mistake()
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    frames = traceback.extract_tb(caught.value.__traceback__)
    own = [frame.name for frame in frames if frame.filename == __file__]
    assert own[-1] == last
    assert len(frames) - len(own) <= 2


def test_an_environment_variable_shows_all_frames(monkeypatch):
    monkeypatch.setenv("FKERAS_TRACEBACK_FILTERING", "off")
    with pytest.raises(fk.InputSpecError) as caught:
        layers.LSTM(3)(fk.Input((4,)))
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 8
