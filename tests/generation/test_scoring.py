"""`fk.score`: log-probabilities equal those of the whole text, computed by NumPy and by transformers."""

import functools

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.generation import logprobs
from tests.generation.test_scaled_positions import PROMPTS as LONG_PROMPTS
from tests.generation.test_scaled_positions import model_of
from tests.pretrained import checks
from tests.support import language_models
from tests.support.compile_counts import count_compiles

WINDOW = fk.masks.Causal() & fk.masks.Window(4)
PROMPTS = [[1, 2, 3, 4, 5], [7], [3, 9, 2]]
ANSWERS = [[4, 4], [6], [0, 2, 8, 5]]
HEAD = [1, 5, 2, 9, 4, 4, 10, 3, 2, 2, 6, 7, 1, 0, 3, 5, 8, 8]


@pytest.fixture(scope="module")
def model():
    return language_models.cached(depth=1)


def _log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@functools.cache
def _program():
    return jax.jit(lambda model, ids: model(ids))


def expected(model, prompt, answer):
    """The log-probabilities of all tokens at the places of an answer, from a call on the whole text."""
    text = np.zeros((1, 64), "int32")
    text[0, : len(prompt) + len(answer)] = [*prompt, *answer]
    # padding behind the text changes nothing in a causal model
    return _log_softmax(_program()(model, text)[0])[len(prompt) - 1 :][: len(answer)]


