"""How layers are quantized, as values: what Keras calls their `quantization_config`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import boolean, integer, real
from fkeras.engine.config.field_types import Integer, OptionalInteger, Real
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.quantizers.abs_max import AbsMaxQuantizer

_GROUP = integer(
    minimum=1, also=(-1,), hint="It is the number of inputs that share a scale; -1 is all of them."
)
# one number in a file, so many in memory
_LONGEST_HISTORY = 1 << 20


def _quantizer(value: Any) -> AbsMaxQuantizer | None:
    if value is not None and not isinstance(value, AbsMaxQuantizer):
        raise ValueError(
            f"expected a quantizer or None, received {describe_value(value)}. Pass "
            "fk.quantizers.AbsMaxQuantizer(), or None for none."
        )
    return value


class QuantizationConfig(Configurable):
    """How a layer is quantized: the base of the configurations.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int4QuantizationConfig(block_size=64).policy_mode
        'int4/64'
    """

    keras_module: ClassVar[str] = "keras.quantizers"
    #: Keras's name of the mode, and of the class of its dtype policy
    mode: ClassVar[str] = ""
    policy_class: ClassVar[str] = "QuantizedDTypePolicy"

    @property
    def policy_mode(self) -> str:
        """The mode as Keras's dtype policy writes it."""
        return self.mode

    def policy(self, source: str) -> dict[str, Any]:
        """Keras's dtype policy of a layer whose floats follow the policy `source`, as JSON data."""
        return {
            "module": "keras.dtype_policies",
            "class_name": self.policy_class,
            "config": {"mode": self.policy_mode, "source_name": source},
            "registered_name": None,
        }


class Int8QuantizationConfig(QuantizationConfig):
    """Weights of 8 bits, and inputs that are rounded to 8 bits at each call.

    Args:
        weight_quantizer: codes the weights; None for `AbsMaxQuantizer()`. The layer says along
            which axes.
        activation_quantizer: codes the inputs, an example a scale; None leaves them as they are.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int8QuantizationConfig().activation_quantizer
        AbsMaxQuantizer()
    """

    mode: ClassVar[str] = "int8"
    weight_quantizer: AbsMaxQuantizer | None = option(default=None, convert=_quantizer)
    activation_quantizer: AbsMaxQuantizer | None = option(
        default="default", convert=lambda q: _or(q, True)
    )

    @property
    def coder(self) -> AbsMaxQuantizer:
        """What codes the weights."""
        return self.weight_quantizer or AbsMaxQuantizer()


def _or(value: Any, default: bool) -> AbsMaxQuantizer | None:
    if isinstance(value, str) and value == "default":
        return AbsMaxQuantizer() if default else None
    return _quantizer(value)


_size = integer(
    minimum=1,
    also=(-1,),
    optional=True,
    hint="It is the number of inputs that share a scale; -1 is all of them.",
)


def _block(value: Any) -> int | None:
    size = _size(value)
    return None if size == -1 else size


class Int4QuantizationConfig(QuantizationConfig):
    """Weights of 4 bits, two in a byte; inputs stay floats unless a quantizer is given.

    Args:
        weight_quantizer: codes the weights, with value_range=(-8, 7); None for
            `AbsMaxQuantizer(value_range=(-8, 7))`. Without blocks only.
        activation_quantizer: codes the inputs; None leaves them as they are. Without blocks only.
        block_size: how many inputs share a scale and a zero; None or -1 for one scale an output.

    Raises:
        ValueError: for a quantizer beside blocks, or one of another range.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.Int4QuantizationConfig(block_size=None).policy_mode
        'int4/-1'
    """

    mode: ClassVar[str] = "int4"
    policy_class: ClassVar[str] = "Int4DTypePolicy"
    weight_quantizer: AbsMaxQuantizer | None = option(default=None, convert=_quantizer)
    activation_quantizer: AbsMaxQuantizer | None = option(
        default="default", convert=lambda q: _or(q, False)
    )
    block_size: OptionalInteger = option(default=128, convert=_block)

    @property
    def coder(self) -> AbsMaxQuantizer:
        """What codes the weights where there are no blocks."""
        return self.weight_quantizer or AbsMaxQuantizer(value_range=(-8, 7))

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.weight_quantizer or self.activation_quantizer
        if self.block_size is not None and given is not None:
            raise ValueError(
                f"Int4QuantizationConfig: expected no quantizers beside block_size="
                f"{self.block_size}, received {given!r}. Set block_size=None, or leave them out."
            )
        if self.weight_quantizer is not None and self.weight_quantizer.value_range != (-8, 7):
            raise ValueError(
                "Int4QuantizationConfig: weight_quantizer: expected value_range=(-8, 7), received "
                f"{self.weight_quantizer.value_range}. That is what 4 bits hold."
            )

    @property
    def policy_mode(self) -> str:
        return f"int4/{-1 if self.block_size is None else self.block_size}"

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Self:
        # files from before there were blocks say nothing of them
        return super().from_config({"block_size": None, **config}, custom_objects)


