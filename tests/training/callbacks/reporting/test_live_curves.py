"""LiveCurves draws in notebooks, and only there."""

import sys
import types

import pytest

from fkeras.training.callbacks import LiveCurves
from tests.support.callback_runs import fit


@pytest.fixture
def notebook(monkeypatch):
    figures = []
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        types.SimpleNamespace(get_ipython=lambda: shell, version_info=(9, 18)),
    )
    display = types.SimpleNamespace(
        display=figures.append, clear_output=lambda wait: figures.clear()
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return figures


@pytest.mark.exhaustive
def test_the_last_figure_shows_all_epochs(notebook):
    pytest.importorskip("matplotlib")
    _, history = fit(LiveCurves("loss"), epochs=3, validation_split=0.25)
    (figure,) = notebook
    training, validation = figure.axes[0].lines
    assert training.get_xdata().tolist() == [1, 2, 3]
    assert training.get_ydata().tolist() == pytest.approx(history["loss"])
    assert validation.get_ydata().tolist() == pytest.approx(history["val_loss"])


def test_every_omits_epochs(notebook):
    pytest.importorskip("matplotlib")
    fit(LiveCurves(every=2), epochs=3)
    assert notebook[0].axes[0].lines[0].get_xdata().tolist() == [1, 2]


def test_outside_of_a_notebook_a_warning_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.warns(UserWarning, match=r"history\.plot\(\)"):
        fit(LiveCurves(), epochs=1)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="expected names of logs, received 3"):
        LiveCurves(3)
    with pytest.raises(ValueError, match="unknown log 'los'"):
        fit(LiveCurves("los"), epochs=1)
