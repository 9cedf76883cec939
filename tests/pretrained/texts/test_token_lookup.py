"""The tokenizer as a layer: texts in, texts out of one model."""

import json

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops
from fkeras.pretrained import Tokenizer, TokenLookup

pytest.importorskip("tokenizers")

MODEL = {"type": "WordLevel", "vocab": {"?": 0, "a": 1, "b": 2}, "unk_token": "?"}
TOKENIZER = Tokenizer(
    {"tokenizer.json": json.dumps({"model": MODEL, "pre_tokenizer": {"type": "Whitespace"}})}
)


def model():
    text = fk.Input((), dtype="string", name="text")
    ids = TokenLookup(TOKENIZER)(text)
    # the identity, as logits
    logits = layers.Embedding(3, 3, embeddings_initializer="identity", name="logits")(ids)
    ids = ops.argmax(logits, axis=-1)
    return fk.Model(text, TokenLookup(TOKENIZER, invert=True)(ids)).build(jax.random.key(0))


@pytest.mark.exhaustive
def test_texts_to_texts_in_one_model():
    echo = model()
    assert echo(["a b", "b"]).tolist() == ["a b", "b ?"]
    assert echo(np.array(["a b a c"])).tolist() == ["a b a ?"]


@pytest.mark.exhaustive
def test_the_files_of_the_tokenizer_are_in_the_file_of_the_model(tmp_path):
    echo = model()
    fk.save_model(tmp_path / "m.keras", echo)
    again, _ = fk.load_model(tmp_path / "m.keras")
    assert again == echo
    assert again(["b a"]).tolist() == ["b a"]


def test_segments_are_one_at_tokens():
    ids, segments = TokenLookup(TOKENIZER, return_segments=True, output_sequence_length=2)(
        [["a b a"], ["b"]]
    )
    assert ids.shape == (2, 1, 2)
    assert ids.dtype == segments.dtype == np.int32
    assert ids[:, 0].tolist() == [[1, 2], [2, 0]]
    assert segments[:, 0].tolist() == [[1, 1], [1, 0]]


def test_negative_ids_are_padding():
    lookup = TokenLookup(TOKENIZER, invert=True)
    assert lookup(np.array([[1, -1], [2, 2]])).tolist() == ["a", "b b"]
    assert lookup(jax.numpy.array([1, 2])).tolist() == "a b"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: TokenLookup("gpt2"), TypeError, "expected a Tokenizer"),
        (lambda: TokenLookup(TOKENIZER, 0), ValueError, "output_sequence_length"),
        (lambda: TokenLookup(TOKENIZER, 4, invert=True), ValueError, "no output_sequence_length"),
        (
            lambda: TokenLookup(TOKENIZER, return_segments=True, invert=True),
            ValueError,
            "no segments",
        ),
        (lambda: TokenLookup(TOKENIZER)([None]), ValueError, "missing"),
        (lambda: TokenLookup(TOKENIZER)([3]), TypeError, "expected strings"),
        (lambda: TokenLookup(TOKENIZER, invert=True)([1.5]), TypeError, "rows of integers"),
        (lambda: TokenLookup(TOKENIZER, invert=True)([[7]]), ValueError, "id 7 at position 0"),
        (
            lambda: jax.jit(TokenLookup(TOKENIZER))(np.ones(2)),
            fk.FKerasError,
            "strings on the host",
        ),
    ],
)
def test_bad_inputs(make, error, message):
    with pytest.raises(error, match=message):
        make()
