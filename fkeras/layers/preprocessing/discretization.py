"""`Discretization`: maps numbers to bin indices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.migration_hints.dropped import returned
from fkeras.layers.common import authoring as fk
from fkeras.layers.preprocessing.batches import iterate
from fkeras.layers.preprocessing.encoding import INVALID, NOTHING, encode, output_mode
from fkeras.layers.preprocessing.host import ListLayer, as_data
from fkeras.layers.preprocessing.quantiles import find_boundaries, merge, summarize

_numbers = fk.several(
    fk.real(infinite=True), "a list of numbers in increasing order", optional=True, least=0
)


def _boundaries(value: fk.Field) -> Any:
    numbers = _numbers(value)
    if numbers is not None and any(b < a for a, b in itertools.pairwise(numbers)):
        raise ValueError(
            f"expected a list of numbers in increasing order, received {value!r}. Give them in "
            "order: [0.0, 1.0, 2.0]."
        )
    return numbers


class Discretization(ListLayer):
    """Returns the bin index of each number: the number of boundaries that are not above it.

    Boundaries are arguments, or `adapt` computes them so that the bins contain approximately equal
    numbers of values. The layer works on the device, inside jit and in a graph. NaN belongs to no
    bin: its index is -1, and its vector is NaN (Keras puts NaN into the last bin). Comparison is
    in float32 under every dtype policy.

    Args:
        bin_boundaries: k sorted numbers; the first bin is below the first boundary, the last bin
            starts at the last boundary.
        num_bins: number of bins that `adapt` computes.
        epsilon: largest fraction of the data that the summary of `adapt` may misplace.
        output_mode: "int" for indices, or "one_hot", "multi_hot", "count" as in `CategoryEncoding`.

    Shapes:
        (b, ...) -> (b, ...) of int32; "one_hot": (b, n) -> (b, n, k + 1), and (b, 1) -> (b, k + 1);
        "multi_hot", "count": (b, ..., n) -> (b, ..., k + 1), where Keras sums axis 1 at every rank.

    Raises:
        ValueError: unless exactly one of `bin_boundaries` and `num_bins` is given, for boundaries
            that are not sorted, and in a call before `adapt`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.Discretization([0.0, 1.0, 2.0])([[-1.5, 1.0, 3.4]])
        Array([[0, 2, 3]], dtype=int32)
        >>> layer = fk.layers.Discretization(num_bins=4).adapt([[1.0, 2.0, 3.0, 4.0]])
        >>> layer.bin_boundaries
        (1.0, 2.0, 3.0)
    """

    _positional: ClassVar[tuple[str, ...]] = ("dtype", "name")

    bin_boundaries: fk.OptionalReals = fk.option(default=None, convert=_boundaries)
    num_bins: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    epsilon: fk.Real = fk.option(default=0.01, convert=fk.real(above=0, below=1))
    output_mode: str = fk.option(
        default="int",
        convert=output_mode("int", "one_hot", "multi_hot", "count"),
    )
    sparse: bool = fk.option(default=False, convert=fk.boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.bin_boundaries is None) == (self.num_bins is None):
            raise ValueError(
                f"{self._where}: expected either bin_boundaries or num_bins, received "
                f"{'neither' if self.num_bins is None else 'both'}. Give the boundaries, or the "
                "number of bins and then `layer = layer.adapt(data)`."
            )

    @fk.hides_internal_frames
    def adapt(self, data: fk.Tree, steps: int | None = None) -> Self:
        """Returns a copy whose bins contain approximately equal numbers of values.

        Args:
            data: an array, or batches of numbers: a list or another iterable whose elements are
                batches.
            steps: number of batches to read from an iterable; None for all.

        Raises:
            ValueError: for a layer without `num_bins`, and for empty data.
        """
        if self.num_bins is None:
            raise ValueError(
                f"{self._where}: adapt computes boundaries for num_bins bins, but this layer has "
                "fixed bin_boundaries. Write Discretization(num_bins=...).adapt(data)."
            )
        batches: Iterable = data if isinstance(data, list | tuple) else iterate(data, steps)
        if isinstance(data, list | tuple) and steps is not None:
            batches = data[:steps]
        # the summary has bounded size, so `adapt` reads data of any size in one pass
        summary = np.zeros((2, 0), "float32")
        for batch in batches:
            values = np.asarray(as_data(batch, self._where)).astype("float32")
            summary = merge(summarize(values, self.epsilon), summary, self.epsilon)
        if summary.size == 0:
            raise ValueError(
                f"{self._where}: adapt received no numbers. Give an array, or batches of numbers; "
                "an exhausted iterator has no data."
            )
        adapted = self.replace(bin_boundaries=find_boundaries(summary, self.num_bins))
        return returned(adapted, "Discretization.adapt", "layer = layer.adapt(data)", depth=2)

    def call(self, x: jax.Array) -> jax.Array:
        if self.bin_boundaries is None:
            raise ValueError(
                f"{self._where}: has no boundaries yet. Compute them first: `layer = "
                "layer.adapt(data)`, or give bin_boundaries."
            )
        dtype = "float64" if fk.canonical_dtype(x.dtype) == "float64" else "float32"
        boundaries = jnp.asarray(self.bin_boundaries, dtype)
        ids = jnp.searchsorted(boundaries, x.astype(dtype), side="right").astype("int32")
        # searchsorted orders NaN after all numbers, into the last bin
        missing = jnp.isnan(x.astype(dtype))
        if self.output_mode == "int":
            return jnp.where(missing, NOTHING, ids)
        ids = jnp.where(missing, INVALID, ids)
        depth = len(self.bin_boundaries) + 1
        return encode(ids, depth, self.output_mode, self.policy.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if config["trainable"]:  # Keras's class lacks the argument
            del config["trainable"]
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # an adapted layer has both fields, which the constructor rejects
        if config.get("num_bins") is None or config.get("bin_boundaries") is None:
            return super().from_config(config, custom_objects)
        layer = super().from_config({**config, "bin_boundaries": None}, custom_objects)
        return layer.replace(bin_boundaries=_boundaries(config["bin_boundaries"]))
