"""Constrained output: texts of JSON schemas, patterns and grammars, for all ways of choosing tokens."""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.pretrained import checks
from tests.support import language_models
from tests.support.compile_counts import count_compiles

pytest.importorskip("llguidance", reason="needs the package llguidance, of the extra 'grammars'")

TOKENS = ["<end>", *'{}":,0123abc -', '"a"', '":', '{"', "ab"]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["abc", "ccc"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
PROMPTS = [[1, 2], [3]]


@pytest.fixture(scope="module")
def grammars():
    return samplers.Grammars(TOKENS, end_ids=0)


@pytest.fixture(scope="module")
def model():
    return language_models.cached(depth=1, vocabulary=len(TOKENS))


def texts(generated):
    """The texts of the rows, which end with the end token."""
    rows = [t[:n].tolist() for t, n in zip(generated.tokens, generated.lengths, strict=True)]
    assert all(row[-1] == 0 and 0 not in row[:-1] for row in rows)
    return ["".join(TOKENS[i] for i in row[:-1]) for row in rows]


def generate(model, *parts, **options):
    options = {"max_new_tokens": 60, "end_ids": 0} | options
    return fk.generate(model, None, PROMPTS, sampler=samplers.Chain(*parts), **options)


def test_masks_permit_the_tokens_of_the_grammar(grammars):
    constraint = grammars.regex("ab?c")

    def permitted(*new):
        ids = np.array([5, 6, *new, *[-1] * (4 - len(new))], "int32")
        history = samplers.History(ids, np.int32(len(new)))
        return [
            TOKENS[i]
            for i in np.flatnonzero(
                np.isfinite(constraint.process(jnp.zeros(len(TOKENS) + 3), history))
            )
        ]

    places = {token: number for number, token in enumerate(TOKENS)}
    assert permitted() == ["a", "ab"]
    assert permitted(places["a"]) == ["b", "c"]
    assert permitted(places["ab"]) == ["c"]
    # only the end follows a complete text; nothing follows another text
    assert permitted(places["ab"], places["c"]) == ["<end>"]
    assert permitted(places["b"]) == []


def test_texts_satisfy_a_schema(grammars):
    model = language_models.bigram(vocabulary=len(TOKENS))
    drawn = generate(model, grammars.json(SCHEMA), samplers.Temperature(2.0), key=jax.random.key(0))
    for text in texts(drawn):
        value = json.loads(text)
        assert isinstance(value["a"], int) and value["b"] in ("abc", "ccc") and len(value) == 2
    with count_compiles() as compiles:
        # the number of the grammar is an argument of the program
        other = grammars.regex("[abc]{2,4}")
        drawn = generate(model, other, samplers.Temperature(2.0), key=jax.random.key(1))
    assert compiles == []
    assert all(re.fullmatch("[abc]{2,4}", text) for text in texts(drawn))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": samplers.Beam(3)},
        {"sampler": samplers.Temperature(2.0), "key": jax.random.key(0)},
        {"draft": (language_models.bigram(vocabulary=len(TOKENS)), None)},
        {"stream": lambda row, ids: None},
        {"cache": False},
    ],
    ids=["greedy", "beam", "drawn", "draft", "stream", "uncached"],
)
def test_all_ways_of_choosing_tokens(model, grammars, options):
    options = dict(options)
    parts = (grammars.json(SCHEMA, whitespace=False), options.pop("sampler", samplers.Greedy()))
    # an integer without an end may be as long as the limit
    for text in _ended(generate(model, *parts, **options)):
        assert " " not in text and json.loads(text)["b"] in ("abc", "ccc")


def _ended(generated):
    for row, length in zip(generated.tokens, generated.lengths, strict=True):
        row = row[:length].tolist()
        if row[-1] == 0:
            yield "".join(TOKENS[i] for i in row[:-1])


@pytest.mark.exhaustive
def test_rows_and_compiled_calls(model, grammars):
    greedy = samplers.Greedy()
    parts = [grammars.regex("[abc]{2,4}"), grammars.regex("0[123]{3}")]
    rows = [samplers.Chain(part, greedy) for part in parts]
    first, second = texts(
        fk.generate(model, None, PROMPTS, max_new_tokens=9, sampler=rows, end_ids=0)
    )
    assert re.fullmatch("[abc]{2,4}", first) and re.fullmatch("0[123]{3}", second)
    run = jax.jit(lambda model: generate(model, parts[0], greedy, max_new_tokens=9))
    assert texts(run(model)) == texts(generate(model, parts[0], greedy))
    choose = samplers.Chain(samplers.Temperature(2.0), parts[1])

    @jax.vmap
    def draw(key):
        return fk.generate(model, None, PROMPTS, key, 9, choose, end_ids=0)

    drawn = draw(jax.random.split(jax.random.key(0), 2))
    for number in range(2):
        for text in texts(jax.tree.map(lambda a, n=number: a[n], drawn)):
            assert re.fullmatch("0[123]{3}", text)


