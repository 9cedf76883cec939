"""Keras's JSON of every layer, in both directions."""

import pytest

from fkeras import layers
from tests.cases import all_cases
from tests.support.keras_oracle import keras, keras_rules

# user functions, which Keras cannot write without its registry; and layers that
# Keras makes with TensorFlow alone, whose JSON their own tests have
EXEMPT = (
    "Lambda JaxLayer FlaxLayer Hashing HashedCrossing IntegerLookup StringLookup TextVectorization "
    # classes that Keras does not have
    "MixtureOfExperts QuantizedMixtureOfExperts RelativePositionBias "
    "DotProductAttention Positions PositionEmbedding RotaryEmbedding SinePositionEncoding "
    "Bias LearnedTokens LogitScale MaskedPatches PatchSequence TokenTypes"
).split()
# KerasHub, whose layers name their modules, is not installed with Keras
HUB = "keras_hub"
# options that Keras's classes lack; `.keras` files store some of them beside the configuration
OWN = {"masks": "all", "frozen": "moving", "scale_offset": 0.0, "axis_roles": None}
LAYERS = dict.fromkeys(
    c.layer
    for c in all_cases()
    if type(c.layer).__name__ not in EXEMPT
    and HUB not in str(layers.serialize(c.layer)["module"])
    and all(getattr(c.layer, name, default) == default for name, default in OWN.items())
)


def _comparable(value):
    """Returns Keras's JSON without the entries about how the layer was built."""
    if isinstance(value, dict):
        entries = (pair for pair in value.items() if pair[0] != "build_config")
        return {key: _comparable(entry) for key, entry in entries}
    return [_comparable(entry) for entry in value] if isinstance(value, list | tuple) else value


@pytest.mark.one_in(4)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: repr(layer)[:90])
def test_keras_json_round_trip(layer):
    with keras_rules():
        config = keras.layers.serialize(keras.layers.deserialize(layers.serialize(layer)))
    again = layers.deserialize(config)
    assert type(again) is type(layer)
    ours = layers.serialize(again)
    assert layers.deserialize(ours) == again
    with keras_rules():
        copy = keras.layers.serialize(keras.layers.deserialize(ours))
    assert _comparable(copy) == _comparable(config)
