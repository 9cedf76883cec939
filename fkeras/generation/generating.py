"""`generate`: continues prompts with new tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.migration_hints.arguments import explains_arguments
from fkeras.generation import capacities, prompts, requests
from fkeras.generation.beams import (
    advance_beams,
    advance_beams_in_place,
    best_beams,
    first_beams,
    read_outgrown_beams,
)
from fkeras.generation.caches import has_lengths_only
from fkeras.generation.decoding import (
    Carry,
    Prompt,
    Sampling,
    advance,
    advance_in_place,
    all_steps,
    first_carry,
    read_outgrown,
    read_prompt,
)
from fkeras.generation.reading import Reader
from fkeras.generation.running import Runner, first_steps, size_for
from fkeras.generation.samplers import Beam, Greedy, Sampler
from fkeras.generation.speculation import advance_draft, advance_draft_in_place, first_draft_carry
from fkeras.generation.watching import Stream, Watcher, watch

_GREEDY = Greedy()
# tokens between two searches for stop strings if nothing is streamed
_STEPS = 8
# a count of new tokens that no text reaches
_MOST = 1 << 30
# columns of the result up to which a limit is its width: the array of a larger limit may exceed the memory
_WIDEST = 1 << 16


class Generated(NamedTuple):
    """New tokens, and the state after them.

    Attributes:
        tokens: int32 (b, max_new_tokens): the new tokens of each row, padded with 0. For more than 65,536
            new tokens: 65,536 columns, or the columns that the longest row needs.
        lengths: int32 (b,): the number of new tokens of each row, including the end token.
        state: the state of the model. Its KV caches hold the prompt and the new tokens: pass the state to
            the next call of `generate`, with only the ids that follow.

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


