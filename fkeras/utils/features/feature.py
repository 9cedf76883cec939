"""`Feature` and `Cross`: specifications of how columns, alone or combined, become numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from fkeras import layers
from fkeras.engine import Layer
from fkeras.engine.config.converters import choice, dtype_name, integer, several, text
from fkeras.engine.messages.errors import describe_value, suggest

# in configs of Keras
KERAS_MODULE = "keras.src.layers.preprocessing.feature_space"
_MODE = choice("int", "one_hot", "float")
_CROSS_MODE = choice("int", "one_hot")
_COUNT = integer(minimum=1)
_NAMES = several(text(), "two or more names of features", least=2)


@dataclasses.dataclass(frozen=True)
class Feature:
    """A column of a table: its dtype, and the layer that encodes its values as numbers.

    Args:
        dtype: dtype of the values: "float32", "int32", "string", ...
        preprocessor: the layer.
        output_mode: "float" if the layer returns floats, "int" if it returns integers, or "one_hot"
            to encode its integers as vectors.

    Raises:
        ValueError: for an unknown dtype or output mode.
        TypeError: if `preprocessor` is not a layer.

    Example:
        >>> from fkeras import layers
        >>> Feature("float32", layers.Rescaling(0.01), "float").output_mode
        'float'
    """

    dtype: str
    preprocessor: Layer
    output_mode: str

    def __post_init__(self) -> None:
        mode = _MODE.check("Feature: output_mode", self.output_mode)
        object.__setattr__(self, "output_mode", mode)
        name = "string" if self.dtype in ("string", str) else dtype_name(self.dtype)
        if name is None:
            raise ValueError(
                "Feature: dtype: expected a dtype such as 'float32', 'int32' or 'string', received "
                f"{describe_value(self.dtype)}."
            )
        object.__setattr__(self, "dtype", name)
        if not isinstance(self.preprocessor, Layer):
            raise TypeError(
                "Feature: preprocessor: expected a layer, received "
                f"{describe_value(self.preprocessor)}. Write layers.Lambda(function) for a function."
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as JSON data."""
        preprocessor = layers.serialize(self.preprocessor)
        return {
            "dtype": self.dtype,
            "preprocessor": preprocessor,
            "output_mode": self.output_mode,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates a feature from the data that `get_config`, or Keras's feature, returned."""
        preprocessor = config["preprocessor"]
        if isinstance(preprocessor, Mapping) and preprocessor.get("class_name") == "TFDIdentity":
            identity_config = preprocessor.get("config", {})
            preprocessor = layers.Identity(name=identity_config.get("name"))
        else:
            preprocessor = layers.deserialize(preprocessor, custom_objects=custom_objects)
        return cls(config["dtype"], preprocessor, config["output_mode"])


@dataclasses.dataclass(frozen=True)
class Cross:
    """A feature cross: each combination of the features' values is hashed to a bin.

    Args:
        feature_names: names of two features or more.
        crossing_dim: number of bins.
        output_mode: "one_hot" for vectors, "int" for bin numbers.

    Raises:
        ValueError: for fewer than two names, fewer than 1 bin, and an unknown output mode.

    Example:
        >>> Cross(("color", "size"), 8).name
        'color_X_size'
    """

    feature_names: Sequence[str]
    crossing_dim: int
    output_mode: str = "one_hot"

    def __post_init__(self) -> None:
        for name, rule in (
            ("feature_names", _NAMES),
            ("crossing_dim", _COUNT),
            ("output_mode", _CROSS_MODE),
        ):
            object.__setattr__(self, name, rule.check(f"Cross: {name}", getattr(self, name)))

    @property
    def name(self) -> str:
        """The names of the features, joined by "_X_"."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments as JSON data."""
        return {
            "feature_names": list(self.feature_names),
            "crossing_dim": self.crossing_dim,
            "output_mode": self.output_mode,
        }


def _preprocessor_name(name: str | None) -> str | None:
    return None if name is None else f"{name}_preprocessor"


def plain_float(name: str | None = None) -> Feature:
    """Returns a feature of numbers that are unchanged."""
    return Feature("float32", layers.Identity(name=_preprocessor_name(name)), "float")


def float_rescaled(scale: float = 1.0, offset: float = 0.0, name: str | None = None) -> Feature:
    """Returns a feature of numbers `x * scale + offset`."""
    layer = layers.Rescaling(scale=scale, offset=offset, name=_preprocessor_name(name))
    return Feature("float32", layer, "float")


def float_normalized(name: str | None = None) -> Feature:
    """Returns a feature of numbers that are standardized with the mean and variance from `adapt`."""
    return Feature("float32", layers.Normalization(axis=-1, name=_preprocessor_name(name)), "float")


def float_discretized(
    num_bins: int | None = None,
    bin_boundaries: Sequence[float] | None = None,
    output_mode: str = "one_hot",
    name: str | None = None,
) -> Feature:
    """Returns a feature of numbers in bins: `bin_boundaries`, or `num_bins` bins from `adapt`."""
    # Keras requires `num_bins` even beside boundaries: the boundaries have priority
    learned_bins = num_bins if bin_boundaries is None else None
    layer = layers.Discretization(bin_boundaries, learned_bins, name=_preprocessor_name(name))
    return Feature("float32", layer, output_mode)


def integer_categorical(
    max_tokens: int | None = None,
    num_oov_indices: int = 1,
    output_mode: str = "one_hot",
    name: str | None = None,
) -> Feature:
    """Returns a feature of integers from a vocabulary that `adapt` orders by frequency."""
    layer = layers.IntegerLookup(
        name=_preprocessor_name(name), max_tokens=max_tokens, num_oov_indices=num_oov_indices
    )
    return Feature("int32", layer, output_mode)


def string_categorical(
    max_tokens: int | None = None,
    num_oov_indices: int = 1,
    output_mode: str = "one_hot",
    name: str | None = None,
) -> Feature:
    """Returns a feature of strings from a vocabulary that `adapt` orders by frequency."""
    layer = layers.StringLookup(
        name=_preprocessor_name(name), max_tokens=max_tokens, num_oov_indices=num_oov_indices
    )
    return Feature("string", layer, output_mode)


def string_hashed(num_bins: int, output_mode: str = "one_hot", name: str | None = None) -> Feature:
    """Returns a feature of strings that are hashed into bins."""
    return Feature(
        "string", layers.Hashing(num_bins=num_bins, name=_preprocessor_name(name)), output_mode
    )


def integer_hashed(num_bins: int, output_mode: str = "one_hot", name: str | None = None) -> Feature:
    """Returns a feature of integers that are hashed into bins."""
    return Feature(
        "int32", layers.Hashing(num_bins=num_bins, name=_preprocessor_name(name)), output_mode
    )


# kinds of features by name, with the argument of `FeatureSpace` that gives the number of bins
_KINDS: Mapping[str, tuple[Callable[..., Feature], str | None]] = MappingProxyType(
    {
        "float": (plain_float, None),
        "float_normalized": (float_normalized, None),
        "float_rescaled": (float_rescaled, None),
        "float_discretized": (float_discretized, "num_discretization_bins"),
        "integer_categorical": (integer_categorical, None),
        "string_categorical": (string_categorical, None),
        "integer_hashed": (integer_hashed, "hashing_dim"),
        "string_hashed": (string_hashed, "hashing_dim"),
    }
)


def as_feature(name: str, value: object, sizes: Mapping[str, int]) -> Feature:
    """Converts the specification of a feature: a name such as "float", a `Feature`, or a config.

    Args:
        sizes: the space's arguments `hashing_dim` and `num_discretization_bins` by name.

    Example:
        >>> as_feature("age", "float", {}).dtype
        'float32'
    """
    if isinstance(value, Feature):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("config"), Mapping):
        return Feature.from_config(value["config"])
    if isinstance(value, str) and value in _KINDS:
        create, size = _KINDS[value]
        return create(name=name) if size is None else create(sizes[size], name=name)
    suggestion = suggest(value, _KINDS) if isinstance(value, str) else ""
    raise ValueError(
        f"FeatureSpace: features: {name!r}: expected a feature such as 'float_normalized' or "
        f"FeatureSpace.float_normalized(), received {describe_value(value)}.{suggestion} Choose one "
        f"of {', '.join(_KINDS)}."
    )
