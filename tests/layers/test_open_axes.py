"""Layers over inputs whose time and image axes have no size, as Keras takes them."""

import jax
import pytest

import fkeras as fk
from fkeras import layers
from tests.cases import all_cases, marked
from tests.support.keras_oracle import keras, keras_rules

# the channels are the last axis
CASES = [
    case
    for case in all_cases()
    if case.keras and getattr(case.layer, "data_format", None) != "channels_first"
]


def _open(entry):
    """The shape and dtype of an input of a case, with open axes between batch and channels."""
    if isinstance(entry, list):
        return [_open(part) for part in entry]
    dtype, shape = ("float32", entry) if not isinstance(entry[0], str) else entry[:2]
    return (*[None] * (len(shape) - 2), *shape[1:][-1:]), dtype


def _inputs(library, entries):
    if isinstance(entries, tuple):
        return library.Input(entries[0], dtype=entries[1])
    return [_inputs(library, entry) for entry in entries]


def _keras_shapes(case, entries):
    """The shapes of Keras's outputs, or None if Keras does not take the inputs."""
    with keras_rules():
        try:
            layer = keras.layers.deserialize(fk.layers.serialize(case.layer))
            outputs = layer(*_inputs(keras, entries), **case.options)
        except Exception:
            return None
    return [tuple(tensor.shape) for tensor in jax.tree.leaves(outputs)]


@pytest.mark.one_in(56)
@pytest.mark.parametrize("case", marked(CASES), ids=lambda case: case.id)
def test_layers_take_open_axes_as_keras_does(case):
    entries = [_open(entry) for entry in case.inputs]
    shapes = _keras_shapes(case, entries)
    if shapes is None:
        pytest.skip("Keras does not take the open axes")
    outputs = case.layer(*_inputs(fk, entries), **case.options)
    found = jax.tree.leaves(outputs, is_leaf=fk.engine.is_symbolic)
    assert [tensor.shape for tensor in found] == shapes


def test_spectrograms_of_open_signals():
    assert layers.MelSpectrogram()(fk.Input((None,))).shape == (None, 128, None)
    assert layers.STFTSpectrogram()(fk.Input((None, 1))).shape == (None, None, 129)
