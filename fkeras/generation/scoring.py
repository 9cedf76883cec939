"""`score`: log-probabilities of given continuations, without generating."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import explains_arguments
from fkeras.engine import Network
from fkeras.generation import capacities, requests
from fkeras.generation.caches import lengths_of, new_state, take_rows
from fkeras.generation.decoding import Prompt, packed, read_prompt
from fkeras.generation.loaded import LoadedModel, parts_of
from fkeras.generation.logprobs import (
    Logprobs,
    finished,
    finished_on_host,
    logprobs_of,
    sequence_logprobs,
)
from fkeras.generation.prompts import prompt_of
from fkeras.generation.reading import Reader
from fkeras.generation.running import enlarged_state, size_for

_WHERE = "fk.score"
Ids = jax.Array | np.ndarray | Sequence[Sequence[int] | jax.Array | np.ndarray]
Mask = jax.Array | np.ndarray | Sequence[Sequence[int]] | None
# the fewest tokens that are read once for all rows: a read of one row costs a call of a program
_SHARED = 16


class Scores(NamedTuple):
    """Log-probabilities of continuations.

    Attributes:
        total: float32 (b,): the sum over the tokens of each continuation.
        lengths: int32 (b,): the number of tokens of each continuation.
        logprobs: the log-probabilities of the tokens, and of the most likely tokens by request.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> model = fk.Model(ids, fk.layers.Embedding(7, 7)(ids)).build(jax.random.key(0))
        >>> scores = fk.score(model, None, [[1, 2], [3]], [[4], [5, 6, 0]])
        >>> scores.logprobs.chosen.shape, scores.lengths.tolist()
        ((2, 3), [1, 3])
        >>> perplexity = jnp.exp(-scores.total.sum() / scores.lengths.sum())
    """

    total: jax.Array
    lengths: jax.Array
    logprobs: Logprobs


@explains_arguments
def score(
    model: Network | Sequence[Network] | LoadedModel,
    state: Mapping[str, Any] | None,
    prompts: Ids,
    continuations: Ids,
    *,
    logprobs: int = 0,
    prompts_mask: Mask = None,
    continuations_mask: Mask = None,
    inputs: Any = None,
    inputs_mask: Any = None,
    rows: jax.Array | np.ndarray | Sequence[int] | None = None,
    vocabulary_size: int | None = None,
    cache: bool | None = None,
) -> Scores:
    """Returns sum_t log p(continuation[t] | prompt, continuation[:t]) of each row, and the summands.

    The model reads all tokens of a continuation at once. With caches, equal prompts are read once, and so is
    a beginning that all prompts share; a state of one row with a prefix serves all rows. The logits of a
    long continuation are computed in parts of at most 256 MB. Prompts and continuations are padded to powers
    of two, so that rows of similar lengths share programs. The function works under `jax.jit` and
    `jax.vmap`, where each row is read.

    Args:
        model: as for `fk.generate`: a model from token ids (b, t) to logits (b, t, v), a list of models with
            `rows`, or the result of `fk.pretrained.load`.
        state: the state of the model; None for `model.init_state()`. A state with KV caches holds the tokens
            before the prompt, for each row or, in a state of one row, for all rows.
        prompts: integers (b, t); or a list of lists of different lengths. A row has at least one token, such
            as the BOS token.
        continuations: integers (b, n); or a list of lists with at least one token in each row.
        logprobs: the number of most likely tokens whose log-probabilities are returned for each place.
        prompts_mask: booleans (b, t), False at padding, on any side, for an array of prompts.
        continuations_mask: booleans (b, n), for an array of continuations.
        inputs: inputs of the model other than the ids, as for `fk.generate`.
        inputs_mask: mask of the input, as for `fk.generate`.
        rows: index of the model of each row, as for `fk.generate`.
        vocabulary_size: number of tokens over which the probabilities sum to 1, if the last rows of the
            vocabulary are padding; None for all.
        cache: as for `fk.generate`.

    Returns:
        `total`, `lengths` and `logprobs`; see `Scores`.

    Raises:
        TypeError: for a value that is no model, and a state that is no dictionary.
        ValueError: for rows without tokens, different numbers of rows, ids outside of the vocabulary, more
            tokens than the model has positions, logits that are not a number, and a model without caches that is
            not causal.

    Example:
        >>> import jax, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> model = fk.Model(ids, fk.layers.Embedding(7, 7)(ids)).build(jax.random.key(0))
        >>> answers = fk.score(model, None, [[1, 2]] * 3, [[4], [5], [6, 0]])
        >>> int(answers.total.argmax())
        1
    """
    with _named("prompts"):
        prompt = prompt_of(prompts, None, prompts_mask)
    with _named("continuations"):
        text = prompt_of(continuations, None, continuations_mask)
    batch = len(prompt.ids)
    if len(text.ids) != batch:
        raise ValueError(
            f"{_WHERE}: expected a continuation for each of {batch} prompts, received {len(text.ids)}. "
            "Repeat a prompt for each of its continuations: equal prompts are read once."
        )
    with _named():
        requests.check_state(state)
        network = parts_of(model).model
        reader, others = requests.reader_of(
            network, rows, batch, (inputs, inputs_mask), vocabulary_size, cache
        )
        top = requests.top_of(logprobs, reader) or 0
    with _named("prompts"):
        prompt = requests.check_ids(prompt, reader.any_model())._replace(inputs=others)
    with _named("continuations"):
        text = requests.check_ids(text, reader.any_model(), reader.form.vocabulary)
    is_traced = requests.is_traced((reader, state, prompt, text))
    width = requests.width_of(continuations, text, is_traced)
    tokens = jnp.asarray(text.ids[:, :width])
    lengths = jnp.asarray(text.valid.sum(1), jnp.int32)
    model = reader.any_model()
    state = model.init_state() if state is None else dict(state)
    with _named():
        is_cache = _is_cache(reader, state, prompt, width - 1)
        _check_length(reader, state, prompt, width - 1)
        size = _width_of(prompt) + width - 1
        if reader.form.scaled and reader.form.cached and not is_cache:
            capacity = capacities.capacity(reader, size_for(reader.form, size), 0)
            found = _whole(reader, state, prompt, tokens, lengths, top, capacity)
        else:
            begun = _begun(reader, state, prompt, size, is_cache)
            found = sequence_logprobs(*begun, tokens, lengths, top)
    if requests.is_traced(found):
        found = finished(found, lengths)
        return Scores(jnp.sum(found.chosen, axis=1), lengths, found)
    counts = np.asarray(lengths)
    found = jax.tree.map(lambda a: finished_on_host(a, counts, width), found)
    if np.isnan(found.chosen).any():
        row, place = np.argwhere(np.isnan(found.chosen))[0]
        raise ValueError(
            f"{_WHERE}: the logits of token {place} of the continuation of row {row} are not a number. Check "
            "the weights with fk.find_nan, and that the text is not longer than a table of positions."
        )
    total: Any = np.sum(found.chosen, axis=1, dtype=np.float64).astype(np.float32)
    return jax.device_put(Scores(total, lengths, found))


@contextlib.contextmanager
def _named(name: str = "") -> Iterator[None]:
    """Converts errors of `fk.generate` to errors of `fk.score`, with the name of an argument."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error)
        if not text.startswith(requests.WHERE):
            raise
        text = text.removeprefix(f"{requests.WHERE}: ")
        for old, new in (
            ("lengths= or mask=", f"{name}_mask="),
            ("lengths=", f"{name}_mask="),
            ("expected mask", f"expected {name}_mask"),
            (requests.WHERE, _WHERE),
            (", ids)", ", prompts, continuations)"),
        ):
            text = text.replace(old, new)
        if name == "continuations":
            text = text.replace("Start the row with the BOS token of the model, or leave", "Leave")
        named = f"{_WHERE}: for `{name}`: {text}" if name else f"{_WHERE}: {text}"
        raise type(error)(named) from error.__cause__


