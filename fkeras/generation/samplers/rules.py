"""The samplers: rules that process the logits of the next token, and their chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

#: a Python number, or a scalar array
Number = float | jax.Array


class History(NamedTuple):
    """The tokens of one row before the next token.

    Attributes:
        ids: int32 (n,): the prompt and the new tokens; -1 for padding.
        count: int32 scalar: the number of new tokens.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.samplers.History(jnp.array([5, 2, -1]), jnp.array(1)).ids.shape
        (3,)
    """

    ids: jax.Array
    count: jax.Array


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Processes the logits of the next token: the base class of all samplers.

    A subclass is a frozen dataclass that overrides `process`. `Sampler()` draws from the unchanged logits
    of the model.

    Example:
        >>> import dataclasses, jax, jax.numpy as jnp, fkeras as fk
        >>> @dataclasses.dataclass(frozen=True)
        ... class Even(fk.samplers.Sampler):
        ...     def process(self, logits, history):
        ...         return jnp.where(jnp.arange(logits.size) % 2 == 0, logits, -jnp.inf)
        >>> history = fk.samplers.History(jnp.array([1]), jnp.array(0))
        >>> Even().process(jnp.ones(4), history)
        Array([  1., -inf,   1., -inf], dtype=float32)
    """

    #: position in a chain; by default before the temperature
    rank: ClassVar[int] = 45
    #: whether `process` reads `History.ids`
    reads_ids: ClassVar[bool] = True
    #: whether a chain may have several samplers of this class
    several: ClassVar[bool] = False
    #: fields that are leaves of the pytree; other fields are compiled in as constants
    leaves: ClassVar[tuple[str, ...]] = ()
    #: fields with ids of tokens, which `fk.generate` compares with the vocabulary
    id_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _register(cls)

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        """Returns the processed logits of one row.

        Args:
            logits: float32 (v,).
            history: the tokens of the row so far.
        """
        return logits

    @property
    def parts(self) -> tuple[Sampler, ...]:
        """The samplers of a chain; `(self,)` for other samplers."""
        return (self,)

    def find(self, kind: type[Sampler]) -> Any:
        """Returns the first of `parts` that is an instance of a class, or None.

        Args:
            kind: the class.
        """
        return next((part for part in self.parts if isinstance(part, kind)), None)

    @property
    def draws(self) -> bool:
        """Whether the sampler draws random tokens, which needs a key."""
        return self.find(Greedy) is None and self.find(Beam) is None


def _register(cls: type[Sampler]) -> None:
    def flatten(sampler: Sampler) -> tuple:
        static = tuple((n, v) for n, v in vars(sampler).items() if n not in cls.leaves)
        return tuple(getattr(sampler, name) for name in cls.leaves), static

    def fill(static: tuple, leaves: Sequence[Any]) -> Sampler:
        # without `__post_init__`: JAX also fills pytrees with placeholders
        sampler = object.__new__(cls)
        for name, value in (*zip(cls.leaves, leaves, strict=True), *static):
            object.__setattr__(sampler, name, value)
        return sampler

    jax.tree_util.register_pytree_node(cls, flatten, fill)


_register(Sampler)


def check_number(sampler: Sampler, name: str, valid: Callable[[Any], Any], expected: str) -> None:
    """Raises an error for values that are no number or out of range; the range of tracers is unknown."""
    value = getattr(sampler, name)
    where = f"samplers.{type(sampler).__name__}"
    is_number = isinstance(value, int | float | np.generic | np.ndarray | jax.Array)
    if isinstance(value, bool) or not is_number or np.ndim(value) > 0:
        raise TypeError(f"{where}: expected {expected} for `{name}`, received {value!r}.")
    if not isinstance(value, Tracer) and not valid(value):
        raise ValueError(f"{where}: expected {expected} for `{name}`, received {value!r}.")


@dataclasses.dataclass(frozen=True)
class _NumberSampler(Sampler):
    """A sampler with one number, which is its only leaf."""

    #: the condition that valid numbers satisfy, and the same condition in words
    valid: ClassVar[tuple[Callable[[Any], Any], str]]
    reads_ids: ClassVar[bool] = False

    def __post_init__(self) -> None:
        (name,), (valid, expected) = self.leaves, self.valid
        check_number(self, name, valid, expected)


_FRACTION = (lambda p: 0 < p <= 1, "a number above 0 and at most 1")


