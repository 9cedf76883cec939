"""`InputSpec`: a layer's requirements on its inputs, and their check.

Every violation is an `InputSpecError` that names the layer, the requirement and the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from jax.typing import DTypeLike

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import boolean, dtype_name, integer, several, text
from fkeras.engine.config.field_types import OptionalDTypeName, OptionalInteger, OptionalShape
from fkeras.engine.messages.errors import InputSpecError, describe_value
from fkeras.engine.values.annotations import Layer
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import STRING, Spec, as_spec, canonical_dtype

_size = integer(minimum=0, optional=True)
_axis = integer()
_sizes = several(_size, "a tuple of sizes and None", least=0, optional=True)


def _axes(axes: Any) -> dict[int, int | None]:
    if axes is not None and not isinstance(axes, Mapping):
        raise ValueError(f"expected sizes by axis such as {{-1: 16}}, received {axes!r:.60}.")
    # the keys of JSON are strings
    pairs = ((int(a) if isinstance(a, str) else a, size) for a, size in (axes or {}).items())
    return {_axis(axis): _size(size) for axis, size in pairs}


def _dtype(dtype: DTypeLike) -> str | None:
    is_name = dtype is None or dtype == STRING or dtype_name(dtype) is not None
    if not is_name and not isinstance(dtype, np.dtype):
        raise ValueError(f"expected the name of a dtype, received {describe_value(dtype)}.")
    return None if dtype is None else canonical_dtype(dtype)


class InputSpec(Configurable):
    """Number of axes, sizes and dtype of a valid input; None leaves a property unchecked.

    Args:
        dtype: name of the dtype.
        shape: sizes, None for an axis of any size; sets `ndim`.
        ndim: number of axes.
        max_ndim: largest number of axes.
        min_ndim: smallest number of axes.
        axes: sizes by axis, such as `{-1: 16}`.
        allow_last_axis_squeeze: whether `shape` also admits inputs with a last axis of size 1 more or
            less.
        name: the input's key in a dictionary of inputs.
        optional: whether the input may be None.

    Raises:
        ValueError: for an axis beyond `ndim` or `max_ndim`.

    Example:
        >>> import fkeras as fk
        >>> fk.InputSpec(min_ndim=2, axes={-1: 4})
        InputSpec(min_ndim=2, axes={-1: 4})
    """

    _keras_module: ClassVar[str] = "keras"
    dtype: OptionalDTypeName = option(default=None, convert=_dtype)
    shape: OptionalShape = option(default=None, convert=_sizes)
    ndim: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))
    max_ndim: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))
    min_ndim: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))
    axes: Mapping[int, int | None] = option(default=FrozenDict(), convert=_axes)
    allow_last_axis_squeeze: bool = option(default=False, convert=boolean)
    name: str | None = option(default=None, convert=text(optional=True))
    optional: bool = option(default=False, convert=boolean)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape is not None:
            object.__setattr__(self, "ndim", len(self.shape))
        highest = self.ndim if self.ndim is not None else self.max_ndim
        if highest is None:
            return
        for axis in self.axes:
            if not -highest <= axis < highest:
                raise ValueError(
                    f"InputSpec: axes has axis {axis}, and an input has at most {highest} axes. "
                    f"Use an axis from {-highest} to {highest - 1}."
                )


def check_inputs(layer: Layer, inputs: tuple, call: int | None = None) -> None:
    """Checks the inputs of one call against the layer's `input_spec`.

    Args:
        inputs: the positional arguments, arrays or specs in any nesting.

    Raises:
        InputSpecError: for an input that violates its spec.
    """
    input_spec = layer.input_spec
    if input_spec is None:
        return
    leaves = jax.tree.leaves(inputs[0] if len(inputs) == 1 else inputs)
    specs = tuple(input_spec) if isinstance(input_spec, tuple | list) else (input_spec,)
    where = layer._where if call is None else f"{layer._where}, call {call}"
    if len(specs) != len(leaves):
        received = ", ".join(str(as_spec(leaf)) for leaf in leaves)
        raise InputSpecError(
            f"{where}: expected {_count(len(specs))}, received {len(leaves)}: {received}. "
            f"Pass {'one tensor' if len(specs) == 1 else f'a list of {len(specs)} tensors'}.",
            layer=where,
            node=call,
        )
    for index, (spec, leaf) in enumerate(zip(specs, leaves, strict=True)):
        problem = None if spec is None else _problem(spec, as_spec(leaf))
        if problem is not None:
            location = where if len(specs) == 1 else f"{where}, input {index}"
            raise InputSpecError(
                f"{location}: {problem}", layer=where, node=call, input_index=index
            )


def _count(n: int) -> str:
    return "1 input" if n == 1 else f"{n} inputs"


def _problem(spec: InputSpec, received: Spec | None) -> str | None:
    """The message for an input that violates its spec; None for a valid input."""
    if received is None:
        if spec.optional:
            return None
        return "expected a tensor, received None. Pass a tensor; only optional inputs may be None."
    ndim = received.ndim
    if spec.shape is not None and spec.allow_last_axis_squeeze and _squeezes(spec, received):
        return None
    if spec.ndim is not None and ndim != spec.ndim:
        return _ndim_problem(f"ndim={spec.ndim}", spec.ndim, received)
    if spec.max_ndim is not None and ndim > spec.max_ndim:
        return _ndim_problem(f"max_ndim={spec.max_ndim}", spec.max_ndim, received)
    if spec.min_ndim is not None and ndim < spec.min_ndim:
        return _ndim_problem(f"min_ndim={spec.min_ndim}", spec.min_ndim, received)
    if spec.dtype is not None and received.dtype != spec.dtype:
        return (
            f"expected dtype={spec.dtype}, received dtype={received.dtype}. Convert the input: "
            f"x.astype({spec.dtype!r})."
        )
    for axis, size in spec.axes.items():
        if not -ndim <= axis < ndim:
            return f"expected an axis {axis}, received {received}. Reshape the input."
        actual = received.dims[axis]
        # axes of unknown size pass; the check runs again on arrays
        if size is not None and isinstance(actual, int) and actual != size:
            return (
                f"expected axis {axis} of size {size}, received {received}. Its weights are for "
                f"inputs of size {size} on that axis; use another layer for size {actual}."
            )
    if spec.shape is not None:
        for size, actual in zip(spec.shape, received.dims, strict=True):
            if isinstance(size, int) and isinstance(actual, int) and size != actual:
                return (
                    f"expected shape={tuple(spec.shape)}, received {received}. Reshape the input, "
                    "or build another layer for this shape."
                )
    return None


def _squeezes(spec: InputSpec, received: Spec) -> bool:
    """Whether the input fits `spec.shape` after a last axis of size 1 is added or removed."""
    shorter, longer = sorted((tuple(spec.shape or ()), received.dims), key=len)
    if len(longer) != len(shorter) + 1 or longer[-1] != 1:
        return False
    pairs = zip(shorter, longer[:-1], strict=True)
    return all(not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in pairs)


def _ndim_problem(expected: str, ndim: int, received: Spec) -> str:
    if received.ndim < ndim and received.ndim and isinstance(received.dims[0], str):
        sizes = tuple(None if isinstance(d, str) else d for d in received.dims[1:])
        missing = ndim - received.ndim
        remedy = (
            f"fk.Input leaves out the batch axis; declare every other one, as in "
            f"`x = fk.Input({(None,) * missing + sizes})` or `x = fk.Input({sizes + (1,) * missing})`."
        )
    elif received.ndim < ndim:
        remedy = (
            "An axis is missing: `x[None]` adds a batch axis in front, `x[..., None]` a channel "
            "axis at the end."
        )
    else:
        remedy = "The input has too many axes: reshape it, or index an axis away."
    return f"expected {expected}, received ndim={received.ndim}, shape {received}. {remedy}"
