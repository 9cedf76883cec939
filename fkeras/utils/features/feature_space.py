"""`FeatureSpace`: encodes the columns of a table as one vector, or as a vector for each column."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from fkeras import layers
from fkeras.engine import Input, KerasTensor, Layer, Model
from fkeras.engine.config.converters import choice, integer, text
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.values.argument_types import FilePath
from fkeras.engine.values.frozen import FrozenDict
from fkeras.saving.models import save_model
from fkeras.utils.features import feature as making
from fkeras.utils.features.encoding import column, learns, one_hot
from fkeras.utils.features.feature import Cross, Feature, as_feature
from fkeras.utils.features.table import as_columns, batches_of, read_columns

_MODE = choice("concat", "dict")
_COUNT = integer(minimum=1)
_NAME = text(optional=True)


@dataclasses.dataclass(frozen=True)
class FeatureSpace:
    """Encodes the columns of a table as vectors, with a preprocessing layer for each column.

    A feature space is a value: `adapt` returns another space, whose layers have learned their
    vocabularies, bins and statistics. Vectors are concatenated in the order of the sorted names, the
    features before the crosses, as in Keras.

    Args:
        features: a specification by the name of the feature: "float", "float_normalized",
            "float_rescaled", "float_discretized", "integer_categorical", "string_categorical",
            "integer_hashed", "string_hashed", or a result of the method of the same name, such as
            `FeatureSpace.string_categorical(max_tokens=10)`.
        output_mode: "concat" for one vector, "dict" for a value for each feature.
        crosses: tuples of names of features, or results of `FeatureSpace.cross`.
        crossing_dim: number of bins of crosses.
        hashing_dim: number of bins of "integer_hashed" and "string_hashed".
        num_discretization_bins: number of bins of "float_discretized".
        name: name of the preprocessing model.
        learned: layers that `adapt` returned, by the name of the feature.

    Raises:
        ValueError: for unknown words and names.
        TypeError: if `features` is no dictionary.

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

    float = staticmethod(making.plain_float)
    float_rescaled = staticmethod(making.float_rescaled)
    float_normalized = staticmethod(making.float_normalized)
    float_discretized = staticmethod(making.float_discretized)
    integer_categorical = staticmethod(making.integer_categorical)
    string_categorical = staticmethod(making.string_categorical)
    string_hashed = staticmethod(making.string_hashed)
    integer_hashed = staticmethod(making.integer_hashed)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("output_mode", _MODE.check("FeatureSpace: output_mode", self.output_mode))
        put("name", _NAME.check("FeatureSpace: name", self.name))
        for size in ("crossing_dim", "hashing_dim", "num_discretization_bins"):
            put(size, _COUNT.check(f"FeatureSpace: {size}", getattr(self, size)))
        if not isinstance(self.features, Mapping):
            raise TypeError(
                "FeatureSpace: features: expected a dictionary of features by name, received "
                f"{describe_value(self.features)}. Write {{'age': 'float_normalized'}}."
            )
        if not self.features:
            raise ValueError(
                "FeatureSpace: features: expected a feature or more, received none. Write "
                "{'age': 'float_normalized'}."
            )
        for name in self.features:
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(
                    "FeatureSpace: features: expected names without '/', received "
                    f"{describe_value(name)}. The name of a feature is that of a model's input."
                )
        sizes = {n: getattr(self, n) for n in ("hashing_dim", "num_discretization_bins")}
        features = {name: as_feature(name, f, sizes) for name, f in self.features.items()}
        put("features", FrozenDict(features))
        put("learned", FrozenDict(self.learned))
        strange = [name for name in self.learned if name not in features]
        if strange:
            raise ValueError(
                f"FeatureSpace: learned: expected layers of the features {', '.join(features)}, "
                f"received one of {strange[0]!r}. Write space.adapt(data)."
            )
        put("crosses", self._crosses())

    # the symbolic inputs cannot be copied or pickled; they belong to this object alone
    def __reduce__(self) -> tuple:
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return type(self), tuple(fields)

    def _crosses(self) -> tuple[Cross, ...]:
        crosses_argument = self.crosses
        if crosses_argument is not None and not isinstance(crosses_argument, list | tuple):
            raise TypeError(
                "FeatureSpace: crosses: expected a list of tuples of names, received "
                f"{describe_value(crosses_argument)}. Write [('color', 'size')]."
            )
        crosses = tuple(
            c if isinstance(c, Cross) else Cross(c, self.crossing_dim)
            for c in crosses_argument or ()
        )
        for cross in crosses:
            unknown = [name for name in cross.feature_names if name not in self.features]
            if unknown:
                raise ValueError(
                    f"FeatureSpace: crosses: expected names of features, received {unknown[0]!r}."
                    f"{suggest(unknown[0], self.features)} The features are "
                    f"{', '.join(self.features)}."
                )
        names = [*self.features, *(cross.name for cross in crosses)]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(
                f"FeatureSpace: crosses: expected different names, received {twice[0]!r} twice. "
                "Leave one out."
            )
        return crosses

    # cached: get_inputs and get_encoded_features must return the same tensors
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

    def _unlearned(self) -> list[str]:
        """Returns the features whose layers learn from data, in the form before `adapt`."""
        return [n for n, f in self.features.items() if learns(f.preprocessor)]

    def adapt(self, dataset: Any) -> Self:
        """Returns a space whose layers have learned from a table.

        Layers that have a vocabulary, boundaries or a mean already keep them. A second `adapt`
        learns everything anew.

        Args:
            dataset: columns by name: a dictionary of arrays or lists, or a table of pandas; or an
                iterable of such batches, also of `(batch, targets)`. An iterable is read once.

        Raises:
            TypeError: for other data.
            ValueError: for data without a column that a layer learns from.

        Example:
            >>> space = FeatureSpace({"size": "float_discretized"}, num_discretization_bins=2)
            >>> space.adapt({"size": [1.0, 2.0, 3.0, 4.0]}).preprocessors["size"].bin_boundaries
            (2.0,)
        """
        names = self._unlearned()
        columns = read_columns(dataset, names)
        learned = {
            name: self.features[name].preprocessor.adapt(iter(batches_of(columns[name])))
            for name in names
        }
        return dataclasses.replace(self, learned=learned)

    def get_inputs(self) -> dict[str, KerasTensor]:
        """Returns the symbolic input of each feature, of shape (b, 1)."""
        return dict(self._inputs)

    def get_encoded_features(self) -> Any:
        """Returns the symbolic vector of `get_inputs()`, or a dictionary for output_mode="dict".

        Raises:
            ValueError: before `adapt`, and for features that cannot be encoded or concatenated.

        Example:
            >>> import fkeras as fk
            >>> space = FeatureSpace({"a": "float", "b": "float_rescaled"})
            >>> y = fk.layers.Dense(1)(space.get_encoded_features())
            >>> fk.Model(space.get_inputs(), y).input_names
            ('a', 'b')
        """
        waiting = [name for name in self._unlearned() if name not in self.learned]
        if waiting:
            raise ValueError(
                f"FeatureSpace: the features {', '.join(waiting)} have learned nothing yet. Write "
                "`space = space.adapt(data)` first."
            )
        numbers = {n: layer(self._inputs[n]) for n, layer in self.preprocessors.items()}
        crossed = {
            cross.name: self.crossers[cross.name](tuple(numbers[n] for n in cross.feature_names))
            for cross in self.crosses or ()
        }
        specs = {**self.features, **{cross.name: cross for cross in self.crosses or ()}}
        encoders = {**self.preprocessors, **self.crossers}
        encoded = {}
        for name in (*sorted(numbers), *sorted(crossed)):
            tensor = numbers[name] if name in numbers else crossed[name]
            if specs[name].output_mode == "one_hot":
                tensor = one_hot(name, encoders[name], tensor)
            if self.output_mode == "concat" and not str(tensor.dtype).startswith(("float", "bf")):
                raise ValueError(
                    f"FeatureSpace: expected features of floats to concatenate, received {name!r} "
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
        """Returns the model from columns to vectors, for example for `fk.save_model`.

        `fk.split_host` splits a model of strings into its part on the host and its part on the
        device.

        Example:
            >>> FeatureSpace({"a": "float"}).get_preprocessing_model().input_names
            ('a',)
        """
        return self._model

    def __call__(self, data: Any) -> Any:
        """Returns the vectors of a table.

        Args:
            data: columns by name of shape (b,) or (b, 1), single values, or symbolic tensors.

        Returns:
            An array of shape (b, d), or a dictionary of arrays; without the batch axis for single
            values.

        Raises:
            TypeError: for data that are no columns by name.
            ValueError: for missing and unknown columns, and before `adapt`.
        """
        columns = as_columns(data, "FeatureSpace")
        missing = [name for name in self.features if name not in columns]
        unknown = [name for name in columns if name not in self.features]
        if missing or unknown:
            word, name = ("no column", missing[0]) if missing else ("the column", unknown[0])
            raise ValueError(
                f"FeatureSpace: expected the columns {', '.join(self.features)}, received {word} "
                f"{name!r}. Write {{name: table[name] for name in space.features}}."
            )
        if any(isinstance(value, KerasTensor) for value in columns.values()):
            return self._model(columns)
        arrays, single = {}, False
        for name, feature in self.features.items():
            array = column(name, columns[name], feature)
            single = single or array.ndim == 0
            arrays[name] = array.reshape(-1, 1) if array.ndim < 2 else array
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                f"FeatureSpace: expected columns of one length, received {counts}. Each column has "
                "one value for each row."
            )
        encoded = self._model(arrays)
        if not single:
            return encoded
        if self.output_mode == "concat":
            return encoded[0]
        return {name: array[0] for name, array in encoded.items()}

    def save(self, path: FilePath) -> None:
        """Writes the preprocessing model as a `.keras` file, which `fk.load_model` and Keras open.

        The file holds the model. `get_config` and `from_config` keep the space itself.

        Args:
            path: path of the file.

        Raises:
            ValueError: before `adapt`.

        Example:
            >>> import fkeras as fk, pathlib, tempfile
            >>> place = pathlib.Path(tempfile.mkdtemp(), "space.keras")
            >>> FeatureSpace({"a": "float"}).save(place)
            >>> fk.load_model(place)[0].input_names
            ('a',)
        """
        save_model(path, self._model, {})

    def get_config(self) -> dict[str, Any]:
        """Returns the space as JSON data in Keras's form, with all that `adapt` learned."""

        def written(name: str, config: dict[str, Any]) -> dict[str, Any]:
            return {
                "module": making.MODULE,
                "class_name": name,
                "config": config,
                "registered_name": name,
            }

        layers_by_name = self.preprocessors
        features = {
            name: dataclasses.replace(feature, preprocessor=layers_by_name[name])
            for name, feature in self.features.items()
        }
        return {
            "features": {n: written("Feature", f.get_config()) for n, f in features.items()},
            "output_mode": self.output_mode,
            "crosses": [written("Cross", cross.get_config()) for cross in self.crosses or ()],
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
            custom_objects: own classes of layers by name.

        Raises:
            ValueError: for data of another form.

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
            others = {k: v for k, v in config.items() if k not in ("features", "crosses")}
            return cls(features, crosses=crosses, **others)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                "FeatureSpace.from_config: expected the data of get_config, received data of "
                f"another form ({type(error).__name__}: {error}). Write space.get_config()."
            ) from None