@dataclasses.dataclass(frozen=True)
class Greedy(Sampler):
    """Chooses the token with the largest logit, and the first of these if several are equal.

    Example:
        >>> import fkeras as fk
        >>> fk.samplers.Greedy().draws
        False
    """

    rank: ClassVar[int] = 100
    reads_ids: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Beam(Sampler):
    """Beam search: keeps the `width` most likely sequences, and returns the sequence with the best score.

    The score of a finished sequence is the sum of the log-probabilities of its new tokens, divided by
    `count**length_penalty`, where `count` is the number of its new tokens. Other samplers of the chain
    process the log-probabilities.

    Args:
        width: the number of beams.
        length_penalty: values above 0 favor longer sequences, values below 0 shorter sequences.
        early_stopping: True ends a row with `width` finished sequences; False ends a row when no beam has
            a better score than the finished sequences.

    Raises:
        ValueError: for a width below 1.

    Example:
        >>> import fkeras as fk
        >>> fk.samplers.Beam(4)
        Beam(width=4, length_penalty=1.0, early_stopping=False)
    """

    width: int = 4
    length_penalty: Number = 1.0
    early_stopping: bool = False
    rank: ClassVar[int] = 100
    leaves: ClassVar[tuple[str, ...]] = ("length_penalty",)
    reads_ids: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count(self, "width")
        check_number(self, "length_penalty", lambda p: p == p, "a number")


def check_count(sampler: Sampler, name: str) -> None:
    value = getattr(sampler, name)
    where = f"samplers.{type(sampler).__name__}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{where}: expected an integer for `{name}`, received {value!r}.")
    if value < 1:
        raise ValueError(f"{where}: expected at least 1 for `{name}`, received {value}.")


@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(_NumberSampler):
    """Divides the positive logits of earlier tokens by `penalty`, and multiplies their negative logits.

    Earlier tokens are those of the prompt and the new tokens; repetitions of a token count once.

    Args:
        penalty: values above 1 reduce repetition.

    Raises:
        ValueError: for a penalty that is not above 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0, 2, -1]), jnp.array(0))
        >>> fk.samplers.RepetitionPenalty(2.0).process(jnp.array([1.0, 1.0, -1.0]), history)
        Array([ 0.5,  1. , -2. ], dtype=float32)
    """

    penalty: Number = 1.0
    rank: ClassVar[int] = 10
    leaves: ClassVar[tuple[str, ...]] = ("penalty",)
    valid = (lambda p: p > 0, "a number above 0")
    reads_ids: ClassVar[bool] = True

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        # an index of -1 would count from the end
        places = jnp.where(history.ids < 0, logits.size, history.ids)
        old = logits.at[places].get(mode="fill", fill_value=0.0)
        penalty = jnp.asarray(self.penalty, logits.dtype)
        return logits.at[places].set(jnp.where(old > 0, old / penalty, old * penalty), mode="drop")


@dataclasses.dataclass(frozen=True)
class MinNewTokens(Sampler):
    """Forbids the end tokens until a row has `count` new tokens.

    Args:
        count: the minimum number of new tokens before an end token.
        end_ids: the end tokens.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: without end tokens, for a negative id, and for a negative count.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(1))
        >>> fk.samplers.MinNewTokens(2, (1,)).process(jnp.zeros(3), history)
        Array([  0., -inf,   0.], dtype=float32)
    """

    count: Number
    end_ids: Sequence[int]
    rank: ClassVar[int] = 20
    leaves: ClassVar[tuple[str, ...]] = ("count",)
    id_fields: ClassVar[tuple[str, ...]] = ("end_ids",)
    reads_ids: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number(self, "count", lambda n: n >= 0, "a number of at least 0")
        object.__setattr__(self, "end_ids", check_ids(self, "end_ids", self.end_ids))

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        return jnp.where(history.count < self.count, without(logits, self.end_ids), logits)


@dataclasses.dataclass(frozen=True)
class SuppressedIds(Sampler):
    """Forbids tokens.

    Args:
        ids: ids of the forbidden tokens.
        first_only: whether to forbid the tokens only as the first new token.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: for no ids, or a negative id.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.SuppressedIds((0, 2)).process(jnp.zeros(3), history)
        Array([-inf,   0., -inf], dtype=float32)
    """

    ids: Sequence[int]
    first_only: bool = False
    rank: ClassVar[int] = 40
    several: ClassVar[bool] = True
    id_fields: ClassVar[tuple[str, ...]] = ("ids",)
    reads_ids: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", check_ids(self, "ids", self.ids))

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        others = without(logits, self.ids)
        return jnp.where(history.count == 0, others, logits) if self.first_only else others


