"""`Quantized`: base class of quantized layers; the float layer is their configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from fkeras.engine.config.policy_maps import quantization as quantization_of
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.layers.common import authoring as fk
from fkeras.quantizers import Float8QuantizationConfig, get, policy_config


def _placed(array: fk.Leaf) -> fk.Leaf:
    return jax.device_put(array) if isinstance(array, np.ndarray) else array


def _unbuilt(value: fk.Field) -> fk.Layer:
    if not isinstance(value, fk.Layer):
        received = value.__name__ if isinstance(value, type) else type(value).__name__
        raise ValueError(
            f"quantization: layer: expected a layer, received {received}. Pass one: "
            "layers.Dense(8), or quantize a whole model: fk.quantize(model, 'int8')."
        )
    return value._unbuilt()


class Quantized(fk.Layer):
    """Base class of layers with quantized weights.

    Args:
        layer: the float layer to quantize; only its configuration is stored.
        quantization: a mode such as "int8", or a configuration of `fk.quantizers`.
    """

    # an instance of exactly one of the classes in `twins`
    layer: Any = fk.option(convert=_unbuilt)
    quantization: Any = fk.option(default="int8", convert=get)

    # the inner layer is configuration, not a child: the quantized weights are fields of this layer
    _child_fields: ClassVar[tuple[str, ...] | None] = ()
    #: classes of float layers, and supported modes
    twins: ClassVar[tuple[type, ...]] = ()
    modes: ClassVar[tuple[str, ...]] = ()
    #: classes that quantize the same layers with other modes
    siblings: ClassVar[tuple[type, ...]] = ()
    #: names of float weights whose codes `codes` computes, each without the others; other weights stay floats
    separate: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        class_name, set_field = type(self).__name__, object.__setattr__
        if type(self.layer) not in self.twins:
            raise ValueError(
                f"{class_name}: layer: expected {' or '.join(t.__name__ for t in self.twins)}, not "
                f"a subclass, received {type(self.layer).__name__}. A subclass may compute "
                "something else."
            )
        if self.quantization.mode not in self.modes:
            raise ValueError(
                f"{class_name}: quantization: expected one of {', '.join(self.modes)}, received "
                f"{self.quantization.mode!r}. Write fk.quantize(layer, {self.quantization.mode!r}), which "
                "selects the class, or another mode."
            )
        # sums of int8 products exceed float16's range already for a few inputs
        if self.quantization.mode == "int8" and self.layer.policy.compute_dtype == "float16":
            raise ValueError(
                f"{class_name}: dtype: expected a policy that computes in float32 or bfloat16, "
                f"received {self.layer.policy.name!r}. Sums of 8-bit products overflow float16."
            )
        if self.dtype not in (fk.DTypePolicy("float32"), self.layer.dtype):
            raise ValueError(
                f"{class_name}: dtype: expected the dtype of the inner layer, "
                f"{self.layer.dtype.name!r}, received {self.dtype.name!r}. Set the dtype of the "
                "inner layer."
            )
        set_field(self, "name", self.layer.name if self.name is None else self.name)
        set_field(self, "trainable", self.trainable and self.layer.trainable)
        set_field(self, "dtype", self.layer.dtype)
        # layers that differ only in name share compiled code
        set_field(self, "layer", self.layer.replace(name=None, trainable=True))

    @property
    def _keras_form(self) -> fk.KerasForm:  # type: ignore[override]
        """`KerasForm` with the inner layer's class; Keras's dtype policy marks quantization."""
        inner = fk.keras_form(self.layer).class_name or type(self.layer).__name__
        return fk.KerasForm(class_name=inner)

    @property
    def axis_names(self) -> fk.AxisNames:
        letters, units = self._axes()
        pairs = zip(skeleton_of(self).weights, leaves_of(self), strict=True)
        all_letters = {
            name: letters.get(name, fk.unnamed(array)) for name, array in pairs if array is not None
        }
        return dataclasses.replace(
            self._shaped.axis_names,
            weights=fk.FrozenDict(all_letters),
            units=fk.FrozenDict({name: units[name] for name in units if name in all_letters}),
        )

    def _axes(self) -> tuple[Mapping[str, str], Mapping[str, tuple[int, ...]]]:
        """Returns the letters of the axes of weights, and their sizes in units; see `AxisNames`."""
        return fk.weight_letters(self.layer), {}

    @property
    def _shaped(self) -> Any:
        """The float layer, with the shape of its kernel if the layer is built."""
        return self.layer

    @property
    def supports_masking(self) -> bool:
        """Returns whether the layer supports masks."""
        return self.layer.supports_masking

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        return fk.loses_masks(self.layer, masks)

    @property
    def activity_regularizer(self) -> Any:
        """Penalty on the output."""
        return getattr(self.layer, "activity_regularizer", None)

    @property
    def kernel_regularizer(self) -> Any:
        """Penalty on a float kernel."""
        return self.layer.kernel_regularizer

    @property
    def bias_regularizer(self) -> Any:
        """Penalty on the bias."""
        return self.layer.bias_regularizer

    @property
    def kernel_constraint(self) -> Any:
        """Projection of a float kernel after each update."""
        return self.layer.kernel_constraint

    @property
    def bias_constraint(self) -> Any:
        """Projection of the bias after each update."""
        return self.layer.bias_constraint

    def build(self, key: jax.Array, *specs: fk.Tree) -> Self:
        layer = self.floating().build(key, *specs)
        # a ShapeKey only evaluates shapes: quantize abstractly, without computing codes
        if not isinstance(key, fk.ShapeKey):
            return self.encode(layer)
        return jax.tree.map(
            lambda w: fk.shape_zeros(w.shape, w.dtype), jax.eval_shape(self.encode, layer)
        )

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the quantized weights of a built layer."""
        raise NotImplementedError

    def codes(self, name: str, weight: jax.Array) -> dict[str, Any]:
        """Returns the codes of one weight of `separate`, and their scales and zero points, by name."""
        raise NotImplementedError

    def dequantize(self) -> fk.Layer:
        """Returns the float layer with the dequantized weights."""
        raise NotImplementedError

    @property
    def has_packed_codes(self) -> bool:
        """Whether each byte of the codes holds two 4-bit codes."""
        return False

    def unpacked(self) -> Self:
        """Returns the layer with 4-bit codes in `int4` arrays, and scales and zero points in float32.

        On TPUs, unpacking costs more than a product of few rows, so a loop reads unpacked codes.
        """
        return self

    def _with_codes(self, **weights: fk.Leaf) -> Self:
        """Returns a copy with these weights, whose floats are float32; the compute dtype stays."""
        name = self.dtype.name
        dtype = fk.get_policy(f"mixed_{name}" if name in ("bfloat16", "float16") else name)
        kept = self.replace(layer=self.layer.replace(dtype=dtype), dtype=dtype)
        return kept.replace(**weights)

    def _coded(self, **weights: fk.Leaf) -> Any:
        """Returns a copy with these weights, placed on the device."""
        return self.replace(**jax.tree.map(_placed, weights), _built=True)

    @classmethod
    def of(cls, layer: fk.Layer, quantization: fk.Json) -> Any:
        """Quantizes a built layer."""
        return cls.kind_for(quantization)(layer, quantization).encode(layer)

    @classmethod
    def kind_for(cls, quantization: fk.Json) -> Any:
        """Returns the class that supports the mode: this class or a sibling."""
        classes = (cls, *cls.siblings)
        return next((k for k in classes if quantization.mode in k.modes), cls)

    def floating(self, **weights: fk.Leaf) -> Any:
        """Returns the float layer with this layer's name, trainability, dtype, and the weights."""
        marks = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}
        return self.layer.replace(**weights, **marks, _built=bool(weights))

    def get_config(self) -> dict[str, Any]:
        """Returns the float layer's configuration with the quantized policy, like Keras."""
        head = {"name": self.name, "trainable": self.trainable}
        return {
            **self.layer.get_config(),
            **head,
            "dtype": self.quantization.policy(self.dtype.name),
            "quantization_config": fk.encode(self.quantization),
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # the config has no class name: choose the twin whose fields match best
        def unknown(twin: type) -> int:
            return len(set(config) - {f.name for f in dataclasses.fields(twin)})

        return cls.quantized(min(cls.twins, key=unknown), config, custom_objects)

    @classmethod
    def quantized(
        cls, layer: type, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Reads Keras's config of a `layer` with a quantized dtype policy.

        Raises:
            ValueError: if the policy and the quantization config have different modes.
        """
        policy = quantization_of(config.get("dtype")) or {}
        mode = policy_config(policy)
        inner = {**config, "dtype": fk.get_policy(policy.get("source_name")).name}
        scheme = fk.decode(inner.pop("quantization_config", None), custom_objects)
        scheme = mode if scheme is None else get(scheme)
        if scheme.policy_mode.partition("/")[0] != mode.mode:
            raise ValueError(
                f"{layer.__name__}.from_config: expected a quantization_config of the policy's "
                f"mode {mode.mode!r}, received {scheme!r}. The file is damaged."
            )
        if isinstance(mode, Float8QuantizationConfig):
            scheme = mode  # Keras stores the length of the history only in the policy
        quantized_class = cls.kind_for(scheme)
        return quantized_class(layer.from_config(inner, custom_objects=custom_objects), scheme)
