"""`generate`: new tokens behind prompts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.generation import requests
from fkeras.generation.beams import search
from fkeras.generation.caches import has_lengths_only
from fkeras.generation.decoding import (
    Carry,
    Prompt,
    Sampling,
    advance,
    first_carry,
    read_prompt,
)
from fkeras.generation.reading import Reader
from fkeras.generation.samplers import Beam, Greedy, Sampler
from fkeras.generation.speculation import advance_draft, first_draft_carry
from fkeras.generation.watching import Stream, Watcher, watch

_GREEDY = Greedy()
# tokens between two searches for stop strings, without a stream
_STEPS = 8


class Generated(NamedTuple):
    """New tokens, and the state behind them.

    Attributes:
        tokens: int32 (b, max_new_tokens): the new tokens of each row, 0 behind the last one.
        lengths: int32 (b,): the number of new tokens of each row, the end token included.
        state: the state of the model; its caches hold prompt and new tokens, so that a next call with
            this state takes the ids of the continuation alone.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> x = fk.layers.Dense(7)(fk.layers.Embedding(7, 4)(ids))
        >>> model = fk.Model(ids, x).build(jax.random.key(0))
        >>> generated = fk.generate(model, {}, jnp.array([[1, 2]]), max_new_tokens=3)
        >>> generated.tokens.shape, generated.lengths.tolist()
        ((1, 3), [3])
    """

    tokens: jax.Array
    lengths: jax.Array
    state: dict[str, Any]


@hides_internal_frames
def generate(
    model: Network | Sequence[Network],
    state: Mapping[str, Any] | None,
    ids: jax.Array | np.ndarray | Sequence[Sequence[int]],
    key: jax.Array | None = None,
    max_new_tokens: int = 64,
    sampler: Sampler | Sequence[Sampler] = _GREEDY,
    lengths: jax.Array | np.ndarray | Sequence[int] | None = None,
    *,
    end_ids: int | Sequence[int] = (),
    stop: str | Sequence[str] = (),
    decode: Callable[[list[int]], str] | None = None,
    stream: Stream | None = None,
    inputs: Any = None,
    inputs_mask: Any = None,
    rows: jax.Array | np.ndarray | Sequence[int] | None = None,
    draft: tuple[Network, Mapping[str, Any] | None] | None = None,
    draft_tokens: int = 4,
    vocabulary_size: int | None = None,
    cache: bool | None = None,
) -> Generated:
    """Generates tokens behind prompts, one row of `ids` each.

    The prompt is read once and the tokens are sampled in one compiled loop. Prompts are padded to a
    power of two, so that prompts of similar lengths share their programs. A model whose layers have
    caches reads each token once. Other models compute all tokens again for each new token, and must
    be causal. The function works under `jax.jit` and `jax.vmap`, for example over keys, where no
    argument needs the host (`stop`, `stream`).

    Args:
        model: a model from token ids (b, t) to scores (b, t, v); or a list of models that differ in
            arrays alone, such as adapters or steering vectors, for `rows`. Arrays that several
            models share are stored once.
        state: the state of the model, or None for `model.init_state()`; caches are added. With
            caches, from `model.init_state(b, length)` or from `Generated.state`, the prompt continues
            their text.
        ids: integers (b, t), padded on the right; or a list of lists of different lengths.
        key: a PRNG key, or an array of a key for each row. A row depends on its own key only.
        max_new_tokens: the most new tokens of a row.
        sampler: how the next token is chosen, see `fk.samplers`; or a list with one for each row.
        lengths: the number of tokens of each prompt, where `ids` is padded.
        end_ids: the tokens that end a row.
        stop: texts that end a row, also across tokens; needs `decode`. The tokens that contain the
            end of the text are kept.
        decode: returns the text of a list of ids, such as `tokenizer.decode`.
        stream: `(row, piece)`, called with each new text of a row, or with a list of new ids without
            `decode`. Incomplete characters are held back until they are complete.
        inputs: the inputs of the model beside the ids, such as that of an encoder: an array, a list in
            the order of the model's inputs, or a dictionary by name. What depends on them alone is
            computed once.
        inputs_mask: which entries of the input are no padding, booleans (b, s), or a dictionary of
            them by name.
        rows: the number of the model of each row; 0, 1, ... by default.
        draft: `(model, state)` of a smaller model with the same vocabulary, whose tokens the model
            verifies several at a time. The distribution of the tokens stays that of the model.
        draft_tokens: how many tokens the draft proposes at a time.
        vocabulary_size: the number of tokens that may be sampled, where the last rows of the vocabulary
            are padding.
        cache: True reports an error for a model that cannot use caches, False computes all tokens
            again; None uses caches where the model has them.

    Returns:
        `tokens`, `lengths` and `state`; see `Generated`. In a compiled program a row whose scores are
        not finite ends with the token -1; outside of one, this is an error.

    Raises:
        TypeError: for a value that is no model, sampler, key or number.
        ValueError: for ids outside of the vocabulary, lengths outside of `ids`, a state without room,
            a sampler that draws without a key, and scores that are not finite.
        ValueError: for a model without caches that is not causal.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> x = fk.layers.Dense(7)(fk.layers.Embedding(7, 4)(ids))
        >>> model = fk.Model(ids, x).build(jax.random.key(0))
        >>> sampler = fk.samplers.Chain(fk.samplers.Temperature(0.7), fk.samplers.TopK(3))
        >>> generated = fk.generate(
        ...     model, None, [[1, 2], [3]], jax.random.key(0), 4, sampler, end_ids=0
        ... )
        >>> generated.tokens.shape
        (2, 4)
    """
    prompt = requests.prompt_of(ids, lengths)
    batch = prompt.ids.shape[0]
    limit = requests.count_of(max_new_tokens, "max_new_tokens")
    reader, others = requests.reader_of(
        model, rows, batch, (inputs, inputs_mask), vocabulary_size, cache
    )
    requests.check_ids(prompt, reader.any_model())
    prompt = prompt._replace(inputs=others)
    samplers, which = requests.samplers_of(sampler, batch)
    keys = requests.keys_of(key, samplers, batch)
    sampling = Sampling(samplers, which, keys, prompt[:2], requests.ends_of(end_ids))
    on_host = _Host(stop, decode, stream)
    is_beam = samplers[0].find(Beam) is not None
    if is_beam and (on_host.needed or draft is not None):
        raise ValueError(
            "fk.generate: expected no stop, stream or draft beside samplers.Beam, whose sequences are "
            "known at the end. Use end_ids, or another sampler."
        )
    if on_host.needed and requests.is_traced((reader, state, prompt, keys)):
        raise TypeError(
            "fk.generate: expected no stop and no stream inside jax.jit and jax.vmap, since both read the "
            "tokens on the host. Use end_ids, or call generate outside of the compiled program."
        )
    slack = 0
    if draft is not None:
        slack = requests.count_of(draft_tokens, "draft_tokens") + 1
    elif on_host.needed and stream is None:
        slack = _STEPS - 1
    width = int(np.shape(ids)[1]) if hasattr(ids, "shape") else max(map(len, ids))
    read = functools.partial(_read, prompt=prompt, width=width, limit=limit)
    reader, after, scores, steps = read(reader, state, slack=slack)
    if is_beam:
        carry: Any = search(reader, sampling, after, scores, limit)
    elif draft is None:
        carry = first_carry(after, scores, limit)
        run = functools.partial(advance, reader, sampling)
        if not on_host.needed:
            carry = run(carry, jnp.int32(limit))
        else:
            count = jnp.int32(1 if stream is not None else steps)
            carry = watch(lambda c: run(c, count), carry, on_host.watcher(batch))
    else:
        _check_draft(draft)
        guesser, others = requests.reader_of(
            *(draft[0], None, batch, requests.inputs_for(draft[0], inputs, inputs_mask)),
            *(reader.form.vocabulary, None),
        )
        read = functools.partial(read, prompt=prompt._replace(inputs=others))
        guesser, draft_state, _, _ = read(guesser, draft[1], slack=slack)
        _check_rows((reader, after), (guesser, draft_state))
        carry = first_draft_carry(sampling, after, scores, limit, draft_state)
        run = functools.partial(advance_draft, reader, guesser, sampling, draft_tokens)
        if on_host.needed:
            carry = watch(lambda c: run(c, jnp.int32(1)), carry, on_host.watcher(batch))
        else:
            carry = run(carry, jnp.int32(limit))
    return _result(reader, carry)


class _Host:
    """The stop texts and the callback of a call, which run on the host."""

    def __init__(self, stop: Any, decode: Any, stream: Any):
        texts = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(text, str) and text for text in texts):
            raise ValueError(
                f"fk.generate: expected texts that are not empty for stop, received {stop!r}. Ids of "
                "tokens belong into end_ids."
            )
        if texts and decode is None:
            raise ValueError(
                "fk.generate: stop searches the text of the tokens and needs `decode`. Pass "
                "decode=tokenizer.decode."
            )
        for name, function in (("decode", decode), ("stream", stream)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"fk.generate: expected a function for {name}, received {function!r}."
                )
        self.stop, self.decode, self.stream = texts, decode, stream
        self.needed = bool(texts) or stream is not None

    def watcher(self, rows: int) -> Watcher:
        return Watcher(rows, self.decode, self.stop, self.stream)


def _read(
    reader: Reader, state: Any, *, prompt: Prompt, width: int, limit: int, slack: int
) -> tuple[Reader, Any, jax.Array, int]:
    """Reads the prompt and returns `(reader, state, scores, steps)`.

    `steps` is the number of tokens that may be sampled between two searches for stop strings.
    """
    state = reader.any_model().init_state() if state is None else dict(state)
    is_cache = requests.check_cache(reader, state, prompt, limit, slack)
    room = requests.capacity(reader, prompt, width, limit, slack)
    reader, state, scores, causal = read_prompt(reader, state, prompt, room, slack, is_cache)
    if not requests.is_traced(causal) and not bool(causal):
        raise ValueError(
            f"fk.generate: {reader.any_model()._where} has no caches and is not causal, or its scores are "
            "not finite: the scores of the next token depend on what follows. Use a causal mask, such "
            "as use_causal_mask=True in MultiHeadAttention."
        )
    can_go_back = slack > 0 and not is_cache and has_lengths_only(state, reader.row_axes(state))
    return reader, state, scores, slack + 1 if can_go_back else 1


def _check_draft(draft: Any) -> None:
    if not isinstance(draft, tuple) or len(draft) != 2:
        raise TypeError(
            f"fk.generate: expected draft as (model, state), received {describe_value(draft)}."
        )
    requests.check_model(draft[0], "draft")


def _check_rows(*pairs: tuple[Reader, Any]) -> None:
    for reader, state in pairs:
        if not has_lengths_only(state, reader.row_axes(state)):
            raise ValueError(
                f"fk.generate: {reader.any_model()._where} has a state from which tokens cannot be taken "
                "back, as a draft needs. Leave draft out."
            )


def _result(reader: Reader, carry: Carry) -> Generated:
    tokens, failed = _finished(carry.tokens, carry.lengths)
    if not requests.is_traced(failed) and bool(failed.any()):
        row, place = np.argwhere(np.asarray(tokens) < 0)[0]
        raise ValueError(
            f"fk.generate: the scores of new token {place} of row {row} are not finite, or the samplers "
            "forbid every token. Check the weights with fk.find_nan, the samplers, and that the text is "
            "not longer than a table of positions."
        )
    state = carry.state if reader.form.cached else carry.state["model"]
    return Generated(tokens, carry.lengths, state)


@jax.jit
def _finished(tokens: jax.Array, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the tokens without values behind the last one, and whether one failed."""
    tokens = jnp.where(jnp.arange(tokens.shape[1])[None] < lengths[:, None], tokens, 0)
    return tokens, jnp.any(tokens < 0)
