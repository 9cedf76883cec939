"""`IntegerLookup` on the host and on the device.

Keras 3.15.1 with TensorFlow 2 computed the numbers marked with "Keras"; the tests do not need TensorFlow.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

VOCABULARY = [12, 36, 1138, 42]
IDS = np.array([[12, 1138, 42, 42], [42, 7, 36, 7]])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "expected"),  # Keras, which returns integers instead of floats
    [
        ({}, [[1, 3, 4, 4], [4, 0, 2, 0]]),
        ({"mask_token": 7}, [[2, 4, 5, 5], [5, 0, 3, 0]]),
        ({"output_mode": "multi_hot"}, [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
        ({"output_mode": "count"}, [[0, 1, 0, 1, 2], [2, 0, 1, 0, 1]]),
        ({"output_mode": "count", "mask_token": 7}, [[0, 1, 0, 1, 2], [0, 0, 1, 0, 1]]),
        (
            {"output_mode": "count", "max_tokens": 7, "pad_to_max_tokens": True},
            [[0, 1, 0, 1, 2, 0, 0], [2, 0, 1, 0, 1, 0, 0]],
        ),
        (
            {"output_mode": "tf_idf", "idf_weights": [0.25, 0.75, 0.6, 0.4]},
            [[0, 0.25, 0, 0.6, 0.8], [1.0, 0, 0.75, 0, 0.4]],
        ),
        ({"num_oov_indices": 2}, [[2, 4, 5, 5], [5, 1, 3, 1]]),
    ],
)
def test_lookups_of_integers(options, expected):
    layer = layers.IntegerLookup(vocabulary=VOCABULARY, **options)
    host = layer(IDS)
    assert isinstance(host, np.ndarray)
    np.testing.assert_allclose(host, expected, rtol=1e-6)
    on_device = jnp.array(IDS, "int32")
    on_device_ids = jax.jit(jax.vmap(layer))(on_device)
    np.testing.assert_allclose(on_device_ids, expected, rtol=1e-6)
    assert on_device_ids.dtype == host.dtype


def test_the_weights_of_special_tokens_may_be_given():
    layer = layers.IntegerLookup(
        vocabulary=[-1, *VOCABULARY],
        output_mode="tf_idf",
        idf_weights=np.array([0.9, 0.25, 0.75, 0.6, 0.4]),
    )
    np.testing.assert_allclose(layer(IDS)[1], [1.8, 0, 0.75, 0, 0.4], rtol=1e-6)  # Keras
    assert layer.get_vocabulary() == [-1, *VOCABULARY]
    assert layer.get_vocabulary(include_special_tokens=False) == VOCABULARY


@pytest.mark.exhaustive
def test_unknown_integers_are_spread_over_oov_indices():
    unknown = np.array([100, 300, 700, 1100, 1700, 2000, -5])
    for salt, expected in ((None, [3, 3, 2, 2, 0, 1, 0]), ([3, 5], [2, 1, 3, 0, 2, 3, 2])):  # Keras
        layer = layers.IntegerLookup(
            vocabulary=[10, 20, 30], num_oov_indices=4, oov_method="farmhash", salt=salt
        )
        assert layer(unknown).tolist() == expected
        assert jax.jit(layer)(jnp.array(unknown, "int32")).tolist() == expected
    strict = layers.IntegerLookup(vocabulary=VOCABULARY, num_oov_indices=0)
    with pytest.raises(ValueError, match="with num_oov_indices=0, received 7"):
        strict(IDS)
    assert strict(IDS[0]).tolist() == [0, 2, 3, 3]
    assert jax.jit(strict)(jnp.array([12, 7])).tolist() == [0, -1]
    masked = layers.IntegerLookup(
        vocabulary=VOCABULARY, num_oov_indices=0, mask_token=7, output_mode="count"
    )
    assert masked(IDS).tolist() == [[1, 0, 1, 2], [0, 1, 0, 1]]


def test_invert_maps_indices_to_integers():
    ids = np.array([[1, 3, 4], [4, 0, 2], [5, -1, 99]])
    layer = layers.IntegerLookup(vocabulary=VOCABULARY, invert=True)
    expected = [[12, 1138, 42], [42, -1, 36], [-1, -1, -1]]  # Keras
    assert layer(ids).tolist() == expected
    assert jax.jit(layer)(jnp.array(ids, "int32")).tolist() == expected
    masked = layers.IntegerLookup(vocabulary=VOCABULARY, invert=True, mask_token=0)
    assert masked(ids).tolist() == [[-1, 36, 1138], [1138, 0, 12], [42, -1, -1]]  # Keras


def test_large_integers_are_looked_up_on_the_host():
    layer = layers.IntegerLookup(vocabulary=[2**40, 5])
    assert layer([2**40, 5, 2**40 + 5]).tolist() == [1, 2, 0]
    # 5 + 2**32 would wrap to 5 in 32 bits
    assert layer([5 + 2**32]).tolist() == [0]
    assert jax.jit(layer)(jnp.array([5, 0])).tolist() == [2, 0]
    assert jax.jit(layers.IntegerLookup(vocabulary=[2**40]))(jnp.array([0])).tolist() == [0]
    back = layers.IntegerLookup(vocabulary=[2**40, 5], invert=True)
    assert back([1, 2]).tolist() == [2**40, 5]
    with pytest.raises(ValueError, match="integers beyond int32"):
        jax.jit(back)(jnp.array([1]))


@pytest.mark.parametrize(
    ("options", "data", "expected"),  # Keras
    [
        ({}, None, [-1, 42, 0, 1138, 1000, 36, 12]),
        ({"max_tokens": 4}, None, [-1, 42, 0, 1138]),
        ({"mask_token": 0}, None, [0, -1, 42, 1138, 1000, 36, 12]),
        ({}, [1, 2, 2, 3], [-1, 2, 3, 1]),
    ],
)
def test_adapt_learns_the_vocabulary_of_keras(options, data, expected):
    data = np.array([[12, 1138, 42], [42, 1000, 36], [0, 0, -1]]) if data is None else data
    layer = layers.IntegerLookup(**options)
    learned = layer.adapt(data)
    assert learned.get_vocabulary() == expected
    assert learned.vocabulary_size() == len(expected)
    assert layer.vocabulary is None
    assert layers.deserialize(json.loads(json.dumps(layers.serialize(learned)))) == learned


def test_adapt_computes_document_frequencies():
    layer = layers.IntegerLookup(output_mode="tf_idf")
    learned = layer.adapt(np.array([[12, 1138, 42], [42, 1000, 36], [0, 0, -1]]))
    x = np.array([[12, 1138, 42], [42, 1000, 5]])
    expected = [
        [0, 0.6931472, 0, 0.91629076, 0, 0, 0.91629076],
        [0.87910014, 0.6931472, 0, 0, 0.91629076, 0, 0],
    ]
    np.testing.assert_allclose(learned(x), expected, rtol=1e-6)  # Keras
    # each batch with one axis is one document; each number of an array is one document
    batches = layer.adapt(iter([[1, 2, 2], [2, 3], [12]]))
    assert batches.get_vocabulary() == [-1, 2, 12, 3, 1]
    np.testing.assert_allclose(
        batches(x)[0], [0.8605049 * 2, 0, 0.91629076, 0, 0], rtol=1e-6
    )  # Keras
    adapted = layer.adapt(np.array([1, 2, 2, 3]))
    np.testing.assert_allclose(
        adapted([5, 2, 3, 1]), [1.0148408, 0.84729785, 1.0986123, 1.0986123], rtol=1e-6
    )  # Keras


def test_integer_lookup_rejects_bad_arguments():
    Lookup = layers.IntegerLookup
    with pytest.raises(ValueError, match="received repeated tokens: 3"):
        Lookup(vocabulary=[3, 4, 3])
    with pytest.raises(ValueError, match="without special tokens, received mask_token=4"):
        Lookup(vocabulary=[3, 4], mask_token=4)
    with pytest.raises(ValueError, match="without special tokens, received oov_token=-1"):
        Lookup(vocabulary=[3, -1], invert=True)
    with pytest.raises(ValueError, match="at most max_tokens=4 tokens"):
        Lookup(vocabulary=VOCABULARY, max_tokens=4)
    with pytest.raises(ValueError, match="vocabulary is empty"):
        Lookup(vocabulary=[])
    with pytest.raises(ValueError, match="expected integers, received"):
        Lookup(vocabulary=[1.5])
    with pytest.raises(ValueError, match="has no vocabulary yet"):
        Lookup()(IDS)
    with pytest.raises(ValueError, match="integer of 2 or more, or None, received 1"):
        Lookup(max_tokens=1)
    with pytest.raises(ValueError, match="needs max_tokens"):
        Lookup(pad_to_max_tokens=True)
    with pytest.raises(ValueError, match="integer from 0 to 1048576, received -1"):
        Lookup(num_oov_indices=-1)
    with pytest.raises(ValueError, match="output_mode must be 'int'"):
        Lookup(invert=True, output_mode="count")
    with pytest.raises(ValueError, match="needs one idf weight"):
        Lookup(vocabulary=[1], output_mode="tf_idf")
    with pytest.raises(ValueError, match="as many idf_weights as tokens, 2, received 1"):
        Lookup(vocabulary=[1, 2], output_mode="tf_idf", idf_weights=[0.5])
    with pytest.raises(ValueError, match="expected output_mode='tf_idf'"):
        Lookup(vocabulary=[1], idf_weights=[0.5])
    with pytest.raises(ValueError, match="expected salt=None"):
        Lookup(salt=3)
    with pytest.raises(ValueError, match="'int64'"):
        Lookup(vocabulary_dtype="int32")
    with pytest.raises(ValueError, match="adapt received no tokens"):
        Lookup().adapt([])
    with pytest.raises(TypeError, match="expected integers, received an array of <U1"):
        Lookup(vocabulary=[1])(["a"])
    with pytest.raises(fk.FKerasError, match="received a mask"):
        Lookup(vocabulary=[1]).apply(IDS, mask=np.ones((2,), bool))


@pytest.mark.exhaustive
def test_a_model_may_start_with_a_lookup_and_is_saved_with_it():
    inputs = fk.Input((4,), dtype="int32")
    lookup = layers.IntegerLookup(vocabulary=VOCABULARY)
    embed = layers.Embedding(lookup.vocabulary_size(), 2)
    model = fk.Model(inputs, embed(lookup(inputs))).build(jax.random.key(0))
    x = jnp.array(IDS, "int32")
    again = fk.Model.from_config(json.loads(model.to_json()))
    assert again == fk.engine.unbuilt(model)
    assert model(x).shape == (2, 4, 2)
    grads = jax.grad(lambda m: jnp.sum(m(x) ** 2))(model)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
