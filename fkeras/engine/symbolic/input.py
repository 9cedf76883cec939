"""`Input`: the symbolic tensors at the start of a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jax.typing import DTypeLike

from fkeras.engine.call.node import Node
from fkeras.engine.call.signature import input_signature
from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import AnyInteger, Converted, Policy
from fkeras.engine.config.policy import NAMES, DTypePolicy, any_policy
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.migration_hints.arguments import explains_arguments, unknown_argument
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.values.annotations import Field, Json, SymbolicTensor, Tree
from fkeras.engine.values.config_walk import mappings
from fkeras.engine.values.spec import (
    STRING,
    Dimension,
    Spec,
    as_dims,
    canonical_dtype,
    is_shape,
    name_axis,
    named_size,
)

# 2**63 bytes for numbers of 8 bytes: XLA ends the process for a larger array
_MOST = 2**60
# key of an input's configuration for the names of unknown sizes
_NAMES = "size_names"
_batch_size = integer(minimum=0, optional=True)


def _batch_shape(shape: Sequence[int | None]) -> tuple:
    sizes = shape if is_shape(shape) else (-1,)
    sizes = [named_size(size) if isinstance(size, str) else size for size in sizes]
    if any(isinstance(size, int | np.integer) and size < 0 for size in sizes):
        raise ValueError(
            f"expected a tuple of sizes of 0 or more and None, received {describe_value(shape)}. For "
            "batches of vectors with 8 numbers: (None, 8)."
        )
    if math.prod(int(size) for size in sizes if isinstance(size, int | np.integer)) >= _MOST:
        raise ValueError(
            f"expected a shape of fewer than 2**60 numbers, received {describe_value(shape)}. Reduce "
            "the sizes."
        )
    return as_dims(sizes)


def _with_names(shape: Any, names: Json) -> list[Any]:
    valid = is_shape(names) and all(name is None or isinstance(name, str) for name in names)
    if not valid or not is_shape(shape) or len(names) != len(shape):
        raise ValueError(
            f"expected {_NAMES} with a name or null for each size of batch_shape {shape!r:.80}, "
            f"received {names!r:.80}. Correct the names, or remove the key."
        )
    # another program may have changed a size; a fixed size has no name
    return [n if size is None else size for size, n in zip(shape, names, strict=True)]


def needs_batch_size(config: Json) -> bool:
    """Returns whether a configuration has stateful layers, whose state has one row per sample."""
    return any(item.get("stateful") is True for item in mappings(config, ("inbound_nodes",)))


class InputLayer(Layer):
    """Returns its input unchanged; the layer of a tensor from `fk.Input`.

    Args:
        shape: shape of one sample, None, a name or an expression of names for unknown sizes.
        batch_size: fixed batch size.
        dtype: dtype of the values.
        batch_shape: shape with the batch axis, instead of `shape` and `batch_size`.
        optional: whether a call may leave out the input, or pass None.

    Raises:
        ValueError: without a shape, or with both `shape` and `batch_shape`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.InputLayer((3,), name="x").get_config()["batch_shape"]
        [None, 3]
    """

    _keras_module: ClassVar[str] = "keras.layers"
    _autocast: ClassVar[bool] = False
    supports_masking: ClassVar[bool] = True
    batch_shape: Converted[Sequence[AnyInteger | str | None], tuple[Dimension, ...]] = option(
        convert=_batch_shape
    )
    dtype: Policy = option(default="float32", convert=any_policy, kw_only=True)
    optional: bool = option(default=False, convert=boolean, kw_only=True)

    def __init__(
        self,
        shape: Sequence[AnyInteger | str | None] | None = None,
        batch_size: int | None = None,
        dtype: DTypeLike | DTypePolicy = "float32",
        *,
        batch_shape: Sequence[AnyInteger | str | None] | None = None,
        name: str | None = None,
        trainable: bool = True,
        optional: bool = False,
        **unknown: Field,
    ):
        if unknown:
            names = ("shape", "batch_size", "dtype", "batch_shape", "name", "optional")
            raise TypeError(unknown_argument("InputLayer", next(iter(unknown)), names))
        fields = {
            "batch_shape": _full_shape("InputLayer", shape, batch_size, batch_shape),
            "dtype": dtype,
            "name": name,
            "trainable": trainable,
            "optional": optional,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)  # layers are frozen
        self.__post_init__()

    @property
    def spec(self) -> Spec:
        """The spec of the input."""
        return Spec(self.batch_shape, self.dtype.name)

    def call(self, x: Tree) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        # Keras writes None for unknown sizes, and ignores additional keys; files omit generated names
        names = [
            d if isinstance(d, str) and d != name_axis(axis) else None
            for axis, d in enumerate(self.batch_shape)
        ]
        config = {**super().get_config(), "batch_shape": list(self.spec.shape)}
        return {**config, _NAMES: names} if any(names) else config

    @classmethod
    def from_config(
        cls, config: Json, custom_objects: Mapping[str, Any] | None = None
    ) -> InputLayer:
        # keys of Keras without a meaning here
        ignored = ("sparse", "ragged", "trainable")
        options = {
            k: v for k, v in config.items() if k not in ignored or v not in (False, None, True)
        }
        if isinstance(options.get("dtype"), str):
            options["dtype"] = _dtype_name(options["dtype"])
        if _NAMES in options:
            options["batch_shape"] = _with_names(options.get("batch_shape"), options.pop(_NAMES))
        return super().from_config(options, custom_objects)


@explains_arguments
def Input(  # noqa: N802  (Keras's name)
    shape: Sequence[int | str | None] | None = None,
    batch_size: int | None = None,
    dtype: DTypeLike = "float32",
    *,
    batch_shape: Sequence[AnyInteger | str | None] | None = None,
    name: str | None = None,
    optional: bool = False,
) -> KerasTensor:
    """Creates a symbolic tensor of the given shape, the start of a graph.

    Args:
        shape: shape of one sample. None for an unknown size; a string names an unknown size, so that
            `("time", 8)` and `("words", 8)` are different lengths. An expression of names, such as
            "4*h", is a size that layers can divide.
        batch_size: fixed batch size, which stateful layers need.
        dtype: dtype of the values: "int32" for ids, "string" for texts, which text and lookup layers
            convert to numbers on the host.
        batch_shape: shape with the batch axis, instead of `shape` and `batch_size`.
        name: name of the input.
        optional: whether a call of the model may leave out the input, or pass None. The layers that
            take the input are then called with None. By position, a call can leave out the last inputs;
            a dictionary can leave out any of them.

    Raises:
        ValueError: without a shape, or with both `shape` and `batch_shape`.
        TypeError: for an unknown dtype.

    Example:
        >>> import fkeras as fk
        >>> fk.Input((28, 28, 1)).shape
        (None, 28, 28, 1)
    """
    batch_shape = _full_shape("Input", shape, batch_size, batch_shape)
    options = {"name": name, "dtype": _dtype_name(dtype), "optional": optional}
    return symbolic(InputLayer(batch_shape=batch_shape, **options))


def _full_shape(where: str, shape: Any, batch_size: Any, batch_shape: Any) -> Any:
    """Returns the shape with the batch axis."""
    if (shape is None) == (batch_shape is None):
        raise ValueError(
            f"{where}: expected either shape (one example) or batch_shape, received "
            f"{'neither' if shape is None else 'both'}. Write fk.{where}((28, 28, 1))."
        )
    if batch_shape is not None:
        if batch_size is not None:
            raise ValueError(f"{where}: batch_size is part of batch_shape already. Leave it out.")
        return batch_shape
    if isinstance(shape, int | np.integer):
        raise ValueError(
            f"{where}: expected a tuple for shape, received the number {shape}. Write "
            f"fk.{where}(({shape},))."
        )
    if not isinstance(shape, list | tuple | np.ndarray):
        raise ValueError(
            f"{where}: shape: expected a tuple of sizes and None, received "
            f"{describe_value(shape)}. For vectors with 8 numbers: (8,)."
        )
    return (_batch_size.check(f"{where}: batch_size", batch_size), *shape)


def _dtype_name(dtype: DTypeLike | None) -> str:
    if _is_text(dtype):
        return STRING
    try:
        return canonical_dtype(dtype)
    except TypeError:
        raise TypeError(
            f"Input: there is no dtype {dtype!r}.{suggest(str(dtype), (*NAMES, 'int32', 'bool', STRING))}"
        ) from None


def _is_text(dtype: DTypeLike | None) -> bool:
    if str(dtype) == "string":  # TensorFlow's name
        return True
    # NumPy's kinds of text: objects, bytes, fixed-width strings, and the StringDType of NumPy 2
    try:
        return np.dtype(dtype).kind in "OSUT"
    except TypeError:
        return False


def symbolic(layer: InputLayer) -> KerasTensor:
    """Returns the symbolic tensor of an input layer."""
    return KerasTensor(Node(layer, input_signature(layer.spec)), 0)


def is_input(tensor: SymbolicTensor) -> bool:
    """Returns whether a symbolic tensor comes from `fk.Input`."""
    return isinstance(tensor.node.layer, InputLayer)
