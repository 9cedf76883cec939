"""The layers, and their public names.

To add a layer: write its file in the folder of its family, import and list its class here, and add
a row to `tests/cases`, which runs all tests that layers share. A class without a row fails a test.
"""

from fkeras.engine.call.input_spec import InputSpec
from fkeras.engine.config.configurable import deserialize, serialize
from fkeras.engine.layer.layer import Layer
from fkeras.engine.symbolic.input import Input, InputLayer
from fkeras.layers.activation.activation import ELU, Activation, LeakyReLU, ReLU
from fkeras.layers.activation.prelu import PReLU
from fkeras.layers.activation.softmax import Softmax
from fkeras.layers.attention.attention import AdditiveAttention, Attention
from fkeras.layers.attention.grouped_query import GroupQueryAttention
from fkeras.layers.attention.multi_head import MultiHeadAttention
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
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.core.embedding import Embedding
from fkeras.layers.core.identity import Identity
from fkeras.layers.core.lambda_layer import Lambda
from fkeras.layers.core.masking import Masking
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding
from fkeras.layers.core.wrapper import Wrapper
from fkeras.layers.foreign.flax_layer import FlaxLayer
from fkeras.layers.foreign.jax_layer import JaxLayer
from fkeras.layers.image.color.color_jitter import RandomColorJitter
from fkeras.layers.image.color.colors import (
    RandomColorDegeneration,
    RandomGrayscale,
    RandomHue,
    RandomSaturation,
)
from fkeras.layers.image.color.filtering import RandomGaussianBlur, RandomSharpness
from fkeras.layers.image.color.histograms import (
    AutoContrast,
    ContrastLimitedAdaptiveHistogramEqualization,
    Equalization,
)
from fkeras.layers.image.color.inversion import RandomInvert, RandomPosterization, Solarization
from fkeras.layers.image.color.tones import RandomBrightness, RandomContrast
from fkeras.layers.image.geometry.affine import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from fkeras.layers.image.geometry.cropping import CenterCrop, RandomCrop
from fkeras.layers.image.geometry.elastic import RandomElasticTransform
from fkeras.layers.image.geometry.flipping import RandomFlip
from fkeras.layers.image.geometry.max_boxes import MaxNumBoundingBoxes
from fkeras.layers.image.geometry.perspective import RandomPerspective
from fkeras.layers.image.geometry.resizing import Resizing
from fkeras.layers.image.mixing.aug_mix import AugMix
from fkeras.layers.image.mixing.erasing import RandomErasing
from fkeras.layers.image.mixing.mixing import CutMix, MixUp
from fkeras.layers.image.mixing.rand_augment import RandAugment
from fkeras.layers.lookup.hashing import HashedCrossing, Hashing
from fkeras.layers.lookup.integer_lookup import IntegerLookup
from fkeras.layers.lookup.string_lookup import StringLookup
from fkeras.layers.lookup.text_vectorization import TextVectorization
from fkeras.layers.merging.concatenate import Concatenate
from fkeras.layers.merging.dot import Dot
from fkeras.layers.merging.elementwise import Add, Average, Maximum, Minimum, Multiply, Subtract
from fkeras.layers.merging.functions import (
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)
from fkeras.layers.normalization.batch import BatchNormalization
from fkeras.layers.normalization.feature import Normalization
from fkeras.layers.normalization.group import GroupNormalization
from fkeras.layers.normalization.layer import (
    LayerNormalization,
    RMSNormalization,
    UnitNormalization,
)
from fkeras.layers.normalization.spectral import SpectralNormalization
from fkeras.layers.pooling.adaptive import (
    AdaptiveAveragePooling1D,
    AdaptiveAveragePooling2D,
    AdaptiveAveragePooling3D,
    AdaptiveMaxPooling1D,
    AdaptiveMaxPooling2D,
    AdaptiveMaxPooling3D,
)
from fkeras.layers.pooling.global_pooling import (
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
from fkeras.layers.pooling.windows import (
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
from fkeras.layers.preprocessing.category_encoding import CategoryEncoding
from fkeras.layers.preprocessing.discretization import Discretization
from fkeras.layers.preprocessing.pipeline import Pipeline
from fkeras.layers.preprocessing.rescaling import Rescaling
from fkeras.layers.preprocessing.spectrogram import MelSpectrogram, STFTSpectrogram
from fkeras.layers.quantized.dense import Float8Dense, QuantizedDense
from fkeras.layers.quantized.embedding import QuantizedEmbedding
from fkeras.layers.recurrent.bidirectional import Bidirectional
from fkeras.layers.recurrent.cells import StackedRNNCells
from fkeras.layers.recurrent.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from fkeras.layers.recurrent.gru import GRU, GRUCell
from fkeras.layers.recurrent.lstm import LSTM, LSTMCell
from fkeras.layers.recurrent.rnn import RNN
from fkeras.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell
from fkeras.layers.recurrent.time_distributed import TimeDistributed
from fkeras.layers.regularization.dropout import (
    ActivityRegularization,
    AlphaDropout,
    Dropout,
    GaussianDropout,
    GaussianNoise,
)
from fkeras.layers.regularization.spatial_dropout import (
    SpatialDropout1D,
    SpatialDropout2D,
    SpatialDropout3D,
)
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

__all__ = (
    "ELU",
    "Float8Dense",
    "LeakyReLU",
    "MelSpectrogram",
    "QuantizedDense",
    "QuantizedEmbedding",
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
