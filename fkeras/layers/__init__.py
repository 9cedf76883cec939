"""The layers, one family a file."""

from fkeras.engine.config import deserialize, serialize
from fkeras.engine.input import Input, InputLayer
from fkeras.engine.layer import Layer
from fkeras.layers.batch_normalization import BatchNormalization
from fkeras.layers.concatenate import Concatenate
from fkeras.layers.core import Activation, ActivityRegularization, Identity
from fkeras.layers.dense import Dense
from fkeras.layers.dot import Dot
from fkeras.layers.dropout import Dropout
from fkeras.layers.embedding import Embedding
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
from fkeras.layers.reshaping import Flatten, Permute, RepeatVector, Reshape

__all__ = (
    "Activation",
    "ActivityRegularization",
    "Add",
    "Average",
    "BatchNormalization",
    "Concatenate",
    "Dense",
    "Dot",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "Input",
    "InputLayer",
    "Lambda",
    "Layer",
    "LayerNormalization",
    "Masking",
    "Maximum",
    "Minimum",
    "Multiply",
    "Permute",
    "RepeatVector",
    "Reshape",
    "Subtract",
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
