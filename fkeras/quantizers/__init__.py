"""Quantizers, functions that compute codes and scales, and quantization configurations."""

from fkeras.engine.config.configurable import deserialize as deserialize
from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.public_names import publish as _publish
from fkeras.quantizers.abs_max import AbsMaxQuantizer as AbsMaxQuantizer
from fkeras.quantizers.codes import abs_max_quantize as abs_max_quantize
from fkeras.quantizers.codes import (
    abs_max_quantize_grouped_with_zero_point as abs_max_quantize_grouped_with_zero_point,
)
from fkeras.quantizers.codes import pack_int4 as pack_int4
from fkeras.quantizers.codes import unpack_int4 as unpack_int4
from fkeras.quantizers.configs import AWQConfig as AWQConfig
from fkeras.quantizers.configs import Float8QuantizationConfig as Float8QuantizationConfig
from fkeras.quantizers.configs import GPTQConfig as GPTQConfig
from fkeras.quantizers.configs import Int4QuantizationConfig as Int4QuantizationConfig
from fkeras.quantizers.configs import Int8QuantizationConfig as Int8QuantizationConfig
from fkeras.quantizers.configs import get as get
from fkeras.quantizers.configs import policy_config as policy_config
from fkeras.quantizers.float8 import compute_float8_amax_history as compute_float8_amax_history
from fkeras.quantizers.float8 import compute_float8_scale as compute_float8_scale
from fkeras.quantizers.float8 import quantize_and_dequantize as quantize_and_dequantize

_publish(__name__)
