"""Quantization configurations of layers, Keras's `quantization_config`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import boolean, integer, real
from fkeras.engine.config.field_types import Integer, OptionalInteger, Real
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.quantizers.abs_max import AbsMaxQuantizer

_GROUP = integer(
    minimum=1, also=(-1,), hint="It is the number of inputs that share a scale; -1 is all of them."
)
# resource limit: a single number in a file allocates a history of this length
_LONGEST_HISTORY = 1 << 20


def _quantizer(value: object) -> AbsMaxQuantizer | None:
    if value is not None and not isinstance(value, AbsMaxQuantizer):
        raise ValueError(
            f"expected a quantizer or None, received {describe_value(value)}. Pass "
            "fk.quantizers.AbsMaxQuantizer(), or None for no quantizer."
        )
    return value


class QuantizationConfig(Configurable):
    """Base class of quantization configurations.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int4QuantizationConfig(block_size=64).policy_mode
        'int4/64'
    """

    _keras_module: ClassVar[str] = "keras.quantizers"
    #: Keras's names of the mode and of the class of the dtype policy
    mode: ClassVar[str] = ""
    policy_class: ClassVar[str] = "QuantizedDTypePolicy"

    @property
    def policy_mode(self) -> str:
        """The mode in the form of Keras's dtype policies."""
        return self.mode

    def policy(self, source: str) -> dict[str, Any]:
        """Returns Keras's dtype policy of a quantized layer, as JSON data.

        Args:
            source: the name of the dtype policy for the layer's floats.
        """
        return {
            "module": "keras.dtype_policies",
            "class_name": self.policy_class,
            "config": {"mode": self.policy_mode, "source_name": source},
            "registered_name": None,
        }


class Int8QuantizationConfig(QuantizationConfig):
    """Weights of 8 bits, and inputs that are quantized to 8 bits at each call.

    Args:
        weight_quantizer: the quantizer of the weights; None for `AbsMaxQuantizer()`. The layer
            passes the axes.
        activation_quantizer: the quantizer of the inputs, with a scale for each sample; None for
            unquantized inputs.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int8QuantizationConfig().activation_quantizer
        AbsMaxQuantizer()
    """

    mode: ClassVar[str] = "int8"
    weight_quantizer: AbsMaxQuantizer | None = option(default=None, convert=_quantizer)
    # "default" differs from None, which means unquantized inputs
    activation_quantizer: AbsMaxQuantizer | None = option(
        default="default", convert=lambda q: _quantizer_or_default(q, True)
    )

    @property
    def coder(self) -> AbsMaxQuantizer:
        """The quantizer of the weights."""
        return self.weight_quantizer or AbsMaxQuantizer()


def _quantizer_or_default(value: object, default: bool) -> AbsMaxQuantizer | None:
    if isinstance(value, str) and value == "default":
        return AbsMaxQuantizer() if default else None
    return _quantizer(value)


_size = integer(
    minimum=1,
    also=(-1,),
    optional=True,
    hint="It is the number of inputs that share a scale; -1 is all of them.",
)


def _block(value: object) -> int | None:
    size = _size(value)
    return None if size == -1 else size


