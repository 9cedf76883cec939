"""The table of all migration hints, which the documentation shows."""

import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.migration_hints.hints import keras_table

TABLE = dict(keras_table())
HINTS = {
    (title, name): hint
    for title, rows in TABLE.items()
    for names, hint in rows
    for name in names.split(", ")
}
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="name")])


# what Keras users look for first: the kind of a row, the name
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Attributes and methods of models and layers", "compile"),
        ("Attributes and methods of models and layers", "fit"),
        ("Methods of a model's subclass", "train_step"),
        ("Layers of a model", "for layer in model.layers"),
        ("Assignments", "layer.trainable = ..."),
        ("Names in fk", "distribution"),
        ("Names in fk", "mixed_precision"),
        ("Names in fk", "backend"),
        ("Names in fk.callbacks", "BackupAndRestore"),
        ("Hooks of callbacks", "on_epoch_end"),
        ("Hooks of callbacks", "on_train_batch_end"),
    ],
)
def test_the_table_has_the_row(title, name):
    assert HINTS[title, name]


def test_rows_of_one_kind_have_different_names():
    for title, rows in TABLE.items():
        names = [name for joined, _ in rows for name in joined.split(", ")]
        assert len(names) == len(set(names)), title


@pytest.mark.parametrize("name", ["append", "index"])
def test_a_row_is_the_message_of_the_error(name):
    with pytest.raises(AttributeError) as caught:
        getattr(MODEL.layers, name)
    assert HINTS["Layers of a model", f"model.layers.{name}"] in str(caught.value)
    with pytest.raises(AttributeError) as caught:
        MODEL.compile()
    assert HINTS["Attributes and methods of models and layers", "compile"] in str(caught.value)
