"""Layers that give numbers another shape: reshaped, padded, cropped, enlarged."""

from fkeras.layers.reshaping.borders import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from fkeras.layers.reshaping.resampling import UpSampling1D, UpSampling2D, UpSampling3D
from fkeras.layers.reshaping.shapes import Flatten, Permute, RepeatVector, Reshape
from fkeras.nn.resampling import crop, repeat, resize, zero_pad

__all__ = (
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Flatten",
    "Permute",
    "RepeatVector",
    "Reshape",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "crop",
    "repeat",
    "resize",
    "zero_pad",
)
