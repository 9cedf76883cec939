"""Masks that Keras computes at run time: nested models, wrappers, slices, initial states.

Each opened model computes as in Keras, keeps its mask rule through every change of the model, and
accepts batches of any size.
"""

import pickle
import warnings

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.config.keras_form import loses_masks
from tests.cases import all_cases
from tests.support.keras_oracle import keras, keras_rules

IDS = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [5, 1, 0, 2, 0]], "int32")
L = keras.layers


def _embedded(kind=None, **options):
    ids = keras.Input((5,), dtype="int32")
    return ids, (kind or L.Embedding)(6, 3, mask_zero=True, **options)(ids)


def _inside(inner):
    ids, x = _embedded()
    return keras.Model(ids, inner(x))


def _nested():
    first = keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(6, 3, mask_zero=True)])
    ids = keras.Input((5,), dtype="int32")
    return ids, first(ids)


def _nested_twice():
    ids, x = _nested()
    inner = keras.Model(ids, x)
    outer_ids = keras.Input((5,), dtype="int32")
    return outer_ids, keras.Sequential([inner, L.Dense(3)])(outer_ids)


def _decoder(bidirectional=False, by_position=False):
    ids, x = _embedded()
    kind = (
        L.Bidirectional(L.GRU(3, return_state=True))
        if bidirectional
        else L.GRU(3, return_state=True)
    )
    _, *states = kind(x)
    layer = L.GRU(3, return_sequences=True)
    y = (
        L.Bidirectional(layer)(x, initial_state=states)
        if bidirectional
        else layer(x, initial_state=states)
    )
    if by_position:
        y = layer(x, states[0])
    return keras.Model(ids, L.GlobalAveragePooling1D()(y))


def _transformer():
    ids, x = _nested()
    x = L.Add()([x, L.MultiHeadAttention(1, 2)(x, x)])  # the first block detaches the mask of x
    y = L.MultiHeadAttention(1, 2)(x, x)
    return keras.Model(ids, L.GlobalAveragePooling1D()(L.LayerNormalization()(y)))


def _one_array_and_two():
    a, b = keras.Input((5, 3)), keras.Input((5, 3))
    # deeper than the LSTM, so that attention first detaches the mask of a: that of b too, if b is a
    attended = L.Dense(3)(L.Dense(3)(L.MultiHeadAttention(1, 2)(a, a)))
    merged = L.Concatenate()([L.GlobalAveragePooling1D()(attended), L.LSTM(2)(b)])
    inner = keras.Model([a, b], merged)
    ids, x = _embedded()
    y = L.Embedding(6, 3, mask_zero=True)(ids)
    return keras.Model(ids, L.Add()([inner([x, x]), inner([x, y])]))


def _read(start, *after):
    ids, x = start()
    for layer in after:
        x = layer(x)
    return keras.Model(ids, x)


MODELS = {
    "LSTM after a nested row": lambda: _read(_nested, L.LSTM(2)),
    "mean after models nested twice": lambda: _read(_nested_twice, L.GlobalAveragePooling1D()),
    "attention after a nested row": _transformer,
    "a wrapper": lambda: _read(_embedded, L.SpectralNormalization(L.Dense(3)), L.LSTM(2)),
    "a reversible embedding": lambda: _read(lambda: _embedded(L.ReversibleEmbedding), L.LSTM(2)),
    "layers that return their input": lambda: _read(
        _embedded, L.Permute((1, 2)), L.Reshape((5, 3)), L.Dropout(0.5), L.LSTM(2)
    ),
    "layers that drop masks": lambda: _read(_embedded, L.RMSNormalization(), L.LSTM(2)),
    "a slice": lambda: _read(_embedded, lambda x: x[:, -1]),
    "a sequence of a slice": lambda: _read(_embedded, lambda x: x[:, 1:], L.LSTM(2)),
    "an initial state": _decoder,
    "initial states of two directions": lambda: _decoder(bidirectional=True),
    "an initial state by position": lambda: _decoder(by_position=True),
    "a network on one array and on two": _one_array_and_two,
    "steps": lambda: _read(_nested, L.TimeDistributed(L.BatchNormalization()), L.LSTM(2)),
}


def _opened(model, path):
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dropped masks, and of the old format
        model.save(path)
        expected = np.asarray(model.predict_on_batch(IDS))
    return *fk.load_model(path), expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_loaded_models_use_the_masks_of_the_running_keras_model(name, tmp_path):
    with keras_rules():
        keras_model = MODELS[name]()
    model, state, expected = _opened(keras_model, tmp_path / "m.keras")
    np.testing.assert_allclose(model.apply(IDS, state=state).value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["attention after a nested row", "an initial state"])
