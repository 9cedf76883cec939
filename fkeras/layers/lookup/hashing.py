"""`Hashing`: hashes strings and integers to bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import boolean, either, integer, text
from fkeras.engine.config.field_types import Integer, OptionalPair
from fkeras.engine.values.spec import canonical_dtype
from fkeras.layers.lookup.lookup import two_integers
from fkeras.layers.preprocessing.encoding import encode, encode_on_host, output_mode
from fkeras.layers.preprocessing.host import HostLayer, read_strings, reject_sparse
from fkeras.nn.hashing.decimals import as_int32, hash_integers
from fkeras.nn.hashing.fingerprints import hash_strings

_INT32 = np.iinfo("int32")


bins = integer(
    minimum=1,
    maximum=2**31 - 1,
    hint="Give the number of indices, from 1 to 2**31 - 1.",
)


def index_dtype(layer: Any) -> str:
    """Returns the dtype of a layer's indices: the compute dtype if it is an integer, else int64."""
    name = layer.policy.compute_dtype
    return canonical_dtype(name if jnp.issubdtype(name, jnp.integer) else "int64")


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


class Hashing(HostLayer):
    """Computes `hash(x) % num_bins` of each string or integer; integers are hashed as text.

    Lists, strings and NumPy arrays are hashed on the host and give NumPy arrays. Integers also
    work on the device, inside jit and in a graph, as int32. Floats are truncated. Bins equal those
    of Keras with TensorFlow.

    Args:
        num_bins: number `v` of bins, including the bin of `mask_value`.
        mask_value: string or integer with the exclusive bin 0; None for no such value.
        salt: one or two integers, the key of SipHash-2-4; None for FarmHash's Fingerprint64.
        output_mode: "int" for bins, or "one_hot", "multi_hot", "count" as in `CategoryEncoding`.
        sparse: must be False: JAX's arrays are dense.

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

    num_bins: Integer = option(convert=bins)
    mask_value: str | int | None = option(
        default=None, convert=either(integer(), text(empty=True), optional=True)
    )
    salt: OptionalPair = option(default=None, convert=two_integers)
    output_mode: str = option(
        default="int",
        convert=output_mode("int", "one_hot", "multi_hot", "count"),
    )
    sparse: bool = option(default=False, convert=boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_sparse(self.sparse, self._where)

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
        if self.output_mode == "int":
            return ids.astype(index_dtype(self))
        return encode_on_host(ids, self.num_bins, self.output_mode, self.policy.compute_dtype)

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
        if self.output_mode == "int":
            return ids.astype(index_dtype(self))
        return encode(ids, self.num_bins, self.output_mode, self.policy.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return write_dtype(self, super().get_config())

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        return super().from_config(read_dtype(config), custom_objects)
