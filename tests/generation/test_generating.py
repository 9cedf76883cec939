"""`fk.generate`: tokens equal those of the whole text computed again, for all forms of models."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers, transforms
from fkeras.generation import requests
from tests.support import language_models
from tests.support.compile_counts import count_compiles

PROMPTS = [[1, 2, 3, 4, 5], [7, 3]]


class Shift(fk.Layer):
    """Adds its weight to the first channel: an edit whose number is a leaf."""

    value: jax.Array | None = fk.weight()

    def with_value(self, value):
        return self.replace(value=jnp.float32(value), _built=True)

    def call(self, x):
        return x.at[..., 0].add(self.value)


@pytest.fixture(scope="module")
def model():
    return language_models.cached(depth=1)


def again(model, ids, count, **options):
    """The most likely tokens, each from a call on the whole text."""
    text = np.zeros((1, 24), "int32")
    text[0, : len(ids)] = ids
    for length in range(len(ids), len(ids) + count):
        text[0, length] = _next(model, text, np.int32(length))[0]
    return text[0, len(ids) : len(ids) + count].tolist()


@jax.jit
def _next(model, ids, length):
    # padding behind the text changes nothing in a causal model
    return jnp.argmax(model(ids)[:, length - 1], axis=-1).astype(jnp.int32)


def test_greedy_tokens_equal_the_whole_text_computed_again(model):
    # seconds: the first to compile the programs of this file
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=6, cache=True)
    assert generated.tokens.tolist() == [again(model, ids, 6) for ids in PROMPTS]
    assert generated.tokens.dtype == jnp.int32 and generated.lengths.tolist() == [6, 6]
    assert generated.state["positions"]["length"].tolist() == [11, 8]
    without = fk.generate(model, {}, PROMPTS, max_new_tokens=6, cache=False)
    assert without.tokens.tolist() == generated.tokens.tolist() and without.state == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: fk.ops.cast(fk.ops.cast(x, "bfloat16"), "float32"),
        lambda x: fk.ops.clip(fk.ops.pad(x, ((0, 0),) * 3, "constant"), None, 1.0),
        lambda x: x * fk.ops.quantile(x, 0.5, -1, "linear", True),
        lambda x: fk.ops.rearrange(x, "b t (h d) -> b t (d h)", h=2),
    ],
    ids=["cast", "pad", "quantile", "rearrange"],
)
def test_operations_with_texts_by_position(model, operation):
    edited = transforms.insert(model, operation, before="norm")
    tokens = fk.generate(edited, None, [PROMPTS[0]], max_new_tokens=4, cache=True).tokens
    assert tokens[0].tolist() == again(edited, PROMPTS[0], 4)


@pytest.mark.exhaustive
def test_model_without_caches_computes_all_tokens_again():
    model = language_models.uncached()
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=6)
    assert generated.tokens.tolist() == [again(model, ids, 6) for ids in PROMPTS]
    with pytest.raises(
        ValueError, match="attention need the earlier tokens|no layer of this model"
    ):
        fk.generate(model, None, PROMPTS, max_new_tokens=6, cache=True)


def test_prompts_and_limits_of_similar_lengths_share_their_programs(model):
    fk.generate(model, None, [[1, 2, 3], [4, 5, 6]], max_new_tokens=6)
    with count_compiles() as compiles:
        for ids in ([[1] * 8, [2] * 7], [[1], [2]], np.ones((2, 5), "int64")):
            for limit in (6, 7, 100):
                assert fk.generate(model, None, ids, max_new_tokens=limit).tokens.shape == (
                    2,
                    limit,
                )
    assert compiles == []


def test_other_numbers_of_samplers_share_their_programs(model):
    def draw(temperature, p):
        sampler = samplers.Chain(samplers.Temperature(temperature), samplers.TopP(p))
        return fk.generate(model, None, PROMPTS, jax.random.key(0), 6, sampler)

    draw(1.0, 0.9)
    with count_compiles() as compiles:
        draw(0.5, 0.7)
    assert compiles == []


def test_end_token_ends_a_row_and_counts(model):
    free = fk.generate(model, None, PROMPTS, max_new_tokens=6)
    end = int(free.tokens[0, 2])
    first = free.tokens[0].tolist().index(end)
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=6, end_ids=[end])
    assert int(generated.lengths[0]) == first + 1
    assert generated.tokens[0].tolist() == [
        *free.tokens[0, : first + 1].tolist(),
        *[0] * (5 - first),
    ]
    row = free.tokens[1].tolist()
    assert int(generated.lengths[1]) == (row.index(end) + 1 if end in row else 6)
    counts = np.array([5, 2]) + np.asarray(generated.lengths)
    assert generated.state["positions"]["length"].tolist() == counts.tolist()


def _padded():
    """`PROMPTS` among other ids, and the mask of the prompts."""
    mask = np.array([[0, 0, 1, 1, 1, 1, 1, 0], [1, 0, 0, 0, 0, 1, 0, 0]])
    ids = np.full(mask.shape, 9)
    for row, prompt in enumerate(PROMPTS):
        ids[row][mask[row] == 1] = prompt
    return ids, mask


def test_padding_on_any_side_changes_no_token(model):
    expected = fk.generate(model, None, PROMPTS, max_new_tokens=6)
    ids, mask = _padded()
    for kind in (mask, mask.astype(bool).tolist(), jnp.array(mask)):
        generated = fk.generate(model, None, ids, max_new_tokens=6, mask=kind)
        assert generated.tokens.tolist() == expected.tokens.tolist()
    assert generated.state["positions"]["length"].tolist() == [11, 8]


@pytest.mark.exhaustive
def test_padding_changes_no_token_of_compiled_calls_drafts_and_models_without_caches(model):
    expected = fk.generate(model, None, PROMPTS, max_new_tokens=6)
    ids, mask = _padded()
    compiled = jax.jit(
        lambda ids, mask: fk.generate(model, None, ids, max_new_tokens=6, mask=mask).tokens
    )
    assert compiled(ids, mask).tolist() == expected.tokens.tolist()
    # of a text that is read for a draft, and by a model without caches
    options = {"max_new_tokens": 6, "mask": mask}
    drafted = fk.generate(model, None, ids, **options, draft=(language_models.bigram(1), None))
    assert drafted.tokens.tolist() == expected.tokens.tolist()
    assert (
        fk.generate(model, None, ids, cache=False, **options).tokens.tolist()
        == drafted.tokens.tolist()
    )


def test_state_continues_the_text(model):
    state = model.init_cache(2, 32)
    first = fk.generate(model, state, PROMPTS, max_new_tokens=3)
    # not donated: the caller keeps the state
    assert state["positions"]["length"].tolist() == [0, 0]
    second = fk.generate(model, first.state, [[9], [8]], max_new_tokens=3)
    whole = [
        [*ids, *new.tolist(), last]
        for ids, new, last in zip(PROMPTS, first.tokens, (9, 8), strict=True)
    ]
    assert second.tokens.tolist() == [again(model, ids, 3) for ids in whole]


def _windowed(model, mask):
    """The model with a mask of its own in the second block."""
    block = model.layers["block_1"]
    attention = block.layers["attention"].replace(mask=mask)
    block = block.replace(layers={**block.layers, "attention": attention})
    return model.replace(layers={**model.layers, "block_1": block})


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "mask", [None, fk.masks.Causal() & fk.masks.Window(4)], ids=["full", "window"]
)
@pytest.mark.parametrize("start", ["default", "small", "stopped"])
def test_states_without_room_grow(mask, start):
    # a model with a ring buffer beside a full cache
    model = language_models.cached(depth=2)
    if mask is not None:
        model = _windowed(model, mask)
    state = model.init_cache(2, 10) if start == "small" else None
    stop = {"stop": "none", "decode": str} if start == "stopped" else {}
    texts, new = [list(ids) for ids in PROMPTS], PROMPTS
    for limit in (4, 70, 3, 600, 5):
        generated = fk.generate(model, state, new, max_new_tokens=limit, **stop)
        for text, tokens in zip(texts, generated.tokens.tolist(), strict=True):
            whole = fk.generate(model, None, [text], max_new_tokens=limit)
            assert tokens == whole.tokens[0].tolist()
        new, state = [[9, 2], [8]], generated.state
        rows = zip(texts, generated.tokens.tolist(), new, strict=True)
        texts = [[*text, *tokens, *more] for text, tokens, more in rows]


@pytest.mark.exhaustive
def test_each_row_depends_on_its_own_prompt_key_and_sampler(model):
    sampler = samplers.Chain(samplers.Temperature(2.0), samplers.RepetitionPenalty(1.2))
    keys = jax.random.split(jax.random.key(3), 2)
    both = fk.generate(model, None, PROMPTS, keys, 6, [sampler, samplers.Greedy()])
    alone = [
        fk.generate(model, None, PROMPTS[:1], keys[:1], 6, sampler),
        fk.generate(model, None, PROMPTS[1:], None, 6),
    ]
    for row, own in enumerate(alone):
        assert both.tokens[row].tolist() == own.tokens[0].tolist()
    # one key serves a single row, or is split
    single = fk.generate(model, None, PROMPTS[:1], keys[0], 6, sampler)
    assert single.tokens.tolist() == alone[0].tokens.tolist()


@pytest.mark.exhaustive
def test_generate_runs_under_jit_and_vmap_over_keys(model):
    sampler = samplers.Temperature(1.5)
    keys = jax.random.split(jax.random.key(0), 3)
    ids = jnp.array([PROMPTS[0]])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def tokens(model, key):
        return fk.generate(model, None, ids, key, 6, sampler).tokens

    found = tokens(model, keys)
    expected = [fk.generate(model, None, ids, key, 6, sampler).tokens.tolist() for key in keys]
    assert found.tolist() == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("mapped", ["key", "temperature", "ids", "end", "draft"])
def test_vmap_donates_nothing(mapped):
    # a warning of JAX about donated buffers without use would be an error here
    model = language_models.bigram()
    draft = (language_models.bigram(1), None) if mapped == "draft" else None
    values = {
        "temperature": jnp.array([0.5, 1.5]),
        "ids": jnp.array([[[1, 2]], [[3, 4]]]),
        "end": jnp.array([1, 2]),
    }.get(mapped, jax.random.split(jax.random.key(0)))

    def tokens(value):
        options = {"key": jax.random.key(0), "temperature": 1.0, "ids": jnp.array([[1, 2]])}
        options |= {"end": (), "key" if mapped == "draft" else mapped: value}
        return fk.generate(
            *(model, None, options["ids"], options["key"], 4),
            samplers.Temperature(options["temperature"]),
            end_ids=options["end"],
            draft=draft,
        ).tokens

    assert jax.vmap(tokens)(values).tolist() == [tokens(value).tolist() for value in values]


@pytest.mark.exhaustive
def test_padded_vocabulary_is_never_sampled():
    model = language_models.bigram()
    free = fk.generate(model, None, [[1], [2], [3]], max_new_tokens=8)
    assert int(free.tokens.max()) >= 4
    sampler = samplers.Chain(samplers.Temperature(9.0))
    key = jax.random.key(0)
    drawn = fk.generate(model, None, [[1], [2], [3]], key, 8, sampler, vocabulary_size=4)
    assert set(np.unique(drawn.tokens)) == {0, 1, 2, 3}
    # an id of the padding may be forbidden: the token is never sampled
    forbid = samplers.Chain(samplers.SuppressedIds((2, 9)), samplers.Greedy())
    without = fk.generate(model, None, [[1], [2], [3]], None, 8, forbid, vocabulary_size=4)
    assert set(np.unique(without.tokens)) <= {0, 1, 3}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "ids",
    [
        *(np.array([[1, 2, 3]], dtype) for dtype in ("int8", "uint16", "int64")),
        jnp.array([[1, 2, 3]], "uint8"),
        ((1, 2, 3),),
        [np.array([1, 2, 3], "uint8")],
        [jnp.array([1, 2, 3])],
        [range(1, 4)],
    ],
    ids=repr,
)
def test_prompts_of_all_kinds(ids):
    model = language_models.bigram()
    expected = fk.generate(model, None, [[1, 2, 3]], max_new_tokens=3).tokens.tolist()
    assert fk.generate(model, None, ids, max_new_tokens=3).tokens.tolist() == expected


@pytest.mark.exhaustive
def test_rows_of_a_list_may_be_traced():
    model = language_models.bigram()
    run = jax.jit(lambda row: fk.generate(model, None, [row, [1]], max_new_tokens=3).tokens)
    expected = fk.generate(model, None, [[1, 2, 3], [1]], max_new_tokens=3).tokens
    for dtype in ("int32", "uint8"):
        assert run(jnp.array([1, 2, 3], dtype)).tolist() == expected.tolist()


def test_inputs_with_a_value_for_each_token_are_errors(model):
    segments = {"segments": np.ones((1, 2), "int32")}
    with pytest.raises(ValueError, match="received segments: .* each row of ids is one text"):
        fk.generate(model, None, [[1, 2]], max_new_tokens=2, inputs=segments)


@pytest.mark.exhaustive
def test_end_ids_may_be_any_sequence_or_scalar():
    model = language_models.bigram()
    end = int(fk.generate(model, None, [[1]], max_new_tokens=3).tokens[0, 0])
    for ids in (end, [end], (end,), {end}, np.int64(end), np.array(end), jnp.array([end], "uint8")):
        generated = fk.generate(model, None, [[1]], max_new_tokens=3, end_ids=ids)
        assert generated.lengths.tolist() == [1]
    assert fk.generate(model, None, [[1]], max_new_tokens=3, end_ids=None).lengths.tolist() == [3]


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{"cache": "int8"}, {}], ids=str)
def test_window_shorter_than_the_prompt(options):
    window = fk.masks.Causal() & fk.masks.Window(3)
    model = language_models.cached(1, depth=1, mask=window, **options)
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=6, cache=True)
    held = generated.state["block_0"]["attention"]
    assert held["keys"].shape[1] == 3
    if not options:
        assert generated.tokens.tolist() == [again(model, ids, 6) for ids in PROMPTS]
    else:
        assert held["keys"].dtype == jnp.int8


def test_encoder_runs_once_and_its_padding_changes_nothing():
    # seconds: compiles a model with encoder, decoder and caches, the only default one
    model = language_models.encoder_decoder(depth=1)
    source = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    ids = np.array([[1], [2]])
    generated = fk.generate(
        model, None, ids, max_new_tokens=5, inputs=source, inputs_mask=mask, cache=True
    )
    texts = np.concatenate([ids, np.asarray(generated.tokens)[:, :-1]], axis=1)
    # the decoder is causal: each score of the text is that of its beginning
    scores = model([source[1:, :2], texts[1:]])
    assert generated.tokens[1].tolist() == np.argmax(scores[0], -1).tolist()
    left = np.array([[1, 2, 3, 4], [9, 9, 5, 6]])
    padded = fk.generate(
        *(model, None, ids),
        max_new_tokens=5,
        inputs=left,
        inputs_mask=np.array([[1] * 4, [0, 0, 1, 1]]),
        cache=True,
    )
    assert padded.tokens.tolist() == generated.tokens.tolist()
    named = fk.generate(
        *(model, None, ids),
        max_new_tokens=5,
        inputs={"encoder_ids": source},
        inputs_mask={"encoder_ids": mask},
    )
    assert named.tokens.tolist() == generated.tokens.tolist()
    with pytest.raises(ValueError, match="expected 1 inputs beside the ids of 'decoder_ids'"):
        fk.generate(model, None, ids)
    with pytest.raises(ValueError, match="expected 2 rows, as in ids, in the input 'encoder_ids'"):
        fk.generate(model, None, ids, inputs=source[:1])
    message = (
        "ids of 'encoder/embedding' in the input 'encoder_ids' from 0 to 10, received {} in row 1"
    )
    for wrong in (11, -1, 2**32 + 1):
        with pytest.raises(ValueError, match=message.format(wrong)):
            fk.generate(model, None, ids, inputs=np.array([[1, 2], [3, wrong]]))


@pytest.mark.exhaustive
def test_each_row_may_have_its_own_model(model):
    other = model.replace(
        layers={**model.layers, "norm": jax.tree.map(lambda a: -a, model.layers["norm"])}
    )
    prompts = [[1, 2, 3]] * 3
    generated = fk.generate([model, other], None, prompts, max_new_tokens=5, rows=[1, 0, 1])
    expected = [again(m, prompts[0], 5) for m in (other, model, other)]
    assert generated.tokens.tolist() == expected and expected[0] != expected[1]
    beams = fk.generate([model, other], None, prompts, None, 3, samplers.Beam(2), rows=[1, 0, 1])
    own = fk.generate(other, None, prompts[:1], None, 3, samplers.Beam(2))
    assert beams.tokens[2].tolist() == own.tokens[0].tolist()


@pytest.mark.exhaustive
def test_each_row_may_have_its_own_adapter(model):
    lora = transforms.LoRA(rank=2)
    adapted = transforms.adapt(model, "*/query", lora, jax.random.key(1))
    values = transforms.adapters(adapted)
    others = [
        transforms.with_adapters(adapted, jax.tree.map(lambda a, s=s: a + s, values))
        for s in (0.0, 1.5, -0.8)
    ]
    prompts = [[1, 2, 3]] * 3
    generated = fk.generate(others, None, prompts, max_new_tokens=6)
    own = [fk.generate(one, None, prompts[:1], max_new_tokens=6).tokens[0] for one in others]
    assert generated.tokens.tolist() == [tokens.tolist() for tokens in own]
    assert len({tuple(tokens.tolist()) for tokens in own}) == 3
    # the arrays of the base are stored once
    reader, _ = requests.reader_of(others, None, 3, (None, None), None, None)
    assert sum(reader.form.stacked) == len(jax.tree.leaves(values)) < len(jax.tree.leaves(model))


@pytest.mark.exhaustive
def test_each_row_may_have_its_own_edit(model):
    def steered(value):
        return transforms.edit(model, {"norm": Shift(name="shift").with_value(value)})

    models = [steered(value) for value in (0.0, 3.0)]
    generated = fk.generate(models, None, [[1, 2]] * 2, max_new_tokens=6)
    free = fk.generate(model, None, [[1, 2]], max_new_tokens=6)
    own = fk.generate(models[1], None, [[1, 2]], max_new_tokens=6)
    assert generated.tokens[0].tolist() == free.tokens[0].tolist()
    assert generated.tokens[1].tolist() == own.tokens[0].tolist() != free.tokens[0].tolist()


@pytest.mark.exhaustive
def test_model_that_is_not_causal_is_an_error():
    model = language_models.uncached(causal=False)
    with pytest.raises(ValueError, match="no caches and is not causal"):
        fk.generate(model, None, PROMPTS, max_new_tokens=2)
    tokens = jax.jit(
        lambda m: fk.generate(m, None, jnp.array(PROMPTS[:1]), max_new_tokens=2).tokens
    )
    assert tokens(model).tolist() == [[-1, 0]]


@pytest.mark.exhaustive
def test_model_of_a_fixed_length():
    model = language_models.uncached(time=12)
    free = language_models.uncached()
    ids = [[1, 2, 3]]
    expected = fk.generate(free, None, ids, max_new_tokens=5).tokens.tolist()
    assert fk.generate(model, None, ids, max_new_tokens=5).tokens.tolist() == expected
    with pytest.raises(ValueError, match="at most 12 tokens, the length of the input"):
        fk.generate(model, None, ids, max_new_tokens=10)


def test_scores_that_are_not_finite_are_an_error():
    model = language_models.bigram()
    broken = jax.tree.map(lambda a: a.at[5].set(jnp.nan), model)
    with pytest.raises(ValueError, match="new token 0 of row 1 are not finite"):
        fk.generate(broken, None, [[1], [5]], max_new_tokens=2, vocabulary_size=4)
    forbid = samplers.Chain(samplers.SuppressedIds(range(11)), samplers.Greedy())
    with pytest.raises(ValueError, match="samplers forbid every token"):
        fk.generate(model, None, [[1]], None, 2, forbid)


def suppressed(*ids, greedy=False):
    suppressed = samplers.SuppressedIds(ids)
    return samplers.Chain(suppressed, samplers.Greedy()) if greedy else suppressed


ERRORS = [
    (dict(ids=[1, 2]), ValueError, "integers of shape (b, t)"),
    (dict(mask=[[1, 0, 1]]), ValueError, "mask as booleans of shape (1, 2)"),
    (dict(mask=[[1.0, 0.0]]), ValueError, "received float64 of shape (1, 2)"),
    (dict(mask=[[0, 2]]), ValueError, "expected 0 and 1 in mask"),
    (dict(mask=[[0, 0]]), ValueError, "a mask without True in row 0"),
    (dict(mask=[[1, 1]], lengths=[2]), ValueError, "mask or lengths, received both"),
    (dict(ids=[[1], [2, 3]], mask=[[1], [1, 1]]), ValueError, "different lengths need no mask"),
    (
        dict(ids=np.array([[0, 0, 5, 6, 7]]), lengths=[3]),
        ValueError,
        "received [6, 7] there, and 2 times the id 0 at the start. If the rows are padded on the left, "
        "pass mask=ids != 0",
    ),
    (dict(max_length=8), TypeError, "`max_new_tokens` counts the new tokens alone"),
    (dict(temperature=0.5), TypeError, "`sampler = fk.samplers.Temperature(0.7)`"),
    (dict(attention_mask=[[1, 1]]), TypeError, "Instead: `mask`"),
    (
        dict(model=types.SimpleNamespace(model=language_models.bigram(), state={})),
        TypeError,
        "Write fk.generate(loaded.model, loaded.state, ids)",
    ),
    (dict(ids=np.ones((1, 2))), ValueError, "float64 of shape (1, 2)"),
    (dict(ids=[]), ValueError, "integers of shape (b, t)"),
    (dict(ids=[[]]), ValueError, "no token in row 0"),
    (
        dict(ids=[[1, 11]]),
        ValueError,
        "expected ids from 0 to 10, received 11 in row 0 at position 1",
    ),
    (dict(ids=[[-1, 1]]), ValueError, "received -1 in row 0"),
    (dict(lengths=[3]), ValueError, "lengths from 1 to 2, received [3]"),
    (dict(lengths=[0]), ValueError, "lengths from 1 to 2"),
    (dict(lengths=[1, 1]), ValueError, "lengths as integers of shape (1,)"),
    (dict(max_new_tokens=0), ValueError, "at least 1 for max_new_tokens"),
    (dict(max_new_tokens=2.0), TypeError, "an integer for max_new_tokens"),
    (dict(sampler="greedy"), TypeError, "expected a sampler such as samplers.Greedy()"),
    (dict(sampler=samplers.Greedy), TypeError, "the class Greedy. Call it"),
    (dict(sampler=[samplers.Greedy()] * 2), ValueError, "a sampler for each of 1 rows, received 2"),
    (dict(sampler=[samplers.Beam()]), ValueError, "one Beam for all rows"),
    (dict(sampler=samplers.Temperature(1.0)), ValueError, "draws tokens and needs a key"),
    (dict(key=jax.random.PRNGKey(0)), TypeError, "a typed PRNG key"),
    (dict(key=0), TypeError, "a typed PRNG key"),
    (dict(key=jax.random.split(jax.random.key(0))), ValueError, "each of 1 rows, received 2 keys"),
    (dict(key=jax.random.split(jax.random.key(0), (1, 1))), TypeError, "one PRNG key"),
    (dict(ids=np.array([[1, 2**32]])), ValueError, "received 4294967296 in row 0 at position 1"),
    (dict(ids=np.array([[2**32 - 1]], "uint32")), ValueError, "received 4294967295 in row 0"),
    (dict(ids="text"), ValueError, "Encode the text: ids = [tokenizer.encode(text)]"),
    (dict(ids=["text"]), ValueError, "Encode the text"),
    (dict(ids=[[1], [2, [3]]]), ValueError, "integers of shape (b, t)"),
    (dict(ids=[[1], 2]), ValueError, "integers of shape (b, t)"),
    (dict(ids=[np.ones(2, int), np.ones((2, 2), int)]), ValueError, "Pass a list of lists of ids"),
    (dict(ids=iter([[1]])), ValueError, "Pass a list of lists of ids"),
    (dict(ids=[[True]]), ValueError, "received bool of shape (1, 1)"),
    (dict(ids=[[1], [2.0]]), ValueError, "received float64 of shape (2, 1)"),
    (dict(end_ids="</s>"), ValueError, "end_ids as an id or a sequence of ids"),
    (dict(end_ids=["</s>"]), ValueError, "Pass a text that ends a row as stop="),
    (dict(end_ids=True), ValueError, "end_ids as an id or a sequence of ids"),
    (dict(end_ids=[[1]]), ValueError, "end_ids as an id or a sequence of ids"),
    (dict(end_ids=[-1]), ValueError, "end_ids from 0 to 10, the tokens that may be sampled"),
    (dict(end_ids=[3, 11]), ValueError, "received 11, which would never end a row"),
    (dict(end_ids=np.int64(2**40)), ValueError, "received 1099511627776"),
    (dict(end_ids=7, vocabulary_size=7), ValueError, "end_ids from 0 to 6"),
    (dict(sampler=suppressed(3, 11)), ValueError, "from 0 to 10 for `ids` of samplers.Suppressed"),
    (dict(sampler=suppressed(11, greedy=True)), ValueError, "received 11, which is no token of"),
    (dict(sampler=[suppressed(11, greedy=True)]), ValueError, "received 11, which is no token of"),
    (
        dict(sampler=samplers.MinNewTokens(2, (12,))),
        ValueError,
        "for `end_ids` of samplers.MinNewTokens, received 12",
    ),
    (dict(ids=[[1], []]), ValueError, "no token in row 1"),
    (dict(state={"other": np.ones(1)}), ValueError, "other entries (unknown: other)"),
    (dict(end_ids=[1.5]), ValueError, "end_ids as an id"),
    (dict(stop="."), ValueError, "needs `decode`"),
    (dict(stop=[""], decode=str), ValueError, "not empty for stop"),
    (dict(stop=3, decode=str), ValueError, "not empty for stop, received 3"),
    (dict(stop=b".", decode=str), ValueError, "not empty for stop"),
    (dict(decode="text", stop="."), TypeError, "a function for decode, received 'text' (str)"),
    (dict(decode="text"), TypeError, "Pass decode=tokenizer.decode"),
    (dict(stream="text"), TypeError, "a function for stream"),
    (dict(stream=print, sampler=samplers.Beam()), ValueError, "no stop, stream or draft beside"),
    (dict(vocabulary_size=12), ValueError, "vocabulary_size from 1 to 11"),
    (dict(vocabulary_size=0), ValueError, "vocabulary_size from 1 to 11"),
    (dict(rows=[0]), ValueError, "a list of models beside rows"),
    (dict(inputs=np.ones((1, 2))), ValueError, "expected 0 inputs beside the ids of 'ids'"),
    (dict(inputs={"other": np.ones((1, 2))}), ValueError, "with all but one of them"),
    (dict(inputs_mask=np.ones((1, 2))), ValueError, "expected inputs_mask beside inputs"),
    (dict(draft=3), TypeError, "draft as (model, state)"),
    (dict(draft=language_models.bigram()), TypeError, "received Model. Pass draft=(model, None)"),
    (dict(draft=(language_models.bigram(), [1])), TypeError, "expected state as a dictionary"),
    (dict(cache="int8"), TypeError, "True, False or None for cache, received 'int8' (str)"),
    (dict(cache=1), TypeError, "True, False or None for cache"),
    (dict(state=[[1, 2]], ids=jax.random.key(0)), TypeError, "The ids are the third argument"),
    (dict(state="state"), TypeError, "expected state as a dictionary"),
    (dict(model=lambda ids: ids), TypeError, "expected a model for `model`"),
    (dict(model=[]), ValueError, "an empty list"),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("change", "error", "message"), ERRORS, ids=lambda v: ",".join(v) if isinstance(v, dict) else ""
)
def test_bad_arguments_are_errors(change, error, message):
    arguments = {"model": language_models.bigram(), "state": None, "ids": [[1, 2]]} | change
    with pytest.raises(error) as caught:
        fk.generate(**arguments)
    assert message in str(caught.value)


@pytest.mark.exhaustive
def test_a_text_longer_than_the_table_of_positions_is_an_error():
    config = fk.pretrained.GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = fk.pretrained.build(config).build(jax.random.key(0))
    message = "at most 8 tokens, the positions of .*, received a prompt of 3 and max_new_tokens=6"
    with pytest.raises(ValueError, match=message):
        fk.generate(model, None, [[1, 2, 3]], max_new_tokens=6)
    state = fk.generate(model, model.init_cache(1, 20), [[1, 2, 3]], max_new_tokens=2).state
    with pytest.raises(ValueError, match="at most 8 tokens, the positions of .*, received 7 with"):
        fk.generate(model, state, [[1, 2]], max_new_tokens=2)
    assert fk.generate(model, state, [[1, 2]], max_new_tokens=1).lengths.tolist() == [1]


def test_states_of_other_models_are_errors(model):
    state = model.init_cache(2, 20)
    block = next(name for name in state if name != "positions")
    for name, message in ((block, f"missing: {block}/"), ("positions", "unknown: ")):
        part = {key: value for key, value in state.items() if key != name}
        with pytest.raises(ValueError, match=rf"with other entries \({message}"):
            fk.generate(model, part, PROMPTS, max_new_tokens=2)


def test_bad_models_are_errors(model):
    ids = fk.Input((None,), dtype="int32")
    unbuilt = fk.Model(ids, fk.layers.Embedding(5, 5)(ids))
    with pytest.raises(ValueError, match="has no weights yet"):
        fk.generate(unbuilt, None, [[1]])
    built = unbuilt.build(jax.random.key(0))
    two = fk.Model(built.inputs, [built.outputs, built.outputs])
    with pytest.raises(ValueError, match="one output of logits"):
        fk.generate(two, None, [[1]])
    x = fk.Input((4, 3))
    floats = fk.Model(x, fk.layers.Dense(5)(x)).build(jax.random.key(0))
    with pytest.raises(ValueError, match="expected token ids"):
        fk.generate(floats, None, [[1]])
    with pytest.raises(ValueError, match="differ in arrays alone"):
        fk.generate([built, language_models.bigram()], None, [[1], [2]])
    wider = fk.Model(ids, fk.layers.Embedding(5, 5)(ids)).build(jax.random.key(1))
    with pytest.raises(ValueError, match="expected rows=, the number of the model of each row"):
        fk.generate([built, wider], None, [[1], [2], [3]])
    with pytest.raises(ValueError, match="rows from 0 to 1, received"):
        fk.generate([built, wider], None, [[1], [2]], rows=[0, 2])


def test_bad_states_are_errors(model):
    draft = (language_models.bigram(), None)
    with pytest.raises(ValueError, match="room for 16 tokens in a row, received room for 10"):
        fk.generate(model, model.init_cache(2, 10), PROMPTS, max_new_tokens=6, draft=draft)
    with pytest.raises(ValueError, match="expected a state of 2 rows, as in ids, received 3"):
        fk.generate(model, model.init_cache(3, 20), PROMPTS, max_new_tokens=6)
    with pytest.raises(ValueError, match="computes all tokens again"):
        fk.generate(model, model.init_cache(2, 20), PROMPTS, max_new_tokens=6, cache=False)
