"""`HostLayer`: base class of layers that process host data on the host.

XLA has no strings, and JAX disables 64-bit integers by default. Layers for strings and raw ids
therefore process host data (lists, strings, NumPy arrays) with NumPy. Device data (a `jax.Array`, a
traced value, a symbolic tensor) goes through `call`, as in other layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.node import symbolic_arguments
from fkeras.layers.common import authoring as fk


def as_data(value: fk.Field, where: str) -> fk.Leaf:
    """Converts host data to a NumPy array; returns device arrays and symbolic tensors unchanged.

    NumPy arrays are converted to native byte order.

    Raises:
        TypeError: for a masked array.
        ValueError: for rows of different lengths.

    Example:
        >>> as_data(["a", "bc"], "layer")
        array(['a', 'bc'], dtype='<U2')
    """
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.ndarray):
        return fk.plain(value, where)
    if isinstance(value, list | tuple | str | bytes | bool | int | float | np.generic):
        if symbolic_arguments((value,), {}, None):
            return value
        return fk.listed_texts(value, where)
    if hasattr(value, "numpy"):  # a tensor of another library, such as a batch of tf.data
        return np.asarray(value.numpy())
    array = fk.is_array_like(value) and not fk.is_symbolic(value)  # a column of pandas, for example
    return fk.plain(np.asarray(value), where) if array else value


def encoding_name(value: fk.Field) -> str:
    """Accepts the name of a text encoding that Python has."""
    try:
        "".encode(value)
    except (LookupError, TypeError):
        raise ValueError(
            f"expected the name of a text encoding, received {fk.describe_value(value)}. For example: "
            "'utf-8', 'latin-1'."
        ) from None
    return str(value)


def read_strings(array: np.ndarray, encoding: str, where: str) -> list[str]:
    """Returns the elements of an array of strings, in order, with bytes decoded.

    Raises:
        ValueError: for missing values.
        TypeError: for other elements that are not strings.
    """
    texts = array.ravel().tolist()
    if all(type(text) is str for text in texts):
        return texts
    fk.check_texts(texts, array.shape, where)
    return [text.decode(encoding) if isinstance(text, bytes) else text for text in texts]


def reject_sparse(sparse: bool, where: str, argument: str = "sparse") -> None:
    """Raises an error if a sparse (or ragged) result is requested: JAX's arrays are dense."""
    if sparse:
        raise ValueError(
            f"{where}: expected {argument}=False, received True: JAX arrays are dense. Leave it "
            'out; output_mode="int" is the compact form.'
        )


class DenseLayer(fk.Layer):
    """Layer whose argument `sparse` must be False.

    Args of the family:
        sparse: must be False: JAX's arrays are dense.
    """

    # default of a field that the concrete classes declare, in Keras's order of arguments
    sparse = False

    # half precision would round ids to other ids, and move numbers across a boundary
    _autocast: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_sparse(self.sparse, self._where)


class ListLayer(DenseLayer):
    """Computes on the device, also for lists and the data of other libraries."""

    def check_values(self, inputs: tuple) -> None:
        """Rejects invalid values in concrete inputs."""

    def apply(
        self,
        *inputs: fk.Tree,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: jax.Array | None = None,
        mask: fk.Tree = None,
        **options: fk.Option,
    ) -> fk.Output:
        """Returns the `Output` of the layer; converts lists to arrays and checks concrete values."""
        if not symbolic_arguments(inputs, options, mask):
            inputs = tuple(as_data(x, self._where) for x in inputs)
            options = {
                k: None if v is None else as_data(v, self._where) for k, v in options.items()
            }
            self.check_values(inputs)
        return super().apply(*inputs, state=state, training=training, key=key, mask=mask, **options)


class HostLayer(fk.HandlesStrings, DenseLayer):
    """Computes host data with NumPy, and device data with JAX.

    A subclass implements `on_host` for NumPy arrays, and `call` for device arrays.
    """

    def on_host(self, x: fk.Tree) -> np.ndarray:
        """Returns the layer's value for NumPy data."""
        raise NotImplementedError

    def read(self, value: fk.Field) -> fk.Tree:
        """Converts an input to the data that the layer computes on."""
        return as_data(value, self._where)

    def apply(
        self,
        *inputs: fk.Tree,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: jax.Array | None = None,
        mask: fk.Tree = None,
        **options: fk.Option,
    ) -> fk.Output:
        """Returns the `Output` of the layer, computed on the host for host data."""
        if not symbolic_arguments(inputs, options, mask):
            inputs = tuple(map(self.read, inputs))
            # all inputs on the host: a mixture would need a transfer that jit cannot do
            if all(isinstance(x, np.ndarray) for x in jax.tree.leaves(inputs)):
                return self._apply_on_host(inputs, mask, options)
        return super().apply(*inputs, state=state, training=training, key=key, mask=mask, **options)

    def _apply_on_host(self, inputs: tuple, mask: fk.Tree, options: Mapping[str, Any]) -> fk.Output:
        if mask is not None:
            fk.Context(mask=mask).run(self, *inputs)  # raises the usual error for masks
        if len(inputs) != 1 or options:
            received = ", ".join((*("x" * len(inputs)), *(f"{name}=..." for name in options)))
            raise TypeError(
                f"{self._where}: expected one input and no options, received ({received}). Give texts "
                "or ids as one list or array."
            )
        return fk.Output(self.on_host(inputs[0]))

    def no_strings_here(self) -> fk.FKerasError:
        """Returns the error for a layer of strings on a device, in a graph or in a transform."""
        return fk.FKerasError(
            f"{self._where}: expected strings on the host, received an array of a compiled function "
            "or of a graph, which hold no strings. Call the layer on texts, or on fk.Input(shape, "
            "dtype='string') at the start of a graph; look up the outputs of a model after "
            "calling the model.",
            layer=self._where,
        )


class StringMap(HostLayer):
    """Maps strings to ids on the host; with `invert` maps ids to strings."""

    # default of a field that the concrete classes declare, in their order of arguments
    invert = False

    @property
    def _makes_strings(self) -> bool:  # type: ignore[override]
        return self.invert

    @property
    def _reads_strings(self) -> bool:  # type: ignore[override]
        return not self.invert

    def call(self, x: jax.Array) -> jax.Array:
        raise self.no_strings_here()

    def read(self, value: fk.Field) -> fk.Tree:
        data = as_data(value, self._where)
        # copying ids from the device to the host is fine: the resulting strings exist only there
        on_device = isinstance(data, jax.Array) and not isinstance(data, Tracer)
        return np.asarray(data) if self.invert and on_device else data
