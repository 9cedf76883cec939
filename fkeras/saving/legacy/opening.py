"""Loads a model from a legacy HDF5 file: configuration, weights and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import CustomObjects
from fkeras.authoring.saving import (
    Layout,
    Origin,
    abstract_build,
    check_calls,
    check_state,
    make_model,
    origin_of,
)
from fkeras.engine import Network, deserialize
from fkeras.host.containers.errors import reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import ParsedJson, parse
from fkeras.saving.legacy.configs.converter import Converter
from fkeras.saving.legacy.weights.order import Orders
from fkeras.saving.legacy.weights.summaries import with_boundaries
from fkeras.saving.legacy.weights.weights import place_legacy_weights


def document(store: Store, name: str, origin: Origin, limits: Limits) -> Any:
    """Returns the parsed JSON of an attribute of the root group, or None for a missing attribute."""
    text = store.attributes("").get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise origin.error(f"expected {name!r} as text, received {type(text).__name__}.")
    return parse(text, origin.file, origin.member, limits)


def load(
    store: Store,
    file: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    layout: Layout | None = None,
) -> tuple[Network, dict[str, Any], Orders]:
    """Loads `(model, state, orders)` from a legacy HDF5 file that Keras 1, 2 or 3 wrote.

    The orders are the names of the layers of each network in the file's order, by path.

    Args:
        custom_objects: the user's classes and functions by name. The function of a `Lambda` layer
            may also be under the layer's name; a replacement of a TensorFlow function is under
            TensorFlow's name.
    """
    limits = limits or Limits()
    origin = origin_of(store, "", file).at("/model_config")
    config = document(store, "model_config", origin, limits)
    if config is None:
        raise origin.error(
            "no model: the file has no attribute 'model_config'. If it holds weights alone, build "
            "the model and write model, state = fk.load_weights(path, model)."
        )
    converter = Converter(origin, CustomObjects(custom_objects or {}))
    with reading(origin.file, origin.member):
        config = with_boundaries(config, store, origin, converter.custom_objects)
        converted = converter.model(config)
    model = make_model(converted, origin, lambda item: _build(item, converter))
    model = model if layout is None else layout.cast(model)
    with reading(origin.file, "/model_weights"):
        # Shapes alone are enough to check the limits before anything is allocated, and no
        # initializer needs to run because the file holds every weight.
        shapes, state = abstract_build(model)
        check_state(shapes, state, limits)
    if layout is not None:
        shapes, state = layout.apply(shapes, state)
    with reading(origin.file, "/model_weights"):
        model, state = place_legacy_weights(store, shapes, state, converter.orders)
        check_calls(model, limits)
    return model, state, converter.orders


def _build(config: ParsedJson, converter: Converter) -> Network:
    origin = converter.origin
    with reading(origin.file, origin.member):
        model = deserialize(config, converter.all_objects)
        if not isinstance(model, Network):
            raise origin.error(
                f"expected a model, received {type(model).__name__}. Use an fk.Model."
            )
        # Without input shapes the layers have no weight shapes to compare with the file.
        if model.graph is None:
            raise origin.error(
                "the Sequential was saved before it was built: its 'config' has no layers, or its "
                "first layer no 'batch_input_shape'. Call or build the model in Keras, then save it "
                "again."
            )
    return model
