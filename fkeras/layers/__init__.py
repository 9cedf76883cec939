"""The layers, one family a file."""

from fkeras.engine.config import deserialize, serialize
from fkeras.engine.input import Input, InputLayer
from fkeras.engine.input_spec import InputSpec
from fkeras.engine.layer import Layer
from fkeras.layers.activation_layers import ELU, LeakyReLU, ReLU
from fkeras.layers.adaptive_pooling import (
    AdaptiveAveragePooling1D,
    AdaptiveAveragePooling2D,
    AdaptiveAveragePooling3D,
    AdaptiveMaxPooling1D,
    AdaptiveMaxPooling2D,
    AdaptiveMaxPooling3D,
)
from fkeras.layers.alpha_dropout import AlphaDropout
from fkeras.layers.attention import (
    AdditiveAttention,
    Attention,
    GroupQueryAttention,
    MultiHeadAttention,
)
from fkeras.layers.batch_normalization import BatchNormalization
from fkeras.layers.borders import (
    Cropping1D,
    Cropping2D,
    Cropping3D,
    ZeroPadding1D,
    ZeroPadding2D,
    ZeroPadding3D,
)
from fkeras.layers.concatenate import Concatenate
from fkeras.layers.convolution import (
    Conv1D,
    Conv2D,
    Conv3D,
    Convolution1D,
    Convolution2D,
    Convolution3D,
)
from fkeras.layers.core import Activation, ActivityRegularization, Identity
from fkeras.layers.dense import Dense
from fkeras.layers.depthwise_convolution import DepthwiseConv1D, DepthwiseConv2D
from fkeras.layers.dot import Dot
from fkeras.layers.dropout import Dropout
from fkeras.layers.einsum_dense import EinsumDense
from fkeras.layers.embedding import Embedding
from fkeras.layers.feature_normalization import Normalization
from fkeras.layers.flax_layer import FlaxLayer
from fkeras.layers.global_pooling import (
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    GlobalMaxPooling3D,
)
from fkeras.layers.group_normalization import GroupNormalization
from fkeras.layers.image.affine import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from fkeras.layers.image.aug_mix import AugMix
from fkeras.layers.image.color_jitter import RandomColorJitter
from fkeras.layers.image.colors import (
    RandomColorDegeneration,
    RandomGrayscale,
    RandomHue,
    RandomSaturation,
)
from fkeras.layers.image.cropping import CenterCrop, RandomCrop
from fkeras.layers.image.elastic import RandomElasticTransform
from fkeras.layers.image.erasing import RandomErasing
from fkeras.layers.image.filtering import RandomGaussianBlur, RandomSharpness
from fkeras.layers.image.flipping import RandomFlip
from fkeras.layers.image.histograms import (
    AutoContrast,
    ContrastLimitedAdaptiveHistogramEqualization,
    Equalization,
)
from fkeras.layers.image.inversion import RandomInvert, RandomPosterization, Solarization
from fkeras.layers.image.max_boxes import MaxNumBoundingBoxes
from fkeras.layers.image.mixing import CutMix, MixUp
from fkeras.layers.image.perspective import RandomPerspective
from fkeras.layers.image.rand_augment import RandAugment
from fkeras.layers.image.resizing import Resizing
from fkeras.layers.image.tones import RandomBrightness, RandomContrast
from fkeras.layers.jax_layer import JaxLayer
from fkeras.layers.lambda_layer import Lambda
from fkeras.layers.layer_normalization import LayerNormalization
from fkeras.layers.masking import Masking
from fkeras.layers.merge_functions import (
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)
from fkeras.layers.merging import Add, Average, Maximum, Minimum, Multiply, Subtract
from fkeras.layers.noise import GaussianDropout, GaussianNoise
from fkeras.layers.pipeline import Pipeline
from fkeras.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
)
from fkeras.layers.prelu import PReLU
from fkeras.layers.preprocessing import (
    CategoryEncoding,
    Discretization,
    HashedCrossing,
    Hashing,
    IntegerLookup,
    StringLookup,
    TextVectorization,
)
from fkeras.layers.recurrent import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    ConvLSTM1D,
    ConvLSTM2D,
    ConvLSTM3D,
    GRUCell,
    LSTMCell,
    SimpleRNN,
    SimpleRNNCell,
    StackedRNNCells,
    TimeDistributed,
)
from fkeras.layers.resampling import (
    UpSampling1D,
    UpSampling2D,
    UpSampling3D,
)
from fkeras.layers.rescaling import Rescaling
from fkeras.layers.reshaping import Flatten, Permute, RepeatVector, Reshape
from fkeras.layers.reversible_embedding import ReversibleEmbedding
from fkeras.layers.rms_normalization import RMSNormalization
from fkeras.layers.separable_convolution import (
    SeparableConv1D,
    SeparableConv2D,
    SeparableConvolution1D,
    SeparableConvolution2D,
)
from fkeras.layers.softmax_layer import Softmax
from fkeras.layers.spatial_dropout import (
    SpatialDropout1D,
    SpatialDropout2D,
    SpatialDropout3D,
)
from fkeras.layers.spectral_normalization import SpectralNormalization
from fkeras.layers.spectrogram import MelSpectrogram, STFTSpectrogram
from fkeras.layers.transposed_convolution import (
    Conv1DTranspose,
    Conv2DTranspose,
    Conv3DTranspose,
    Convolution1DTranspose,
    Convolution2DTranspose,
    Convolution3DTranspose,
)
from fkeras.layers.unit_normalization import UnitNormalization
from fkeras.layers.wrapper import Wrapper

