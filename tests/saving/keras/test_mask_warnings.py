"""`save_model` warns exactly if Keras computes other numbers because of masks."""

import warnings

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(0)
X, Z = (np.where(RNG.random((4, 5, 1)) < 0.5, 0, RNG.normal(size=(4, 5, 3))) for _ in range(2))
X, Z, S = X.astype("float32"), Z.astype("float32"), RNG.normal(size=(4, 3)).astype("float32")


def _inputs():
    return [fk.Input((5, 3), name="x"), fk.Input((5, 3), name="z"), fk.Input((3,), name="s")]


def _states(x, z, s):
    return layers.GRU(3, name="gru")(layers.Masking()(x), initial_state=s) + layers.Dense(3)(
        z[:, 0]
    )


def _states_without_mask(x, z, s):
    y = layers.GRU(3, name="gru")(layers.Masking()(x), initial_state=s, mask=None)
    return y + layers.Dense(3)(z[:, 0])


def _both_states(x, z, s):
    y = layers.Bidirectional(layers.GRU(3), name="both")(layers.Masking()(x), initial_state=[s, s])
    return layers.Dense(3)(y) + z[:, 0]


def _merged(x, z, s, **options):
    y = layers.Add(name="add", **options)([layers.Masking()(x), layers.Masking()(z)])
    return layers.LSTM(3)(y) + s


def _merged_as_keras(x, z, s):
    return _merged(x, z, s, masks="any")


def _merged_once(x, z, s):
    x = layers.Masking()(x)
    return layers.LSTM(3)(layers.Add(name="add")([x, layers.Dense(3)(x)])) + s + z[:, 0]


def _joined(x, z, s):
    y = layers.Concatenate(name="join")([layers.Masking()(x), layers.Masking()(z)])
    return layers.LSTM(3)(y) + s


def _plain(x, z, s):
    return layers.LSTM(3)(layers.Masking()(x)) + s + z[:, 0]


def _nested(x, z, s):
    inputs = [fk.Input((5, 3)), fk.Input((5, 3))]
    y = layers.Add(name="add")([layers.Masking()(tensor) for tensor in inputs])
    inner = fk.Model(inputs, layers.LSTM(3)(y), name="inner")
    return inner([x, z]) + s


# the model, and the words of the warning; None where Keras computes the same
MODELS = {
    "initial state": (_states, r"the layer 'gru' has an initial state.*mask=None"),
    "initial state without mask": (_states_without_mask, None),
    "both directions": (_both_states, r"the layer 'both' has an initial state"),
    "two masks": (_merged, r"the layer 'add' merges different masks.*Add\(masks=\"any\"\)"),
    "two masks by Keras's rule": (_merged_as_keras, None),
    "one mask twice": (_merged_once, None),
    "two masks joined": (_joined, r"the layer 'join' merges different masks"),
    "one mask": (_plain, None),
    "a model inside": (_nested, r"the layer 'inner/add' merges different masks"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_save_model_warns_if_keras_computes_other_numbers(name, tmp_path):
    function, words = MODELS[name]
    inputs = _inputs()
    model = fk.Model(inputs, function(*inputs)).build(jax.random.key(0))
    path = tmp_path / "m.keras"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fk.save_model(path, model, {})
    with keras_rules():
        theirs = keras.saving.load_model(path)([X, Z, S])
    ours = model([X, Z, S])
    is_equal = np.allclose(ours, np.asarray(theirs), atol=1e-5)
    assert is_equal == (words is None)
    if words is None:
        assert caught == []
    else:
        (warning,) = caught
        with pytest.raises(UserWarning, match=words):
            raise warning.message
        assert warning.filename == __file__
    np.testing.assert_array_equal(fk.load_model(path)[0]([X, Z, S]), ours)
