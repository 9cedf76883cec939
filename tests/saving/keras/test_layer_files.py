"""Every row of the layer table survives a `.keras` file, opened and saved by Keras."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.saving.weights.filling import abstract_build, fill
from tests.cases import all_cases
from tests.support.keras_oracle import host_weights, keras, keras_rules

# a row for each class; other tests pass the configurations of all rows through Keras
CASES = [case for case in all_cases() if case.keras]
# Keras's Equalization returns symbolic inputs unchanged, so its graph would contain a cycle
CASES = [case for case in CASES if not isinstance(case.layer, fk.layers.Equalization)]
CASES = list({type(case.layer): case for case in reversed(CASES)}.values())
# few models with many rows: opening a file costs more than a layer
PARTS = 3


def _model(cases):
    """Returns `(model, state)`: each row has separate inputs and random weights."""
    inputs, outputs = [], []
    for number, case in enumerate(cases):
        symbols = jax.tree.map(
            # an unknown batch size: a stored size does not restrict the opened model
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


def _preserves(expected, config):
    """Returns whether Keras preserved a configuration, apart from names of inner layers, values
    that were None or -1, and the rounding of regularization factors to float32.
    """
    if expected is None or (isinstance(expected, int) and expected == -1):
        return True
    if isinstance(expected, dict):
        return expected.keys() <= config.keys() and all(
            key == "name" or _preserves(value, config[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return len(expected) == len(config) and all(map(_preserves, expected, config))
    return (
        np.float32(expected) == np.float32(config)
        if isinstance(expected, float)
        else expected == config
    )


def _same(left, right):
    left, right = jax.tree.leaves(left), jax.tree.leaves(right)
    return len(left) == len(right) and all(map(np.array_equal, left, right))


@pytest.mark.exhaustive
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
    # Keras does not store the mask rule of fkeras: files of Keras get Keras's rule
    signatures = [call.signature for call in again[0].graph.calls]
    strict = [dataclasses.replace(signature, mask_rule="strict") for signature in signatures]
    assert strict == [call.signature for call in model.graph.calls]
    assert [c.inputs for c in again[0].graph.calls] == [c.inputs for c in model.graph.calls]
    assert [c.layer for c in again[0].graph.calls] == [c.layer for c in model.graph.calls]
    for number, case in enumerate(cases):
        expected_config, config = (
            m.layers[f"row_{number}"].get_config() for m in (model, again[0])
        )
        assert _preserves(expected_config, config), f"{case.id}: {expected_config} {config}"
