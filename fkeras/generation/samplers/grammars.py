"""Constrained output: samplers that permit only the tokens of a JSON schema, a pattern or a grammar.

The package llguidance computes the permitted tokens on the host. The compiled program of decoding calls the
host once for each token; the number of the grammar is an argument of the program, so that all grammars of a
tokenizer share one program.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import describe_value, missing_package
from fkeras.generation.samplers.rules import History, Sampler

_WHERE = "samplers.Grammars"


class Grammars:
    """Makes samplers whose new tokens spell a text of a JSON schema, a regular expression or a grammar.

    Keeps every grammar that it compiles: make one `Grammars` for each tokenizer. The package llguidance computes
    which tokens may follow. Each step of decoding waits for the host, which reads the new tokens of a row
    and computes a mask: in the order of 0.1 ms for each row and step, and more for large vocabularies.

    Args:
        tokenizer: a tokenizer such as `loaded.tokenizer`; or the text or bytes of each id, in the order of
            the ids.
        end_ids: the ids of the end tokens, which follow a complete text; None for `tokenizer.end_ids`.

    Raises:
        TypeError: for a value that is no tokenizer and no sequence of tokens.
        ValueError: for no end ids, ids outside of the vocabulary, and a tokenizer that llguidance cannot
            read.
        ImportError: if the package llguidance is not installed.

    Example:
        >>> import jax, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> model = fk.Model(ids, fk.layers.Embedding(4, 4)(ids)).build(jax.random.key(0))
        >>> grammars = fk.samplers.Grammars(["<end>", "a", "b", "c"], end_ids=0)
        >>> sampler = fk.samplers.Chain(grammars.regex("ab?c"), fk.samplers.Greedy())
        >>> generated = fk.generate(model, None, [[2]], None, 6, sampler, end_ids=0)
        >>> generated.tokens[0, 0].item(), generated.tokens[0, generated.lengths[0] - 2].item()
        (1, 3)
    """

    def __init__(
        self, tokenizer: Any | Sequence[str | bytes], end_ids: int | Iterable[int] | None = None
    ):
        try:
            import llguidance
        except ImportError as error:
            raise missing_package(_WHERE, "llguidance", error) from error
        ends: Any = getattr(tokenizer, "end_ids", ()) if end_ids is None else end_ids
        ends = [*ends] if isinstance(ends, Iterable) else [ends]
        is_id = [isinstance(i, int | np.integer) and not isinstance(i, bool) for i in ends]
        source, size = _source(tokenizer, ends)
        if not ends or not all(is_id) or min(ends) < 0 or max(ends) >= size:
            raise ValueError(
                f"{_WHERE}: expected end_ids from 0 to {size - 1}, at least one, which follow a complete "
                f"text, received {describe_value(ends)}. Pass ids of the tokenizer of the model."
            )
        self.end_ids = tuple(map(int, ends))
        try:
            self._tokenizer = llguidance.LLTokenizer(source, eos_token=[*self.end_ids])
        # the package raises its own errors, also for panics of Rust
        except Exception as error:
            raise ValueError(
                f"{_WHERE}: expected a tokenizer that llguidance can read, received {describe_value(tokenizer)}: "
                f"{str(error)[:300]}. Pass the bytes of each id as a list."
            ) from error
        self._matcher = llguidance.LLMatcher
        self._numbers: dict[str, int] = {}
        self._matchers: list[Any] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Grammars({self._tokenizer.vocab_size} tokens)"

    def json(self, schema: Mapping[str, Any] | str, *, whitespace: bool = True) -> Constraint:
        """Returns the sampler of the JSON values that satisfy a schema.

        Args:
            schema: the JSON schema as a dictionary or as text; `{}` for any value.
            whitespace: whether the model may write spaces and line breaks between the parts of a value.

        Raises:
            TypeError: for a schema of another type.
            ValueError: for an invalid schema, and for keywords that llguidance does not have.
        """
        if not isinstance(schema, Mapping | str):
            raise TypeError(
                f"{_WHERE}.json: expected a JSON schema as a dictionary, received {describe_value(schema)}. "
                'Write {"type": "object", "properties": {"name": {"type": "string"}}}.'
            )
        try:
            text = schema if isinstance(schema, str) else json.dumps(dict(schema))
            options: Any = {"whitespace_flexible": bool(whitespace)}
            grammar = self._matcher.grammar_from_json_schema(text, overrides=options)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{_WHERE}.json: expected a JSON schema, received {str(schema)[:80]!r}: {error}. Write a schema "
                "as a dictionary of JSON's types."
            ) from error
        return self._constraint("json", grammar, schema)

    def regex(self, pattern: str) -> Constraint:
        """Returns the sampler of the texts that match a regular expression as a whole.

        Args:
            pattern: a regular expression, in the syntax of Rust's `regex`, without look-around.

        Raises:
            TypeError: for a pattern that is no text.
            ValueError: for an invalid pattern.
        """
        _check_text("regex", pattern, r"\d{4}-\d{2}")
        return self._constraint("regex", self._matcher.grammar_from_regex(pattern), pattern)

    def lark(self, grammar: str) -> Constraint:
        """Returns the sampler of the texts of a context-free grammar.

        Args:
            grammar: rules in llguidance's form of Lark's syntax; the first rule is `start`.

        Raises:
            TypeError: for a grammar that is no text.
            ValueError: for an invalid grammar.
        """
        _check_text("lark", grammar, 'start: "yes" | "no"')
        return self._constraint("lark", self._matcher.grammar_from_lark(grammar), grammar)

    def _constraint(self, method: str, grammar: str, source: Any) -> Constraint:
        with self._lock:
            if grammar not in self._numbers:
                matcher = self._matcher(self._tokenizer, grammar, log_level=0)
                matcher.compute_bitmask()
                problem = matcher.get_error().partition("<state>")[0].strip()
                if problem == "NoExtensionBias":
                    problem = "the tokens spell no text of the grammar"
                if problem:
                    raise ValueError(
                        f"{_WHERE}.{method}: expected a grammar that the tokens can satisfy, received "
                        f"{str(source)[:80]!r}: {problem[:400]}. Correct the grammar."
                    )
                self._numbers[grammar] = len(self._matchers)
                self._matchers.append(matcher)
            return Constraint(self, self._numbers[grammar])

    def _permitted(self, size: int, number: Any, ids: Any, count: Any) -> np.ndarray:
        """Returns the permitted tokens as bits (..., size); none after tokens that violate the grammar.

        Args:
            size: the number of bytes of the result.
            number: the number of the grammar (...).
            ids: the prompt and the new tokens (..., n), -1 for padding.
            count: the number of new tokens (...).
        """
        numbers, ids, counts = (np.asarray(value) for value in (number, ids, count))
        result = np.zeros((*counts.shape, size), np.uint8)
        with self._lock:
            for place in np.ndindex(counts.shape):
                known = ids[place][ids[place] >= 0]
                # a copy: tokens that violate the grammar end a matcher for good
                matcher = self._matchers[numbers[place]].deep_copy()
                if matcher.consume_tokens(known[len(known) - counts[place] :].tolist()):
                    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)[:size]
                    # an error: no token continues the text, which is not complete
                    if not matcher.is_error():
                        result[(*place, slice(len(bits)))] = bits
        return result


def _source(tokenizer: Any, ends: Sequence[int]) -> tuple[Any, int]:
    """Returns the tokenizer in a form that llguidance reads, and the number of its ids."""
    files = getattr(tokenizer, "files", None)
    if isinstance(files, Mapping) and "tokenizer.json" in files:
        return files["tokenizer.json"], tokenizer.size
    is_list = isinstance(tokenizer, Sequence) and not isinstance(tokenizer, str | bytes)
    if not is_list or not tokenizer or not all(isinstance(t, str | bytes) for t in tokenizer):
        raise TypeError(
            f"{_WHERE}: expected a tokenizer, or a list with the text of each id, received "
            f"{describe_value(tokenizer)}. Pass loaded.tokenizer."
        )
    tokens: Any = [t.encode() if isinstance(t, str) else t for t in tokenizer]
    return _Tokens(tokens, ends), len(tokens)


class _Tokens:
    """The tokens of a list, with the attributes that llguidance reads."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], ends: Sequence[int]):
        self.tokens, self.special_token_ids = tokens, [*ends]
        self.eos_token_id = ends[0] if ends else 0
        self._longest = max(map(len, tokens))
        self._ids = {token: number for number, token in reversed([*enumerate(tokens)])}

    def __call__(self, text: str) -> list[int]:
        """Returns the ids of the longest tokens, from the start of a text; skips bytes without a token."""
        data, ids = text.encode(), []
        while data:
            sizes = range(min(self._longest, len(data)), 0, -1)
            size = next((n for n in sizes if data[:n] in self._ids), 0)
            ids += [self._ids[data[:size]]] if size else []
            data = data[max(size, 1) :]
        return ids


