"""A generator: a language model with the rules by which the model continues prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.engine import Network
from fkeras.generation import capacities, prompts, requests
from fkeras.generation.beams import BeamSearch
from fkeras.generation.caches import has_lengths_only
from fkeras.generation.decoding import (
    Carry,
    Method,
    OneToken,
    Prompt,
    Sampling,
    all_steps,
    read_prompt,
)
from fkeras.generation.loaded import LoadedModel, parts_of
from fkeras.generation.logprobs import Logprobs, finished, finished_on_host
from fkeras.generation.reading import Reader
from fkeras.generation.running import Runner, enlarged_state, first_size, size_for
from fkeras.generation.samplers.rules import Beam, Greedy, Sampler
from fkeras.generation.speculation import Speculation
from fkeras.generation.watching import Stream, Watcher, watch

GREEDY = Greedy()
# tokens between two searches for stop strings if nothing is streamed
_STEPS = 8
# a count of new tokens that no text reaches
_MOST = 1 << 30
# columns of the result up to which a limit is its width: the array of a larger limit may exceed the memory
_WIDEST = 1 << 16
_ARRAYS = (str, jax.Array, np.ndarray)


class Generated(NamedTuple):
    """New tokens, and the state after them.

    Attributes:
        tokens: int32 (b, max_new_tokens): the new tokens of each row, padded with 0. For more than 65,536
            new tokens: 65,536 columns, or the columns that the longest row needs.
        lengths: int32 (b,): the number of new tokens of each row, including the end token.
        state: the state of the model. Its KV caches hold the prompt and the new tokens: pass the state to
            the next call of `generate`, with only the ids that follow.
        logprobs: the log-probabilities of the new tokens, as for `tokens`; None if they are not requested.

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
    logprobs: Logprobs | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Generator:
    """A language model with sampler, end tokens, draft model and cache, for many calls.

    `fk.generate(model, state, ids, ..., sampler=sampler)` is `Generator(model, sampler)(state, ids, ...)`.
    A generator is a pytree of the arrays of its models and samplers: pass the generator to a function under
    `jax.jit`, and replace fields with `dataclasses.replace`.

    Args:
        model: as for `fk.generate`.
        sampler: as for `fk.generate`.
        end_ids: as for `fk.generate`.
        stop: as for `fk.generate`.
        decode: as for `fk.generate`.
        draft: as for `fk.generate`.
        draft_tokens: as for `fk.generate`.
        vocabulary_size: as for `fk.generate`.
        cache: as for `fk.generate`.

    Raises:
        TypeError: for a loaded model with a state, which a call takes apart from the model, a `decode` that
            is no function, and a `draft_tokens` that is no integer.
        ValueError: for `stop` without `decode`, and for `draft_tokens` below 1.

    Example:
        >>> import jax, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> x = fk.layers.Dense(7)(fk.layers.Embedding(7, 4)(ids))
        >>> model = fk.Model(ids, x).build(jax.random.key(0))
        >>> generator = fk.Generator(model, fk.samplers.Greedy(), end_ids=0)
        >>> generator(None, [[1, 2], [3]], max_new_tokens=4).tokens.shape
        (2, 4)
    """

    model: Network | Sequence[Network] | LoadedModel
    sampler: Sampler | Sequence[Sampler] = GREEDY
    _: dataclasses.KW_ONLY
    end_ids: int | Iterable[int] | jax.Array | None = None
    stop: str | Sequence[str] = ()
    decode: Callable[[list[int]], str] | None = None
    draft: tuple[Network, Mapping[str, Any] | None] | None = None
    draft_tokens: int = 4
    vocabulary_size: int | None = None
    cache: bool | None = None

    def __post_init__(self) -> None:
        parts = parts_of(self.model)
        object.__setattr__(self, "model", parts.model)
        for name in ("end_ids", "decode", "vocabulary_size"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(parts, name))
        object.__setattr__(self, "stop", requests.stop_of(self.stop, self.decode))
        if isinstance(self.end_ids, Iterable) and not isinstance(self.end_ids, _ARRAYS):
            object.__setattr__(self, "end_ids", tuple(self.end_ids))
        if self.draft is not None:
            requests.count_of(self.draft_tokens, "draft_tokens")

    def __call__(
        self,
        state: Mapping[str, Any] | None,
        ids: jax.Array | np.ndarray | Sequence[Sequence[int] | jax.Array | np.ndarray],
        key: jax.Array | None = None,
        max_new_tokens: int = 64,
        lengths: jax.Array | np.ndarray | Sequence[int] | None = None,
        *,
        mask: jax.Array | np.ndarray | Sequence[Sequence[int]] | None = None,
        stream: Stream | None = None,
        inputs: Any = None,
        inputs_mask: Any = None,
        rows: jax.Array | np.ndarray | Sequence[int] | None = None,
        logprobs: int | None = None,
    ) -> Generated:
        """Continues prompts with new tokens, as `fk.generate` with the fields of this generator."""
        requests.check_state(state)
        prompt = prompts.prompt_of(ids, lengths, mask)
        batch = prompt.ids.shape[0]
        limit = requests.count_of(max_new_tokens, "max_new_tokens")
        reader, others = requests.reader_of(
            self.model, rows, batch, (inputs, inputs_mask), self.vocabulary_size, self.cache
        )
        model = reader.any_model()
        prompt = requests.check_ids(prompt, model)._replace(inputs=others)
        samplers, which = requests.samplers_of(self.sampler, batch, model)
        keys = requests.keys_of(key, samplers, batch)
        ends = requests.ends_of(self.end_ids, reader.form.vocabulary)
        requests.check_ends(samplers, ends)
        is_traced = requests.is_traced((self.draft, reader, state, prompt, samplers, keys, ends))
        self._check(model, samplers, stream, is_traced)
        width = requests.width_of(ids, prompt, is_traced)
        size = width + limit
        if is_traced:
            prompts.check_traced(limit)
        else:
            size = first_size(reader.form, width, limit)
        room = _Room(width, limit, size, self._slack(stream), self.draft is not None)
        begun = _begun(reader, state, prompt, room)
        reader, room = begun.reader, begun.room
        method, readers = self._method(
            begun, samplers, prompt, (inputs, inputs_mask), requests.top_of(logprobs, reader)
        )
        starts = prompts.starts_of(reader, state, prompt)
        known = prompts.known_prompt(reader, samplers, prompt)
        bound = np.int32(min(limit, _MOST))
        sampling = Sampling(samplers, which, keys, known, ends, bound, starts)
        new = limit if is_traced else room.size + room.slack
        carry = method.first(reader, sampling, begun.state, begun.logits, new)
        if is_traced:
            carry = all_steps(method, reader, sampling, carry)
            return _result(reader, method.last(reader, sampling, lambda: begun.state, carry), limit)
        is_watched = self._is_watched(stream)
        most = begun.steps if stream is None and self.draft is None else 1
        most = most if is_watched else None
        size, slack = room.size, room.slack
        runner = Runner(method, reader, sampling, readers, room.width, limit, size, slack, most)
        if is_watched:
            carry = watch(runner, carry, Watcher(batch, self.decode, self.stop, stream))
        else:
            carry = runner.complete(carry)

        def enlarged() -> Any:
            return runner.state("state", begun.state, batch)

        return _result(reader, method.last(reader, sampling, enlarged, carry), limit)

    def _method(
        self,
        begun: _Begun,
        samplers: Sequence[Sampler],
        prompt: Prompt,
        others: tuple[Any, Any],
        logprobs: int | None,
    ) -> tuple[Method, dict[str, Reader]]:
        """Returns the loop, and the readers of the states that grow by the names of the states.

        Args:
            begun: the model after the prompt.
            others: the arguments `inputs` and `inputs_mask` of a call.
            logprobs: see `Method`.
        """
        is_beam = samplers[0].find(Beam) is not None
        readers = {"state": begun.reader} if begun.grows else {}
        if self.draft is None:
            if begun.reader.form.boundaries:
                _check_rows(begun)
            return (BeamSearch if is_beam else OneToken)(logprobs=logprobs), readers
        draft, state = self.draft
        values, vocabulary = requests.inputs_for(draft, *others), begun.reader.form.vocabulary
        batch = prompt.ids.shape[0]
        reader, own = requests.reader_of(draft, None, batch, values, vocabulary, None)
        guess = _begun(reader, state, prompt._replace(inputs=own), begun.room)
        _check_rows(begun, guess)
        readers |= {"draft_state": guess.reader} if guess.grows else {}
        parts = (guess.reader, guess.state, self.draft_tokens)
        return Speculation(*parts, logprobs=logprobs), readers

    def _is_watched(self, stream: Stream | None) -> bool:
        """Whether the host reads the tokens between the calls of the compiled program."""
        return bool(self.stop) or stream is not None

    def _slack(self, stream: Stream | None) -> int:
        """Returns the maximum number of tokens of a rollback."""
        if self.draft is not None:
            return self.draft_tokens + 1
        return _STEPS - 1 if self.stop and stream is None else 0

    def _check(
        self, model: Network, samplers: Sequence[Sampler], stream: Any, is_traced: bool
    ) -> None:
        """Raises an error for fields and arguments that exclude each other."""
        requests.check_function("stream", stream, "lambda row, piece: print(piece, end='')")
        is_watched = self._is_watched(stream)
        is_beam = samplers[0].find(Beam) is not None
        if is_beam and (is_watched or self.draft is not None):
            raise ValueError(
                "fk.generate: expected no stop, stream or draft beside samplers.Beam, whose sequences are "
                "complete only at the end. Use end_ids, or another sampler."
            )
        if is_watched and is_traced:
            raise TypeError(
                "fk.generate: expected no stop and no stream inside jax.jit and jax.vmap, since both read "
                "the tokens on the host. Use end_ids, or call generate outside of the compiled program."
            )
        if self.draft is not None:
            requests.check_draft(self.draft, model, self.vocabulary_size)


