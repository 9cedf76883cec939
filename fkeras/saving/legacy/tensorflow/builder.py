"""Builds the operation nodes, in Keras 3's form, of one call of a TensorFlow function."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from fkeras.authoring.engine import canonical_dtype, operation_form
from fkeras.authoring.saving import Origin
from fkeras.host.containers.errors import FileError
from fkeras.saving.legacy.tensorflow.folding import (
    Arg,
    fold,
    folds,
    has_tensor,
    is_size,
    is_tensor,
    to_array,
)
from fkeras.saving.legacy.tensorflow.sizes import Dims, Sizes

#: names of a function, its signature, Keras 3's form, and operations of graphs: see `table`
Row: TypeAlias = (
    tuple[str, str, str | Callable[..., Any]] | tuple[str, str, str | Callable[..., Any], str]
)
_NUMPY = "keras.src.ops.numpy"
#: operations with arguments x1 and x2 that are not elementwise
_PRODUCTS = ("Matmul", "Dot", "Inner", "Outer", "Kron", "Vdot")
#: elementwise operations whose arguments have other names than x1 and x2
_BROADCAST = ("Where", "Arctan2")
#: dtypes that a constant may be converted to, by the kind of the constant's dtype
_TAKES = types.MappingProxyType({"i": ("float", "bfloat", "int", "uint"), "f": ("float", "bfloat")})
#: maximum number of elements of a constant that is computed from sizes
MOST = 1 << 22


@dataclasses.dataclass
class Builder:
    """Builds the operations of one call, or constant-folds calls with only constant arguments.

    Attributes:
        layer: name of the layer in the file.
        function: name of TensorFlow's function.
        sizes: shapes of the tensors in the graph.
        narrow: whether the layer computes in float16 or bfloat16, so that constants must take the
            dtype of the tensors they are combined with.
        items: operations built so far.
    """

    layer: str
    function: str
    origin: Origin
    sizes: Sizes
    narrow: bool = False
    items: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def __call__(self, class_name: str, *args: Any, outputs: int | None = None, **options: Any):
        """Adds an operation and returns a tensor, a list of `outputs` tensors, or a constant.

        Args:
            outputs: number of results, if the operation returns a list.
        """
        form = operation_form(class_name=class_name)
        names = ("x", "key") if form is None else form.parameters
        values = {**dict(zip(names, args, strict=False)), **options}
        # Shape arithmetic of TensorFlow's graphs never becomes an operation: sizes are known here.
        if not any(has_tensor(v) for v in [*args, *options.values()]):
            return self._constant(class_name, values)
        config, call_args, kwargs = {}, [], {}
        if class_name in _BROADCAST or (names == ("x1", "x2") and class_name not in _PRODUCTS):
            args = self._match_rank_and_dtype(args, class_name == "Where")
            values |= dict(zip(names, args, strict=False))
        if form is None:
            call_args = [values["x"], [_entry(self, e) for e in values["key"]]]
        elif form.variadic:
            limit = names.index(form.variadic)
            fixed = dict(zip(names[:limit], args, strict=False))
            config = {k: self.plain(v) for k, v in fixed.items() if k in form.fixed}
            leading_args = [v for k, v in fixed.items() if k not in form.fixed]
            call_args = [self._argument(v, args) for v in [*leading_args, *args[limit:]]]
        else:
            call_args = [
                self._argument(values[n], args) for n in names[: len(args)] if n not in form.fixed
            ]
            config = {k: self.plain(v) for k, v in values.items() if k in form.fixed}
            kwargs = {k: self._argument(v, args) for k, v in options.items() if k not in form.fixed}
        # "/" cannot occur in a converted layer's name: temporary names never collide with layers.
        name = f"{self.layer}/{len(self.items)}"
        node = {"args": call_args, "kwargs": kwargs}
        item = {
            "module": _NUMPY if form is None else form.module,
            "class_name": class_name,
            "config": config,
            "registered_name": None,
            "name": name,
            "inbound_nodes": [node],
        }
        return self.record(item, outputs)

    def record(self, item: dict[str, Any], outputs: int | None = None) -> Any:
        """Adds an item with a single call and returns its tensor or list of tensors."""
        self.items.append(item)
        name = item["name"]
        self.sizes.calls[name, 0] = (item, item["inbound_nodes"][0])
        if outputs is None:
            return _tensor(name, 0)
        return [_tensor(name, number) for number in range(outputs)]

    def error(self, problem: str) -> FileError:
        """Returns an error that names the layer and the function."""
        return self.origin.error(
            f"TensorFlow's function {self.function!r:.80}: {problem}", self.layer
        )

    # -- values -------------------------------------------------------------------------------

    def dims(self, value: Arg) -> Dims:
        """Returns the shape of a tensor or constant; unknown sizes are symbolic dimensions."""
        return self.sizes.of(value)[0] if is_tensor(value) else to_array(value).shape

    def dtype(self, value: Arg) -> str:
        """Returns the dtype of a tensor or constant."""
        if is_tensor(value):
            return self.sizes.of(value)[1]
        array = to_array(value)
        # Object arrays hold symbolic sizes, which TensorFlow computes as int32.
        return canonical_dtype("int32" if array.dtype == object else array.dtype)

    def plain(self, value: Arg) -> Any:
        """Returns a constant as JSON data."""
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, list | tuple):
            return [self.plain(v) for v in value]
        if is_tensor(value):
            raise self.error(
                "expected a constant, received a tensor that is computed when the model runs. "
                "Save the model with a constant, " + self.instead
            )
        if is_size(value):
            raise self.error(
                f"expected a known size, received {value}, which is known only when the model runs. "
                "Give keras.Input all sizes except the batch size, " + self.instead
            )
        return value

    def numbers(self, value: Arg, what: str) -> list[Any]:
        """Returns the sizes or integers of a number, list or array as a flat list."""
        if isinstance(value, list | tuple):
            return [n for v in value for n in self.numbers(v, what)]
        if isinstance(value, np.ndarray):
            return [n for v in value.tolist() for n in self.numbers(v, what)]
        if is_size(value) or (isinstance(value, int) and not isinstance(value, bool)):
            return [value]
        # Folded divisions return floats, also for sizes that divide evenly.
        if isinstance(value, float) and value.is_integer():
            return [int(value)]
        received = (
            "a tensor that is computed when the model runs" if is_tensor(value) else repr(value)
        )
        raise self.error(
            f"expected whole numbers as {what}, received {received:.80}. Save the model with constants, "
            + self.instead
        )

    def wholes(self, value: Arg, what: str) -> list[int]:
        """Returns a flat list of integers, all known before the model runs."""
        return self.plain(self.numbers(value, what))

    def whole(self, value: Arg, what: str) -> int:
        """Returns one integer that is known before the model runs."""
        integers = self.wholes(value, what)
        if len(integers) != 1:
            raise self.error(f"expected one number as {what}, received {len(integers)}.")
        return integers[0]

    def axes(self, value: Arg) -> Any:
        """Returns an axis, a list of axes, or None for all axes."""
        if value is None:
            return None
        listed = isinstance(value, list | tuple | np.ndarray)
        return self.wholes(value, "axes") if listed else self.whole(value, "an axis")

    def kind(self, value: Arg, what: str = "a dtype") -> str:
        """Returns JAX's dtype for the name of a TensorFlow dtype."""
        # TensorFlow 1 marks the dtypes of variables with "_ref".
        dtype_name = value.removesuffix("_ref") if isinstance(value, str) else ""
        if dtype_name not in _DTYPES:
            raise self.error(
                f"expected {what} of {', '.join(_DTYPES)}, received {value!r:.80}. Cast to one of "
                "these, " + self.instead
            )
        return canonical_dtype(dtype_name)

    @property
    def instead(self) -> str:
        """The end of most messages: pass a function in `custom_objects`."""
        return (
            "or give a function that computes the same: custom_objects={"
            f"{self.function!r}: lambda x: ...}}."
        )

    # -- arguments ----------------------------------------------------------------------------

    def _constant(self, class_name: str, values: Mapping[str, Any]) -> Any:
        self._check_constant_size(class_name, values)
        if not folds(class_name):
            raise self.error(
                "expected a tensor among the arguments, received constants only, and this function "
                "cannot be constant-folded. Compute the constant first, " + self.instead
            )
        try:
            # Constants may divide by zero, as in TensorFlow, which does not warn.
            with np.errstate(all="ignore"):
                return fold(class_name, values)
        except FileError:
            raise
        except Exception as error:
            raise self.error(
                f"cannot be computed from these sizes ({error!s:.200}). Give keras.Input all sizes "
                "except the batch size, " + self.instead
            ) from None

    def _check_constant_size(self, class_name: str, values: Mapping[str, Any]) -> None:
        """Rejects constants that a few bytes in the file would blow up, such as `Fill`."""
        counts: list[Any] = [1]
        if class_name == "Arange":
            start, stop, step = (self.plain(values.get(k)) for k in ("start", "stop", "step"))
            start, stop = (0, start) if stop is None else (start, stop)
            counts = [abs(stop - start) / abs(1 if step is None else step)]
        elif class_name in ("Full", "Tile"):
            counts = self.wholes(values.get("shape", values.get("repeats")), "sizes")
            counts = [*counts, to_array(values.get("x", 0)).size]
        if any(n < 0 for n in counts) or math.prod(counts) > MOST:
            raise self.error(
                f"expected a constant of at most {MOST} elements, received the sizes "
                f"{counts!r:.60}. Compute the constant in a separate layer."
            )

    def _match_rank_and_dtype(self, args: tuple, conditional: bool) -> tuple:
        """Gives constant arrays the rank and dtype of the tensors they are combined with."""
        # Python scalars need no conversion: JAX treats their dtype as weak.
        if all(is_tensor(v) or to_array(v).ndim == 0 for v in args):
            return args
        rank = max(len(self.dims(v)) for v in args)
        # TensorFlow converts a constant to the tensor's dtype, where JAX would promote the result.
        # The condition of `Where` is boolean and does not decide the dtype.
        partner = next((v for v in args[conditional:] if is_tensor(v)), None)
        dtype = None if partner is None else self.dtype(partner)

        def convert(value: Arg) -> Any:
            if is_tensor(value) or to_array(value).ndim == 0:
                return value
            array = to_array(value)
            if dtype and array.dtype.kind in "if" and dtype.startswith(_TAKES[array.dtype.kind]):
                array = array.astype(dtype)
            # Explicit axes of size 1: no need for JAX's implicit rank promotion.
            return array[(None,) * (rank - array.ndim)]

        return tuple(convert(v) for v in args)

    def _argument(self, value: Arg, others: tuple) -> Any:
        """Converts a value to an argument of a call."""
        if is_tensor(value) or value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple) and has_tensor(value):
            return [self._argument(v, others) for v in value]
        if isinstance(value, np.ndarray | list | tuple):
            try:
                array = to_array(value)
            except ValueError as error:
                raise self.error(
                    f"expected a constant with rows of equal length ({error}). The file is damaged."
                ) from None
            if array.ndim == 0:
                return self.plain(array)
            # `plain` reports a symbolic size; strings are left for the error below.
            if array.dtype.kind in "OUS":
                self.plain(array)
                raise self.error("expected numbers as a constant. The file is damaged.")
            dtype = canonical_dtype(array.dtype)
            partner = next((v for v in others if is_tensor(v)), None)
            if self.narrow and dtype == "float32" and partner is not None:
                dtype = self.dtype(partner)
                dtype = dtype if dtype in ("float16", "bfloat16") else "float32"
            return {"class_name": "__numpy__", "config": {"value": array.tolist(), "dtype": dtype}}
        return self.plain(value)


_DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "bfloat16",
    "float16",
    "half",
    "float32",
    "float64",
    "double",
    "complex64",
    "complex128",
)


def _tensor(name: str, output: int) -> dict[str, Any]:
    # Shape and dtype are placeholders, which the loader does not read.
    config = {"shape": None, "dtype": "float32", "keras_history": [name, 0, output]}
    return {"class_name": "__keras_tensor__", "config": config}


def _entry(builder: Builder, entry: Arg) -> Any:
    """Converts one index of `x[...]` to JSON data."""
    if isinstance(entry, slice):
        parts = {k: builder.plain(getattr(entry, k)) for k in ("start", "stop", "step")}
        return {"class_name": "__slice__", "config": parts}
    if entry is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(entry, np.ndarray | list):
        array = to_array(entry)
        config = {"value": builder.plain(array), "dtype": canonical_dtype(array.dtype)}
        return {"class_name": "__numpy__", "config": config}
    return entry if is_tensor(entry) else builder.plain(entry)
