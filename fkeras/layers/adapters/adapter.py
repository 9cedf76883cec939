"""`Adapter`: base class of adapters of a frozen layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import jax
import numpy as np
from jax.core import Tracer

from fkeras.layers.adapters.kernels import Kernel
from fkeras.layers.common import authoring as fk
from fkeras.layers.quantized.base import Quantized


class Adapter(fk.Layer):
    """Changes the output of a frozen layer with a few trained weights.

    An adapter without weights is a configuration, from which `transforms.adapt` makes an adapter with
    weights for each layer. The base class of `LoRA`, `DoRA`, `IA3`, `Bottleneck` and `SoftPrompt`.

    Example:
        >>> from fkeras import transforms
        >>> transforms.LoRA(rank=4)
        LoRA(4)
    """

    @property
    def built(self) -> bool:
        # `fitted` makes the weights, not `build`
        return bool(self.__dict__.get("_built"))

    def refusal(self, layer: fk.Layer) -> str | None:
        """Returns why the adapter cannot adapt a layer; None if the adapter can.

        Args:
            layer: a built layer.
        """
        raise NotImplementedError

    def fitted(self, key: jax.Array, layer: fk.Layer) -> Self:
        """Returns a copy with weights for a built layer.

        Args:
            key: a PRNG key.
            layer: the layer to adapt.
        """
        raise NotImplementedError

    def expects(self, layer: fk.Layer) -> Mapping[str, tuple[int, ...]]:
        """Returns the shape of each weight for a built layer.

        Args:
            layer: the layer to adapt.
        """
        raise NotImplementedError

    def letters(self, kernel: Kernel, names: str) -> Mapping[str, str]:
        """Returns the letters of the axes of each weight, as in `fk.weight(axes=...)`.

        Args:
            kernel: the kernel of the adapted layer.
            names: the letters of the axes of the kernel in the layer around it.
        """
        return {}

    @property
    def changes_end(self) -> bool:
        """Whether the adapter changes the output of the activation, not its input."""
        return False

    def before(self, layer: fk.Layer, x: Any) -> Any:
        """Returns the input of the frozen layer.

        Args:
            layer: the frozen layer.
            x: the input of the adapted layer.
        """
        return x

    def after(
        self, context: fk.Context, layer: Any, x: Any, y: Any, reverse: bool = False
    ) -> jax.Array:
        """Returns the adapted output.

        Args:
            context: the context of the call.
            layer: the frozen layer.
            x: the input of the adapted layer.
            y: the output of the frozen layer, before its activation unless `changes_end`.
            reverse: whether an embedding computes logits from vectors.
        """
        raise NotImplementedError

    def merged(self, layer: Any) -> dict[str, Any]:
        """Returns the fields of the float layer that equals layer and adapter; arrays in float64.

        Args:
            layer: the frozen layer, with float weights.

        Raises:
            ValueError: for an adapter that cannot be merged into the weights of the layer.
        """
        raise NotImplementedError


def adapters_by_path(value: fk.Field) -> fk.Field:
    """Rejects a field that is no dictionary of adapters."""
    if not isinstance(value, Mapping) or not all(isinstance(a, Adapter) for a in value.values()):
        raise ValueError(
            f"expected a dictionary of adapters by path, received {fk.describe_value(value)}. Write "
            'transforms.adapt(model, "dense", transforms.LoRA(rank=8), key).'
        )
    return value


def as_float64(array: Any) -> np.ndarray:
    """Returns an array as a NumPy array of float64."""
    if isinstance(array, Tracer):
        raise fk.FKerasError(
            "transforms.merge_adapters: expected a model of arrays, received a traced array. The sums "
            "are computed with NumPy: merge before jax.jit or jax.grad."
        )
    return np.asarray(array).astype(np.float64)


def check_float(layer: Any, path: str) -> None:
    """Raises a ValueError for a layer with quantized weights, which cannot hold a merged kernel."""
    if isinstance(layer, Quantized):
        mode = layer.quantization.policy_mode
        raise ValueError(
            f"merge_adapters: {path!r} has {mode!r} weights. Rounding the sum of kernel and adapter to "
            "codes again would lose a part of the adapter without a message. Merge floats, then "
            f"quantize: fk.quantize(transforms.merge_adapters(fk.dequantize(model)), {mode!r}); or "
            "keep the adapter beside the codes."
        )