@pytest.mark.exhaustive
def test_a_tokenizer_of_files():
    tokenizer = fk.pretrained.Tokenizer.read(checks.DATA / "tokenizers/byte_level")
    model = language_models.bigram(vocabulary=tokenizer.size + 7)
    sampler = samplers.Chain(
        samplers.Grammars(tokenizer).json({"type": "array", "items": {"type": "boolean"}}),
        samplers.Temperature(3.0),
    )
    ends = tokenizer.end_ids
    drawn = fk.generate(model, None, [[5]] * 4, jax.random.key(1), 80, sampler, end_ids=ends)
    assert set(drawn.tokens[:, 0].tolist()).isdisjoint(range(tokenizer.size, tokenizer.size + 7))
    found = 0
    for row, length in zip(drawn.tokens, drawn.lengths, strict=True):
        if int(row[length - 1]) in ends:
            found += 1
            assert isinstance(json.loads(tokenizer.decode(row[: int(length) - 1])), list)
    assert found


@pytest.mark.exhaustive
def test_a_text_that_no_token_continues_is_an_error(model, grammars):
    # no token has the letter z
    constraint = grammars.json({"type": "object", "properties": {"z": {}}, "required": ["z"]})
    with pytest.raises(ValueError, match="samplers forbid every token"):
        generate(model, constraint, samplers.Greedy(), max_new_tokens=6)


def test_end_tokens_that_end_no_row_are_errors(model, grammars):
    parts = (grammars.regex("a+"), samplers.Greedy())
    for ends in ((), 3):
        with pytest.raises(ValueError, match=r"one of \[0\], .* Pass end_ids=\[0\]"):
            generate(model, *parts, end_ids=ends)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abc",), "a tokenizer, or a list with the text of each id, received 'abc'"),
        (([],), "Pass loaded.tokenizer"),
        (([1, 2], 0), "received .1, 2. "),
        ((["a", "b"],), "end_ids from 0 to 1, at least one"),
        *(((["a", "b"], ends), "end_ids from 0 to 1") for ends in (2, -1, "x", True, 1.5, [0, 2])),
    ],
)
def test_bad_tokenizers_are_errors(arguments, message):
    with pytest.raises((TypeError, ValueError), match=f"Grammars: expected .*{message}"):
        samplers.Grammars(*arguments)


def test_a_tokenizer_that_llguidance_cannot_read_is_an_error():
    pytest.importorskip("tokenizers")
    tokenizer = fk.pretrained.Tokenizer.read(checks.DATA / "bert_sentence")
    with pytest.raises(ValueError, match="a tokenizer that llguidance can read, .* Pass the bytes"):
        samplers.Grammars(tokenizer, end_ids=1)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("json", 3, "a JSON schema as a dictionary, received 3"),
        ("json", True, "a JSON schema as a dictionary, received True"),
        ("json", {"type": "nope"}, "Invalid type: nope"),
        ("json", "{", "EOF while parsing"),
        ("json", {"a": object()}, "not JSON serializable"),
        ("json", {"type": "string", "format": "nope"}, "Unknown format"),
        ("regex", 3, "expected a text, received 3"),
        ("regex", "(a", "unclosed group"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", "zz", "the tokens spell no text of the grammar"),
        ("lark", b"", "expected a text"),
        ("lark", "start: nothing", "unknown name"),
    ],
)
def test_bad_grammars_are_errors(grammars, method, value, message):
    with pytest.raises(
        (TypeError, ValueError), match=rf"(?s)samplers.Grammars.{method}: .*{message}"
    ):
        getattr(grammars, method)(value)


def test_equal_grammars_have_one_number(grammars):
    assert grammars.regex("a+") == grammars.regex("a+") != grammars.regex("b+")
    assert grammars.lark('start: "a"+').number != grammars.regex("a+").number


def test_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match="pip install llguidance"):
        samplers.Grammars(TOKENS, 0)
