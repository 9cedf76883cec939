"""Quantizers, functions that compute codes and scales, and quantization configurations."""

from fkeras.engine.config.configurable import deserialize, serialize
from fkeras.quantizers.abs_max import AbsMaxQuantizer
from fkeras.quantizers.codes import (
    abs_max_quantize,
    abs_max_quantize_grouped_with_zero_point,
    pack_int4,
    unpack_int4,
)
from fkeras.quantizers.configs import (
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    get,
    policy_config,
)
from fkeras.quantizers.float8 import (
    compute_float8_amax_history,
    compute_float8_scale,
    quantize_and_dequantize,
)

__all__ = (
    "AWQConfig",
    "AbsMaxQuantizer",
    "Float8QuantizationConfig",
    "GPTQConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "abs_max_quantize",
    "abs_max_quantize_grouped_with_zero_point",
    "compute_float8_amax_history",
    "compute_float8_scale",
    "deserialize",
    "get",
    "pack_int4",
    "policy_config",
    "quantize_and_dequantize",
    "serialize",
    "unpack_int4",
)
