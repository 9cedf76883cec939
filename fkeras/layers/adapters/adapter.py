"""`Adapter`: base class of the trained parts that adapt a frozen layer."""

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
    """Changes the output of a frozen layer by trained weights.

    An adapter without weights is a configuration. `transforms.adapt` gives the weights to a copy of
    the adapter for each layer. The base class of `LoRA`, `DoRA`, `IA3`, `Bottleneck` and `SoftPrompt`.

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
        """Returns the reason why the adapter cannot adapt a built layer; None if it can.

        Args:
            layer: a layer of the model, built.
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
        """Returns letters of the axes of the weights, for `fk.weight(axes=...)`.

        Args:
            kernel: the kernel of the adapted layer.
            names: the letters of the axes of the kernel in the layer around it.
        """
        return {}

    @property
    def changes_end(self) -> bool:
        """Whether the adapter changes the output after the activation, not the product before."""
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
            y: the output of the frozen layer, before its activation.
            reverse: whether an embedding computes logits from vectors.
        """
        raise NotImplementedError

    def merged(self, layer: Any) -> dict[str, Any]:
        """Returns the fields of a float layer that includes the adapter: arrays in float64.

        Args:
            layer: the frozen layer, with float weights.

        Raises:
            ValueError: for an adapter that no weights of the layer can replace.
        """
        raise NotImplementedError


def wide(array: Any) -> np.ndarray:
    """Returns an array on the host, in float64."""
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
