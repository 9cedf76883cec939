"""Renames layer arguments of Keras 1 and 2 to Keras 3's names and drops keys without effect."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import custom_code
from fkeras.authoring.saving import Origin
from fkeras.host.containers.strict_json import ParsedJson, check

_CONVOLUTION = types.MappingProxyType(
    {"nb_filter": "filters", "subsample": "strides", "atrous_rate": "dilation_rate"}
)
#: argument names of Keras 1 that are the same in all layers
_GENERAL = types.MappingProxyType(
    {
        "init": "kernel_initializer",
        "inner_init": "recurrent_initializer",
        "inner_activation": "recurrent_activation",
        "W_regularizer": "kernel_regularizer",
        "U_regularizer": "recurrent_regularizer",
        "b_regularizer": "bias_regularizer",
        "W_constraint": "kernel_constraint",
        "U_constraint": "recurrent_constraint",
        "b_constraint": "bias_constraint",
        "gamma_init": "gamma_initializer",
        "beta_init": "beta_initializer",
        "bias": "use_bias",
        "dropout_W": "dropout",
        "dropout_U": "recurrent_dropout",
        "border_mode": "padding",
        "dim_ordering": "data_format",
        "p": "rate",
        "sigma": "stddev",
    }
)
#: argument names of single layers, by Keras 3's class
_OWN = types.MappingProxyType(
    {
        "Dense": {"output_dim": "units"},
        "SimpleRNN": {"output_dim": "units"},
        "LSTM": {"output_dim": "units", "forget_bias_init": "unit_forget_bias"},
        "GRU": {"output_dim": "units"},
        "Conv1D": {
            "filter_length": "kernel_size",
            "subsample_length": "strides",
            **_CONVOLUTION,
        },
        "Conv2D": _CONVOLUTION,
        "Conv3D": _CONVOLUTION,
        "Conv2DTranspose": _CONVOLUTION,
        "SeparableConv2D": _CONVOLUTION,
        "ConvLSTM2D": _CONVOLUTION,
        "MaxPooling1D": {"pool_length": "pool_size", "stride": "strides"},
        "AveragePooling1D": {"pool_length": "pool_size", "stride": "strides"},
        "UpSampling1D": {"length": "size"},
        "LeakyReLU": {"alpha": "negative_slope"},
        "Embedding": {
            "init": "embeddings_initializer",
            "W_regularizer": "embeddings_regularizer",
            "W_constraint": "embeddings_constraint",
        },
        "PReLU": {"init": "alpha_initializer"},
    }
)
#: arguments of Keras 1 that hold the kernel size axis by axis
_SIDES = (
    ("nb_row", "nb_col"),
    ("kernel_dim1", "kernel_dim2", "kernel_dim3"),
)
#: data formats by Keras 1's names
FORMATS: Mapping[str, str] = types.MappingProxyType(
    {"tf": "channels_last", "th": "channels_first", "default": "channels_last"}
)
#: layers for which Keras 1 did not write the data format
UNORDERED = frozenset(
    f"{kind}{n}D" for kind in ("ZeroPadding", "Cropping", "UpSampling") for n in (2, 3)
)
#: keys that have no effect in fkeras, whatever their value
_SILENT = frozenset(
    [
        "batch_input_shape",
        "input_shape",
        "input_dtype",
        "batch_size",
        "build_config",
        "build_input_shape",
        "consume_less",
        "fused",
        "weights",
        "quantization_config",
        "registered_name",
        "query_shape",
        "key_shape",
        "value_shape",
        "input_length",
        "output_mask",
        "experimental_autocast",
        "autocast",
        "shared_object_id",
        "keras_api",
        "module",
        "seed_generator",
        "vocabulary_size",
        "has_input_vocabulary",
        # the two masking rules of tf.keras differ only in rows without any kept entry
        "robust_masking",
        "softmax_robust_masking",
    ]
)
#: arguments that layers of fkeras lack, and the values for which they have no effect
_NEUTRAL: Mapping[str, tuple] = types.MappingProxyType(
    {
        "time_major": (False, None),
        "ragged": (False, None),
        "sparse": (False, None),
        "optional": (False, None),
        "renorm": (False, None),
        "virtual_batch_size": (None,),
        "adjustment": (None,),
        "groups": (1, None),
        "num_constants": (0, None),
        "mode": (0, None),
        "dropout": (0, 0.0, None),
        "causal": (False, None),
        "synchronized": (False, True, None),
        "lora_rank": (None,),
        "oov_method": ("floormod", "farmhash", None),
    }
)
#: layers whose configuration must contain the vocabulary
_LOOKUPS = ("TextVectorization", "StringLookup", "IntegerLookup")
#: arguments that separable and depthwise layers inherit from convolutions and never use
_INHERITED = frozenset(
    f"{name}_{role}"
    for name in ("kernel", "depthwise", "pointwise")
    for role in ("initializer", "regularizer", "constraint")
)
_INHERITING = ("DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D")


def ordering(config: ParsedJson) -> str:
    """Returns the first data format in a model of Keras 1; all its layers use the same format."""
    queue = [config]
    while queue:
        item = queue.pop(0)
        if isinstance(item, Mapping):
            if item.get("dim_ordering") in ("th", "tf"):
                return item["dim_ordering"]
            queue[:0] = [v for v in item.values() if isinstance(v, Mapping | list)]
        elif isinstance(item, list):
            queue[:0] = [v for v in item if isinstance(v, Mapping | list)]
    return "tf"


def renamed(kind: str, config: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """Renames the arguments in a layer's configuration to Keras 3's names.

    Args:
        kind: Keras 3's name of the layer's class.

    Returns:
        A new dictionary without the keys that have no effect.
    """
    name = config.get("name")
    table = {**(_GENERAL if origin.major == 1 else {}), **_OWN.get(kind, {})}
    options: dict[str, Any] = {}
    for key, value in config.items():
        # `input_dim` is an argument of Embedding; elsewhere Keras 1 used it for the input shape.
        if key in _SILENT or (key == "input_dim" and not kind.endswith("Embedding")):
            continue
        keras3_name = table.get(key, key)
        # Otherwise the order of keys in the file would decide which value counts.
        if keras3_name in options:
            raise origin.error(
                f"received the argument {keras3_name!r} twice, also as {key!r}. The file is damaged.",
                name if isinstance(name, str) else None,
            )
        options[keras3_name] = value
    for axis_names in _SIDES:
        if all(side in options for side in axis_names):
            options["kernel_size"] = [options.pop(side) for side in axis_names]
    if isinstance(options.get("data_format"), str):
        options["data_format"] = FORMATS.get(options["data_format"], options["data_format"])
    return options


def supported_arguments(
    kind: str, config: Mapping[str, Any], fields: frozenset[str], origin: Origin, name: str | None
) -> dict[str, Any]:
    """Returns the arguments that the layer has; others must have a value without effect."""
    options = {}
    for key, value in config.items():
        if key in fields:
            options[key] = value
        elif (kind in _INHERITING and key in _INHERITED) or (
            key in _NEUTRAL and any(value is v or value == v for v in _NEUTRAL[key])
        ):
            continue
        # An ignored argument would change the model's outputs without any error.
        elif value is not None:
            raise origin.error(
                f"{kind} has no argument {key!r} (received {value!r:.80}). Save the model without "
                f"it, or pass your own class: {custom_code(kind, 'YourLayer')}.",
                name,
            )
    return options


def adjusted(kind: str, config: dict[str, Any], origin: Origin, name: str | None) -> dict[str, Any]:
    """Sets defaults that Keras 3 changed, and converts values that old versions wrote otherwise."""
    where = origin.place(name)
    if kind in _LOOKUPS and config.get("vocabulary") is None:
        raise origin.error(
            f"expected the vocabulary of {kind}, received none: Keras omits a learned vocabulary from "
            "HDF5 files. Save the model as .keras.",
            name,
        )
    if kind == "BatchNormalization" and not config.get("renorm"):
        for key in ("renorm_clipping", "renorm_momentum"):
            config.pop(key, None)
    if origin.major < 3:
        if kind in ("GRU", "GRUCell"):
            # The default was False until TensorFlow 2; files of models with True contain the key.
            config.setdefault("reset_after", False)
        if config.get("implementation") == 0:
            config["implementation"] = 1
        if isinstance(config.get("unit_forget_bias"), str):
            config["unit_forget_bias"] = config["unit_forget_bias"] in ("one", "ones")
        if kind == "BatchNormalization" and isinstance(config.get("axis"), list | Mapping):
            config["axis"] = _single(config["axis"], origin, name)
        if kind == "Bidirectional" and config.get("weights") is not None:
            del config["weights"]
        if kind in ("UpSampling1D", "RepeatVector") and isinstance(config.get("size"), list):
            config["size"] = _single(config["size"], origin, name)
        for key in ("axis", "n"):
            if isinstance(config.get(key), float):
                config[key] = int(check(config[key], float, repr(key), **where))
    return config


def _single(value: list[Any] | Mapping[str, Any], origin: Origin, name: str | None) -> Any:
    entries = list(value.values()) if isinstance(value, Mapping) else value
    if len(entries) != 1 or not isinstance(entries[0], int):
        raise origin.error(
            f"expected one axis, received {value!r:.80}. fkeras does not support several axes here; "
            "save the model with one axis.",
            name,
        )
    return entries[0]
