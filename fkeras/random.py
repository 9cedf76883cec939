"""Random samples with Keras's names and arguments: `fk.random.normal((2, 3), seed=key)`.

`seed` is a typed JAX key, `jax.random.key(0)`; split a new key for each draw. `seed` may also be an
integer, for which the samples equal those of `keras.random` on JAX. fkeras has no `SeedGenerator`,
since a generator mutates its state at each draw.

Arguments that all functions share, documented here only:
    shape: shape of the result.
    dtype: dtype of the result; None for float32, or int32 for integers.
    seed: a key, or an integer from 0 to 2**32 - 1.
    x: array of any shape.
    axis: the axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.values.argument_types import DTypeLike, Number, Numbers
from fkeras.nn.noise import dropout as _dropout

__all__ = (
    "beta",
    "binomial",
    "categorical",
    "dropout",
    "gamma",
    "normal",
    "randint",
    "shuffle",
    "truncated_normal",
    "uniform",
)

Seed = jax.Array | int | None


def key_of(name: str, seed: Seed) -> jax.Array:
    """Converts a seed to a key.

    Args:
        seed: a key, or an integer from 0 to 2**32 - 1.

    Raises:
        TypeError: for None and other values that are neither a key nor such an integer.

    Example:
        >>> jax.random.key_data(key_of("random.normal", 7)).tolist()
        [7, 0]
    """
    # Python's bool is an int, and seed=True is always a mistake
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**32:
        # Keras's key data for an integer seed; jax.random.key(seed) has the words in reverse order
        key_data: Any = np.array([seed, 0], "uint32")
        return jax.random.wrap_key_data(key_data, impl="threefry2x32")
    # typed keys only: a legacy key is an array of uint32 like any other
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    received = "None" if seed is None else f"{seed!r} ({type(seed).__name__})"
    raise TypeError(
        f"fk.{name}: seed: expected a key or an integer from 0 to 2**32 - 1, received {received}. "
        "fkeras never draws a seed implicitly: pass seed=jax.random.key(0), and split it for the "
        "next draw."
    )


def _floats(dtype: DTypeLike | None, name: str) -> Any:
    dtype = jnp.dtype(dtype or "float32")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"fk.random.{name}: dtype: expected floating point numbers, received {dtype}. For "
            "integers take fk.random.randint."
        )
    return dtype


def normal(
    shape: Sequence[int],
    mean: Number = 0.0,
    stddev: Number = 1.0,
    dtype: DTypeLike | None = None,
    seed: Seed = None,
) -> jax.Array:
    """Draws samples from a normal distribution.

    Args:
        mean: the mean of the distribution.
        stddev: the standard deviation.

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> x = fk.random.normal((10_000,), mean=5.0, stddev=2.0, seed=jax.random.key(0))
        >>> round(float(x.mean())), round(float(x.std()))
        (5, 2)
    """
    dtype = _floats(dtype, "normal")
    return jax.random.normal(key_of("random.normal", seed), tuple(shape), dtype) * stddev + mean


def truncated_normal(
    shape: Sequence[int],
    mean: Number = 0.0,
    stddev: Number = 1.0,
    dtype: DTypeLike | None = None,
    seed: Seed = None,
) -> jax.Array:
    """Draws samples from a normal distribution truncated at two standard deviations.

    Args:
        mean: the mean before the truncation.
        stddev: the standard deviation before the truncation.

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> bool(abs(fk.random.truncated_normal((100,), seed=jax.random.key(0))).max() <= 2)
        True
    """
    dtype = _floats(dtype, "truncated_normal")
    key = key_of("random.truncated_normal", seed)
    return jax.random.truncated_normal(key, -2.0, 2.0, tuple(shape), dtype) * stddev + mean


def uniform(
    shape: Sequence[int],
    minval: Number = 0.0,
    maxval: Number = 1.0,
    dtype: DTypeLike | None = None,
    seed: Seed = None,
) -> jax.Array:
    """Draws samples from a uniform distribution on the interval [minval, maxval).

    Args:
        minval: the inclusive lower bound.
        maxval: the exclusive upper bound.

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.random.uniform((2,), 3.0, 4.0, seed=jax.random.key(0)) >= 3
        Array([ True,  True], dtype=bool)
    """
    dtype = _floats(dtype, "uniform")
    return jax.random.uniform(key_of("random.uniform", seed), tuple(shape), dtype, minval, maxval)


def randint(
    shape: Sequence[int],
    minval: Number,
    maxval: Number,
    dtype: DTypeLike = "int32",
    seed: Seed = None,
) -> jax.Array:
    """Draws integers from a uniform distribution on the range [minval, maxval).

    Args:
        minval: the inclusive lower bound.
        maxval: the exclusive upper bound.
        dtype: an integer dtype.

    Raises:
        ValueError: for a dtype that is not an integer dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> sorted(set(fk.random.randint((99,), 0, 3, seed=jax.random.key(0)).tolist()))
        [0, 1, 2]
    """
    dtype = jnp.dtype(dtype or "int32")
    if not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"fk.random.randint: dtype: expected integers, received {dtype}. For floating point "
            "numbers take fk.random.uniform."
        )
    return jax.random.randint(key_of("random.randint", seed), tuple(shape), minval, maxval, dtype)


def categorical(
    logits: Numbers, num_samples: int, dtype: DTypeLike = "int32", seed: Seed = None
) -> jax.Array:
    """Draws class indices with the probabilities softmax(logits).

    Args:
        logits: scores, (b, classes).
        num_samples: the number of draws for each row of the logits.
        dtype: the dtype of the class indices.

    Returns:
        An array of shape (b, num_samples).

    Raises:
        ValueError: for logits without exactly two axes.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> fk.random.categorical(jnp.array([[0.0, 99.0]]), 3, seed=jax.random.key(0))
        Array([[1, 1, 1]], dtype=int32)
    """
    logits = jnp.asarray(logits)
    if logits.ndim != 2:
        raise ValueError(
            f"fk.random.categorical: expected logits of shape (b, classes), received "
            f"{logits.shape}. Give a single example a first axis: logits[None]."
        )
    shape = (logits.shape[0], num_samples)
    key = key_of("random.categorical", seed)
    # the new last axis broadcasts, for several independent draws from each row
    samples = jax.random.categorical(key, logits[..., None], axis=1, shape=shape)
    return samples.astype(dtype or "int32")


def dropout(
    inputs: Numbers, rate: float, noise_shape: Sequence[int | None] | None = None, seed: Seed = None
) -> jax.Array:
    """Sets elements to 0 with the probability `rate` and divides other elements by 1 - rate.

    Args:
        inputs: an array.
        rate: the probability of dropping an element, from 0 to 1.
        noise_shape: the shape of the random mask: 1 for an axis that shares one draw, None for the
            size of the input's axis.
        seed: a key, or an integer; not needed for the rates 0 and 1.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> y = fk.random.dropout(jnp.ones((8, 8)), 0.5, seed=jax.random.key(0))
        >>> sorted(set(y.ravel().tolist()))
        [0.0, 2.0]
    """
    inputs = jnp.asarray(inputs)
    # the results for the rates 0 and 1 are not random
    key: Any = None if rate in (0, 1) else key_of("random.dropout", seed)
    return _dropout(key, inputs, rate, noise_shape)


def shuffle(x: Numbers, axis: int = 0, seed: Seed = None) -> jax.Array:
    """Shuffles elements along an axis, independently for each index of the other axes.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> sorted(fk.random.shuffle(jnp.arange(4), seed=jax.random.key(0)).tolist())
        [0, 1, 2, 3]
    """
    # Keras shuffles independently; jax.random.permutation moves whole slices by default
    return jax.random.permutation(
        key_of("random.shuffle", seed), jnp.asarray(x), axis, independent=True
    )


def gamma(
    shape: Sequence[int], alpha: Number, dtype: DTypeLike | None = None, seed: Seed = None
) -> jax.Array:
    """Draws samples from a gamma distribution with the scale 1.

    Args:
        alpha: the shape parameter, which equals the mean.

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> x = fk.random.gamma((10_000,), 2.0, seed=jax.random.key(0))
        >>> round(float(x.mean())), round(float(x.var()))
        (2, 2)
    """
    dtype = _floats(dtype, "gamma")
    alpha = jnp.asarray(alpha, dtype)
    return jax.random.gamma(key_of("random.gamma", seed), alpha, tuple(shape), dtype)


def beta(
    shape: Sequence[int],
    alpha: Number,
    beta: Number,
    dtype: DTypeLike | None = None,
    seed: Seed = None,
) -> jax.Array:
    """Draws samples between 0 and 1 from a beta distribution.

    Args:
        alpha: the first parameter.
        beta: the second parameter; the mean is alpha / (alpha + beta).

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> x = fk.random.beta((10_000,), 2.0, 3.0, seed=jax.random.key(0))
        >>> round(float(x.mean()), 1), bool(((x > 0) & (x < 1)).all())
        (0.4, True)
    """
    dtype = _floats(dtype, "beta")
    a, b = (jnp.asarray(p, dtype) for p in (alpha, beta))
    return jax.random.beta(key_of("random.beta", seed), a, b, tuple(shape), dtype)


def binomial(
    shape: Sequence[int],
    counts: Number,
    probabilities: Number,
    dtype: DTypeLike | None = None,
    seed: Seed = None,
) -> jax.Array:
    """Draws numbers of successes from a binomial distribution, as floating-point numbers.

    Args:
        counts: the number of trials.
        probabilities: the probability of a success.

    Raises:
        ValueError: for a dtype that is not a floating-point dtype.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.random.binomial((3,), 5, 1.0, seed=jax.random.key(0))
        Array([5., 5., 5.], dtype=float32)
    """
    dtype = _floats(dtype, "binomial")
    n, p = (jnp.asarray(value, dtype) for value in (counts, probabilities))
    return jax.random.binomial(key_of("random.binomial", seed), n, p, tuple(shape), dtype)
