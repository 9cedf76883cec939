"""`FeatureSpace`: encodes the columns of a table as one vector, or each column as a vector."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from fkeras import layers
from fkeras.engine import Input, KerasTensor, Layer, Model
from fkeras.engine.config.converters import choice, integer, text
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.values.argument_types import FilePath
from fkeras.engine.values.frozen import FrozenDict
from fkeras.saving.models import save_model
from fkeras.utils.features import feature as kinds
from fkeras.utils.features.encoding import column_array, needs_adapt, one_hot
from fkeras.utils.features.feature import Cross, Feature, as_feature
from fkeras.utils.features.table import as_columns, read_columns, split_batches

_MODE = choice("concat", "dict")
_COUNT = integer(minimum=1)
_NAME = text(optional=True)


@dataclasses.dataclass(frozen=True)
class FeatureSpace:
    """Encodes the columns of a table as vectors, with a preprocessing layer for each column.

    A feature space is a value: `adapt` returns another space, whose layers have learned their
    vocabularies, bins and statistics. As in Keras, vectors are concatenated in the order of the sorted
    names, features before crosses.

    Args:
        features: specifications by feature name. A specification is "float", "float_normalized",
            "float_rescaled", "float_discretized", "integer_categorical", "string_categorical",
            "integer_hashed" or "string_hashed"; or the result of the method of that name, which
            takes options, such as `FeatureSpace.string_categorical(max_tokens=10)`.
        output_mode: "concat" for one vector, "dict" for a dictionary with an entry per feature.
        crosses: feature crosses: tuples of feature names, or results of `FeatureSpace.cross`.
        crossing_dim: number of bins of crosses that are tuples.
        hashing_dim: number of bins of "integer_hashed" and "string_hashed".
        num_discretization_bins: number of bins of "float_discretized".
        name: name of the preprocessing model.
        learned: layers that have learned in `adapt`, by feature name; set by `adapt`.

    Raises:
        ValueError: for unknown specifications, output modes and feature names.
        TypeError: if `features` is not a dictionary.

    Example:
        >>> space = FeatureSpace({"age": "float_normalized", "color": "string_categorical"})
        >>> space = space.adapt({"age": [10.0, 30.0], "color": ["red", "blue"]})
        >>> space({"age": [20.0], "color": ["red"]})
        Array([[0., 0., 1., 0.]], dtype=float32)
    """

    features: Mapping[str, Any]
    output_mode: str = "concat"
    crosses: Sequence[Any] | None = None
    crossing_dim: int = 32
    hashing_dim: int = 32
    num_discretization_bins: int = 32
    name: str | None = None
    learned: Mapping[str, Layer] = FrozenDict()

    cross = staticmethod(Cross)

    @staticmethod
    def feature(dtype: str, preprocessor: Layer, output_mode: str) -> Feature:
        """Returns a feature with a custom preprocessing layer."""
        return Feature(dtype, preprocessor, output_mode)

    float = staticmethod(kinds.plain_float)
    float_rescaled = staticmethod(kinds.float_rescaled)
    float_normalized = staticmethod(kinds.float_normalized)
    float_discretized = staticmethod(kinds.float_discretized)
    integer_categorical = staticmethod(kinds.integer_categorical)
    string_categorical = staticmethod(kinds.string_categorical)
    string_hashed = staticmethod(kinds.string_hashed)
    integer_hashed = staticmethod(kinds.integer_hashed)

    def __post_init__(self) -> None:
        def set_field(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        set_field("output_mode", _MODE.check("FeatureSpace: output_mode", self.output_mode))
        set_field("name", _NAME.check("FeatureSpace: name", self.name))
        for size in ("crossing_dim", "hashing_dim", "num_discretization_bins"):
            set_field(size, _COUNT.check(f"FeatureSpace: {size}", getattr(self, size)))
        if not isinstance(self.features, Mapping):
            raise TypeError(
                "FeatureSpace: features: expected a dictionary of features by name, received "
                f"{describe_value(self.features)}. Write {{'age': 'float_normalized'}}."
            )
        if not self.features:
            raise ValueError(
                "FeatureSpace: features: expected one or more features, received none. Write "
                "{'age': 'float_normalized'}."
            )
        for name in self.features:
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(
                    "FeatureSpace: features: expected names without '/', received "
                    f"{describe_value(name)}. Rename the feature: its name is also the name of an "
                    "input of the model."
                )
        sizes = {n: getattr(self, n) for n in ("hashing_dim", "num_discretization_bins")}
        features = {name: as_feature(name, f, sizes) for name, f in self.features.items()}
        set_field("features", FrozenDict(features))
        set_field("learned", FrozenDict(self.learned))
        unknown_names = [name for name in self.learned if name not in features]
        if unknown_names:
            raise ValueError(
                f"FeatureSpace: learned: expected layers of the features {', '.join(features)}, "
                f"received a layer of {unknown_names[0]!r}. Write space.adapt(data)."
            )
        set_field("crosses", self._crosses())

    # Copies and pickles hold the fields alone: the cached symbolic inputs cannot be pickled.
    def __reduce__(self) -> tuple:
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return type(self), tuple(fields)

    def _crosses(self) -> tuple[Cross, ...]:
        specifications = self.crosses
        if specifications is not None and not isinstance(specifications, list | tuple):
            raise TypeError(
                "FeatureSpace: crosses: expected a list of tuples of names, received "
                f"{describe_value(specifications)}. Write [('color', 'size')]."
            )
        crosses = tuple(
            cross if isinstance(cross, Cross) else Cross(cross, self.crossing_dim)
            for cross in specifications or ()
        )
        for cross in crosses:
            unknown = [name for name in cross.feature_names if name not in self.features]
            if unknown:
                raise ValueError(
                    f"FeatureSpace: crosses: expected names of features, received {unknown[0]!r}."
                    f"{suggest(unknown[0], self.features)} Choose among the features "
                    f"{', '.join(self.features)}."
                )
        names = [*self.features, *(cross.name for cross in crosses)]
        duplicates = [name for name in names if names.count(name) > 1]
        if duplicates:
            raise ValueError(
                f"FeatureSpace: crosses: expected different names, received {duplicates[0]!r} twice. "
                "Remove the repeated cross, or rename the feature."
            )
        return crosses

    # cached, since `get_inputs` and `get_encoded_features` must belong to the same graph
    @functools.cached_property
    def _inputs(self) -> dict[str, KerasTensor]:
        return {n: Input((1,), dtype=f.dtype, name=n) for n, f in self.features.items()}

    @property
    def preprocessors(self) -> dict[str, Layer]:
        """The preprocessing layer of each feature."""
        return {
            name: self.learned.get(name, feature.preprocessor)
            for name, feature in self.features.items()
        }

    @functools.cached_property
    def crossers(self) -> dict[str, Layer]:
        """The layer of each cross."""
        return {
            cross.name: layers.HashedCrossing(cross.crossing_dim, name=cross.name)
            for cross in self.crosses or ()
        }

    def _adaptable(self) -> list[str]:
        """Returns the names of the features whose layers learn from data."""
        return [n for n, f in self.features.items() if needs_adapt(f.preprocessor)]

    @hides_internal_frames
    def adapt(self, dataset: Any) -> Self:
        """Returns a space whose layers have learned from a table.

        Layers that were created with a vocabulary, boundaries or a mean keep them. A second `adapt`
        replaces everything that the first learned.

        Args:
            dataset: a table: a dictionary of arrays or lists by column name, or a pandas DataFrame.
                Or an iterable of tables or of `(table, targets)`, which is read once.

        Raises:
            TypeError: for other data.
            ValueError: for a missing column that a layer learns from, and for data without rows.

        Example:
            >>> space = FeatureSpace({"size": "float_discretized"}, num_discretization_bins=2)
            >>> space.adapt({"size": [1.0, 2.0, 3.0, 4.0]}).preprocessors["size"].bin_boundaries
            (2.0,)
        """
        names = self._adaptable()
        columns = read_columns(dataset, names)
        learned = {
            name: self.features[name].preprocessor.adapt(iter(split_batches(columns[name])))
            for name in names
        }
        space = dataclasses.replace(self, learned=learned)
        return returned(space, "FeatureSpace.adapt", "space = space.adapt(table)", depth=2)

    def get_inputs(self) -> dict[str, KerasTensor]:
        """Returns the symbolic input of each feature, of shape (b, 1)."""
        return dict(self._inputs)

    def get_encoded_features(self) -> Any:
        """Returns the encoded `get_inputs()`: a symbolic vector, or a dictionary in mode "dict".

        Raises:
            ValueError: before `adapt`, and for features that cannot be encoded or concatenated.

        Example:
            >>> import fkeras as fk
            >>> space = FeatureSpace({"a": "float", "b": "float_rescaled"})
            >>> y = fk.layers.Dense(1)(space.get_encoded_features())
            >>> fk.Model(space.get_inputs(), y).input_names
            ('a', 'b')
        """
        unadapted = [name for name in self._adaptable() if name not in self.learned]
        if unadapted:
            raise ValueError(
                f"FeatureSpace: the features {', '.join(unadapted)} have learned nothing yet. Write "
                "`space = space.adapt(data)` first."
            )
        preprocessed = {n: layer(self._inputs[n]) for n, layer in self.preprocessors.items()}
        crossed = {
            cross.name: self.crossers[cross.name](
                tuple(preprocessed[n] for n in cross.feature_names)
            )
            for cross in self.crosses or ()
        }
        specs = {**self.features, **{cross.name: cross for cross in self.crosses or ()}}
        encoders = {**self.preprocessors, **self.crossers}
        encoded = {}
        for name in (*sorted(preprocessed), *sorted(crossed)):
            tensor = preprocessed[name] if name in preprocessed else crossed[name]
            if specs[name].output_mode == "one_hot":
                tensor = one_hot(name, encoders[name], tensor)
            if self.output_mode == "concat" and not str(tensor.dtype).startswith(("float", "bf")):
                raise ValueError(
                    f"FeatureSpace: expected float features to concatenate, received {name!r} "
                    f"of dtype {tensor.dtype}. Choose output_mode='one_hot' for the feature, or "
                    "output_mode='dict' for the space."
                )
            encoded[name] = tensor
        if self.output_mode == "dict":
            return encoded
        tensors = list(encoded.values())
        return layers.Concatenate()(tensors) if len(tensors) > 1 else tensors[0]

    @functools.cached_property
    def _model(self) -> Model:
        return Model(self.get_inputs(), self.get_encoded_features(), name=self.name)

    def get_preprocessing_model(self) -> Model:
        """Returns the preprocessing model, whose inputs are columns and whose outputs are vectors.

        Strings stay on the host: `fk.split_host` splits a model with string columns into a part for
        the host and a part for the device.

        Example:
            >>> FeatureSpace({"a": "float"}).get_preprocessing_model().input_names
            ('a',)
        """
        return self._model

    def __call__(self, data: Any) -> Any:
        """Encodes a table.

        Args:
            data: columns by name: arrays of shape (b,) or (b, 1), single values, or symbolic tensors.

        Returns:
            An array of shape (b, d), or a dictionary of arrays in mode "dict". Single values give
            results without the batch axis.

        Raises:
            TypeError: for data that are not columns by name, and for a column of another type.
            ValueError: for missing and unknown columns, for columns of different lengths, and
                before `adapt`.
        """
        columns = as_columns(data, "FeatureSpace")
        missing = [name for name in self.features if name not in columns]
        unknown = [name for name in columns if name not in self.features]
        if missing or unknown:
            problem = f"no column {missing[0]!r}" if missing else f"the column {unknown[0]!r}"
            raise ValueError(
                f"FeatureSpace: expected the columns {', '.join(self.features)}, received {problem}. "
                "Write {name: table[name] for name in space.features}."
            )
        if any(isinstance(value, KerasTensor) for value in columns.values()):
            return self._model(columns)
        arrays, is_single = {}, False
        for name, feature in self.features.items():
            array = column_array(name, columns[name], feature)
            is_single = is_single or array.ndim == 0
            arrays[name] = array.reshape(-1, 1) if array.ndim < 2 else array
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                f"FeatureSpace: expected columns of one length, received {counts}. Pass one value "
                "for each row in every column."
            )
        encoded = self._model(arrays)
        if not is_single:
            return encoded
        if self.output_mode == "concat":
            return encoded[0]
        return {name: array[0] for name, array in encoded.items()}

    def save(self, path: FilePath) -> None:
        """Writes the preprocessing model as a `.keras` file for `fk.load_model` and Keras.

        The file holds the model, not the space: `get_config` and `from_config` store the space.

        Args:
            path: path of the file.

        Raises:
            ValueError: before `adapt`.

        Example:
            >>> import fkeras as fk, pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "space.keras")
            >>> FeatureSpace({"a": "float"}).save(path)
            >>> fk.load_model(path)[0].input_names
            ('a',)
        """
        save_model(path, self._model, {})

    def get_config(self) -> dict[str, Any]:
        """Returns the space as JSON data in Keras's form, including what the layers have learned."""

        def keras_object(name: str, config: dict[str, Any]) -> dict[str, Any]:
            return {
                "module": kinds.KERAS_MODULE,
                "class_name": name,
                "config": config,
                "registered_name": name,
            }

        learned_layers = self.preprocessors
        features = {
            name: dataclasses.replace(feature, preprocessor=learned_layers[name])
            for name, feature in self.features.items()
        }
        return {
            "features": {n: keras_object("Feature", f.get_config()) for n, f in features.items()},
            "output_mode": self.output_mode,
            "crosses": [keras_object("Cross", cross.get_config()) for cross in self.crosses or ()],
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates a space from the data of `get_config`, or of Keras's feature space.

        Args:
            config: the data.
            custom_objects: custom layer classes by name.

        Raises:
            ValueError: for data in another form.

        Example:
            >>> space = FeatureSpace({"a": "float"}, output_mode="dict")
            >>> FeatureSpace.from_config(space.get_config()) == space
            True
        """
        try:
            features = {
                name: Feature.from_config(item["config"], custom_objects)
                for name, item in config["features"].items()
            }
            crosses = [Cross(**item["config"]) for item in config.get("crosses") or ()]
            options = {k: v for k, v in config.items() if k not in ("features", "crosses")}
            return cls(features, crosses=crosses, **options)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                "FeatureSpace.from_config: expected the data of get_config, received data in "
                f"another form ({type(error).__name__}: {error}). Pass space.get_config()."
            ) from None