class Int4QuantizationConfig(QuantizationConfig):
    """Weights of 4 bits, two per byte; inputs stay floats without an activation quantizer.

    Args:
        weight_quantizer: the quantizer of the weights, with value_range=(-8, 7); None for
            `AbsMaxQuantizer(value_range=(-8, 7))`. Only without blocks.
        activation_quantizer: the quantizer of the inputs; None for unquantized inputs. Only
            without blocks.
        block_size: the number of inputs that share a scale and a zero point; None or -1 for one
            scale per output.

    Raises:
        ValueError: for a quantizer together with blocks, or a weight quantizer with another range.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int4QuantizationConfig(block_size=None).policy_mode
        'int4/-1'
    """

    mode: ClassVar[str] = "int4"
    policy_class: ClassVar[str] = "Int4DTypePolicy"
    weight_quantizer: AbsMaxQuantizer | None = option(default=None, convert=_quantizer)
    activation_quantizer: AbsMaxQuantizer | None = option(
        default="default", convert=lambda q: _quantizer_or_default(q, False)
    )
    block_size: OptionalInteger = option(default=128, convert=_block)

    @property
    def coder(self) -> AbsMaxQuantizer:
        """The quantizer of weights without blocks."""
        return self.weight_quantizer or AbsMaxQuantizer(value_range=(-8, 7))

    def __post_init__(self) -> None:
        super().__post_init__()
        quantizer = self.weight_quantizer or self.activation_quantizer
        if self.block_size is not None and quantizer is not None:
            raise ValueError(
                "Int4QuantizationConfig: expected no quantizers together with "
                f"block_size={self.block_size}, received {quantizer!r}. Set block_size=None, or "
                "leave them out."
            )
        if self.weight_quantizer is not None and self.weight_quantizer.value_range != (-8, 7):
            raise ValueError(
                "Int4QuantizationConfig: weight_quantizer: expected value_range=(-8, 7), received "
                f"{self.weight_quantizer.value_range}. 4 bits hold only this range."
            )

    @property
    def policy_mode(self) -> str:
        return f"int4/{-1 if self.block_size is None else self.block_size}"

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # older files have no key `block_size`, and their weights have no blocks
        return super().from_config({"block_size": None, **config}, custom_objects)


class Float8QuantizationConfig(QuantizationConfig):
    """Matrix products of 8-bit floats, for training; the weights keep their dtype.

    Args:
        amax_history_length: the number of steps whose maximum magnitudes determine the scales.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Float8QuantizationConfig().amax_history_length
        1024
    """

    mode: ClassVar[str] = "float8"
    policy_class: ClassVar[str] = "QuantizedFloat8DTypePolicy"
    amax_history_length: Integer = option(
        default=1024, convert=integer(minimum=1, maximum=_LONGEST_HISTORY)
    )

    def policy(self, source: str) -> dict[str, Any]:
        policy = super().policy(source)
        length = {"amax_history_length": self.amax_history_length}
        return {**policy, "config": {**policy["config"], **length}}


_bits = integer(minimum=2, maximum=4, also=(8,), hint="Keras stores weights of only these sizes.")


_four = integer(minimum=4, maximum=4, hint="AWQ has weights of 4 bits only.")


class _Calibrated(QuantizationConfig):
    """Base class of the configurations whose codes are chosen with samples."""

    @property
    def policy_mode(self: Any) -> str:
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    def get_config(self) -> dict[str, Any]:
        # required arguments of Keras's constructors, which Keras does not save
        return {"dataset": None, "tokenizer": None, **super().get_config()}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        ignored_keys = ("dataset", "tokenizer", "quantization_layer_structure")
        options = {key: value for key, value in config.items() if key not in ignored_keys}
        return super().from_config(options, custom_objects)


class GPTQConfig(_Calibrated):
    """GPTQ: weights of 2, 3, 4 or 8 bits, which are quantized one after the other with samples.

    `fk.quantize(model, config, samples=x)` calibrates a model, and `fk.load_model` opens models that
    Keras calibrated. Both support inference, training of weights that are not quantized, and saving.

    Args:
        weight_bits: the number of bits of a weight.
        group_size: the number of inputs that share a scale and a zero point; -1 for all inputs.
        num_samples: the number of calibration samples in Keras; `fk.quantize` uses all it is given.
        per_channel: whether each output has a separate scale.
        sequence_length: the length of the calibration samples in Keras.
        hessian_damping: the damping of the Hessian.
        symmetric: whether quantization is symmetric around zero.
        activation_order: whether inputs are quantized in the order of their magnitude.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.GPTQConfig(weight_bits=4, group_size=32).policy_mode
        'gptq/4/32'

    References:
        Frantar et al., GPTQ: accurate post-training quantization (2022),
        https://arxiv.org/abs/2210.17323
    """

    mode: ClassVar[str] = "gptq"
    policy_class: ClassVar[str] = "GPTQDTypePolicy"
    weight_bits: Integer = option(default=4, convert=_bits)
    group_size: Integer = option(default=128, convert=_GROUP)
    num_samples: Integer = option(default=128, convert=integer(minimum=1))
    per_channel: bool = option(default=True, convert=boolean)
    sequence_length: Integer = option(default=512, convert=integer(minimum=1))
    hessian_damping: Real = option(default=0.01, convert=real(minimum=0))
    symmetric: bool = option(default=False, convert=boolean)
    activation_order: bool = option(default=False, convert=boolean)