def _flatten(generator: Generator) -> tuple[tuple, tuple]:
    fields = dict(vars(generator))
    is_array = isinstance(generator.end_ids, jax.Array | np.ndarray)
    children = {n: fields.pop(n) for n in ("model", "sampler", "draft", *["end_ids"] * is_array)}
    return tuple(children.values()), (tuple(children), tuple(fields.items()))


def _unflatten(static: tuple, children: Sequence[Any]) -> Generator:
    # without `__post_init__`: JAX also fills pytrees with placeholders
    generator = object.__new__(Generator)
    for name, value in (*zip(static[0], children, strict=True), *static[1]):
        object.__setattr__(generator, name, value)
    return generator


jax.tree_util.register_pytree_node(Generator, _flatten, _unflatten)


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


class _Begun(NamedTuple):
    """A model after the prompt.

    Attributes:
        reader: the reader, with the constants of the encoder.
        state: the state after the prompt.
        logits: the logits (b, v) of the next token.
        steps: the number of tokens to sample between two searches for stop strings.
        grows: whether the state is enlarged.
        room: the number of tokens of the call.
    """

    reader: Reader
    state: Any
    logits: jax.Array
    steps: int
    grows: bool
    room: _Room


def _begun(reader: Reader, state: Any, prompt: Prompt, room: _Room) -> _Begun:
    """Prefills the caches with the prompt."""
    requests.check_state(state)
    model, (width, limit, size, slack, drafts) = reader.any_model(), room
    state = model.init_state() if state is None else dict(state)
    is_cache = capacities.check_cache(reader, state, prompt, limit, slack if drafts else 0)
    capacities.check_length(reader, state if is_cache else {}, prompt, width, limit)
    shortage = (
        capacities.shortage_of(model, state, prompt, limit) if is_cache and not drafts else None
    )
    if shortage is not None and shortage.slack is not None:
        # the caches of the caller grow like those of this call
        slack, size = shortage.slack, shortage.room - shortage.slack
        if shortage.used >= size:
            used = shortage.used
            larger = size_for(reader.form, min(2 * size, used + limit))
            size = max(first_size(reader.form, used, limit), larger)
            state = enlarged_state(reader, state, len(prompt.ids), size + slack, slack)
        room = _Room(shortage.used, limit, size, slack, drafts)
    capacity = capacities.capacity(reader, size, slack)
    bound = np.int32(min(limit, _MOST))
    reader, state, logits, causal = read_prompt(
        reader, state, prompt, capacity, slack, is_cache, bound
    )
    requests.check_causal(reader, causal)
    can_go_back = slack > 0 and not is_cache and has_lengths_only(state, reader.row_axes(state))
    grows = not is_cache or shortage is not None
    return _Begun(reader, state, logits, slack + 1 if can_go_back else 1, grows, room)


