"""Trainers in notebooks: a table of the arguments."""

import xml.etree.ElementTree as ElementTree

import optax

import fkeras as fk


def squares(y_true, y_pred):
    return (y_true - y_pred) ** 2


def _rows(trainer):
    root = ElementTree.fromstring(f"<div>{trainer._repr_html_()}</div>")
    cells = [cell.text for cell in root.iter("td")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


def test_a_trainer_shows_the_arguments_that_are_given():
    assert _rows(fk.Trainer()) == {"optimizer": "RMSprop(0.001)"}
    trainer = fk.Trainer("adam", "mse", metrics=["mae", fk.metrics.MeanSquaredError()])
    assert _rows(trainer) == {
        "optimizer": "Adam(0.001)",
        "loss": "MeanSquaredError()",
        "metrics": "mae, MeanSquaredError()",
    }
    rows = _rows(fk.Trainer(optax.adam(1e-3), objective=squares, on_nonfinite="skip"))
    assert rows["optimizer"].startswith("optax.GradientTransformation")
    assert rows["objective"] == "squares" and rows["on_nonfinite"] == "skip"


def test_texts_are_escaped():
    html = fk.Trainer("adam", {"<b>": "mse"})._repr_html_()
    assert "<b>" not in html and "&lt;b&gt;" in html