class AWQConfig(_Calibrated):
    """AWQ: weights of 4 bits, scaled by the magnitudes of the inputs in calibration samples.

    `fk.quantize(model, config, samples=x)` calibrates a model, and `fk.load_model` opens models that
    Keras calibrated. Both support inference, training of weights that are not quantized, and saving.

    Args:
        weight_bits: the number of bits of a weight, 4.
        group_size: the number of inputs that share a scale and a zero point; -1 for all inputs.
        num_samples: the number of calibration samples in Keras; `fk.quantize` uses all it is given.
        sequence_length: the length of the calibration samples in Keras.
        num_grid_points: the number of powers in the search for scales.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.AWQConfig(group_size=-1).policy_mode
        'awq/4/-1'

    References:
        Lin et al., AWQ: activation-aware weight quantization (2023),
        https://arxiv.org/abs/2306.00978
    """

    mode: ClassVar[str] = "awq"
    policy_class: ClassVar[str] = "AWQDTypePolicy"
    weight_bits: Integer = option(default=4, convert=_four)
    group_size: Integer = option(default=128, convert=_GROUP)
    num_samples: Integer = option(default=128, convert=integer(minimum=1))
    sequence_length: Integer = option(default=512, convert=integer(minimum=1))
    num_grid_points: Integer = option(default=20, convert=integer(minimum=1))


_CONFIGS = (
    Int8QuantizationConfig,
    Int4QuantizationConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    AWQConfig,
)
_MODES = types.MappingProxyType({config.mode: config for config in _CONFIGS})


def policy_config(policy: Mapping[str, Any]) -> QuantizationConfig:
    """Returns the quantization configuration for Keras's dtype policy in JSON form.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.policy_config({"mode": "int4", "source_name": "float32"}).block_size is None
        True
    """
    mode = policy.get("mode")
    # older files write "int4" without a block size, for weights without blocks
    quantization_config = get("int4/-1" if mode == "int4" else mode)
    length = policy.get("amax_history_length")
    if isinstance(quantization_config, Float8QuantizationConfig) and length is not None:
        return Float8QuantizationConfig(length)
    return quantization_config


@hides_internal_frames
def get(value: QuantizationConfig | Mapping[str, Any] | str | None) -> QuantizationConfig:
    """Returns the quantization configuration for a mode; a configuration is returned unchanged.

    Args:
        value: "int8", "int4", "float8", Keras's longer forms "int4/64", "gptq/4/128" and
            "awq/4/128", or a configuration.

    Raises:
        ValueError: for an unknown mode, or numbers that the mode does not accept.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.get("int4/64")
        Int4QuantizationConfig(block_size=64)
    """
    if isinstance(value, QuantizationConfig):
        return value
    name, *numbers = value.split("/") if isinstance(value, str) else ("",)
    kind: Any = _MODES.get(name)
    sizes = ("weight_bits", "group_size")
    fields = {"int4": ("block_size",), "gptq": sizes, "awq": sizes}.get(name, ())
    if kind is None or len(numbers) not in (0, len(fields)):
        raise ValueError(
            f"quantization: expected a mode or a configuration, received {value!r:.60}."
            f"{suggest(name, _MODES)} Modes: {', '.join(_MODES)}; with numbers as in "
            "'int4/128'; or fk.quantizers.Int8QuantizationConfig(...)."
        )
    try:
        return kind(**dict(zip(fields, map(int, numbers), strict=False)))
    except ValueError as error:
        raise ValueError(f"quantization: received {value!r:.60}. {error}") from None
