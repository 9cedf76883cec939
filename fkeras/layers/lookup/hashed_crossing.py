"""`HashedCrossing`: crosses several features by a hash of their values."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import boolean
from fkeras.engine.config.field_types import Integer
from fkeras.layers.lookup.hashing import bins, index_dtype, read_dtype, write_dtype
from fkeras.layers.preprocessing.encoding import encode, encode_on_host, output_mode
from fkeras.layers.preprocessing.host import HostLayer, as_data, read_strings, reject_sparse
from fkeras.nn.hashing.decimals import as_int32, widen
from fkeras.nn.hashing.fingerprints import cross, hash_strings
from fkeras.nn.hashing.wide import Wide

# TensorFlow's initial value of a crossing; with it bins agree
_START = 0xDECAFCAFFE


class HashedCrossing(HostLayer):
    """Computes a bin for each combination of feature values: `hash(x1, x2, ...) % num_bins`.

    A string contributes its fingerprint, an integer its value. Lists, strings and NumPy arrays are
    crossed on the host and give NumPy arrays. Integers also work on the device, inside jit and in
    a graph, as int32. Bins equal those of Keras with TensorFlow.

    Args:
        num_bins: number `v` of bins.
        output_mode: "int" for bins, "one_hot" for vectors.
        sparse: must be False: JAX's arrays are dense.

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

    num_bins: Integer = option(convert=bins)
    output_mode: str = option(default="int", convert=output_mode("int", "one_hot"))
    sparse: bool = option(default=False, convert=boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_sparse(self.sparse, self._where)

    def read(self, value: Any) -> Any:
        self._check_count(value)
        return [as_data(feature, self._where) for feature in value]

    def _check_count(self, features: Any) -> None:
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
        if self.output_mode == "int":
            return ids.astype(index_dtype(self))
        return encode_on_host(ids, self.num_bins, self.output_mode, self.policy.compute_dtype)

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