class Float8QuantizationConfig(QuantizationConfig):
    """Products of floats of 8 bits, for training; weights stay floats.

    Args:
        amax_history_length: how many steps are remembered for the scales.

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


_bits = integer(minimum=2, maximum=4, also=(8,), hint="Keras stores weights of these sizes.")


_four = integer(minimum=4, maximum=4, hint="AWQ has weights of 4 bits only.")


class _Calibrated(QuantizationConfig):
    """What the two that are made with examples have in common."""

    @property
    def policy_mode(self: Any) -> str:
        return f"{self.mode}/{self.weight_bits}/{self.group_size}"

    def get_config(self) -> dict[str, Any]:
        # Keras's constructors ask for both; neither is kept in a file
        return {"dataset": None, "tokenizer": None, **super().get_config()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Self:
        gone = ("dataset", "tokenizer", "quantization_layer_structure")
        kept = {key: value for key, value in config.items() if key not in gone}
        return super().from_config(kept, custom_objects)


class GPTQConfig(_Calibrated):
    """Weights of 2, 3, 4 or 8 bits that Keras chose with examples, one after the other.

    Models are calibrated in Keras; opened here they compute, train what is not quantized, and are
    written again.

    Args:
        weight_bits: the bits of a weight.
        group_size: how many inputs share a scale and a zero; -1 for all.
        num_samples: the examples that were used.
        per_channel: whether each output had its own scale.
        sequence_length: the length of the examples.
        hessian_damping: how the second derivatives were damped.
        symmetric: whether zero was coded as the middle.
        activation_order: whether inputs were taken in the order of their size.

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
    """Weights of 4 bits, scaled by the size of their inputs, which Keras measured with examples.

    Models are calibrated in Keras; opened here they compute, train what is not quantized, and are
    written again.

    Args:
        weight_bits: 4.
        group_size: how many inputs share a scale and a zero; -1 for all.
        num_samples: the examples that were used.
        sequence_length: the length of the examples.
        num_grid_points: how many scales were tried.

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
    *(Int8QuantizationConfig, Int4QuantizationConfig, Float8QuantizationConfig),
    *(GPTQConfig, AWQConfig),
)
_MODES = types.MappingProxyType({config.mode: config for config in _CONFIGS})


def policy_config(policy: Mapping[str, Any]) -> QuantizationConfig:
    """The configuration that Keras's dtype policy, as JSON data, means by itself.

    Example:
        >>> import fkeras as fk
        >>> fk.quantizers.policy_config({"mode": "int4", "source_name": "float32"}).block_size is None
        True
    """
    mode = policy.get("mode")
    # before there were blocks, no number stood behind it
    found = get("int4/-1" if mode == "int4" else mode)
    length = policy.get("amax_history_length")
    if isinstance(found, Float8QuantizationConfig) and length is not None:
        return Float8QuantizationConfig(length)
    return found


def get(value: Any) -> QuantizationConfig:
    """The configuration that a mode or a configuration means.

    Args:
        value: "int8", "int4", "float8", Keras's longer forms "int4/64", "gptq/4/128" and
            "awq/4/128", or a configuration.

    Raises:
        ValueError: for another mode, or numbers that the mode cannot have.

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
