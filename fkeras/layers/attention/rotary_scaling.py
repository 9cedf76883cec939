"""Scalings of rotary positions: frequencies for texts longer than those of the training."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import Configurable
from fkeras.layers.common import authoring as fk
from fkeras.nn import rotary


class Scaling(Configurable):
    """Base class of the scalings of `fk.layers.RotaryEmbedding`.

    Example:
        >>> import fkeras as fk
        >>> isinstance(fk.layers.rotary.Linear(4.0), fk.layers.rotary.Scaling)
        True
    """

    _keras_module: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ == __name__:  # a scaling of a user is found in `custom_objects`
            cls._keras_module = "fkeras.layers.rotary"

    @property
    def needs_length(self) -> bool:
        """Whether the frequencies depend on the length of the text."""
        return False

    @property
    def boundary(self) -> int | None:
        """Number of tokens beyond which the cached keys of a shorter text no longer fit; None for no limit.

        `fk.generate` reads a text again when the text exceeds this number of tokens.
        """
        return None

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        """Returns the frequency of each pair of channels.

        Args:
            size: number of channels that turn.
            base: wavelength of the slowest pair in the training, divided by 2 pi.
            length: numbers of tokens of texts (n,); None where `needs_length` is False.

        Returns:
            A float32 array (size / 2,), or (n, size / 2) for lengths (n,).
        """
        raise NotImplementedError(
            f"{type(self).__name__}: has no `frequencies`. Write `def frequencies(self, size, base, "
            "length): ...`."
        )

    @property
    def scale(self) -> float:
        """Factor of cosines and sines."""
        return 1.0


class Linear(Scaling):
    """Divides all positions by `factor`.

    Args:
        factor: ratio of the longest text to that of the training.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.RotaryEmbedding(scaling=fk.layers.rotary.Linear(8.0))
        RotaryEmbedding(scaling=Linear(8.0))
    """

    factor: fk.Real = fk.option(convert=fk.real(above=0))

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        return rotary.linear(rotary.inverse_frequencies(size, base), self.factor)


class Dynamic(Scaling):
    """Enlarges the base with the length of the text, beyond `original_max_position_embeddings`.

    The keys in a cache keep the base of the length at which they were read, as in Hugging Face's
    `generate`. A call on the whole text turns all keys by the base of its length.

    Args:
        factor: growth of the base.
        original_max_position_embeddings: number of positions of the training.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.rotary.Dynamic(2.0, 2048).needs_length
        True
    """

    factor: fk.Real = fk.option(convert=fk.real(above=0))
    original_max_position_embeddings: fk.Integer = fk.option(convert=fk.integer(minimum=1))

    @property
    def needs_length(self) -> bool:
        return True

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        assert length is not None
        if size < 4:
            raise ValueError(f"Dynamic: expected at least 4 channels that turn, received {size}.")
        original = self.original_max_position_embeddings
        bases = rotary.dynamic_base(base, size, self.factor, original, length)
        return rotary.inverse_frequencies(size, bases[..., None])


class Llama3(Scaling):
    """Divides low frequencies by `factor` and keeps high frequencies: the scaling of Llama 3.1.

    Args:
        factor: divisor of the low frequencies.
        low_freq_factor: wavelengths above `original_max_position_embeddings / low_freq_factor` are low
            frequencies.
        high_freq_factor: wavelengths below `original_max_position_embeddings / high_freq_factor` are
            high frequencies. If both factors are equal, as in Llama 4, no frequencies lie between them.
        original_max_position_embeddings: number of positions of the training.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.rotary.Llama3(32.0).original_max_position_embeddings
        8192
    """

    factor: fk.Real = fk.option(default=8.0, convert=fk.real(above=0))
    low_freq_factor: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))
    high_freq_factor: fk.Real = fk.option(default=4.0, convert=fk.real(above=0))
    original_max_position_embeddings: fk.Integer = fk.option(
        default=8192, convert=fk.integer(minimum=1)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                f"Llama3: expected high_freq_factor of at least low_freq_factor, received "
                f"{self.high_freq_factor} and {self.low_freq_factor}. Llama 3.1 has 4 and 1."
            )

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        return rotary.llama3(
            rotary.inverse_frequencies(size, base),
            self.factor,
            self.low_freq_factor,
            self.high_freq_factor,
            self.original_max_position_embeddings,
        )


class Yarn(Scaling):
    """Divides the frequencies of pairs that turn rarely, and scales cosines and sines.

    Args:
        factor: divisor of the low frequencies.
        original_max_position_embeddings: number of positions of the training.
        beta_fast: pairs with more turns keep their frequency.
        beta_slow: pairs with fewer turns are divided.
        attention_factor: factor of cosines and sines; None for `0.1 * ln(factor) + 1`, or for the
            ratio of `mscale` and `mscale_all_dim`.
        mscale: weight of the logarithm in the numerator of that ratio; None for no ratio.
        mscale_all_dim: weight of the logarithm in the denominator; None for no ratio.
        truncate: whether the ends of the ramp between fast and slow are rounded to whole pairs.

    Example:
        >>> import fkeras as fk
        >>> round(fk.layers.rotary.Yarn(4.0, 32768).scale, 4)
        1.1386

    References:
        Peng et al., YaRN: efficient context window extension of large language models (2023),
        https://arxiv.org/abs/2309.00071
    """

    factor: fk.Real = fk.option(convert=fk.real(above=0))
    original_max_position_embeddings: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    beta_fast: fk.Real = fk.option(default=32.0, convert=fk.real(above=0))
    beta_slow: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))
    attention_factor: fk.OptionalReal = fk.option(
        default=None, convert=fk.real(above=0, optional=True)
    )
    mscale: fk.OptionalReal = fk.option(default=None, convert=fk.real(optional=True))
    mscale_all_dim: fk.OptionalReal = fk.option(default=None, convert=fk.real(optional=True))
    truncate: bool = fk.option(default=True, convert=fk.boolean)

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        return rotary.yarn(
            rotary.inverse_frequencies(size, base),
            base,
            self.factor,
            self.original_max_position_embeddings,
            self.beta_fast,
            self.beta_slow,
            self.truncate,
        )

    @property
    def scale(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return _growth(self.factor, self.mscale) / _growth(self.factor, self.mscale_all_dim)
        return _growth(self.factor, 1.0)


def _growth(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _factors(value: fk.Field) -> fk.Field:
    return fk.several(
        fk.real(above=0), "a list of positive numbers, one for each pair of channels"
    )(value)


class LongRope(Scaling):
    """Divides the frequency of each pair by its own factor, another one for long texts.

    A text is long if it has more than `original_max_position_embeddings` tokens. A call with a cache
    turns each token by the factors of its position. Cached keys with the short factors do not fit the
    queries of a long text, so `fk.generate` reads a text again when the text becomes long.

    Args:
        short_factor: divisors of texts up to `original_max_position_embeddings` tokens.
        long_factor: divisors of longer texts.
        original_max_position_embeddings: number of positions of the training.
        max_position_embeddings: number of positions of the longest text; for the factor of cosines
            and sines.
        attention_factor: factor of cosines and sines; None for `sqrt(1 + ln(max / original) /
            ln(original))`.

    Example:
        >>> import fkeras as fk
        >>> scaling = fk.layers.rotary.LongRope([1.0, 1.0], [1.0, 8.0], 4096, 131072)
        >>> round(scaling.scale, 4)
        1.1902

    References:
        Ding et al., LongRoPE: extending LLM context window beyond 2 million tokens (2024),
        https://arxiv.org/abs/2402.13753
    """

    short_factor: fk.Converted[Any, tuple[float, ...]] = fk.option(convert=_factors)
    long_factor: fk.Converted[Any, tuple[float, ...]] = fk.option(convert=_factors)
    original_max_position_embeddings: fk.Integer = fk.option(convert=fk.integer(minimum=2))
    max_position_embeddings: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    attention_factor: fk.OptionalReal = fk.option(
        default=None, convert=fk.real(above=0, optional=True)
    )

    @property
    def needs_length(self) -> bool:
        return True

    @property
    def boundary(self) -> int | None:
        return self.original_max_position_embeddings

    def frequencies(self, size: int, base: float, length: jax.Array | None) -> jax.Array:
        assert length is not None
        for name in ("short_factor", "long_factor"):
            if len(getattr(self, name)) != size // 2:
                raise ValueError(
                    f"LongRope: expected {size // 2} numbers in {name}, one for each pair of the {size} "
                    f"channels that turn, received {len(getattr(self, name))}."
                )
        shape = (*(1,) * length.ndim, size // 2)
        short, long = (
            np.reshape(np.asarray(factors, "float32"), shape)
            for factors in (self.short_factor, self.long_factor)
        )
        is_long = (length > self.original_max_position_embeddings)[..., None]
        frequencies = jnp.reshape(rotary.inverse_frequencies(size, base), shape)
        return frequencies / jnp.where(is_long, long, short)

    @property
    def scale(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        original = self.original_max_position_embeddings
        ratio = self.max_position_embeddings / original
        return 1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(original))
