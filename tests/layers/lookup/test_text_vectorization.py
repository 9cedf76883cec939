"""`StringLookup` and `TextVectorization`, which work on strings and have no rows in the layer table.

Keras 3.15.1 with TensorFlow 2 computed the numbers marked with "Keras"; the tests do not need TensorFlow.
"""

import copy
import dataclasses
import inspect
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

VOCABULARY = ["a", "b", "c", "d"]
WORDS = [["a", "c", "d", "d"], ["d", "z", "b", "z"]]
TEXTS = ["foo bar", "bar baz", "baz bada boom"]
QUERIES = [["foo qux bar"], ["qux baz"]]


def shout(texts):
    return np.char.upper(texts)


def split_commas(texts):
    return [text.split(",") for text in texts]


VALUES = (
    layers.StringLookup(),
    layers.StringLookup(vocabulary=VOCABULARY, mask_token="", num_oov_indices=3, salt=(9, 11)),
    layers.StringLookup(vocabulary=VOCABULARY, invert=True, encoding="latin-1"),
    layers.StringLookup(output_mode="tf_idf", max_tokens=9, pad_to_max_tokens=True).adapt(WORDS),
    layers.TextVectorization(),
    layers.TextVectorization(ngrams=(1, 3), split=None, standardize=None),
    layers.TextVectorization(output_mode="tf_idf", ngrams=2).adapt(TEXTS),
    layers.TextVectorization(standardize=shout, split=split_commas, output_sequence_length=3),
)
each_value = pytest.mark.parametrize("layer", VALUES, ids=lambda layer: repr(layer)[:60])


@each_value
def test_configuration_round_trip(layer):
    config = json.loads(json.dumps(layers.serialize(layer)))
    functions = {"shout": shout, "split_commas": split_commas}
    again = layers.deserialize(config, custom_objects=functions)
    assert again == layer
    assert hash(again) == hash(layer)
    assert layers.serialize(again) == config


@each_value
def test_layers_are_values(layer):
    assert copy.deepcopy(layer) == layer
    assert pickle.loads(pickle.dumps(layer)) == layer
    assert jax.tree.leaves(layer) == []
    assert jax.tree.map(lambda x: x, layer) == layer
    assert layer.built and layer.get_weights() == []
    assert fk.freeze(layer).trainable is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.vocabulary = ("a",)


@pytest.mark.parametrize("cls", [layers.StringLookup, layers.TextVectorization])
def test_docstrings_name_every_field(cls):
    docstring = inspect.cleandoc(cls.__doc__)
    if "Other arguments: those of `StringLookup`" in docstring:
        docstring += inspect.cleandoc(layers.StringLookup.__doc__)
    fields = [
        f.name for f in dataclasses.fields(cls) if f.name not in ("name", "trainable", "dtype")
    ]
    assert all(f"{name}:" in docstring for name in fields)


@pytest.mark.parametrize(
    "layer", [VALUES[1], VALUES[2], VALUES[6]], ids=lambda layer: type(layer).__name__
)
def test_strings_stay_on_the_host(layer):
    wrong_dtype = "string" if layer._makes_strings else "int32"
    with pytest.raises(fk.FKerasError, match="at the start of a graph|expected numbers"):
        layer(fk.Input((3,), dtype=wrong_dtype))
    with pytest.raises(fk.FKerasError, match="strings on the host, received"):
        jax.jit(layer)(jnp.zeros((2, 3), "int32"))
    with pytest.raises(fk.FKerasError, match="received a mask"):
        layer.apply(["a"], mask=np.ones(1, bool))
    with pytest.raises(TypeError, match=r"one input and no options, received \(x, x\)"):
        layer("a", "b")


def test_layers_of_numbers_reject_strings():
    with pytest.raises(TypeError, match=r"layers.StringLookup or layers.TextVectorization"):
        layers.Dense(2)(np.array([["a", "b"]]).astype("S4"))


