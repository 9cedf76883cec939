"""Initializers: values that draw a weight's first numbers, `init(key, shape, dtype)`."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config import Configurable, deserialize, lookup, option, serialize
from fkeras.engine.random import fold_in, normal, truncated_normal, uniform

__all__ = (
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "deserialize",
    "get",
    "serialize",
)

# the standard deviation of a unit normal distribution cut off at two standard deviations
_TRUNCATED_STDDEV = 0.87962566103423978


def compute_fans(shape: Sequence[int]) -> tuple[float, float]:
    """The numbers of inputs and outputs of one unit of a weight of this shape.

    Example:
        >>> compute_fans((3, 3, 16, 32))
        (144, 288)
    """
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


def _full(shape: Sequence[int], value: Any, dtype: Any) -> jax.Array:
    # device_put of host numbers compiles nothing; jnp.full compiles a program a shape
    return jax.device_put(np.full(tuple(shape), value, jnp.dtype(dtype)))


class Zeros(Configurable):
    """Zeros.

    Example:
        >>> import jax
        >>> Zeros()(jax.random.key(0), (2,))
        Array([0., 0.], dtype=float32)
    """

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return _full(shape, 0, dtype)


class Ones(Configurable):
    """Ones."""

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return _full(shape, 1, dtype)


class Constant(Configurable):
    """`value` everywhere.

    Args:
        value: a number, or an array that broadcasts to the weight's shape.
    """

    value: Any = option(0.0)

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return _full(shape, np.asarray(self.value), dtype)


class Identity(Configurable):
    """`gain` times the identity matrix.

    Args:
        gain: the factor.

    Raises:
        ValueError: for a weight that is no matrix.
    """

    gain: float = option(1.0)

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        if len(shape) != 2:
            raise ValueError(
                f"Identity: expected a matrix, received the shape {tuple(shape)}. Use it for "
                "weights of two axes."
            )
        return jax.device_put((self.gain * np.eye(*shape)).astype(jnp.dtype(dtype)))


class _Random:
    """What initializers that draw share: a seed of their own, folded into the key."""

    def _key(self, key: jax.Array) -> jax.Array:
        return key if self.seed is None else fold_in(key, int(self.seed))


class RandomUniform(_Random, Configurable):
    """Numbers spread evenly between `minval` and `maxval`.

    Args:
        minval: the lower bound.
        maxval: the upper bound.
        seed: folded into the key, so that two layers may draw differently from one key.
    """

    minval: float = option(-0.05)
    maxval: float = option(0.05)
    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        middle, half = (self.maxval + self.minval) / 2, (self.maxval - self.minval) / 2
        drawn = uniform(self._key(key), tuple(shape), half, dtype)
        return drawn if middle == 0 else drawn + jnp.asarray(middle, drawn.dtype)


class RandomNormal(_Random, Configurable):
    """Numbers of a normal distribution.

    Args:
        mean: its mean.
        stddev: its standard deviation.
        seed: folded into the key.
    """

    mean: float = option(0.0)
    stddev: float = option(0.05)
    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return _scaled(normal(self._key(key), tuple(shape)), self.stddev, self.mean, dtype)


class TruncatedNormal(_Random, Configurable):
    """Numbers of a normal distribution, those beyond two standard deviations left out.

    Args:
        mean: its mean.
        stddev: its standard deviation before the cut.
        seed: folded into the key.
    """

    mean: float = option(0.0)
    stddev: float = option(0.05)
    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        drawn = truncated_normal(self._key(key), tuple(shape))
        return _scaled(drawn, self.stddev, self.mean, dtype)


def _scaled(drawn: jax.Array, scale: float, mean: float, dtype: Any) -> jax.Array:
    if isinstance(drawn, jax.core.Tracer):
        return (drawn * np.float32(scale) + np.float32(mean)).astype(dtype)
    host = np.asarray(drawn) * np.float32(scale) + np.float32(mean)
    return jax.device_put(host.astype(jnp.dtype(dtype)))


def _mode(mode: str) -> str:
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise ValueError(
            f"VarianceScaling: expected mode 'fan_in', 'fan_out' or 'fan_avg', received {mode!r}."
        )
    return mode


def _distribution(name: str) -> str:
    name = "truncated_normal" if name == "normal" else name
    if name not in ("uniform", "truncated_normal", "untruncated_normal"):
        raise ValueError(
            "VarianceScaling: expected distribution 'uniform', 'truncated_normal' or "
            f"'untruncated_normal', received {name!r}."
        )
    return name


def _positive(scale: float) -> float:
    if scale <= 0:
        raise ValueError(f"VarianceScaling: expected scale above 0, received {scale}.")
    return scale


def scaled_by_fans(
    key: jax.Array, shape: Sequence[int], dtype: Any, scale: float, mode: str, distribution: str
) -> jax.Array:
    """Numbers of variance `scale` divided by the number of inputs, of outputs or their mean."""
    fan_in, fan_out = compute_fans(shape)
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    variance = scale / max(1.0, fans[mode])
    if distribution == "uniform":
        return uniform(key, tuple(shape), math.sqrt(3 * variance), dtype)
    if distribution == "untruncated_normal":
        return _scaled(normal(key, tuple(shape)), math.sqrt(variance), 0.0, dtype)
    stddev = math.sqrt(variance) / _TRUNCATED_STDDEV
    return _scaled(truncated_normal(key, tuple(shape)), stddev, 0.0, dtype)


class VarianceScaling(_Random, Configurable):
    """Numbers whose variance follows from the shape: `scale / fan`.

    Args:
        scale: the factor.
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal", "untruncated_normal" or "uniform".
        seed: folded into the key.

    Raises:
        ValueError: for another mode or distribution, or a scale that is not positive.

    Example:
        >>> import jax
        >>> VarianceScaling()(jax.random.key(0), (4, 4)).shape
        (4, 4)
    """

    scale: float = option(1.0, convert=_positive)
    mode: str = option("fan_in", convert=_mode)
    distribution: str = option("truncated_normal", convert=_distribution)
    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(
            self._key(key), shape, dtype, self.scale, self.mode, self.distribution
        )


class GlorotUniform(_Random, Configurable):
    """Numbers spread evenly within sqrt(6 / (fan_in + fan_out)) of 0.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep networks (2010).
    """

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 1.0, "fan_avg", "uniform")


class GlorotNormal(_Random, Configurable):
    """Truncated normal numbers of variance 2 / (fan_in + fan_out)."""

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 1.0, "fan_avg", "truncated_normal")


class LecunNormal(_Random, Configurable):
    """Truncated normal numbers of variance 1 / fan_in."""

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 1.0, "fan_in", "truncated_normal")


class LecunUniform(_Random, Configurable):
    """Numbers spread evenly within sqrt(3 / fan_in) of 0."""

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 1.0, "fan_in", "uniform")


class HeNormal(_Random, Configurable):
    """Truncated normal numbers of variance 2 / fan_in.

    References:
        He et al., Delving deep into rectifiers (2015), arxiv.org/abs/1502.01852.
    """

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 2.0, "fan_in", "truncated_normal")


class HeUniform(_Random, Configurable):
    """Numbers spread evenly within sqrt(6 / fan_in) of 0."""

    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        return scaled_by_fans(self._key(key), shape, dtype, 2.0, "fan_in", "uniform")


@jax.jit
def _orthonormal(flat: jax.Array) -> jax.Array:
    q, r = jnp.linalg.qr(flat)
    # a unique factorization: the signs of r's diagonal move to q
    return q * jnp.sign(jnp.diagonal(r))[None, :]


class Orthogonal(_Random, Configurable):
    """`gain` times a matrix with orthonormal rows or columns, whichever are fewer.

    Weights of more axes are flattened to a matrix over their last axis.

    Args:
        gain: the factor.
        seed: folded into the key.

    Raises:
        ValueError: for a weight of fewer than two axes.

    References:
        Saxe et al., Exact solutions to deep linear networks (2013), arxiv.org/abs/1312.6120.
    """

    gain: float = option(1.0)
    seed: int | None = option(None)

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        if len(shape) < 2:
            raise ValueError(
                f"Orthogonal: expected a weight of two axes or more, received shape {tuple(shape)}."
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        flat = normal(self._key(key), (max(rows, columns), min(rows, columns)))
        q = _orthonormal(flat)
        if isinstance(q, jax.core.Tracer):
            q = q.T if rows < columns else q
            return (np.float32(self.gain) * jnp.reshape(q, shape)).astype(dtype)
        host = np.asarray(q).T if rows < columns else np.asarray(q)
        host = np.float32(self.gain) * np.reshape(host, shape)
        return jax.device_put(host.astype(jnp.dtype(dtype)))


_CLASSES = (
    ("zeros", Zeros),
    ("ones", Ones),
    ("constant", Constant),
    ("identity", Identity),
    ("random_uniform", RandomUniform),
    ("random_normal", RandomNormal),
    ("truncated_normal", TruncatedNormal),
    ("variance_scaling", VarianceScaling),
    ("glorot_uniform", GlorotUniform),
    ("glorot_normal", GlorotNormal),
    ("lecun_uniform", LecunUniform),
    ("lecun_normal", LecunNormal),
    ("he_uniform", HeUniform),
    ("he_normal", HeNormal),
    ("orthogonal", Orthogonal),
)
_NAMES: Mapping[str, type] = types.MappingProxyType(
    {
        **dict(_CLASSES),
        **{cls.__name__: cls for _, cls in _CLASSES},
        "uniform": RandomUniform,
        "normal": RandomNormal,
        "zero": Zeros,
        "one": Ones,
        "OrthogonalInitializer": Orthogonal,
        "IdentityInitializer": Identity,
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The initializer that a name, a configuration or an object means.

    Any function `(key, shape, dtype) -> array` serves, those of `jax.nn.initializers` included.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> get("he_normal")
        HeNormal()
    """
    return lookup(identifier, "initializer", _NAMES, custom_objects)