def test_calls_keep_their_mask_rule_through_transforms_and_files(name, tmp_path, key):
    with keras_rules():
        keras_model = MODELS[name]()
    model, state, expected = _opened(keras_model, tmp_path / "m.keras")

    def agrees(other, part_of_range=0.0):
        outputs = other.apply(IDS, state=state).value
        atol = 1e-6 + part_of_range * np.abs(expected).max()
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=atol)

    assert model.graph.attaches_masks
    restored = pickle.loads(pickle.dumps(model))
    assert restored == model
    assert hash(restored) == hash(model)
    from_json = fk.Model.from_config(model.get_config())
    assert from_json.graph == model.graph
    agrees(fk.Model(model.inputs, model.outputs))
    agrees(fk.freeze(model))
    agrees(fk.rename(model, prefix="other_"))
    agrees(fk.quantize(model, "int8"), part_of_range=0.05)  # codes have 256 values
    assert fk.dequantize(fk.quantize(model, "int8")).graph == model.graph
    outer = fk.Input((5,), dtype="int32")
    nested = fk.Model(outer, model(outer))
    assert not nested.graph.attaches_masks
    np.testing.assert_allclose(nested.apply(IDS).value, expected, rtol=1e-5, atol=1e-6)
    fk.save_model(tmp_path / "ours.keras", model, state)
    assert fk.load_model(tmp_path / "ours.keras")[0] == model
    with keras_rules():
        keras_outputs = keras.models.load_model(tmp_path / "ours.keras").predict_on_batch(IDS)
    np.testing.assert_allclose(keras_outputs, expected, rtol=1e-6)


def test_a_row_that_begins_with_a_network_follows_the_rule_of_its_file(tmp_path):
    with keras_rules():
        keras_model = keras.Sequential([keras.Model(*_embedded()), L.Conv1D(2, 2), L.Dense(1)])
    model, state, expected = _opened(keras_model, tmp_path / "m.keras")
    again = model.pop().add(model[-1])
    for each in (model, again):
        np.testing.assert_allclose(each.apply(IDS, state=state).value, expected, atol=1e-6)


def test_new_calls_on_a_loaded_model_are_strict(tmp_path, key):
    with keras_rules():
        keras_model = _read(_embedded, L.RMSNormalization(name="norm"))
    model, _, _ = _opened(keras_model, tmp_path / "m.keras")
    start = model.tensor("embedding" if "embedding" in model.layers else list(model.layers)[1])
    with pytest.raises(fk.FKerasError, match="received a mask, and this layer has no mask support"):
        layers.Flatten()(start)
    # Keras's normalization drops the mask, a new normalization keeps it
    mixed = fk.Model(model.inputs, [layers.RMSNormalization()(start), model.outputs])
    mixed = mixed.build(key)
    out = mixed.apply(IDS)
    np.testing.assert_array_equal(out.mask[0], IDS != 0)
    assert out.mask[1] is None
    assert fk.Model.from_config(mixed.get_config()).graph == mixed.graph


@pytest.mark.exhaustive
def test_an_lstm_with_states_keeps_its_mask_in_models_written_here(tmp_path, key):
    ids, state = fk.Input((5,), dtype="int32"), fk.Input((2,))
    x = layers.Embedding(6, 3, mask_zero=True)(ids)
    model = fk.Model([ids, state], layers.LSTM(2)(x, initial_state=[state, state])).build(key)
    with pytest.warns(UserWarning, match="'lstm' has an initial state"):
        fk.save_model(tmp_path / "m.keras", model)
    restored, _ = fk.load_model(tmp_path / "m.keras")
    assert restored == model
    start = np.ones((3, 2), "float32")
    short = np.where(IDS == 0, 0, IDS)[1:2, :1]
    expected = model.replace(graph=model.graph)(
        [np.tile(short, (1, 5)) * [1, 0, 0, 0, 0], start[:1]]
    )
    np.testing.assert_allclose(restored([IDS, start])[1:2], expected, rtol=1e-6)


def _shared():
    x = keras.Input((3,))
    shared = L.BatchNormalization(momentum=0.3)
    return keras.Model(x, L.Add()([L.Dense(2)(shared(x)), L.Dense(2)(shared(x * 3.0 + 1.0))]))


