"""Convolutions: plain, depthwise, separable, transposed."""

from fkeras.layers.convolution.convolution import (
    Conv1D,
    Conv2D,
    Conv3D,
    Convolution1D,
    Convolution2D,
    Convolution3D,
)
from fkeras.layers.convolution.depthwise import DepthwiseConv1D, DepthwiseConv2D
from fkeras.layers.convolution.separable import (
    SeparableConv1D,
    SeparableConv2D,
    SeparableConvolution1D,
    SeparableConvolution2D,
)
from fkeras.layers.convolution.transposed import (
    Conv1DTranspose,
    Conv2DTranspose,
    Conv3DTranspose,
    Convolution1DTranspose,
    Convolution2DTranspose,
    Convolution3DTranspose,
)
from fkeras.nn.convolution import (
    convolve,
    convolve_depthwise,
    convolve_separable,
    convolve_transpose,
)

__all__ = (
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Convolution1D",
    "Convolution1DTranspose",
    "Convolution2D",
    "Convolution2DTranspose",
    "Convolution3D",
    "Convolution3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConvolution1D",
    "SeparableConvolution2D",
    "convolve",
    "convolve_depthwise",
    "convolve_separable",
    "convolve_transpose",
)
