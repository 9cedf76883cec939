"""Names of layers for wings: adapted kernels, quantized layers, host layers."""

from fkeras.layers.adapters.kernels import LOGITS as LOGITS
from fkeras.layers.adapters.kernels import Kernel as Kernel
from fkeras.layers.adapters.kernels import Logits as Logits
from fkeras.layers.adapters.kernels import adapted_layers as adapted_layers
from fkeras.layers.adapters.kernels import float_layer as float_layer
from fkeras.layers.adapters.kernels import kernel_of as kernel_of
from fkeras.layers.applications import LayerScale as LayerScale
from fkeras.layers.preprocessing.host import StringMap as StringMap
from fkeras.layers.preprocessing.host import read_strings as read_strings
from fkeras.layers.preprocessing.quantiles import find_boundaries as find_boundaries
from fkeras.layers.quantized.base import Quantized as Quantized
