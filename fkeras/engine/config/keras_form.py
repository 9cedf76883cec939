"""`KerasForm`: how Keras's files hold a layer, where they differ from the layer's own fields.

Layers compute without this declaration. The readers and writers of graphs (`engine.graph_json`), of
weight files (`saving.weights`) and of legacy files (`saving.legacy`) read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