def check_ids(sampler: Sampler, name: str, value: Any) -> tuple[int, ...]:
    """Returns ids as a tuple, since static fields of pytrees are hashed."""
    where = f"samplers.{type(sampler).__name__}"
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"{where}: expected a sequence of ids for `{name}`, received {value!r}.")
    if not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in value):
        raise TypeError(f"{where}: expected integers for `{name}`, received {value!r}.")
    ids = tuple(map(int, value))
    if not ids or min(ids) < 0:
        raise ValueError(f"{where}: expected ids of at least 0 for `{name}`, received {value!r}.")
    return ids


def without(logits: jax.Array, ids: Sequence[int]) -> jax.Array:
    """Returns the logits with minus infinity for some tokens."""
    # `drop`: an id may be in the padding of the vocabulary, which has no logits
    return logits.at[jnp.asarray(ids)].set(-jnp.inf, mode="drop")


@dataclasses.dataclass(frozen=True)
class Temperature(_NumberSampler):
    """Divides the logits by a temperature; temperatures below 1 make likely tokens more likely.

    Args:
        temperature: a number above 0; instead of 0 use `Greedy`.

    Raises:
        ValueError: for a temperature that is not above 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.Temperature(0.5).process(jnp.array([1.0, 2.0]), history)
        Array([2., 4.], dtype=float32)
    """

    temperature: Number = 1.0
    rank: ClassVar[int] = 50
    leaves: ClassVar[tuple[str, ...]] = ("temperature",)
    valid = (lambda t: t > 0, "a number above 0 (samplers.Greedy() stands for 0)")

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        return logits / jnp.asarray(self.temperature, logits.dtype)


