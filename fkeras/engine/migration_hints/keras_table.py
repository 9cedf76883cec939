"""All migration hints as one table of Keras code and fkeras code, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from fkeras.engine.migration_hints import arguments, attributes, model_layers, names, overrides

_OBJECTIVE = (
    '`fk.Trainer("adam", objective=objective)`, whose function returns the loss of the step'
)
# one row for "layer.trainable = ..." and so on
_ASSIGNMENTS = MappingProxyType(
    {f"layer.{name} = ...": hint for name, hint in attributes._ASSIGNED.items()}
)
_MODEL_LAYERS = MappingProxyType(
    {
        "for layer in model.layers": model_layers.VALUES,
        "model.layers[0] = other": model_layers.REPLACED.format(name='"dense"'),
        **{f"model.layers.{name}": hint for name, hint in model_layers.METHODS.items()},
    }
)
_METHODS = MappingProxyType({**dict.fromkeys(overrides._STEPS, _OBJECTIVE), **overrides._MODEL})
_HOOKS = MappingProxyType(
    {
        **{
            name: f"`def {name}(self, {', '.join(parameters)})`"
            for name, parameters in overrides._HOOKS.items()
        },
        **overrides._OTHER_HOOKS,
    }
)


def keras_table() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields `(title, rows)` for each kind of Keras code; a row is `(Keras, fkeras)`.

    Rows with equal hints are one row, whose names are separated by commas. Code in hints stands in
    backticks, as in the error messages.

    Example:
        >>> sections = dict(keras_table())
        >>> next(row for row in sections["Attributes of trainers"] if row[0] == "model")
        ('model', 'the model is in the run: `model = run.model`')
    """
    yield "Attributes and methods of models and layers", _rows(attributes._LAYER, "name")
    yield "Layers of a model", _rows(_MODEL_LAYERS)
    yield "Assignments", _rows(_ASSIGNMENTS)
    yield "Methods of a model's subclass", _rows(_METHODS)
    yield "Attributes of trainers", _rows(attributes._TRAINERS)
    yield "Arguments of constructors", _rows(arguments._ARGUMENTS)
    yield "Arguments of functions and methods", _rows(arguments._FUNCTIONS)
    for module, table in names._TABLES.items():
        yield f"Names in {names._display_name(module)}", _rows(table)
    yield "Hooks of callbacks", _rows(_HOOKS)
    yield "Attributes of callbacks", _rows(attributes._CALLBACK)
    yield "Attributes of optimizers", _rows(attributes._OPTIMIZER)
    yield "Attributes of metrics", _rows(attributes._METRIC)
    yield "Attributes of symbolic tensors", _rows(attributes._TENSOR)


def _rows(table: Mapping[str, str], layer: str = "name") -> list[tuple[str, str]]:
    keras_names: dict[str, list[str]] = {}
    for name, hint in table.items():
        keras_names.setdefault(hint.replace("{name}", repr(layer)), []).append(name)
    return [(_joined(same), hint) for hint, same in keras_names.items()]


def _joined(same: Iterable[str]) -> str:
    return ", ".join(same)
