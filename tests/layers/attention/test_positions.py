"""`Positions`, `SinePositionEncoding` and `PositionEmbedding`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

IDS = np.array([[5, 6, 7, 8, 9], [1, 2, 3, 4, 5]], "int32")
X = np.cos(np.arange(2 * 3 * 6)).reshape(2, 3, 6).astype("float32")
KEY = jax.random.key(0)


def test_padding_is_not_counted():
    layer = layers.Positions()
    assert layer(IDS).tolist() == [[0, 1, 2, 3, 4]] * 2
    mask = np.array([[True, False, True, True, False], [False, False, True, True, True]])
    out = layer.apply(IDS, mask=mask)
    assert out.value.tolist() == [[0, -1, 1, 2, -1], [-1, -1, 0, 1, 2]]
    np.testing.assert_array_equal(out.mask, mask)
    np.testing.assert_array_equal(layer.apply(IDS, mask=mask.astype("float32")).value, out.value)


def test_segments_restart():
    segments = np.array([[1, 1, 2, 2, 0], [3, 0, 0, 3, 1]])
    layer = layers.Positions()
    assert layer(IDS, segments).tolist() == [[0, 1, 0, 1, -1], [0, -1, -1, 0, 0]]
    mask = np.array([[True, True, False, True, True]] * 2)
    value = layer.apply(IDS, segments, mask=(mask, None)).value
    assert value.tolist() == [[0, 1, -1, 0, -1], [0, -1, -1, 0, 0]]


def test_counting_continues_with_a_cache():
    layer = layers.Positions()
    state = layer.init_cache(2, 16)
    mask = np.array([[True, True, True, False, False], [True] * 5])
    out = layer.apply(IDS, state=state, mask=mask)
    assert out.value.tolist() == [[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]]
    assert out.updates["length"].tolist() == [3, 5]
    out = layer.apply(IDS[:, :2], state=out.updates)
    assert out.value.tolist() == [[3, 4], [5, 6]]
    assert layer.init_state() == {}


def test_wrong_inputs_of_positions():
    layer = layers.Positions()
    with pytest.raises(fk.FKerasError, match=r"ids of shape \(b, t\), received \(5,\)"):
        layer(IDS[0])
    with pytest.raises(fk.FKerasError, match=r"segments of shape \(2, 4\)"):
        layer(IDS, IDS[:, :4])
    with pytest.raises(
        fk.FKerasError, match=r"a mask for each token, \(2, 5\), received .* \(5,\)"
    ):
        layer.apply(IDS, mask=np.ones(5, bool))
    with pytest.raises(fk.FKerasError, match="no segments beside a cache"):
        layer.apply(IDS, IDS, state=layer.init_cache(2, 16))
    with pytest.raises(fk.FKerasError, match=r"the 3 rows of the cache, received \(2, 5\)"):
        layer.apply(IDS, state=layer.init_cache(3, 16))


def test_sines_and_cosines():
    layer = layers.SinePositionEncoding(100.0)
    y = layer(X, start_index=2)
    # of KerasHub 0.32
    expected = [0.14112, -0.98999, 0.60226, 0.7983, 0.1388, 0.99032]
    np.testing.assert_allclose(y[0, 1], expected, atol=1e-5)
    np.testing.assert_array_equal(y[0], y[1])
    positions = np.array([[2, 3, 4], [9, 8, 7]])
    np.testing.assert_array_equal(layer(X, positions)[0], y[0])
    np.testing.assert_array_equal(layer(X, positions[0]), y)
    assert np.abs(layer(X, positions)[1] - y[1]).max() > 0.1
    wide = layer(np.zeros((2, 4, 3, 6), "float32"), positions)
    np.testing.assert_array_equal(wide[:, 2], layer(X, positions))


@pytest.mark.exhaustive
def test_learned_positions():
    layer = layers.PositionEmbedding(8).build(KEY, X)
    table = layer.position_embeddings
    assert table.shape == (8, 6)
    np.testing.assert_array_equal(layer(X), np.stack([table[:3]] * 2))
    np.testing.assert_array_equal(layer(X, start_index=4)[0], table[4:7])
    positions = np.array([[5, -1, 0], [7, 7, 1]])
    y = layer(X, positions)
    np.testing.assert_array_equal(y[1], table[positions[1]])
    np.testing.assert_array_equal(y[0, 1], np.zeros(6))
    compiled = jax.jit(lambda p: layer(X, p))(np.array([[5, -1, 8], [7, 7, 1]]))
    assert np.isnan(compiled[0, 2]).all()
    assert np.isfinite(compiled[1]).all()
    model = fk.Sequential([fk.Input((3, 6)), layers.PositionEmbedding(8)])
    names = [name for name, _ in fk.engine.sublayers(model)]
    assert "position_embedding" in names


def test_keras_hub_reads_and_writes_the_configuration():
    module = "keras_hub.src.layers.modeling."
    for name, config in (
        ("position_embedding", {"sequence_length": 8, "initializer": "zeros"}),
        ("sine_position_encoding", {"max_wavelength": 50}),
    ):
        class_name = "".join(word.capitalize() for word in name.split("_"))
        entry = {"module": module + name, "class_name": class_name, "config": config}
        layer = layers.deserialize({**entry, "registered_name": f"keras_hub>{class_name}"})
        assert layer == getattr(layers, class_name)(**config)
        assert layers.serialize(layer)["module"] == module + name


BUILT = layers.PositionEmbedding(4).build(KEY, X)
ERRORS = [
    (lambda: layers.PositionEmbedding(0), "positive integer"),
    (lambda: layers.PositionEmbedding(4).build(KEY, (None, 6)), r"expected an array \(b, t, d\)"),
    (lambda: BUILT(np.zeros((1, 5, 6), "float32")), "received 5 tokens from position 0"),
    (lambda: BUILT(X, start_index=2), "received 3 tokens from position 2"),
    (lambda: BUILT(X, start_index=-1), "from position -1"),
    (lambda: BUILT(X[..., :5]), "vectors of size 6"),
    (lambda: BUILT(X, np.array([0, 1, 4])), "positions from 0 to 3, and -1 at padding, received 4"),
    (lambda: BUILT(X, np.array([0, 1])), r"received \(2,\)"),
    (lambda: BUILT(X, np.array([0.0, 1.0, 2.0])), "integers for positions, received float32"),
    (lambda: layers.SinePositionEncoding()(X[0]), r"expected an array \(b, t, d\)"),
    (lambda: layers.SinePositionEncoding(0), "above 0"),
]


@pytest.mark.parametrize(("make", "message"), ERRORS)
def test_wrong_arguments(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.exhaustive
def test_a_model_with_learned_positions_decodes():
    ids = fk.Input((None,), dtype="int32", name="ids")
    positions = layers.Positions(name="positions")(ids)
    x = layers.Embedding(9, 4, name="embedding")(ids)
    x = layers.Add()([x, layers.PositionEmbedding(8, name="table")(x, positions)])
    model = fk.Model(ids, x).build(KEY)
    full, state, values = model(IDS % 9), model.init_cache(2, 8), []
    for start in range(5):
        out = model.apply(IDS[:, start : start + 1] % 9, state=state)
        state = state | out.updates
        values.append(out.value)
    np.testing.assert_allclose(jnp.concatenate(values, axis=1), full, atol=1e-6)