@explains_arguments
def generate(
    model: Network | Sequence[Network],
    state: Mapping[str, Any] | None,
    ids: jax.Array | np.ndarray | Sequence[Sequence[int] | jax.Array | np.ndarray],
    key: jax.Array | None = None,
    max_new_tokens: int = 64,
    sampler: Sampler | Sequence[Sampler] = _GREEDY,
    lengths: jax.Array | np.ndarray | Sequence[int] | None = None,
    *,
    mask: jax.Array | np.ndarray | Sequence[Sequence[int]] | None = None,
    end_ids: int | Iterable[int] | jax.Array = (),
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
    """Continues prompts with new tokens; each row of `ids` is a prompt.

    One compiled program prefills the prompt, and another decodes in calls of about 0.1 seconds, between
    which signals such as that of Ctrl-C are handled. Prompts are padded to a power of two, and caches grow
    in few and large steps, so that prompts and limits of similar lengths share programs. A model whose
    layers have KV caches reads each token once. Other models recompute all tokens for each new token, and
    must be causal. The function works under `jax.jit` and `jax.vmap`, for example over keys, without the
    arguments that run on the host (`stop`, `stream`), as one program with room for all tokens.

    A row depends only on its own tokens and its own key. Rotary positions that depend on the length of a
    text (LongRoPE, dynamic scaling) follow the length of the row at each step. Keys in the cache keep
    their angles; a text that becomes long for LongRoPE is read again.

    Args:
        model: a model from token ids (b, t) to logits (b, t, v); or with `rows` a list of models that
            differ only in arrays, such as adapters or steering vectors. Arrays that several models
            share are stored once.
        state: the state of the model; None for `model.init_state()`. Without KV caches, `generate` adds
            empty caches. A state with KV caches, from `model.init_cache(b, length)` or from
            `Generated.state`, is continued with the prompt.
        ids: integers (b, t); or a list of lists of different lengths. Padding is marked by `lengths` or
            `mask`: the id of the padding is unknown here.
        key: a PRNG key, or an array with a key for each row. A row depends only on its own key.
        max_new_tokens: maximum number of new tokens of a row; memory is needed for the tokens that are
            generated.
        sampler: chooses the next token, see `fk.samplers`; or a list with a sampler for each row.
        lengths: number of tokens of each prompt, if `ids` is padded on the right.
        mask: booleans (b, t), False at padding, which may be on both sides and between tokens: the
            positions count the tokens only.
        end_ids: ids of the tokens that end a row.
        stop: strings that end a row, also if they span several tokens; needs `decode`. The new tokens
            include the stop string.
        decode: returns the text of a list of ids, such as `tokenizer.decode`.
        stream: callback `(row, piece)`, which receives each new piece of text, or without `decode` a list
            of new ids. Incomplete characters are held back until they are complete.
        inputs: inputs of the model other than the ids, such as the input of an encoder: an array, a list
            in the order of the model's inputs, or a dictionary by name. The encoder runs once.
        inputs_mask: mask of the input, booleans (b, s) that are False for padding; or a dictionary of
            masks by name.
        rows: index of the model of each row; 0, 1, ... by default.
        draft: `(model, state)` of a smaller draft model with the same vocabulary, for speculative
            decoding. The distribution of the new tokens does not change.
        draft_tokens: number of tokens that the draft model proposes in each round.
        vocabulary_size: number of tokens that may be sampled, if the last rows of the vocabulary are
            padding.
        cache: True reports an error for a model that cannot use KV caches; False recomputes all tokens;
            None uses the caches that the model has.

    Returns:
        `tokens`, `lengths` and `state`; see `Generated`. Inside `jax.jit` a row whose logits are not
        finite ends with the token -1; outside, such logits are an error.

    Raises:
        TypeError: for a value that is no model, sampler, key or number.
        ValueError: for ids outside of the vocabulary (of the prompt, of samplers, and in `end_ids`), a draft
            model with another vocabulary, lengths outside of `ids`, a state whose caches are too short, a
            sampler that draws without a key, text that `decode` cannot return, and logits that are not
            finite.
        ValueError: for more tokens than the model has positions, for a model without caches that is not
            causal, and for padding on the left of `lengths`.

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
    requests.check_parts(model)
    requests.check_state(state)
    prompt = prompts.prompt_of(ids, lengths, mask)
    batch = prompt.ids.shape[0]
    limit = requests.count_of(max_new_tokens, "max_new_tokens")
    reader, others = requests.reader_of(
        model, rows, batch, (inputs, inputs_mask), vocabulary_size, cache
    )
    prompt = requests.check_ids(prompt, reader.any_model())._replace(inputs=others)
    samplers, which = requests.samplers_of(sampler, batch, reader.any_model())
    keys = requests.keys_of(key, samplers, batch)
    ends = requests.ends_of(end_ids, reader.form.vocabulary)
    on_host = _Host(stop, decode, stream)
    is_beam = samplers[0].find(Beam) is not None
    if is_beam and (on_host.needed or draft is not None):
        raise ValueError(
            "fk.generate: expected no stop, stream or draft beside samplers.Beam, whose sequences are "
            "complete only at the end. Use end_ids, or another sampler."
        )
    is_traced = requests.is_traced((reader, state, prompt, samplers, which, keys, ends, draft))
    if on_host.needed and is_traced:
        raise TypeError(
            "fk.generate: expected no stop and no stream inside jax.jit and jax.vmap, since both read the "
            "tokens on the host. Use end_ids, or call generate outside of the compiled program."
        )
    slack = _STEPS - 1 if on_host.needed and stream is None else 0
    if draft is not None:
        requests.check_draft(draft, reader.any_model(), vocabulary_size)
        slack = requests.count_of(draft_tokens, "draft_tokens") + 1
    if is_traced:
        prompts.check_traced(limit)
        width = ids.shape[1] if isinstance(ids, jax.Array | np.ndarray) else max(map(len, ids))
    else:
        width = int(np.max(prompt.valid.sum(1)))
    size = width + limit if is_traced else size_for(reader.form, width + limit, limit)
    room = _Room(width, limit, size, slack, draft is not None)
    read = functools.partial(_read, prompt=prompt, room=room)
    reader, after, logits, steps, grows = read(reader, state)
    starts = prompts.starts_of(reader, state, prompt)
    readers = {"state": reader} if grows else {}
    sampling = Sampling(
        samplers,
        which,
        keys,
        prompts.known_prompt(reader, samplers, prompt),
        ends,
        np.int32(min(limit, _MOST)),
        starts,
    )
    new, stride = limit if is_traced else size + slack, 1
    if is_beam:
        programs = (advance_beams, advance_beams_in_place, read_outgrown_beams)
        carry: Any = first_beams(reader, sampling, after, logits, new)
    elif draft is None:
        programs = (advance, advance_in_place, read_outgrown)
        carry = first_carry(after, logits, new)
    else:
        guesser, others = requests.reader_of(
            draft[0],
            None,
            batch,
            requests.inputs_for(draft[0], inputs, inputs_mask),
            reader.form.vocabulary,
            None,
        )
        guesser, draft_state, _, _, grows = read(
            guesser, draft[1], prompt=prompt._replace(inputs=others)
        )
        readers |= {"draft_state": guesser} if grows else {}
        _check_rows((reader, after), (guesser, draft_state))
        stride = slack
        programs = (
            functools.partial(advance_draft, guesser, draft_tokens),
            functools.partial(advance_draft_in_place, guesser, draft_tokens),
            read_outgrown,
        )
        carry = first_draft_carry(sampling, after, logits, new, draft_state)
    if reader.form.boundaries:
        _check_rows((reader, after))
    once, in_place, again = (functools.partial(f, reader, sampling) for f in programs)
    if is_traced:
        carry = all_steps(once, again, reader, sampling, carry)
        if is_beam:
            carry = best_beams(reader, sampling, after, carry)
        return _result(reader, carry, limit)
    capacity = functools.partial(capacities.capacity, slack=slack)
    most = {True: 1 if stream is not None or draft is not None else steps}.get(on_host.needed)
    first = first_steps(reader, batch, capacity(reader, size))
    runner = Runner(
        in_place,
        again,
        readers,
        capacity,
        reader.form,
        sampling,
        width,
        limit,
        size,
        slack,
        stride,
        most,
        min(first, most or first),
    )
    if on_host.needed:
        carry = watch(runner, carry, on_host.watcher(batch))
    else:
        carry = runner.complete(carry)
    if is_beam:
        carry = best_beams(reader, sampling, runner.state("state", after, batch), carry)
    return _result(reader, carry, limit)


class _Host:
    """The stop strings and the callback of a call, which run on the host."""

    def __init__(self, stop: Any, decode: Any, stream: Any):
        texts = [*stop] if isinstance(stop, Iterable) and not isinstance(stop, str) else [stop]
        if not all(isinstance(text, str) and text for text in texts):
            raise ValueError(
                f"fk.generate: expected strings that are not empty for stop, received {stop!r}. Pass ids "
                "of tokens as end_ids."
            )
        if texts and decode is None:
            raise ValueError(
                "fk.generate: stop searches the text of the tokens and needs `decode`. Pass "
                "decode=tokenizer.decode."
            )
        for name, function, example in (
            ("decode", decode, "tokenizer.decode, which returns the text of a list of ids"),
            ("stream", stream, "lambda row, piece: print(piece, end='')"),
        ):
            if function is not None and not callable(function):
                raise TypeError(
                    f"fk.generate: expected a function for {name}, received "
                    f"{describe_value(function)}. Pass {name}={example}."
                )
        self.stop, self.decode, self.stream = texts, decode, stream
        self.needed = bool(texts) or stream is not None

    def watcher(self, rows: int) -> Watcher:
        return Watcher(rows, self.decode, self.stop, self.stream)


class _Room(NamedTuple):
    """The number of tokens of a call.

    Attributes:
        width: the number of tokens of the longest prompt.
        limit: the maximum number of new tokens.
        size: the number of tokens of a row for which new caches have room.
        slack: the maximum number of tokens of a rollback.
        drafts: whether rollbacks also need room in the caches of a state of the caller.
    """

    width: int
    limit: int
    size: int
    slack: int
    drafts: bool


def _read(
    reader: Reader, state: Any, *, prompt: Prompt, room: _Room
) -> tuple[Reader, Any, jax.Array, int, bool]:
    """Prefills the caches with the prompt; returns `(reader, state, logits, steps, grows)`.

    `steps` is the number of tokens to sample between two searches for stop strings, `grows` whether the
    state is enlarged.
    """
    requests.check_state(state)
    model, (width, limit, size, slack, drafts) = reader.any_model(), room
    state = model.init_state() if state is None else dict(state)
    is_cache = capacities.check_cache(reader, state, prompt, limit, slack if drafts else 0)
    capacities.check_length(reader, state if is_cache else {}, prompt, width, limit)
    capacity = capacities.capacity(reader, size, slack)
    bound = np.int32(min(limit, _MOST))
    reader, state, logits, causal = read_prompt(
        reader, state, prompt, capacity, slack, is_cache, bound
    )
    if not requests.is_traced(causal) and not bool(causal):
        raise ValueError(
            f"fk.generate: {reader.any_model()._where} has no caches and is not causal, or its logits are "
            "not finite: the logits of the next token depend on later tokens. Use a causal mask, such "
            "as use_causal_mask=True in MultiHeadAttention."
        )
    can_go_back = slack > 0 and not is_cache and has_lengths_only(state, reader.row_axes(state))
    return reader, state, logits, slack + 1 if can_go_back else 1, not is_cache


def _check_rows(*pairs: tuple[Reader, Any]) -> None:
    for reader, state in pairs:
        if not has_lengths_only(state, reader.row_axes(state)):
            raise ValueError(
                f"fk.generate: {reader.any_model()._where} has a state that cannot be rolled back, which "
                "speculative decoding needs. Leave draft out."
            )


def _result(reader: Reader, carry: Carry, limit: int) -> Generated:
    state = carry.state if reader.form.cached else carry.state["model"]
    if requests.is_traced(carry):
        return Generated(_finished(carry.tokens, carry.lengths), carry.lengths, state)
    tokens = carry.tokens
    # NumPy: another limit compiles nothing
    if tokens.is_fully_addressable:
        counts = np.asarray(carry.lengths)
        columns = min(limit, max(_WIDEST, int(counts.max())))
        kept = np.asarray(tokens)[:, :columns]
        kept = np.where(np.arange(kept.shape[1])[None] < counts[:, None], kept, 0)
        if (kept < 0).any():
            row, place = np.argwhere(kept < 0)[0]
            raise ValueError(
                f"fk.generate: the logits of new token {place} of row {row} are not finite, or the "
                "samplers forbid every token. Check the weights with fk.find_nan, the samplers, and that "
                "the sequence is not longer than a table of positions."
            )
        kept = np.pad(kept, ((0, 0), (0, columns - kept.shape[1])))
        tokens = jax.device_put(kept, tokens.sharding)
    else:
        tokens = _finished(tokens, carry.lengths)[:, :limit]
    return Generated(tokens, carry.lengths, state)


@jax.jit
def _finished(tokens: jax.Array, lengths: jax.Array) -> jax.Array:
    """Returns the tokens padded with 0."""
    return jnp.where(jnp.arange(tokens.shape[1])[None] < lengths[:, None], tokens, 0)