def _check_text(method: str, value: Any, example: str) -> None:
    if not isinstance(value, str):
        raise TypeError(
            f"{_WHERE}.{method}: expected a text, received {describe_value(value)}. Write "
            f"grammars.{method}({example!r})."
        )


@dataclasses.dataclass(frozen=True)
class Constraint(Sampler):
    """Forbids the tokens with which the new text cannot become a text of a grammar; see `Grammars`.

    An end token is permitted where the text is complete, and the only permitted token where nothing else
    may follow. The tokens of the prompt do not count.

    Args:
        grammars: the compiled grammars of the tokenizer.
        number: the number of the grammar.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> grammars = fk.samplers.Grammars(["<end>", "a", "b"], end_ids=0)
        >>> history = fk.samplers.History(jnp.array([2, 1]), jnp.array(1))
        >>> grammars.regex("a+").process(jnp.zeros(3), history)
        Array([  0.,   0., -inf], dtype=float32)
    """

    grammars: Grammars
    number: int
    rank: ClassVar[int] = 42
    leaves: ClassVar[tuple[str, ...]] = ("number",)
    id_fields: ClassVar[tuple[str, ...]] = ("end_ids",)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The end tokens of the grammar, which end the rows of `fk.generate`."""
        return self.grammars.end_ids

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        size = -(-logits.size // 8)
        bits = jax.pure_callback(
            functools.partial(self.grammars._permitted, size),
            jax.ShapeDtypeStruct((size,), np.uint8),
            jnp.asarray(self.number, jnp.int32),
            history.ids,
            history.count,
            vmap_method="broadcast_all",
        )
        permitted = jnp.unpackbits(bits, count=logits.size, bitorder="little")
        return jnp.where(permitted == 1, logits, -jnp.inf)
