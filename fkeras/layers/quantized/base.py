"""What quantized layers share: the layer that they stand for, and how both go to Keras's JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from fkeras.engine import Layer, option
from fkeras.engine.config.configurable import decode, encode
from fkeras.engine.config.policy import DTypePolicy, get_policy
from fkeras.engine.config.quantized_policy import quantization as quantization_of
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.values.random import ShapeKey, shape_zeros
from fkeras.quantizers import Float8QuantizationConfig, get, policy_config


def _placed(array: Any) -> Any:
    return jax.device_put(array) if isinstance(array, np.ndarray) else array


def _bare(value: Any) -> Any:
    if not isinstance(value, Layer):
        found = value.__name__ if isinstance(value, type) else type(value).__name__
        raise ValueError(
            f"quantization: layer: expected a layer, received {found}. Pass one: "
            "layers.Dense(8), or quantize a whole model: fk.quantize(model, 'int8')."
        )
    return value.unbuilt()


class Quantized(Layer):
    """A layer whose weights are codes: the base of the quantized layers.

    Args:
        layer: the layer of floats that it stands for, of which the configuration is kept.
        quantization: a mode such as "int8", or a configuration of `fk.quantizers`.
    """

    layer: Layer = option(convert=_bare)
    quantization: Any = option(default="int8", convert=get)

    # the layer inside is configuration: its weights are here, as codes
    child_fields: ClassVar[tuple[str, ...] | None] = ()
    #: the classes that it stands for, and the modes that it has
    twins: ClassVar[tuple[type, ...]] = ()
    modes: ClassVar[tuple[str, ...]] = ()
    #: other classes for the same layers, with other modes
    siblings: ClassVar[tuple[type, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, put = type(self).__name__, object.__setattr__
        if type(self.layer) not in self.twins:
            raise ValueError(
                f"{kind}: layer: expected {' or '.join(t.__name__ for t in self.twins)} itself, "
                f"received {type(self.layer).__name__}. What a class of your own computes is not "
                "known here."
            )
        if self.quantization.mode not in self.modes:
            raise ValueError(
                f"{kind}: quantization: expected one of {', '.join(self.modes)}, received "
                f"{self.quantization.mode!r}. The class for it: fk.quantize(layer, "
                f"{self.quantization.mode!r})."
            )
        if self.quantization.mode == "int8" and self.layer.policy.compute_dtype == "float16":
            raise ValueError(
                f"{kind}: dtype: expected a policy that computes in float32 or bfloat16, received "
                f"{self.layer.policy.name!r}. Sums of products of 8 bits are beyond float16."
            )
        if self.dtype not in (DTypePolicy("float32"), self.layer.dtype):
            raise ValueError(
                f"{kind}: dtype: expected that of the layer, {self.layer.dtype.name!r}, received "
                f"{self.dtype.name!r}. Give it to the layer inside."
            )
        put(self, "name", self.layer.name if self.name is None else self.name)
        put(self, "trainable", self.trainable and self.layer.trainable)
        put(self, "dtype", self.layer.dtype)
        # so that equal layers of other names share what is compiled
        put(self, "layer", self.layer.replace(name=None, trainable=True))

    @property
    def keras_form(self) -> KerasForm:  # type: ignore[override]
        """The form with the class of the layer inside: in Keras the dtype policy says "quantized"."""
        inner = self.layer.keras_form.class_name or type(self.layer).__name__
        return dataclasses.replace(Layer.keras_form, class_name=inner)

    @property
    def supports_masking(self) -> bool:
        """Whether a mask may reach the layer."""
        return self.layer.supports_masking

    def loses_masks(self, masks: Sequence[Any]) -> bool:
        return self.layer.loses_masks(masks)

    @property
    def activity_regularizer(self) -> Any:
        """The penalty on the output."""
        return getattr(self.layer, "activity_regularizer", None)

    @property
    def kernel_regularizer(self) -> Any:
        """The penalty on the kernel, where it is floats."""
        return self.layer.kernel_regularizer

    @property
    def bias_regularizer(self) -> Any:
        """The penalty on the bias."""
        return self.layer.bias_regularizer

    @property
    def kernel_constraint(self) -> Any:
        """What projects the kernel after an update, where it is floats."""
        return self.layer.kernel_constraint

    @property
    def bias_constraint(self) -> Any:
        """What projects the bias after an update."""
        return self.layer.bias_constraint

    def build(self, key: jax.Array, *specs: Any) -> Self:
        layer = self.floating().build(key, *specs)
        if not isinstance(key, ShapeKey):
            return self.encode(layer)
        return jax.tree.map(
            lambda w: shape_zeros(w.shape, w.dtype), jax.eval_shape(self.encode, layer)
        )

    def encode(self, layer: Any) -> Self:
        """A copy with the codes of the weights of a built layer."""
        raise NotImplementedError

    def dequantize(self) -> Layer:
        """The layer of floats that the codes stand for."""
        raise NotImplementedError

    def _coded(self, **weights: Any) -> Any:
        """A copy with these weights, on the device."""
        return self.replace(**jax.tree.map(_placed, weights), _built=True)

    @classmethod
    def of(cls, layer: Any, quantization: Any) -> Any:
        """The quantized layer of a built one."""
        return cls.kind_for(quantization)(layer, quantization).encode(layer)

    @classmethod
    def kind_for(cls, quantization: Any) -> Any:
        """The class that has the mode: this one, or a sibling."""
        kinds = (cls, *cls.siblings)
        return next((k for k in kinds if quantization.mode in k.modes), cls)

    def floating(self, **weights: Any) -> Any:
        """The layer of floats by the name and the mark of this one, with weights where given."""
        marks = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}
        return self.layer.replace(**weights, **marks, _built=bool(weights))

    def get_config(self) -> dict[str, Any]:
        """The configuration of the layer of floats, with the quantized policy, as Keras has it."""
        head = {"name": self.name, "trainable": self.trainable}
        return {
            **self.layer.get_config(),
            **head,
            "dtype": self.quantization.policy(self.dtype.name),
            "quantization_config": encode(self.quantization),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        def unknown(twin: type) -> int:
            return len(set(config) - {f.name for f in dataclasses.fields(twin)})

        return cls.quantized(min(cls.twins, key=unknown), config, custom_objects)

    @classmethod
    def quantized(
        cls, layer: type, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The layer that Keras describes as one of class `layer` with a quantized policy.

        Raises:
            ValueError: where policy and configuration are of different modes.
        """
        policy = quantization_of(config.get("dtype")) or {}
        mode = policy_config(policy)
        inner = {**config, "dtype": get_policy(policy.get("source_name")).name}
        found = decode(inner.pop("quantization_config", None), custom_objects)
        found = mode if found is None else get(found)
        if found.policy_mode.partition("/")[0] != mode.mode:
            raise ValueError(
                f"{layer.__name__}.from_config: expected a quantization_config of the policy's "
                f"mode {mode.mode!r}, received {found!r}. The file is damaged."
            )
        if isinstance(mode, Float8QuantizationConfig):
            found = mode  # Keras keeps the length of the history in the policy alone
        kind = cls.kind_for(found)
        return kind(layer.from_config(inner, custom_objects=custom_objects), found)
