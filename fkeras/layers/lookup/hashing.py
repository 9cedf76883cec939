"""`Hashing` and `HashedCrossing`: indices of values by hash, without a vocabulary."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.lookup.lookup import two_integers
from fkeras.layers.preprocessing.encoding import encode, encode_on_host, output_mode
from fkeras.layers.preprocessing.host import HostLayer, as_data, read_strings
from fkeras.nn.hashing.decimals import as_int32, hash_integers, widen
from fkeras.nn.hashing.fingerprints import cross, hash_strings
from fkeras.nn.hashing.wide import Wide

_INT32 = np.iinfo("int32")


bins = fk.integer(
    minimum=1,
    maximum=2**31 - 1,
    hint="Give the number of indices, from 1 to 2**31 - 1.",
)


def index_dtype(layer: fk.Layer) -> str:
    """Returns the dtype of a layer's indices: the compute dtype if it is an integer, else int64."""
    name = layer.policy.compute_dtype
    return fk.canonical_dtype(name if jnp.issubdtype(name, jnp.integer) else "int64")


def write_dtype(layer: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Replaces a default dtype in a config by Keras's dtype for layers that return indices."""
    # Keras writes int64 for layers with integer outputs; fkeras's default is float32
    is_default = layer.output_mode == "int" and layer.dtype.name == "float32"
    return {**config, "dtype": "int64"} if is_default else config


def read_dtype(config: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the dtype that `write_dtype` wrote from a config."""
    dtype = config.get("dtype")
    name = dtype["config"]["name"] if isinstance(dtype, Mapping) else dtype
    is_default = config.get("output_mode", "int") == "int" and name == "int64"
    return {k: v for k, v in config.items() if k != "dtype" or not is_default}


def encoded(layer: Any, ids: fk.Leaf, encode: Callable) -> Any:
    """Returns bins in the dtype of a layer's indices, or as vectors in its `output_mode`."""
    if layer.output_mode == "int":
        return ids.astype(index_dtype(layer))
    return encode(ids, layer.num_bins, layer.output_mode, layer.policy.compute_dtype)


class _Bins(HostLayer):
    """Computes bins, which Keras writes with the dtype of integers."""

    def get_config(self) -> dict[str, Any]:
        return write_dtype(self, super().get_config())

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        return super().from_config(read_dtype(config), custom_objects)


class Hashing(_Bins):
    """Computes `hash(x) % num_bins` of each string or integer; integers are hashed as text.

    Lists, strings and NumPy arrays are hashed on the host and give NumPy arrays. Integers also
    work on the device, inside jit and in a graph, as int32. Floats are truncated. Bins equal those
    of Keras with TensorFlow.

    Args:
        num_bins: number `v` of bins, including the bin of `mask_value`.
        mask_value: string or integer with the exclusive bin 0; None for no such value.
        salt: one or two integers, the key of SipHash-2-4; None for FarmHash's Fingerprint64.
        output_mode: "int" for bins, or "one_hot", "multi_hot", "count" as in `CategoryEncoding`.

    Shapes:
        (...) -> (...) of integers; "one_hot": (b, n) -> (b, n, v), and (b, 1) -> (b, v);
        otherwise (..., n) -> (..., v).

    Raises:
        ValueError: for an invalid number of bins or an invalid salt.
        TypeError: for integers on the device that int32 cannot hold.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Hashing(3)(["A", "B", "E"])
        array([1, 0, 2], dtype=int32)
        >>> jax.jit(fk.layers.Hashing(10, salt=133))(jnp.array([1, 2, 3]))
        Array([0, 5, 7], dtype=int32)

    References:
        FarmHash, Google, 2014; SipHash, Aumasson and Bernstein, 2012.
    """

    num_bins: fk.Integer = fk.option(convert=bins)
    mask_value: str | int | None = fk.option(
        default=None, convert=fk.either(fk.integer(), fk.text(empty=True), optional=True)
    )
    salt: fk.OptionalPair = fk.option(default=None, convert=two_integers)
    output_mode: str = fk.option(
        default="int",
        convert=output_mode("int", "one_hot", "multi_hot", "count"),
    )
    sparse: bool = fk.option(default=False, convert=fk.boolean)

    @property
    def _buckets(self) -> tuple[int, bool]:
        """Returns the number of bins for hashes, and whether bin 0 is reserved."""
        # bin 0 is reserved for the masked value, as in Keras
        reserved = self.mask_value is not None and self.num_bins > 1
        return self.num_bins - reserved, reserved

    def on_host(self, x: np.ndarray) -> np.ndarray:
        if x.dtype.kind in "iuf":
            integers = x.astype("int64").ravel().tolist()
            texts, values = [b"%d" % i for i in integers], x.ravel().tolist()
        elif x.dtype.kind == "b":
            values = x.ravel().tolist()
            texts = [b"true" if v else b"false" for v in values]
        else:
            values = read_strings(x, "utf-8", self._where)
            texts = [text.encode() for text in values]
        buckets, reserved = self._buckets
        ids = (hash_strings(texts, self.salt) % np.uint64(buckets)).astype("int64")
        if reserved:
            ids = np.where([v == self.mask_value for v in values], 0, ids + 1)
        ids = ids.reshape(x.shape)
        return encoded(self, ids, encode_on_host)

    def call(self, x: jax.Array) -> jax.Array:
        # JAX has no 64-bit integers by default, so the device hashes the decimal form of int32
        numbers = as_int32(x, self._where)
        buckets, reserved = self._buckets
        ids = hash_integers(numbers, self.salt).remainder(buckets)
        if reserved:
            ids = ids + 1
            value = self.mask_value
            # a mask value beyond int32 cannot occur on the device
            if isinstance(value, int) and _INT32.min <= value <= _INT32.max:
                ids = jnp.where(x == value, jnp.zeros_like(ids), ids)
        return encoded(self, ids, encode)


# TensorFlow's initial value of a crossing; with it bins agree
_START = 0xDECAFCAFFE


class HashedCrossing(_Bins):
    """Computes a bin for each combination of feature values: `hash(x1, x2, ...) % num_bins`.

    A string contributes its fingerprint, an integer its value. Lists, strings and NumPy arrays are
    crossed on the host and give NumPy arrays. Integers also work on the device, inside jit and in
    a graph, as int32. Bins equal those of Keras with TensorFlow.

    Args:
        num_bins: number `v` of bins.
        output_mode: "int" for bins, "one_hot" for vectors.

    Shapes:
        Two or more of equal shape (b,), (b, 1) or () -> that shape, integer; "one_hot": -> (b, v).

    Raises:
        ValueError: for fewer than two features, and for unsupported or different shapes.
        TypeError: for features that are neither strings nor integers, and for integers on the
            device that int32 cannot hold.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.HashedCrossing(5)
        >>> layer((["A", "B", "A"], [101, 101, 102]))
        array([1, 4, 3], dtype=int32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype")

    num_bins: fk.Integer = fk.option(convert=bins)
    output_mode: str = fk.option(default="int", convert=output_mode("int", "one_hot"))
    sparse: bool = fk.option(default=False, convert=fk.boolean)

    def read(self, value: fk.Field) -> fk.Tree:
        self._check_count(value)
        return [as_data(feature, self._where) for feature in value]

    def _check_count(self, features: fk.Leaf) -> None:
        if not isinstance(features, list | tuple) or len(features) < 2:
            count = len(features) if isinstance(features, list | tuple) else 1
            raise ValueError(
                f"{self._where}: expected a list of two features or more, received {count}. Write "
                "layer([first, second])."
            )

    def _check_shapes(self, features: Sequence[Any]) -> None:
        shapes = [tuple(feature.shape) for feature in features]
        first = shapes[0]
        if len(first) > 2 or (len(first) == 2 and first[1] != 1):
            raise ValueError(
                f"{self._where}: expected one value per sample, of shape (b,) or (b, 1), received "
                f"{first}. Cross the columns one by one."
            )
        if any(shape != first for shape in shapes):
            raise ValueError(
                f"{self._where}: expected features of one shape, received "
                f"{', '.join(map(str, shapes))}. Each sample needs one value of every feature."
            )

    def _word(self, feature: np.ndarray) -> np.ndarray:
        flat = feature.ravel()
        if feature.dtype.kind in "iu":
            # integers are their own fingerprint in TensorFlow's crossing
            return flat.astype("uint64")
        if feature.dtype.kind in "fb":
            raise TypeError(
                f"{self._where}: expected strings or integers, received {feature.dtype}. Convert "
                "floats to integers with Discretization first."
            )
        return hash_strings([t.encode() for t in read_strings(flat, "utf-8", self._where)])

    def on_host(self, x: Sequence[np.ndarray]) -> np.ndarray:
        self._check_shapes(x)
        start = np.full(x[0].size, _START, np.uint64)
        # the same `cross` runs on NumPy's uint64 here and on `Wide` pairs in `call`
        crossed = functools.reduce(cross, map(self._word, x), start)
        ids = (crossed % np.uint64(self.num_bins)).astype("int64").reshape(x[0].shape)
        return encoded(self, ids, encode_on_host)

    def call(self, x: Sequence[jax.Array]) -> jax.Array:
        self._check_count(x)
        self._check_shapes(x)
        for feature in x:
            if feature.dtype.kind not in "iu":
                raise TypeError(
                    f"{self._where}: expected integers on the device, received {feature.dtype}. "
                    "Convert floats to integers with Discretization first."
                )
        words = [widen(as_int32(feature, self._where)) for feature in x]
        start = Wide.of(_START, words[0].low)
        ids = functools.reduce(cross, words, start).remainder(self.num_bins)
        return encoded(self, ids, encode)