def check(model, prompts, answers, state=None, before=(), tolerance=3e-4, **options):
    models = model if isinstance(model, list) else [model]
    found = fk.score(model, state, prompts, answers, logprobs=2, **options)
    rows = options.get("rows", [0] * len(prompts))
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        values = expected(models[rows[row]], [*before, *prompt], answer)
        chosen = values[np.arange(len(answer)), answer]
        wanted = (chosen, -np.sort(-values)[:, :2], np.argsort(-values)[:, :2])
        for array, want in zip(found.logprobs, wanted, strict=True):
            close = dict(rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(array[row, : len(answer)], want, **close)
            assert not np.asarray(array[row, len(answer) :]).any()
        np.testing.assert_allclose(found.total[row], chosen.sum(), rtol=tolerance, atol=tolerance)
    assert found.lengths.tolist() == [len(answer) for answer in answers]
    return found


def test_ragged_rows_equal_the_whole_texts(model):
    # seconds: the first to compile the programs of this file
    found = check(model, PROMPTS, ANSWERS)
    assert found.total.dtype == np.float32 and found.logprobs.chosen.shape == (3, 4)


def _padded(rows, side):
    """Rows among other ids, and their mask."""
    mask = np.zeros((len(rows), 8), bool)
    for row, tokens in enumerate(rows):
        start = {"left": 8 - len(tokens), "right": 0, "both": 1}[side]
        mask[row, start : start + len(tokens)] = True
    ids = np.full(mask.shape, 9)
    ids[mask] = sum(rows, [])
    return ids, mask


@pytest.mark.exhaustive
def test_padding_on_any_side_changes_no_number(model):
    wanted = fk.score(model, None, PROMPTS, ANSWERS)
    for side, other in (("left", "right"), ("both", "left")):
        (ids, mask), (answers, answers_mask) = _padded(PROMPTS, side), _padded(ANSWERS, other)
        found = fk.score(
            model, None, ids, answers, prompts_mask=mask, continuations_mask=answers_mask
        )
        np.testing.assert_allclose(found.logprobs.chosen, wanted.logprobs.chosen, atol=1e-5)


@pytest.mark.exhaustive
def test_shared_beginnings_and_equal_prompts_compile_nothing_new(model):
    prompts = [[*HEAD, 1], [*HEAD, 1], [*HEAD, 2, 3], [*HEAD, 1], HEAD]
    answers = [[4, 4], [5], [1, 2, 3], [7], [0, 9]]
    check(model, prompts, answers)
    with count_compiles() as compiles:
        # another number of different prompts, of another length
        check(model, [p[:-1] for p in prompts[:3]] + prompts[3:], answers)
    assert compiles == []


def test_shared_beginnings_and_equal_prompts_after_a_state_of_one_row(model):
    state = model.init_cache(1, 20)
    state |= model.apply(np.array([PROMPTS[0]], "int32"), state=state).updates
    prompts = [[*HEAD, 1], [*HEAD, 1], [*HEAD, 2, 3], [*HEAD, 1], HEAD]
    check(model, prompts, [[4, 4], [5], [1, 2, 3], [7], [0, 9]], state, PROMPTS[0])


@pytest.mark.exhaustive
def test_numbers_equal_those_of_transformers():
    loaded = fk.pretrained.load(checks.DATA / "llama", dtype="float32")
    arrays = checks.expected("llama")
    ids, logits = arrays["ids"], arrays["logits"]
    found = fk.score(loaded, None, ids[:, :7], ids[:, 7:])
    values = _log_softmax(logits)[:, 6:-1]
    wanted = np.take_along_axis(values, ids[:, 7:, None].astype(int), axis=-1)[..., 0]
    np.testing.assert_allclose(found.logprobs.chosen, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.total, wanted.sum(1), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make",
    [
        functools.partial(language_models.cached, depth=2, mask=WINDOW),
        language_models.uncached,
        language_models.bigram,
    ],
    ids=["window", "uncached", "bigram"],
)
def test_forms_of_models(make):
    model = make()
    check(model, PROMPTS, ANSWERS)
    check(model, PROMPTS, ANSWERS, cache=False)
    check(model, [[3]], [[2]])
    check(model, [[*HEAD, 1]] * 3 + [HEAD] * 2, [[4], [5, 6], [7], [8], [9, 9, 9, 0]])


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", [None, WINDOW], ids=["full", "window"])
def test_states_with_and_without_room(mask):
    model = language_models.cached(depth=2, mask=mask)
    prompts = [[*HEAD, 1]] * 3 + [[*HEAD, 2]] + [[3]]
    for room in (18, 64):
        state = model.init_cache(1, room)
        state |= model.apply(np.array([HEAD], "int32"), state=state).updates
        check(model, PROMPTS, ANSWERS, state, HEAD)
        check(model, prompts[:4], ANSWERS[:1] * 4, state, HEAD)
    generated = fk.generate(model, None, [[1, 2]], max_new_tokens=5)
    check(model, [[3]], [[1, 2]], generated.state, [1, 2, *generated.tokens[0].tolist()])


@pytest.mark.exhaustive
def test_each_row_may_have_its_own_model(model):
    norm = jax.tree.map(lambda a: -a, model.layers["norm"])
    other = model.replace(layers={**model.layers, "norm": norm})
    check([model, other], PROMPTS, ANSWERS, rows=[1, 0, 1])


@pytest.mark.exhaustive
def test_encoders():
    model, source = language_models.encoder_decoder(), np.array([[1, 2, 3], [4, 5, 6]])
    found = fk.score(model, None, PROMPTS[:2], ANSWERS[:2], inputs=source)
    for row in range(2):
        text = np.array([[*PROMPTS[row], *ANSWERS[row]]], "int32")
        values = _log_softmax(model([source[row : row + 1], text])[0])[len(PROMPTS[row]) - 1 :]
        wanted = [values[place, token] for place, token in enumerate(ANSWERS[row])]
        np.testing.assert_allclose(found.logprobs.chosen[row, : len(wanted)], wanted, atol=3e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_positions_that_depend_on_the_length_are_those_of_the_whole_text(name):
    model, answers = model_of(name), [[1, 2, 3] * 7, [4, 5, 6], [7], [8, 9, 10, 11]]
    found = fk.score(model, None, LONG_PROMPTS, answers)
    for row, (prompt, answer) in enumerate(zip(LONG_PROMPTS, answers, strict=True)):
        # the last token predicts nothing
        values = _log_softmax(model(np.array([[*prompt, *answer]], "int32")[:, :-1])[0])
        wanted = values[len(prompt) - 1 :][np.arange(len(answer)), answer]
        np.testing.assert_allclose(found.logprobs.chosen[row, : len(answer)], wanted, atol=3e-5)
    if name == "longrope":
        state = model.init_cache(1, 64)
        state |= model.apply(np.array([[1, 2, 3]], "int32"), state=state).updates
        with pytest.raises(ValueError, match="tokens of row 0 without their ids, received 17"):
            fk.score(model, state, [[1] * 14], [[1]])


@pytest.mark.exhaustive
def test_long_continuations_are_computed_in_parts(model, monkeypatch):
    answers = [np.resize(HEAD, size).tolist() for size in (50, 33, 1)]
    monkeypatch.setattr(logprobs, "_MOST_LOGITS", 16 * 3 * 11)
    check(model, PROMPTS, answers)


@pytest.mark.exhaustive
def test_bfloat16_models(model):
    cast = fk.cast(model, "bfloat16")
    found = check(cast, PROMPTS, ANSWERS, tolerance=0.1)
    assert found.total.dtype == np.float32


@pytest.mark.exhaustive
def test_compiled_calls(model):
    (ids, mask), (answers, answers_mask) = _padded(PROMPTS, "left"), _padded(ANSWERS, "both")

    @jax.jit
    def run(model, ids, answers):
        masks = dict(prompts_mask=mask, continuations_mask=answers_mask)
        return fk.score(model, None, ids, answers, **masks)

    found, wanted = run(model, ids, answers), fk.score(model, None, PROMPTS, ANSWERS)
    np.testing.assert_allclose(found.total, wanted.total, atol=1e-4)
    np.testing.assert_allclose(found.logprobs.chosen[:, :4], wanted.logprobs.chosen, atol=1e-4)
    assert not np.asarray(found.logprobs.chosen[:, 4:]).any()


ERRORS = [
    (dict(prompts=[[], [1]]), "`prompts`: expected at least one token in each row"),
    (dict(continuations=[[], [1]]), "`continuations`: expected at least one token in each row"),
    (dict(continuations=[[1]]), "a continuation for each of 2 prompts, received 1"),
    (dict(prompts=[[11], [1]]), "`prompts`: expected ids from 0 to 10, received 11 in row 0"),
    (dict(continuations=[[1], [-100]]), "received -100 in row 1 .*continuations_mask="),
    (dict(vocabulary_size=5), "`continuations`: expected ids from 0 to 4, received 5"),
    (dict(prompts=["a", "b"]), "Encode the text"),
    (dict(prompts=[1, 2]), r"Add the axis of the rows: ids\[None\]"),
    (dict(continuations=[[1.5], [2.0]]), "continuations_mask="),
    (dict(prompts_mask=[[1], [1, 1]]), "expected prompts_mask as booleans"),
    (
        dict(continuations=[[1], [3]], continuations_mask=[[0], [1]]),
        "a mask without True in row 0. Leave",
    ),
    (dict(state=[1]), "fk.score: expected state as a dictionary"),
    (dict(state={"x": np.ones(1)}), r"unknown: x"),
    (dict(model=3), "fk.score: expected a model for `model`, received 3"),
    (dict(logprobs=-1), "logprobs from 0 to 11"),
    (dict(logprobs=12), "received 12"),
    (dict(logprobs=True), "received True"),
    (dict(rows=[0, 1]), "a list of models beside rows"),
    (dict(model=language_models.uncached(causal=False)), "no caches and is not causal"),
    (
        dict(model=language_models.uncached(time=4), prompts=[[1] * 3], continuations=[[1] * 3]),
        "at most 4 tokens before the last, the length of the input .*, received 5",
    ),
    (dict(model=language_models.uncached(), cache=True), "a model with caches for cache=True"),
    (dict(lengths=[1, 1]), "there is no argument 'lengths'"),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("change", "message"), ERRORS, ids=lambda v: ",".join(v)[:40])
def test_bad_arguments_are_errors(change, message):
    arguments = {"model": language_models.bigram(), "state": None}
    arguments |= {"prompts": [[1, 2], [3]], "continuations": [[4], [5, 6]]} | change
    with pytest.raises((TypeError, ValueError), match=message):
        fk.score(**arguments)


def test_logits_that_are_not_a_number_are_an_error():
    broken = jax.tree.map(lambda a: a.at[5].set(np.nan), language_models.bigram())
    with pytest.raises(ValueError, match="token 0 of the continuation of row 1 are not a number"):
        fk.score(broken, None, [[1], [5]], [[4], [5]])


def test_states_of_other_batches_are_errors(model):
    with pytest.raises(ValueError, match="expected a state of 3 rows, as in ids, received 2"):
        fk.score(model, model.init_cache(2, 20), PROMPTS, ANSWERS)
