"""Stop strings and streaming: texts across tokens, and incomplete characters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from tests.support import language_models

#: the bytes of each token; the euro sign has three tokens
BYTES = [b"", b"a", b"b.", b"\nQ", b": ", b"\xe2", b"\x82", b"\xac", b"c", b"d", b"e"]


def decode(ids):
    return b"".join(BYTES[i] for i in ids).decode(errors="replace")


def follows(*order):
    """A model whose most likely token behind `order[i]` is `order[i + 1]`."""
    model = language_models.bigram()
    table = np.zeros((11, 11), "float32")
    table[order[:-1], order[1:]] = 9.0
    layer = model.layers["table"].replace(embeddings=jnp.asarray(table))
    return model.replace(layers={**model.layers, "table": layer})


@pytest.fixture(scope="module")
def model():
    return follows(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)


@pytest.mark.exhaustive
def test_stop_string_across_tokens_ends_the_row(model):
    options = {"max_new_tokens": 9, "decode": decode}
    generated = fk.generate(model, None, [[1], [6]], **options, stop=[".\nQ:", "zzz"])
    # the token that holds the end of the text is kept, and later tokens are not
    assert generated.lengths.tolist() == [3, 9]
    assert generated.tokens[0].tolist() == [2, 3, 4, *[0] * 6]
    assert generated.tokens[1, :4].tolist() == [7, 8, 9, 10]
    single = fk.generate(model, None, [[1]], **options, stop="€c")
    assert single.lengths.tolist() == [7]


@pytest.mark.exhaustive
def test_caches_end_with_the_stop_string():
    model = language_models.cached(depth=1)
    free = fk.generate(model, None, [[1, 2], [3]], max_new_tokens=8)
    names = "abcdefghijk"

    def text(ids):
        return "".join(names[i] for i in ids)

    stop = text(free.tokens[0, 1:3].tolist())
    generated = fk.generate(model, None, [[1, 2], [3]], max_new_tokens=8, stop=stop, decode=text)
    length = text(free.tokens[0].tolist()).index(stop) + 2
    assert int(generated.lengths[0]) == length
    assert generated.state["positions"]["length"].tolist()[0] == 2 + length
    continued = fk.generate(model, generated.state, [[5], [5]], max_new_tokens=1)
    whole = [[1, 2, *generated.tokens[0, :length].tolist(), 5]]
    assert (
        continued.tokens[0].tolist()
        == fk.generate(model, None, whole, max_new_tokens=1).tokens[0].tolist()
    )


@pytest.mark.exhaustive
def test_stop_needs_no_more_room_in_a_state():
    model = language_models.cached(depth=1)
    plain = fk.generate(model, None, [[1, 2]], max_new_tokens=5)
    generated = fk.generate(
        *(model, model.init_cache(1, 7), [[1, 2]]), max_new_tokens=5, stop="z", decode=str
    )
    assert generated.tokens.tolist() == plain.tokens.tolist()


def test_stream_holds_incomplete_characters_back(model):
    pieces = []
    fk.generate(
        *(model, None, [[3]]),
        max_new_tokens=6,
        decode=decode,
        stream=lambda row, piece: pieces.append((row, piece)),
    )
    assert pieces == [(0, ": "), (0, "€"), (0, "c"), (0, "d")]


@pytest.mark.exhaustive
def test_stream_shows_the_rest_at_the_end(model):
    pieces = []
    fk.generate(
        *(model, None, [[3], [1]]),
        max_new_tokens=2,
        decode=decode,
        stream=lambda row, piece: pieces.append((row, piece)),
    )
    assert pieces == [(0, ": "), (1, "b."), (1, "\nQ"), (0, "\ufffd")]


def test_stream_without_decode_receives_ids(model):
    pieces = []
    generated = fk.generate(
        *(model, None, [[1], [9]]),
        max_new_tokens=4,
        end_ids=10,
        stream=lambda row, ids: pieces.append((row, ids)),
    )
    assert pieces == [(0, [2]), (1, [10]), (0, [3]), (0, [4]), (0, [5])]
    assert generated.lengths.tolist() == [4, 1]


@pytest.mark.exhaustive
def test_stop_and_stream_work_with_a_draft(model):
    pieces = []
    generated = fk.generate(
        *(model, None, [[1]]),
        max_new_tokens=9,
        decode=decode,
        stop="Q:",
        stream=lambda row, piece: pieces.append(piece),
        draft=(model, None),
    )
    assert generated.lengths.tolist() == [3] and "".join(pieces) == "b.\nQ: "


def _raises(ids):
    return {}[ids[-1]]


@pytest.mark.parametrize(
    ("decode", "error", "message"),
    [
        (lambda ids: None, TypeError, r"the text of the ids \[2\], received None"),
        (bytes, TypeError, r"received b'\\x02' \(bytes\)"),
        (lambda ids: ["b"], TypeError, r"\(list\). Pass a function of a list of ids"),
        (_raises, ValueError, r"the ids \[2\], but decode raised KeyError: 2"),
        (lambda: "", ValueError, "but decode raised TypeError: .* positional argument"),
    ],
)
@pytest.mark.parametrize(
    "options", [{"stop": "c"}, {"stream": lambda row, piece: None}], ids=["stop", "stream"]
)
def test_decode_that_returns_no_text_is_an_error(model, decode, error, message, options):
    with pytest.raises(error, match=f"fk.generate: expected decode to return .*{message}"):
        fk.generate(model, None, [[1]], max_new_tokens=2, decode=decode, **options)


def test_exceptions_of_the_callback_stay_the_same(model):
    def stream(row, piece):
        raise StopIteration(row)

    with pytest.raises(StopIteration):
        fk.generate(model, None, [[1]], max_new_tokens=2, stream=stream)


def test_host_arguments_in_a_compiled_program_are_errors(model):
    def run(model):
        return fk.generate(model, None, [[1]], max_new_tokens=2, stream=print).tokens

    with pytest.raises(TypeError, match="no stop and no stream"):
        jax.jit(run)(model)

    def draw(temperature):
        sampler = fk.samplers.Temperature(temperature)
        return fk.generate(model, None, [[1]], jax.random.key(0), 2, sampler, stream=print).tokens

    with pytest.raises(TypeError, match="no stop and no stream"):
        jax.vmap(draw)(jnp.ones(2))