@dataclasses.dataclass(frozen=True)
class TopK(Sampler):
    """Keeps the tokens with the `k` largest logits, and ties with the k-th logit.

    Args:
        k: the number of tokens.

    Raises:
        ValueError: for a number below 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.TopK(1).process(jnp.array([1.0, 2.0]), history)
        Array([-inf,   2.], dtype=float32)
    """

    k: int
    rank: ClassVar[int] = 60
    reads_ids: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count(self, "k")

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        least = jax.lax.top_k(logits, min(self.k, logits.size))[0][-1]
        return jnp.where(logits >= least, logits, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class TopP(_NumberSampler):
    """Keeps the most likely tokens until their probabilities sum to `p` (nucleus sampling).

    The token that reaches the sum is kept, and so are ties with this token.

    Args:
        p: the sum, above 0 and at most 1.

    Raises:
        ValueError: for a number outside of this range.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.TopP(0.7).process(jnp.log(jnp.array([0.5, 0.3, 0.2])), history)[2]
        Array(-inf, dtype=float32)

    References:
        Holtzman et al., The Curious Case of Neural Text Degeneration (2020).
    """

    p: Number = 1.0
    rank: ClassVar[int] = 70
    leaves: ClassVar[tuple[str, ...]] = ("p",)
    valid = _FRACTION

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        ordered = jnp.sort(logits, descending=True)
        probabilities = jax.nn.softmax(ordered)
        before = jnp.cumsum(probabilities) - probabilities
        # keeps the most likely token in spite of rounding
        kept = (before < self.p).at[0].set(True)
        least = jnp.min(jnp.where(kept, ordered, jnp.inf))
        return jnp.where(logits >= least, logits, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class MinP(_NumberSampler):
    """Keeps tokens with at least `p` times the probability of the most likely token.

    Args:
        p: a number from 0 to 1.

    Raises:
        ValueError: for a number outside of this range.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.MinP(0.5).process(jnp.log(jnp.array([0.5, 0.3, 0.2])), history)[2]
        Array(-inf, dtype=float32)

    References:
        Nguyen et al., Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs (2024).
    """

    p: Number = 0.0
    rank: ClassVar[int] = 80
    leaves: ClassVar[tuple[str, ...]] = ("p",)
    valid = (lambda p: 0 <= p <= 1, "a number from 0 to 1")

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        probabilities = jax.nn.softmax(logits)
        kept = probabilities >= jnp.max(probabilities) * jnp.asarray(self.p, logits.dtype)
        return jnp.where(kept, logits, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Typical(_NumberSampler):
    """Keeps tokens whose information is nearest to the entropy, until their probabilities sum to `mass`.

    Args:
        mass: the sum, above 0 and at most 1.

    Raises:
        ValueError: for a number outside of this range.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> logits = jnp.log(jnp.array([0.8, 0.1, 0.06, 0.04]))
        >>> fk.samplers.Typical(0.5).process(logits, history)[3]
        Array(-inf, dtype=float32)

    References:
        Meister et al., Locally Typical Sampling (2023).
    """

    mass: Number = 1.0
    rank: ClassVar[int] = 90
    leaves: ClassVar[tuple[str, ...]] = ("mass",)
    valid = _FRACTION

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        information = -jax.nn.log_softmax(logits)
        # a forbidden token has infinite information, and adds 0 to the entropy
        entropy = jnp.sum(
            jnp.where(jnp.isinf(information), 0.0, jnp.exp(-information) * information)
        )
        distance = jnp.abs(information - entropy)
        order = jnp.argsort(distance)
        sums = jnp.cumsum(jnp.exp(-information[order]))
        last = jnp.minimum(jnp.sum(sums < self.mass), logits.size - 1)
        return jnp.where(distance <= distance[order[last]], logits, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Normalized(Sampler):
    """Computes the log-softmax of the logits, after all other samplers (`renormalize_logits` in transformers).

    `Normalized` changes the scores of a beam search whose other samplers change logits.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.Normalized().process(jnp.log(jnp.array([0.2, 0.2, 0.0])), history)
        Array([-0.6931472, -0.6931472,       -inf], dtype=float32)
    """

    rank: ClassVar[int] = 95
    reads_ids: ClassVar[bool] = False

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        return jax.nn.log_softmax(logits)


def process(sampler: Sampler, logits: jax.Array, history: History) -> jax.Array:
    """Returns the logits of one row after a sampler, in the dtype of the logits."""
    result: Any = sampler.process(logits, history)
    is_array = isinstance(result, jax.Array | np.ndarray)
    is_float = is_array and jnp.issubdtype(result.dtype, jnp.floating)
    if not is_float or result.shape != logits.shape:
        text = f"{result.dtype} of the shape {result.shape}" if is_array else repr(result)
        raise TypeError(
            f"{type(sampler).__name__}.process: expected an array of logits of the shape {logits.shape} "
            f"and a float dtype, received {text}. Return the processed logits of one row; the logits "
            "of forbidden tokens are -jnp.inf."
        )
    return jnp.asarray(result, logits.dtype)


class Chain(Sampler):
    """Combines samplers, and applies them in the order that Hugging Face documents.

    The order: `RepetitionPenalty`, `NoRepeatedNgrams`, `SuppressedSequences`, `MinLength`, `MinNewTokens`,
    `ForcedIds`, `SuppressedIds`, custom samplers, `Temperature`, `TopK`, `TopP`, `MinP`, `Typical`, `Normalized`.

    Args:
        samplers: the samplers, in any order.

    Raises:
        TypeError: for a value that is no sampler.
        ValueError: for two samplers of a class whose `several` is False, and for `Greedy` with `Beam`.

    Example:
        >>> import fkeras as fk
        >>> fk.samplers.Chain(fk.samplers.TopP(0.9), fk.samplers.Temperature(0.7))
        Chain(Temperature(temperature=0.7), TopP(p=0.9))
    """

    _parts: tuple[Sampler, ...]
    leaves: ClassVar[tuple[str, ...]] = ("_parts",)

    def __init__(self, *samplers: Sampler):
        for sampler in samplers:
            if not isinstance(sampler, Sampler):
                raise TypeError(
                    f"samplers.Chain: expected samplers, received {sampler!r}. Pass values such as "
                    "samplers.Temperature(0.7), not a list."
                )
        parts = [part for sampler in samplers for part in sampler.parts]
        kinds = [type(part) for part in parts]
        twice = next((k for k in kinds if kinds.count(k) > 1 and not k.several), None)
        if twice is not None:
            raise ValueError(
                f"samplers.Chain: expected one {twice.__name__}, received {kinds.count(twice)}."
            )
        if Greedy in kinds and Beam in kinds:
            raise ValueError("samplers.Chain: expected Greedy or Beam, received both.")
        object.__setattr__(self, "_parts", tuple(sorted(parts, key=lambda part: part.rank)))

    @property
    def parts(self) -> tuple[Sampler, ...]:
        return self._parts

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        for part in self.parts:
            logits = process(part, logits, history)
        return logits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((Chain, self.parts))

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.parts))})"