@pytest.mark.parametrize(
    ("options", "expected"),  # Keras, which returns integers instead of floats
    [
        ({}, [[1, 3, 4, 4], [4, 0, 2, 0]]),
        ({"mask_token": "z"}, [[2, 4, 5, 5], [5, 0, 3, 0]]),
        ({"output_mode": "multi_hot"}, [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
        ({"output_mode": "count"}, [[0, 1, 0, 1, 2], [2, 0, 1, 0, 1]]),
        ({"output_mode": "count", "mask_token": "z"}, [[0, 1, 0, 1, 2], [0, 0, 1, 0, 1]]),
        (
            {"output_mode": "tf-idf", "idf_weights": (0.25, 0.75, 0.6, 0.4)},
            [[0, 0.25, 0, 0.6, 0.8], [1.0, 0, 0.75, 0, 0.4]],
        ),
    ],
)
def test_lookups_of_strings(options, expected):
    layer = layers.StringLookup(vocabulary=VOCABULARY, **options)
    encoded = np.array([[w.encode() for w in row] for row in WORDS])
    for words in (WORDS, np.array(WORDS), np.array(WORDS, object), encoded, encoded.astype(object)):
        result = layer(words)
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert result.dtype == ("int32" if layer.output_mode == "int" else "float32")


def test_lookups_at_every_rank():
    layer = layers.StringLookup(vocabulary=VOCABULARY)
    assert layer("b") == 2 and layer("b").shape == ()
    assert layer([WORDS]).shape == (1, 2, 4)
    assert layer([]).shape == (0,) and layers.Hashing(3)([]).shape == (0,)
    one_hot = layer.replace(output_mode="one_hot")
    assert one_hot(WORDS).shape == (2, 4, 5)
    assert one_hot([["a"], ["z"]]).tolist() == [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert one_hot("b").tolist() == [[0, 0, 1, 0, 0]]  # Keras
    count = layer.replace(output_mode="count")
    assert count(WORDS[0]).tolist() == [0, 1, 0, 1, 2]
    assert count("b").tolist() == [0, 0, 1, 0, 0]
    assert layer.replace(output_mode="count", dtype="mixed_bfloat16")(WORDS).dtype == jnp.bfloat16


def test_unknown_strings_are_spread_over_oov_indices():
    x = [["a", "x", "y", "zebra", "w", "é"]]
    layer = layers.StringLookup(vocabulary=VOCABULARY, num_oov_indices=3)
    assert layer(x).tolist() == [[3, 2, 2, 2, 2, 1]]  # Keras
    assert layer.replace(salt=(9, 11))(x).tolist() == [[3, 1, 0, 1, 2, 2]]  # Keras
    strict = layers.StringLookup(vocabulary=VOCABULARY, num_oov_indices=0)
    assert strict(WORDS[0]).tolist() == [0, 2, 3, 3]
    with pytest.raises(ValueError, match="with num_oov_indices=0, received 'z'"):
        strict(WORDS)
    masked = strict.replace(mask_token="z", output_mode="count")
    assert masked(WORDS).tolist() == [[1, 0, 1, 2], [0, 1, 0, 1]]


def test_invert_maps_indices_to_strings():
    ids = [[0, 1, 2, 5, 9, -1]]
    layer = layers.StringLookup(vocabulary=VOCABULARY, invert=True)
    expected = [["[UNK]", "a", "b", "[UNK]", "[UNK]", "[UNK]"]]
    assert layer(ids).tolist() == expected  # Keras
    assert layer(jnp.array(ids)).tolist() == expected
    masked = layer.replace(mask_token="")
    assert masked(ids).tolist() == [["", "[UNK]", "a", "d", "[UNK]", "[UNK]"]]  # Keras
    lookup = layers.StringLookup(vocabulary=VOCABULARY)
    inverse = layers.StringLookup(vocabulary=lookup.get_vocabulary(), invert=True)
    assert inverse(lookup(WORDS)).tolist() == [["a", "c", "d", "d"], ["d", "[UNK]", "b", "[UNK]"]]
    with pytest.raises(TypeError, match="maps integers to strings"):
        inverse(["a"])


def test_special_tokens_precede_the_vocabulary():
    layer = layers.StringLookup(vocabulary=["", "[UNK]", "a"], mask_token="")
    assert layer(["a", "b", ""]).tolist() == [2, 1, 0]
    assert layer.get_vocabulary() == ["", "[UNK]", "a"]
    assert layer.get_vocabulary(include_special_tokens=False) == ["a"]
    assert layer.vocabulary_size() == 3
    # a special token at another position is an ordinary token, unless invert=True
    assert layers.StringLookup(vocabulary=["a", "[UNK]"])(["[UNK]"]).tolist() == [2]
    set_later = layers.StringLookup().set_vocabulary(["x", "y"])
    assert set_later(["y"]).tolist() == [2]
    assert layers.StringLookup().get_vocabulary() == ["[UNK]"]


def test_a_vocabulary_is_read_from_a_file(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes("b\r\né\nx y\n\n".encode())
    layer = layers.StringLookup(vocabulary=str(path))
    assert layer == layers.StringLookup(vocabulary=["b", "é", "x y"])
    assert layers.TextVectorization(vocabulary=path).vocabulary == ("b", "é", "x y")
    path.write_text("3\n-7\n")
    assert layers.IntegerLookup(vocabulary=str(path)).vocabulary == (3, -7)
    with pytest.raises(ValueError, match="vocabulary file .* not found"):
        layers.StringLookup(vocabulary=str(tmp_path / "none.txt"))
    config = layers.StringLookup().get_config() | {"vocabulary": str(path)}
    with pytest.raises(ValueError, match="a configuration never opens files"):
        layers.StringLookup.from_config(config)


DOCUMENTS = [["b", "a", "a"], ["é", "z", "a"], ["[UNK]", "", "B"]]


@pytest.mark.parametrize(
    ("options", "expected"),  # Keras
    [
        ({}, ["[UNK]", "a", "é", "z", "b", "B", ""]),
        ({"mask_token": ""}, ["", "[UNK]", "a", "é", "z", "b", "B"]),
        ({"max_tokens": 3}, ["[UNK]", "a", "é"]),
        ({"max_tokens": 3, "num_oov_indices": 0}, ["a", "é", "z"]),
    ],
)
def test_adapt_learns_the_vocabulary_of_keras(options, expected):
    layer = layers.StringLookup(**options)
    for data in (DOCUMENTS, np.array(DOCUMENTS), iter(DOCUMENTS), np.array(DOCUMENTS).ravel()):
        assert layer.adapt(data).get_vocabulary() == expected
    assert layer.vocabulary is None
    adapted = layer.adapt(iter([["q"]] + DOCUMENTS), steps=1)
    assert "q" in adapted.get_vocabulary() and "a" not in adapted.get_vocabulary()
    assert adapted.adapt(DOCUMENTS).get_vocabulary() == expected


def test_adapt_computes_document_frequencies():
    layer = layers.StringLookup(output_mode="tf_idf")
    common, rare, mean = 0.6931472, 0.91629076, 0.87910014
    expected = [
        [3 * mean, common, 0, 0, 0, 0, 0],
        [mean, 0, 0, 2 * rare, rare, 0, 0],
    ]
    x = [["a", "c", "d", "d"], ["z", "z", "b", "d"]]
    for data in (DOCUMENTS, iter(DOCUMENTS)):
        np.testing.assert_allclose(layer.adapt(data)(x), expected, rtol=1e-6)  # Keras
    padded = layers.StringLookup(output_mode="tf_idf", max_tokens=9, pad_to_max_tokens=True)
    assert padded.adapt(DOCUMENTS)(x)[:, 7:].tolist() == [[0, 0], [0, 0]]


def test_string_lookup_rejects_bad_arguments():
    Lookup = layers.StringLookup
    with pytest.raises(ValueError, match="received repeated tokens: 'a'"):
        Lookup(vocabulary=["a", "b", "a"])
    with pytest.raises(ValueError, match="without special tokens, received mask_token='a'"):
        Lookup(vocabulary=["b", "a"], mask_token="a")
    with pytest.raises(ValueError, match="at most max_tokens=4 tokens"):
        Lookup(max_tokens=4).set_vocabulary(VOCABULARY)
    with pytest.raises(ValueError, match="vocabulary is empty"):
        Lookup(vocabulary=np.array([], "U1"))
    with pytest.raises(TypeError, match="expected strings, received 1"):
        Lookup(vocabulary=[1, 2])
    with pytest.raises(TypeError, match="list of tokens or the path"):
        Lookup(vocabulary={"a"})
    with pytest.raises(ValueError, match="has no vocabulary yet"):
        Lookup()(WORDS)
    with pytest.raises(TypeError, match="expected strings, received 1"):
        Lookup(vocabulary=VOCABULARY)([[1, 2]])
    with pytest.raises(ValueError, match="rows of one length"):
        Lookup(vocabulary=VOCABULARY)([["a"], ["b", "c"]])
    with pytest.raises(ValueError, match="oov_token for unknown indices"):
        Lookup(vocabulary=VOCABULARY, invert=True, oov_token=None)
    with pytest.raises(ValueError, match="JAX arrays are dense"):
        Lookup(output_mode="count", sparse=True)
    with pytest.raises(TypeError, match="Did you mean 'vocabulary'"):
        Lookup(vocabulry=VOCABULARY)


@pytest.mark.parametrize(
    ("options", "expected"),  # Keras
    [
        ({}, [[4, 1, 3], [1, 2, 0]]),
        ({"output_sequence_length": 4, "max_tokens": 5000}, [[4, 1, 3, 0], [1, 2, 0, 0]]),
        ({"output_sequence_length": 2}, [[4, 1], [1, 2]]),
        ({"max_tokens": 4}, [[1, 1, 3], [1, 2, 0]]),
        ({"output_mode": "multi_hot"}, [[1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]),
        (
            {"output_mode": "count", "max_tokens": 8, "pad_to_max_tokens": True},
            [[1, 0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]],
        ),
        (
            {"output_mode": "tf_idf"},
            [[0.82703334, 0, 0.6931472, 0.91629076, 0, 0], [0.82703334, 0.6931472, 0, 0, 0, 0]],
        ),
        ({"ngrams": 2}, [[5, 1, 3, 1, 1], [1, 2, 1, 0, 0]]),
        ({"ngrams": (3, 1)}, [[1, 4, 1, 3], [1, 2, 0, 0]]),
    ],
)
def test_texts_are_vectorized_as_in_keras(options, expected):
    layer = layers.TextVectorization(**options).adapt(TEXTS)
    for queries in (QUERIES, np.array(QUERIES)[:, 0], np.array(QUERIES).astype("S")):
        np.testing.assert_allclose(layer(queries), expected, rtol=1e-6)
    assert layer == layers.TextVectorization(**options).adapt(iter([TEXTS[:1], TEXTS[1:]]))
    assert layers.TextVectorization(**options).adapt([[t] for t in TEXTS]) == layer


def test_one_text_is_one_sequence():
    layer = layers.TextVectorization().adapt(TEXTS)
    assert layer("foo qux bar").tolist() == [4, 1, 3]
    assert layer.replace(output_sequence_length=5)("foo qux bar").tolist() == [4, 1, 3, 0, 0]
    assert layer([[["foo bar"], ["bar"]]]).tolist() == [[[4, 3], [3, 0]]]
    assert layer(["", " "]).shape == (2, 0)
    count = layers.TextVectorization(output_mode="count").adapt(TEXTS)
    assert count("foo foo bar").tolist() == [0, 0, 1, 2, 0, 0]
    assert count(["", ""]).tolist() == [[0] * 6] * 2
    one_hot = layers.TextVectorization(output_mode="one_hot").adapt(TEXTS)
    encoded = one_hot(QUERIES)
    assert encoded.shape == (2, 3, 6) and encoded[1, 2].tolist() == [0] * 6
    assert one_hot(["foo"]).shape == (1, 1, 6)


SENTENCE = "It's  a\tTEST, isn't\nit? É Ünï-code (x) [y] {z} ~^_`$"


@pytest.mark.parametrize(
    ("standard", "expected"),  # Keras
    [
        (
            None,
            ["It's", "a", "TEST,", "isn't", "it?", "É", "Ünï-code", "(x)", "[y]", "{z}", "~^_`$"],
        ),
        (
            "lower",
            ["it's", "a", "test,", "isn't", "it?", "É", "Ünï-code", "(x)", "[y]", "{z}", "~^_`$"],
        ),
        ("strip_punctuation", ["Its", "a", "TEST", "isnt", "it", "É", "Ünïcode", "x", "y", "z"]),
        (
            "lower_and_strip_punctuation",
            ["its", "a", "test", "isnt", "it", "É", "Ünïcode", "x", "y", "z"],
        ),
    ],
)
def test_texts_are_standardized(standard, expected):
    layer = layers.TextVectorization(standardize=standard)
    assert layer.tokenize([SENTENCE]) == [expected]
    # only ASCII whitespace splits, as in Keras
    assert layer.tokenize(["a\u00a0b\x1fc"]) == [["a\u00a0b\x1fc"]]


def test_texts_are_split_and_joined():
    characters = layers.TextVectorization(split="character").adapt(["abc", "é a"])
    assert characters.get_vocabulary() == ["", "[UNK]", "a", "é", "c", "b", " "]  # Keras
    assert characters(["aé b", "c"]).tolist() == [[2, 3, 6, 5], [4, 0, 0, 0]]
    pairs = layers.TextVectorization(ngrams=(2, 3)).adapt(TEXTS)
    assert pairs(["foo bar baz bada boom", "boom"]).tolist() == [[2, 5, 4, 6, 1, 1, 3], [0] * 7]
    custom = layers.TextVectorization(standardize=shout, split=split_commas)
    assert custom.tokenize([["a,b"], ["c"]]) == [["A", "B"], ["C"]]
    assert custom.adapt(["a,b", "a"])(["a,q"]).tolist() == [[2, 1]]


def test_texts_may_already_be_split():
    layer = layers.TextVectorization(split=None).adapt([["a b", "c"]])
    assert layer.get_vocabulary() == ["", "[UNK]", "c", "a b"]
    assert layer([["a b", "c", "x"]]).tolist() == [[3, 2, 1]]  # Keras
    assert layer(["a b", "c", "x"]).tolist() == [3, 2, 1]  # Keras
    assert layer("c") == 2
    assert layer.replace(output_sequence_length=5)([["a b", "c", "x"]]).tolist() == [
        [3, 2, 1, 0, 0]
    ]
    assert layer.replace(output_sequence_length=2)(["a b", "c", "x"]).tolist() == [3, 2]  # Keras
    count = layers.TextVectorization(split=None, output_mode="count").adapt([["a b", "c"]])
    assert count([["a b", "c", "x"]]).tolist() == [[1, 1, 1]]
    assert count(["a b", "c", "x"]).tolist() == [1, 1, 1]  # Keras
    pairs = layers.TextVectorization(split=None, ngrams=2).adapt([["a b", "c", "d"]])
    assert pairs([["a b", "c", "d"]]).tolist() == [[6, 4, 2, 5, 3]]  # Keras


def test_text_vectorization_rejects_bad_arguments():
    Text = layers.TextVectorization
    with pytest.raises(ValueError, match="Did you mean 'lower'"):
        Text(standardize="lowr")
    with pytest.raises(ValueError, match="split: expected 'whitespace' or 'character'"):
        Text(split="words")
    with pytest.raises(ValueError, match="ngrams: expected a positive integer"):
        Text(ngrams=(1, 0))
    with pytest.raises(ValueError, match="expected ragged=False"):
        Text(ragged=True)
    with pytest.raises(ValueError, match="expected sparse=False"):
        Text(output_mode="count", sparse=True)
    with pytest.raises(ValueError, match="output_sequence_length=None"):
        Text(output_mode="count", output_sequence_length=3)
    with pytest.raises(ValueError, match="a positive integer or None, received 2.5"):
        Text(output_sequence_length=2.5)
    with pytest.raises(ValueError, match=r"texts of shape \(b,\) or \(b, 1\) to split"):
        Text(vocabulary=["a"])([["a", "b"]])
    with pytest.raises(ValueError, match="has no vocabulary yet"):
        Text()(["a"])
    with pytest.raises(ValueError, match="standardize returned an array of shape"):
        Text(standardize=lambda x: x[:1], vocabulary=["a"])(["a", "b"])
    with pytest.raises(ValueError, match="split returned 1 rows for 2 texts"):
        Text(split=lambda x: [["a"]], vocabulary=["a"])(["a", "b"])
    with pytest.raises(TypeError, match="custom_objects"):
        layers.serialize(Text(standardize=lambda x: x))


def test_keras_configurations_are_read():
    """Configurations written by Keras, with entries that are not arguments."""
    text = {
        **{"max_tokens": None, "standardize": "lower_and_strip_punctuation", "split": None},
        **{"ngrams": [1, 3], "output_mode": "int", "output_sequence_length": None},
        **{"pad_to_max_tokens": False, "sparse": False, "ragged": False, "vocabulary": None},
        **{"idf_weights": None, "encoding": "utf-8", "vocabulary_size": 2},
    }
    config = {"module": "keras.layers", "class_name": "TextVectorization", "config": text}
    assert layers.deserialize(config) == layers.TextVectorization(ngrams=(1, 3), split=None)
    lookup = {
        **{"invert": False, "max_tokens": None, "num_oov_indices": 1, "oov_token": "[UNK]"},
        **{"mask_token": None, "output_mode": "int", "sparse": False, "pad_to_max_tokens": False},
        **{"idf_weights": None, "vocabulary": VOCABULARY, "vocabulary_size": 5},
        **{"oov_method": "floormod", "salt": None, "encoding": "utf-8"},
    }
    config = {"module": "keras.layers", "class_name": "StringLookup", "config": lookup}
    assert layers.deserialize(config) == layers.StringLookup(vocabulary=VOCABULARY)


def test_texts_feed_a_model():
    text = layers.TextVectorization(output_sequence_length=4).adapt(TEXTS)
    model = fk.Sequential(
        [
            fk.Input((4,), dtype="int32"),
            layers.Embedding(text.vocabulary_size(), 3, mask_zero=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    ).build(jax.random.key(0))
    assert model(text(TEXTS)).shape == (3, 1)