__all__ = (
    "ELU",
    "LeakyReLU",
    "MelSpectrogram",
    "ReLU",
    "AlphaDropout",
    "Normalization",
    "FlaxLayer",
    "GroupNormalization",
    "JaxLayer",
    "GaussianDropout",
    "AugMix",
    "AutoContrast",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "CutMix",
    "Equalization",
    "GaussianNoise",
    "MixUp",
    "Pipeline",
    "PReLU",
    "RandAugment",
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomContrast",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPosterization",
    "RandomSaturation",
    "RandomSharpness",
    "Rescaling",
    "RMSNormalization",
    "STFTSpectrogram",
    "Solarization",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "SpectralNormalization",
    "UnitNormalization",
    "Wrapper",
    "InputSpec",
    "Convolution1D",
    "Convolution1DTranspose",
    "Convolution2D",
    "Convolution2DTranspose",
    "Convolution3D",
    "Convolution3DTranspose",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Activation",
    "ActivityRegularization",
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
    "Add",
    "AdditiveAttention",
    "Attention",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "BatchNormalization",
    "Bidirectional",
    "CategoryEncoding",
    "CenterCrop",
    "Concatenate",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Discretization",
    "Dot",
    "Dropout",
    "EinsumDense",
    "Embedding",
    "Flatten",
    "GRU",
    "GRUCell",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
    "HashedCrossing",
    "Hashing",
    "GroupQueryAttention",
    "Identity",
    "Input",
    "InputLayer",
    "IntegerLookup",
    "LSTM",
    "LSTMCell",
    "Lambda",
    "Layer",
    "LayerNormalization",
    "Masking",
    "MaxNumBoundingBoxes",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "Maximum",
    "Minimum",
    "MultiHeadAttention",
    "Multiply",
    "Permute",
    "RNN",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomFlip",
    "RandomPerspective",
    "RandomRotation",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "RepeatVector",
    "Reshape",
    "Resizing",
    "ReversibleEmbedding",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConvolution1D",
    "SeparableConvolution2D",
    "SimpleRNN",
    "SimpleRNNCell",
    "Softmax",
    "StackedRNNCells",
    "StringLookup",
    "Subtract",
    "TextVectorization",
    "TimeDistributed",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "add",
    "average",
    "concatenate",
    "deserialize",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "serialize",
    "subtract",
)