def _check_rows(*states: _Begun) -> None:
    for reader, state, *_ in states:
        if not has_lengths_only(state, reader.row_axes(state)):
            raise ValueError(
                f"fk.generate: {reader.any_model()._where} has a state that cannot be rolled back, which "
                "speculative decoding needs. Leave draft out."
            )


def _result(reader: Reader, carry: Carry, limit: int) -> Generated:
    state = carry.state if reader.form.cached else carry.state["model"]
    found = (carry.tokens, carry.logprobs)
    if requests.is_traced(carry):
        tokens, logprobs = finished(found, carry.lengths)
        return Generated(tokens, carry.lengths, state, logprobs)
    if carry.tokens.is_fully_addressable:
        counts = np.asarray(carry.lengths)
        columns = min(limit, max(_WIDEST, int(counts.max())))
        # NumPy: another limit compiles nothing
        kept = jax.tree.map(lambda a: finished_on_host(a, counts, columns), found)
        if (kept[0] < 0).any():
            row, place = np.argwhere(kept[0] < 0)[0]
            raise ValueError(
                f"fk.generate: the logits of new token {place} of row {row} are not finite, or the "
                "samplers forbid every token. Check the weights with fk.find_nan, the samplers, and that "
                "the sequence is not longer than a table of positions."
            )
        kept = jax.device_put(kept, jax.tree.map(lambda a: a.sharding, found))
    else:
        kept = jax.tree.map(lambda a: a[:, :limit], finished(found, carry.lengths))
    return Generated(kept[0], carry.lengths, state, kept[1])
