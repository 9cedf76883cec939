"""Random numbers for weights, without a compiled program for each shape.

The bits are those of JAX's threefry generator. A concrete key draws the bits on the host with NumPy, a
traced key with `jax.random.bits`. The steps after that (one rounding, or one fixed program) are the
same, so a key gives equal weights eagerly, under `jit` and under `vmap`.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

from fkeras.engine.values.annotations import Leaf

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_MASK = 0xFFFFFFFF
# elements per piece: small enough that the dozen passes over a piece stay in the CPU's cache
_PIECE = 1 << 15
_HALF = 23  # bits of a draw: an odd integer below 2**23 is exact in float32


def _threefry(
    k0: np.ndarray, k1: np.ndarray, x0: np.ndarray, x1: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Computes Threefry-2x32 with 20 rounds in place, on arrays of uint32.

    Args:
        k0: first words of the keys, which broadcast to `x0`.
        k1: second words of the keys.

    References:
        Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0 += keys[0]
    x1 += keys[1]
    high = np.empty_like(x1)
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 += x1
            np.right_shift(x1, np.uint32(32 - rotation), out=high)
            np.left_shift(x1, np.uint32(rotation), out=x1)
            np.bitwise_or(x1, high, out=x1)
            np.bitwise_xor(x1, x0, out=x1)
        x0 += keys[(block + 1) % 3]
        x1 += keys[(block + 2) % 3] + np.uint32(block + 1)  # arrays of uint32 wrap
    return x0, x1


def _folded(words: tuple[int, int], number: int) -> tuple[int, int]:
    """Returns the words of `jax.random.fold_in(key, number)`.

    The computation is that of `_threefry`, with integers: NumPy takes 20 times as long for one draw.
    """
    keys = (*words, words[0] ^ words[1] ^ int(_PARITY))
    x0, x1 = keys[0], (keys[1] + number) & _MASK
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = (x0 + x1) & _MASK
            x1 = ((x1 << rotation | x1 >> (32 - rotation)) & _MASK) ^ x0
        x0 = (x0 + keys[(block + 1) % 3]) & _MASK
        x1 = (x1 + keys[(block + 2) % 3] + block + 1) & _MASK
    return x0, x1


def _host_key(key: Leaf) -> tuple[np.uint32, np.uint32] | None:
    """Returns the two words of a concrete threefry key; None for any other key."""
    check_key(key)
    if isinstance(key, Tracer) or str(key.dtype) != "key<fry>" or key.shape != ():
        return None
    config: Any = jax.config
    if not config.jax_threefry_partitionable:
        return None
    with jax.ensure_compile_time_eval():  # a concrete key stays concrete under a user's trace
        words = np.asarray(jax.random.key_data(key))
    return words[0], words[1]


class ShapeKey:
    """A key for shapes alone: weights built with this key are zeros that take no memory.

    Example:
        >>> import fkeras as fk
        >>> kernel = fk.layers.Dense(4096).build(ShapeKey(), (None, 4096)).kernel
        >>> kernel.shape, kernel.strides
        ((4096, 4096), (0, 0))
    """

    dtype = jax.dtypes.prng_key
    shape = ()

    def __init__(self) -> None:
        #: networks built with this key, by their unbuilt layers and the specs of their inputs
        self.built: dict[Any, Any] = {}


def shape_zeros(shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    """Returns zeros that take no memory: one element with strides of 0.

    Example:
        >>> shape_zeros((1000, 1000), "int8").strides
        (0, 0)
    """
    return np.broadcast_to(np.zeros((), jnp.dtype(dtype)), tuple(map(int, shape)))


def check_key(key: Leaf, where: str = "") -> None:
    """Rejects values other than one typed PRNG key; the message has the line to write.

    Raises:
        TypeError: for other types, untyped keys and arrays of keys.

    Example:
        >>> check_key(jax.random.key(0), "build")
    """
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", ())
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if typed and shape == ():
        return
    start = f"{where} expected" if where else "expected"
    if typed:
        raise TypeError(
            f"{start} one PRNG key, received an array of keys of shape {shape}. Pass one of them, "
            "keys[0], or map over them with jax.vmap."
        )
    if dtype == np.uint32 and len(shape) == 1:
        raise TypeError(
            f"{start} a typed PRNG key, received an untyped key, uint32{list(shape)}. Make it with "
            "jax.random.key(0) instead of jax.random.PRNGKey(0), or convert it: "
            "jax.random.wrap_key_data(key)."
        )
    code = f"jax.random.key({key})" if isinstance(key, int) else "jax.random.key(0)"
    raise TypeError(f"{start} a typed PRNG key, received {type(key).__name__}. Make a key: {code}.")


def fold_in(key: Leaf, data: int | str | jax.Array) -> Leaf:
    """Returns the key that `data` derives from `key`; a name is folded in by its checksum.

    Args:
        data: an integer, whose lowest 32 bits count, or a name.

    Returns:
        The key that `jax.random.fold_in` returns for these bits.

    Raises:
        TypeError: for an untyped key or another value.
    """
    if isinstance(key, ShapeKey):
        return key
    number = zlib.crc32(data.encode()) if isinstance(data, str) else data
    if not isinstance(number, int):
        return jax.random.fold_in(key, number)
    # the lowest 32 bits: seeds in TensorFlow's files may be negative
    number &= _MASK
    words = _host_key(key)
    if words is None:
        return jax.random.fold_in(key, jnp.uint32(number))
    bits: Any = np.array(_folded((int(words[0]), int(words[1])), number), np.uint32)
    with jax.ensure_compile_time_eval():
        return jax.random.wrap_key_data(bits, impl="threefry2x32")


def _host_pieces(words: tuple[np.uint32, np.uint32], size: int) -> Any:
    """Yields `(slice, bits)`: the bits of `jax.random.bits(key, (size,))` in pieces."""
    for start in range(0, size, _PIECE):
        count = np.arange(start, min(start + _PIECE, size), dtype=np.uint64)
        high = (count >> np.uint64(32)).astype(np.uint32)
        low = count.astype(np.uint32)
        x0, x1 = _threefry(np.array([words[0]]), np.array([words[1]]), high, low)
        yield slice(start, start + len(count)), np.bitwise_xor(x0, x1, out=x0)


def host_bits(key_data: Leaf, numbers: tuple[int, ...], size: int) -> np.ndarray:
    """Computes `jax.random.bits(key, (size,), "uint32")` on the host, without compilation.

    Args:
        key_data: the two words of a threefry key, or a row of two words for each of several keys, whose
            bits are rows of the result. JAX's option `jax_threefry_partitionable` must be set.
        numbers: numbers that are folded into the key, one after the other.
    """
    data = np.asarray(key_data)
    words = [(int(first), int(second)) for first, second in data.reshape(-1, 2)]
    for number in numbers:
        words = [_folded(each, number & _MASK) for each in words]
    bits = np.empty((len(words), size), np.uint32)
    rows = max(_PIECE // max(size, 1), 1)
    for start in range(0, len(words), rows):
        some = np.array(words[start : start + rows], np.uint32)
        if len(some) == 1:
            for piece, drawn in _host_pieces((some[0, 0], some[0, 1]), size):
                bits[start, piece] = drawn
        else:
            high = np.zeros((len(some), size), np.uint32)
            low = np.tile(np.arange(size, dtype=np.uint32), (len(some), 1))
            x0, x1 = _threefry(some[:, :1], some[:, 1:], high, low)
            np.bitwise_xor(x0, x1, out=bits[start : start + rows])
    return bits.reshape(*data.shape[:-1], size)


def _odd_integers(bits: Leaf, xp: Any) -> Leaf:
    """Returns odd integers between -2**23 and 2**23, exact in float32.

    Odd integers exclude 0 and both ends, so the inverse error function stays finite.
    """
    high_bits = (bits >> np.uint32(32 - _HALF)).astype(xp.int32)
    return (high_bits * 2 + (1 - (1 << _HALF))).astype(xp.float32)


def uniform(
    key: jax.Array, shape: tuple[int, ...], limit: float = 1.0, dtype: DTypeLike = "float32"
) -> jax.Array:
    """Draws samples from a uniform distribution over (-limit, limit), both ends excluded.

    Args:
        dtype: the dtype of the result; samples are drawn in float32.

    Example:
        >>> import jax
        >>> x = uniform(jax.random.key(0), (100,), 0.5)
        >>> bool((abs(x) < 0.5).all())
        True
    """
    scale = np.float32(limit * 2.0**-_HALF)
    words = _host_key(key)
    if words is None:
        bits = jax.random.bits(key, tuple(shape), "uint32")
        return (_odd_integers(bits, jnp) * scale).astype(dtype)
    out = np.empty(math.prod(shape), np.float32)
    for piece, bits in _host_pieces(words, out.size):
        np.multiply(_odd_integers(bits, np), scale, out=out[piece])
    return jax.device_put(out.reshape(shape).astype(jnp.dtype(dtype)))


def _signed(bits: jax.Array) -> jax.Array:
    return _odd_integers(bits, jnp) * np.float32(2.0**-_HALF)


def _normal_of(bits: jax.Array) -> jax.Array:
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(_signed(bits))


def _truncated_of(bits: jax.Array) -> jax.Array:
    # erf maps the cut at two standard deviations to a symmetric range of probabilities
    bound = np.float32(math.erf(2 / math.sqrt(2)))
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(_signed(bits) * bound)


@functools.partial(jax.jit, static_argnums=0)
def _piece(transform: Callable, bits: jax.Array) -> jax.Array:
    return transform(bits)


def _transformed_samples(
    key: jax.Array, shape: tuple[int, ...], transform: Callable, dtype: DTypeLike
) -> jax.Array:
    words = _host_key(key)
    if words is None:
        samples = transform(jax.random.bits(key, tuple(shape), "uint32"))
        # without the barrier XLA merges factors of the transform with the caller's: other rounding
        return jax.lax.optimization_barrier(samples).astype(dtype)
    out = np.empty(math.prod(shape), np.float32)
    padded = np.zeros(_PIECE, np.uint32)
    for piece, bits in _host_pieces(words, out.size):
        padded[: len(bits)] = bits  # one program for every shape
        with jax.ensure_compile_time_eval():  # concrete under a user's trace too
            out[piece] = np.asarray(_piece(transform, padded))[: len(bits)]
    return jax.device_put(out.reshape(shape).astype(jnp.dtype(dtype)))


def normal(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = "float32") -> jax.Array:
    """Draws samples from the standard normal distribution.

    Example:
        >>> import jax
        >>> normal(jax.random.key(0), (2, 3)).shape
        (2, 3)
    """
    return _transformed_samples(key, shape, _normal_of, dtype)


def truncated_normal(
    key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = "float32"
) -> jax.Array:
    """Draws samples from the standard normal distribution truncated at two standard deviations.

    Example:
        >>> import jax
        >>> x = truncated_normal(jax.random.key(0), (1000,))
        >>> bool((abs(x) <= 2).all())
        True
    """
    return _transformed_samples(key, shape, _truncated_of, dtype)
