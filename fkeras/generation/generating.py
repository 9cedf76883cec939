"""`generate`: continues prompts with new tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.authoring.engine import explains_arguments
from fkeras.engine import Network
from fkeras.generation.generator import GREEDY, Generated, Generator
from fkeras.generation.loaded import LoadedModel
from fkeras.generation.samplers.rules import Sampler
from fkeras.generation.watching import Stream


@explains_arguments
def generate(
    model: Network | Sequence[Network] | LoadedModel,
    state: Mapping[str, Any] | None,
    ids: jax.Array | np.ndarray | Sequence[Sequence[int] | jax.Array | np.ndarray],
    key: jax.Array | None = None,
    max_new_tokens: int = 64,
    sampler: Sampler | Sequence[Sampler] = GREEDY,
    lengths: jax.Array | np.ndarray | Sequence[int] | None = None,
    *,
    mask: jax.Array | np.ndarray | Sequence[Sequence[int]] | None = None,
    end_ids: int | Iterable[int] | jax.Array | None = None,
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
    logprobs: int | None = None,
) -> Generated:
    """Continues prompts with new tokens; each row of `ids` is a prompt.

    One compiled program prefills the prompt, and another decodes in calls of about 0.5 seconds, between
    which signals such as that of Ctrl-C are handled. On CPUs the prefill of a deep model has several
    programs, and equal blocks share a program. Prompts are padded to a power of two, and read in
    pieces of 512 tokens; caches grow in few and large steps, and their first size does not depend on
    `max_new_tokens`, so that prompts of similar lengths and all limits share programs. A model whose
    layers have KV caches reads each token once. Other models recompute all tokens for each new token, and
    must be causal. The function works under `jax.jit` and `jax.vmap`, for example over keys, without the
    arguments that run on the host (`stop`, `stream`), as one program with room for all tokens.

    A row depends only on its own tokens and its own key. Rotary positions that depend on the length of a
    text (LongRoPE, dynamic scaling) follow the length of the row at each step. Keys in the cache keep
    their angles; a text that becomes long for LongRoPE is read again.

    Args:
        model: a model from token ids (b, t) to logits (b, t, v); or with `rows` a list of models that
            differ only in arrays, such as adapters or steering vectors. Arrays that several models
            share are stored once. The result of `fk.pretrained.load` is its model with the defaults of the
            folder for `end_ids`, `decode` and `vocabulary_size`.
        state: the state of the model; None for `model.init_state()`. Without KV caches, `generate` adds
            empty caches. A state with KV caches, from `model.init_cache(b, length)` or from
            `Generated.state`, is continued with the prompt. Caches with too little room grow, except
            inside `jax.jit` and beside `draft`.
        ids: integers (b, t); or a list of lists of different lengths. Padding is marked by `lengths` or
            `mask`: the id of the padding is unknown here.
        key: a PRNG key, or an array with a key for each row. A row depends only on its own key.
        max_new_tokens: maximum number of new tokens of a row; memory is needed for the tokens that are
            generated.
        sampler: chooses the next token, see `fk.samplers`; or a list with a sampler for each row.
        lengths: number of tokens of each prompt, if `ids` is padded on the right.
        mask: booleans (b, t), False at padding, which may be on both sides and between tokens: the
            positions count the tokens only.
        end_ids: ids of the tokens that end a row; None for those of the folder of a loaded model, and for
            no end tokens with another model. `()` continues after end tokens.
        stop: strings that end a row, also if they span several tokens; needs `decode`. The new tokens
            include the stop string.
        decode: returns the text of a list of ids; None for `tokenizer.decode` of a loaded model.
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
            padding; None for the size of the tokenizer of a loaded model, and for all tokens of another
            model.
        cache: True reports an error for a model that cannot use KV caches; False recomputes all tokens;
            None uses the caches that the model has.
        logprobs: the number of most likely tokens, at least 0, whose log-probabilities are returned for each
            new token, beside that of the token itself; None for no log-probabilities.

    Returns:
        `tokens`, `lengths`, `state` and `logprobs`; see `Generated`. Inside `jax.jit` a row whose logits are not
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
        >>> import jax, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> x = fk.layers.Dense(7)(fk.layers.Embedding(7, 4)(ids))
        >>> model = fk.Model(ids, x).build(jax.random.key(0))
        >>> fk.generate(model, None, [[1, 2]], max_new_tokens=4).tokens.shape  # the most probable tokens
        (1, 4)

        Two prompts, random tokens, and an end:

        >>> sampler = fk.samplers.Chain(fk.samplers.Temperature(0.7), fk.samplers.TopK(3))
        >>> generated = fk.generate(
        ...     model, None, [[1, 2], [3]], jax.random.key(0), 4, sampler, end_ids=0
        ... )
        >>> generated.tokens.shape
        (2, 4)
    """
    generator = Generator(
        model,
        sampler,
        end_ids=end_ids,
        stop=stop,
        decode=decode,
        draft=draft,
        draft_tokens=draft_tokens,
        vocabulary_size=vocabulary_size,
        cache=cache,
    )
    return generator(
        state,
        ids,
        key,
        max_new_tokens,
        lengths,
        mask=mask,
        stream=stream,
        inputs=inputs,
        inputs_mask=inputs_mask,
        rows=rows,
        logprobs=logprobs,
    )