def _beside():
    ids, x = _nested()
    attended = L.Dense(2)(L.Flatten()(L.MultiHeadAttention(1, 2)(x, x)))
    return keras.Model(ids, L.Add()([attended, L.Dense(2)(L.LSTM(2)(x))]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("make", "x"), [(_shared, np.arange(9, dtype="float32").reshape(3, 3)), (_beside, IDS)]
)
def test_calls_of_one_depth_run_in_keras_order(make, x, tmp_path):
    y = np.ones((3, 2), "float32")
    with keras_rules():
        keras_model = make()
        keras_model.compile("sgd", "mse")
        keras_model.save(tmp_path / "m.keras")
        keras_model.fit(x, y, batch_size=3, verbose=0)
        expected = keras_model.predict_on_batch(x)
    trainer, run = fk.load_training(tmp_path / "m.keras")
    run, _ = trainer.fit(run, x, y, batch_size=3, verbose=0, shuffle=False)
    np.testing.assert_allclose(trainer.predict(run, x), expected, rtol=1e-4, atol=1e-6)


# Keras decides elsewhere for layers that compute masks and for wrappers
ELSEWHERE = ("Embedding", "Masking", "ReversibleEmbedding", "QuantizedEmbedding")
ELSEWHERE += ("Wrapper", "SpectralNormalization", "Pipeline")


@pytest.mark.exhaustive
def test_layers_drop_masks_where_keras_layers_do():
    for case in all_cases():
        layer = case.layer
        if type(layer).__name__ in ELSEWHERE:
            continue
        with keras_rules():
            try:
                keras_layer = keras.layers.deserialize(layers.serialize(layer))
            except Exception:
                continue  # a class or an option that Keras lacks
        first = case.arrays()[0]
        masks = [True] * (len(first) if isinstance(first, list) else 1)
        assert loses_masks(layer, masks) != keras_layer.supports_masking, case.id


def test_unknown_rules_are_rejected():
    x = fk.Input((5, 3))
    config = fk.Model(x, layers.LSTM(2)(layers.Masking()(x))).get_config()
    assert config["mask_rule"] == "strict"
    with pytest.raises(fk.FKerasError, match=r"mask_rule.*'keras'.*received 'none'"):
        fk.Model.from_config({**config, "mask_rule": "none"})
    config["layers"][1]["inbound_nodes"][0]["mask_rule"] = ["keras"]
    with pytest.raises(fk.FKerasError, match=r"'masking', call 0.*mask_rule"):
        fk.Model.from_config(config)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_stored_batch_size_is_no_constraint(suffix, tmp_path, monkeypatch):
    x, y = np.ones((16, 5), "float32"), np.ones((16, 2), "float32")
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = keras.Sequential([L.Dense(3), keras.Sequential([L.Dense(2)])])
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=16, verbose=0)
        model.save(tmp_path / f"m.{suffix}")
        expected = model.predict_on_batch(x[:7])
    trainer, run = fk.load_training(tmp_path / f"m.{suffix}")
    np.testing.assert_allclose(run.model(x[:7]), expected, rtol=1e-6)
    _ = trainer.fit(run, x[:9], y[:9], batch_size=3, verbose=0)


@pytest.mark.exhaustive
def test_a_batch_size_of_an_input_is_no_constraint_unless_state_needs_it(tmp_path):
    def saved(stateful):
        with keras_rules():
            x = keras.Input(batch_shape=(2, 4, 3))
            model = keras.Model(x, L.LSTM(2, stateful=stateful)(x))
            model.save(tmp_path / "m.keras")
        return fk.load_model(tmp_path / "m.keras")

    x = np.ones((5, 4, 3), "float32")
    model, _ = saved(stateful=False)
    assert model(x).shape == (5, 2)
    model, state = saved(stateful=True)
    with pytest.raises(fk.FKerasError, match=r"expected shape \(2, 4, 3\)"):
        model.apply(x, state=state)


def test_a_graph_that_computes_with_the_batch_size_keeps_it(tmp_path):
    with keras_rules():
        x = keras.Input(batch_shape=(2, 4))
        model = keras.Model(x, L.Dense(3)(keras.ops.reshape(x, (-1, 8))))
        model.save(tmp_path / "m.keras")
        expected = model.predict_on_batch(np.ones((2, 4), "float32"))
    model, _ = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(model(np.ones((2, 4), "float32")), expected, rtol=1e-6)