def _is_cache(reader: Reader, state: Any, prompt: Prompt, new: int) -> bool:
    """Returns whether a state has caches, after checking the state."""
    held = lengths_of(state)
    if held is not None and held.shape == (1,):
        prompt = prompt._replace(ids=prompt.ids[:1], valid=prompt.valid[:1])
    return capacities.check_cache(reader, state, prompt, new, 0)


def _check_length(reader: Reader, state: Any, prompt: Prompt, new: int) -> None:
    """Raises ValueError for more tokens than a model takes.

    Args:
        new: the number of tokens of the longest continuation that are read.
    """
    held, form, where = lengths_of(state), reader.form, reader.any_model()._where
    if requests.is_traced((held, prompt.valid)):
        return
    before = np.zeros(1, int) if held is None else np.asarray(held)
    after = before + np.asarray(prompt.valid).sum(1) + new
    for size, noun in (
        (None if form.cached else capacities.fixed_length(reader), "the length of the input"),
        (form.positions, "the positions"),
    ):
        if size is not None and after.max() > size:
            raise ValueError(
                f"{_WHERE}: expected at most {size} tokens before the last, {noun} of {where}, received "
                f"{after.max()} in row {after.argmax()}. Leave the first tokens of the prompt out."
            )
    for boundary in form.boundaries:
        wrong = (before > 0) & (before <= boundary) & (after > boundary)
        if wrong.any():
            raise ValueError(
                f"{_WHERE}: {where} turns the keys of texts of more than {boundary} tokens by other factors, "
                f"and the state holds tokens of row {np.argmax(wrong)} without their ids, received "
                f"{after.max()} tokens. Pass the whole text as prompts with state=None."
            )


def _width_of(prompt: Prompt) -> int:
    """Returns the number of tokens of the longest prompt; inside `jax.jit` that of the array."""
    is_traced = requests.is_traced(prompt.valid)
    return prompt.valid.shape[1] if is_traced else int(np.max(prompt.valid.sum(1)))


