"""Every row of the layer table survives a `.keras` file, opened and saved by Keras."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.saving.weights.filling import abstract_build, fill
from tests.cases import all_cases
from tests.support.keras_oracle import host_weights, keras, keras_rules

# a row for each class; the configurations of all rows go through Keras in other tests
CASES = [case for case in all_cases() if case.keras]
# Keras's Equalization hands symbolic inputs through as they are, and its graph is a circle then
CASES = [case for case in CASES if not isinstance(case.layer, fk.layers.Equalization)]
CASES = list({type(case.layer): case for case in reversed(CASES)}.values())
# the rows in a few models, as opening a file costs more than a layer in it
PARTS = 3


def _model(cases):
    """`(model, state)`: each row called on inputs of its own, with drawn numbers for weights."""
    inputs, outputs = [], []
    for number, case in enumerate(cases):
        symbols = jax.tree.map(
            # an open batch: a size that Keras stored is no constraint on what we open
            lambda x: fk.Input(batch_shape=(None, *np.shape(x)[1:]), dtype=str(x.dtype)),
            case.arrays(),
        )
        inputs += jax.tree.leaves(symbols)
        layer = case.layer.replace(name=f"row_{number}")
        outputs += jax.tree.leaves(layer(*symbols, **case.options))
    rng = np.random.default_rng(0)

    def draw(place):
        return np.asarray(rng.integers(1, 9, place.value.shape), place.value.dtype)

    return fill(*abstract_build(fk.Model(inputs, outputs, name="rows")), draw)


def _kept(one, other):
    """Whether `other` says what `one` says. Keras names inner layers, fills in what was left open
    (None, -1), and rounds the factors of regularizers to float32.
    """
    if one is None or (isinstance(one, int) and one == -1):
        return True
    if isinstance(one, dict):
        return one.keys() <= other.keys() and all(
            key == "name" or _kept(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_kept, one, other))
    return np.float32(one) == np.float32(other) if isinstance(one, float) else one == other


def _same(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@pytest.mark.parametrize("part", range(PARTS))
def test_files_open_in_both_directions(part, tmp_path):
    cases = CASES[part::PARTS]
    model, state = _model(cases)
    ours, theirs = tmp_path / "ours.keras", tmp_path / "theirs.keras"
    fk.save_model(ours, model, state)
    again = fk.load_model(ours)
    assert again[0] == model
    assert _same(again, (model, state))
    with keras_rules(), host_weights():
        keras.models.load_model(ours).save(theirs)
    again = fk.load_model(theirs)
    assert _same(again, (model, state))
    # Keras does not keep our mask rule, so what Keras wrote follows Keras's
    signatures = [call.signature for call in again[0].graph.calls]
    strict = [dataclasses.replace(signature, mask_rule="strict") for signature in signatures]
    assert strict == [call.signature for call in model.graph.calls]
    assert [c.inputs for c in again[0].graph.calls] == [c.inputs for c in model.graph.calls]
    assert [c.layer for c in again[0].graph.calls] == [c.layer for c in model.graph.calls]
    for number, case in enumerate(cases):
        one, other = (m.layers[f"row_{number}"].get_config() for m in (model, again[0]))
        assert _kept(one, other), f"{case.id}: {one} {other}"
