"""`KerasForm`: how Keras's files hold a layer, where they differ from the layer's own fields.

Layers compute without this declaration. The readers and writers of graphs (`engine.graph_json`), of
weight files (`saving.weights`) and of legacy files (`saving.legacy`) call the functions of this file,
which return defaults for layers without a declaration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from fkeras.engine.values.frozen import FrozenDict


@dataclasses.dataclass(frozen=True)
class KerasForm:
    """Class, call arguments and weight groups of a layer in Keras's files.

    A layer class declares a form as the class variable `_keras_form`. A subclass inherits the form; to
    change an entry, write `dataclasses.replace(Base._keras_form, training_default=None)`.

    Attributes:
        class_name: name of Keras's class; None where the name of the layer's own class serves.
        input_names: names of the inputs in Keras's `call`, in order.
        option_names: names of the arguments after the inputs in Keras's `call`, in order. Files may
            hold these arguments by position.
        training_default: default of `training` in Keras's `call`. Keras writes this value for a call
            that does not set `training`.
        state_order: order of state entries in Keras's weight list, if not alphabetical.
        early_weights: paths of child weights that Keras lists before the layer's own weights.
        groups: HDF5 group of each child field, where it differs from the field's name; the entry ""
            is the group of the layer's own weights.
        stores_state: whether Keras's files hold the layer's own state.
        quantized_as: class of `fk.layers` that a quantized configuration of the layer is read as.
            Subclasses do not inherit this entry: a subclass may compute something else.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.MultiHeadAttention._keras_form.input_names
        ('query', 'value', 'key')
    """

    class_name: str | None = None
    input_names: tuple[str, ...] = ("inputs",)
    option_names: tuple[str, ...] = ()
    training_default: bool | None = False
    state_order: tuple[str, ...] = ()
    early_weights: tuple[str, ...] = ()
    groups: Mapping[str, str] = FrozenDict()
    stores_state: bool = True
    quantized_as: str | None = None


_DEFAULT = KerasForm()


def keras_form(owner: Any) -> KerasForm:
    """Returns the form that a layer, or a class of layers, declares; the default for other layers.

    Example:
        >>> import fkeras as fk
        >>> keras_form(fk.layers.Dropout(0.5)).input_names
        ('inputs',)
    """
    kind = owner if isinstance(owner, type) else type(owner)
    return owner._keras_form if hasattr(kind, "_keras_form") else _DEFAULT


@runtime_checkable
class LosesMasks(Protocol):
    """Layers whose counterpart in Keras drops masks by a rule other than `supports_masking`."""

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        """Returns whether Keras's layer drops the masks (or None) of its inputs."""
        ...


def loses_masks(layer: Any, masks: Sequence[Any]) -> bool:
    """Returns whether Keras's layer drops the masks (or None) of its inputs; for Keras's files.

    Example:
        >>> import fkeras as fk
        >>> [loses_masks(l, [True]) for l in (fk.layers.Masking(), fk.layers.ReLU())]
        [True, False]
    """
    # the class is checked: a missing attribute of a layer starts the search for a migration hint
    if issubclass(type(layer), LosesMasks):
        return layer._loses_masks(masks)
    return not layer.supports_masking


@runtime_checkable
class CompletesOptions(Protocol):
    """Layers that bring the options of a call to a canonical form before the call is recorded."""

    def _complete_options(self, inputs: tuple, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options of a call in the layer's canonical form."""
        ...


def completed_options(layer: Any, inputs: tuple, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a call of a file in the form that the layer's own call records.

    Example:
        >>> import fkeras as fk
        >>> completed_options(fk.layers.ReLU(), (), {"training": True})
        {'training': True}
    """
    if issubclass(type(layer), CompletesOptions):
        return layer._complete_options(inputs, options)
    return options