def _begun(
    reader: Reader, state: Any, prompt: Prompt, size: int, is_cache: bool
) -> tuple[Reader, Any, jax.Array]:
    """Reads the prompts; returns reader, state and logits after each prompt.

    Args:
        size: the number of tokens of a row that are read, without those of the state.
    """
    model, batch = reader.any_model(), len(prompt.ids)
    new, held = np.int32(size - _width_of(prompt)), lengths_of(state)
    one_row = is_cache and held is not None and held.shape == (1,)
    if is_cache:
        shortage = capacities.shortage_of(model, state, prompt, int(new))
        if shortage is not None and shortage.slack is not None:
            room, rows = size_for(reader.form, shortage.needed), 1 if one_row else batch
            state = enlarged_state(reader, state, rows, room + shortage.slack, shortage.slack)
    # one size for all texts of similar lengths
    capacity = capacities.capacity(reader, size_for(reader.form, size), 0)

    def read(state: Any, prompt: Prompt, is_cache: bool) -> tuple:
        return read_prompt(reader, state, prompt, capacity, 0, is_cache, new)

    shares = reader.form.cached and reader.rows is None and not prompt.inputs
    if batch == 1 or not shares or (is_cache and not one_row) or requests.is_traced(prompt):
        if one_row and batch > 1:
            state, _ = _rows(reader, state, (), np.zeros(batch, np.int32))
        reader, state, logits, causal = read(state, prompt, is_cache)
        requests.check_causal(reader, causal)
        return reader, state, logits
    ids, index, common = _shared(prompt, reader.form.scaled)
    if common:
        _, state, *_ = read(state, _padded(ids[:1, :common]), is_cache)
    if common or one_row:
        state, _ = _rows(reader, state, (), np.zeros(len(ids), np.int32))
    reader, state, logits, _ = read(state, _padded(ids[:, common:]), bool(common) or is_cache)
    if len(ids) < batch:
        state, logits = _rows(reader, state, logits, index)
    return reader, state, logits


def _shared(prompt: Prompt, is_scaled: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the different prompts with -1 for padding, the prompt of each row, and the common beginning.

    Args:
        is_scaled: whether keys depend on the number of tokens that are read together.
    """
    rows = np.where(prompt.valid, prompt.ids, -1)
    ids, index = np.unique(rows, axis=0, return_inverse=True)
    # a power of two: another number of different prompts compiles nothing
    count = 1 << (len(ids) - 1).bit_length()
    if count >= len(rows):
        ids, index = rows, np.arange(len(rows))
    else:
        ids = np.concatenate([ids, np.repeat(ids[:1], count - len(ids), axis=0)])
    equal = (ids == ids[0]).all(axis=0)
    common = int(equal.argmin()) if not equal.all() else ids.shape[1]
    # each row keeps a token of its own
    common = min(common, int((ids >= 0).sum(1).min()) - 1)
    shares = len(ids) > 1 and common >= _SHARED and not is_scaled
    return ids, index.reshape(-1).astype(np.int32), common if shares else 0


def _padded(ids: np.ndarray) -> Prompt:
    """Returns the prompt of ids with -1 for padding, padded to a power of two."""
    width = max(1, int((ids >= 0).sum(1).max()))
    size = max(8, 1 << (width - 1).bit_length())
    ids = np.pad(ids[:, :width], ((0, 0), (0, size - width)), constant_values=-1)
    return Prompt(jnp.asarray(np.maximum(ids, 0), jnp.int32), jnp.asarray(ids >= 0), {})


@jax.jit
def _rows(reader: Reader, state: Any, logits: Any, index: Any) -> tuple[Any, Any]:
    """Returns state and logits of selected rows."""
    taken = take_rows(state, reader.row_axes(state), index)
    return taken, jax.tree.map(lambda a: a[index], logits)


@functools.partial(jax.jit, static_argnums=(5, 6))
def _whole(
    reader: Reader,
    state: Any,
    prompt: Prompt,
    tokens: jax.Array,
    lengths: jax.Array,
    top: int,
    capacity: int,
) -> Logprobs:
    """Reads each text at once: the keys of this model depend on the length of the text."""
    reader = reader.with_constants(prompt.inputs)
    starts, width = jnp.sum(prompt.valid, axis=1, dtype=jnp.int32), tokens.shape[1]
    new = jnp.arange(width)[None] < lengths[:, None]
    ids, _ = packed(
        jnp.concatenate([prompt.ids, tokens], axis=1), jnp.concatenate([prompt.valid, new], axis=1)
    )
    valid = jnp.arange(ids.shape[1])[None] < (starts + lengths - 1)[:, None]
    state = new_state(reader.any_model(), True, state, len(ids), capacity, 0)
    logits, _ = reader.read(state, ids, valid, last=False)
    places = starts[:, None] - 1 + jnp.arange(width)[None]
    return logprobs_of(jnp.take_along_axis(logits, places[..., None], axis=1), tokens, top)
