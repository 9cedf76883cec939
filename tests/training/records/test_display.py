"""Runs and histories in notebooks."""

import jax
import pytest

import fkeras as fk
from fkeras import layers


def test_a_run_shows_its_fields():
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)], name="<m>")
    run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
    html = run._repr_html_()
    assert "&lt;m&gt;" in html and "<m>" not in html
    assert html.index("opt_state") < html.index("step") < html.index("position")
    assert "<summary>model</summary>" in html and "dense = Dense(1)" in html
    step, run = run.step, run.replace(step=run.step + 1)
    step.delete()
    assert "no longer exist" not in run._repr_html_()
    run.model.layers["dense"].kernel.delete()
    assert "no longer exist" in run._repr_html_()


def test_a_history_shows_a_row_for_each_epoch():
    history = fk.History({"<loss>": [2.0, 1.0], "val_loss": [3.0]}, [0, 1], {})
    html = history._repr_html_()
    assert "&lt;loss&gt;" in html and "<loss>" not in html
    assert html.count("<tr>") == 3 and "3.0000" in html.rpartition("<tr>")[2]
    long = fk.History({"loss": [0.5] * 130}, list(range(130)), {})
    assert "30 earlier epochs" in long._repr_html_()
    assert "<table>" in fk.History({}, [], {})._repr_html_()


def test_a_plot_shows_itself_without_pyplot():
    pytest.importorskip("matplotlib")
    figure = fk.History({"loss": [2.0]}, [0], {}).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes[0].lines[0].get_marker() == "o"
