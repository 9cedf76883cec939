"""ProgressBar writes one line for each epoch."""

import io

import pytest

from fkeras.training.callbacks import (
    ProgressBar,
)
from tests.support.callback_runs import fit


def test_progress_bar():
    stream = io.StringIO()
    fit(ProgressBar(stream, epochs=2, every=2), epochs=2, steps_per_execution=1)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("Epoch 1/2  2 steps  ")
    assert "  loss " in lines[1]
    assert "/step" in lines[1]
    assert lines[3].startswith("Epoch 2/2  3 steps  ")
    with pytest.raises(
        TypeError, match="expected a stream with a method write, received 'log.txt'"
    ):
        ProgressBar("log.txt")
    assert not ProgressBar(stream)._watches_batches


def test_progress_bar_writes_to_the_screen(capsys):
    fit(ProgressBar(), epochs=1)
    assert capsys.readouterr().out.startswith("Epoch 1  3 steps  ")
