"""Functions of arrays as layers.

`Op` is a function that also takes symbolic tensors: it then records a call of an `Operation`, a layer
without weights. `unary` and `binary` make an `Op` from a function of jax.numpy.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike, symbolic_arguments
from fkeras.engine.config.configurable import option
from fkeras.engine.config.field_types import Converted
from fkeras.engine.config.serialization import encode, resolve
from fkeras.engine.layer.layer import Layer, Tensor
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.symbolic.operation_forms import operation_form
from fkeras.engine.values.annotations import Leaf, Option, Tree
from fkeras.engine.values.arrays import as_argument
from fkeras.engine.values.naming import snake_case

#: parameters of the function of an operation, and the parameters after its tensors
Parameters = ParamSpec("Parameters")
Rest = ParamSpec("Rest")


@dataclasses.dataclass(frozen=True)
class Op(Generic[Parameters]):
    """A function of arrays that also takes symbolic tensors, for which it records a node.

    Attributes:
        name: name in `fkeras.ops`, such as "tanh" or "image.resize"; default name of the node.
        function: the function of arrays.
        elementwise: whether output element i depends on input elements i only, so that the mask of
            the input is the mask of the output. Other functions reject masked inputs.
        builtin: whether `fkeras.ops` has the function under this name, so that files and pickles
            hold the name only.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.tanh.name, fk.ops.tanh.elementwise
        ('tanh', True)
    """

    name: str
    function: Callable[Parameters, Any] = dataclasses.field(repr=False)
    elementwise: bool = False
    builtin: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.function.__doc__)
        object.__setattr__(self, "__name__", self.name.rpartition(".")[2])
        # help() and inspect show the function's arguments
        object.__setattr__(self, "__wrapped__", self.function)

    @overload
    def __call__(
        self: Op[Concatenate[Any, Rest]],
        x: Tensor | Sequence[Tensor],
        /,
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Tensor: ...

    @overload
    def __call__(
        self: Op[Concatenate[Any, Any, Rest]],
        x1: TensorLike,
        x2: Tensor,
        /,
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Tensor: ...

    @overload
    def __call__(
        self: Op[Concatenate[Any, Any, Any, Rest]],
        x1: TensorLike,
        x2: TensorLike,
        x3: Tensor,
        /,
        *args: Rest.args,
        **kwargs: Rest.kwargs,
    ) -> Tensor: ...

    @overload
    def __call__(
        self, x: Tensor | Sequence[Tensor], /, *args: Tree, name: str, **kwargs: Option
    ) -> Tensor: ...

    @overload
    def __call__(self, *, x: Tensor | Sequence[Tensor], **kwargs: Option) -> Tensor: ...

    @overload
    def __call__(self, *, inputs: Tensor, **kwargs: Option) -> Tensor: ...

    @overload
    def __call__(self, *, images: Tensor, **kwargs: Option) -> Tensor: ...

    @overload
    def __call__(self, *args: Tree, name: str, **kwargs: Option) -> Any: ...

    @overload
    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> jax.Array: ...

    @hides_internal_frames
    def __call__(self, *args: Tree, **kwargs: Option) -> Any:
        name = kwargs.pop("name", None)  # of the node; without effect on arrays
        if symbolic_arguments(args, kwargs, None):
            return Operation(self, name=name)(*args, **kwargs)
        where = f"fk.ops.{self.name}"
        args = tuple(as_argument(value, where) for value in args)
        kwargs = {key: as_argument(value, where) for key, value in kwargs.items()}
        return self.function(*args, **kwargs)

    def __reduce__(self):
        if self.builtin:  # functions of jax.numpy cannot be pickled
            return (_builtin, (self.name,))
        return (Op, (self.name, self.function, self.elementwise, self.builtin))


if TYPE_CHECKING:

    class Unary(Op[...]):
        """The type of the operations of `unary`: functions of one array, `x`."""

        @overload
        def __call__(self, x: Tensor | Sequence[Tensor], *, name: str | None = None) -> Tensor: ...

        @overload
        def __call__(self, x: TensorLike, *, name: str | None = None) -> jax.Array: ...

        def __call__(self, *args: Tree, **kwargs: Option) -> Any: ...

    class Binary(Op[...]):
        """The type of the operations of `binary`: functions of two arrays, `x1` and `x2`."""

        @overload
        def __call__(
            self, x1: Tensor | Sequence[Tensor], x2: TensorLike, *, name: str | None = None
        ) -> Tensor: ...

        @overload
        def __call__(
            self, x1: TensorLike, x2: Tensor | Sequence[Tensor], *, name: str | None = None
        ) -> Tensor: ...

        @overload
        def __call__(
            self, x1: TensorLike, x2: TensorLike, *, name: str | None = None
        ) -> jax.Array: ...

        def __call__(self, *args: Tree, **kwargs: Option) -> Any: ...

else:
    Unary = Binary = Op


def _builtin(name: str) -> Op:
    namespace, _, last = f"fkeras.ops.{name}".rpartition(".")
    # the name may come from a file: only functions of these namespaces are resolved
    if namespace not in ("fkeras.ops", "fkeras.ops.image"):
        raise ValueError(f"Operation: there is no fk.ops.{name}. Name a function of fk.ops.")
    return BEHIND_FUNCTIONS[name] if name in BEHIND_FUNCTIONS else resolve(last, namespace)


def _as_op(value: object) -> Op:
    if isinstance(value, Op):
        return value
    if isinstance(value, str):
        return _builtin(value)
    if callable(value):
        return lift(value)
    raise TypeError(
        f"Operation: expected a function, received {type(value).__name__}. Use fk.ops.lift(fn)(x)."
    )


class Operation(Layer):
    """Applies a function of arrays; the layer that functions of `fk.ops` record.

    Args:
        op: the function, or its name in `fk.ops`.

    Example:
        >>> import fkeras as fk
        >>> y = fk.ops.tanh(fk.Input((3,)))
        >>> y.node.layer.op.name, y.shape
        ('tanh', (None, 3))
    """

    _keras_module: ClassVar[str] = "fkeras.ops"
    _autocast: ClassVar[bool] = False
    op: Converted[Op | str | Callable, Op] = option(convert=_as_op)

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's operations drop masks
        return True

    def _masks_inputs(self, mask: Tree) -> bool:
        # mask=None is the mask of the inputs, unless the function has a parameter `mask`
        if mask is not None or not self.op.builtin:
            return False
        form = operation_form(op=self.op.name)
        return form is None or "mask" not in form.parameters

    @property
    def supports_masking(self) -> bool:  # type: ignore[override]
        return self.op.elementwise

    @property
    def _where(self) -> str:
        return f"{self.name!r} (fk.ops.{self.op.name})" if self.name else f"fk.ops.{self.op.name}"

    @property
    def _default_name(self) -> str:
        return snake_case(self.op.name.rpartition(".")[2]) or "operation"

    def call(self, *args: Tree, **options: Option) -> Any:
        return self.op.function(*args, **options)

    def get_config(self) -> dict[str, Any]:
        op = self.op
        config = {"name": self.name, "trainable": self.trainable, "op": op.name}
        if not op.builtin:
            config["op"] = encode(op.function, f"fk.ops.lift({op.name})")
            config |= {"op_name": op.name, "elementwise": op.elementwise}
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Operation:
        op = config["op"]
        if isinstance(op, Mapping):
            function = resolve(op["config"], op.get("module"), custom_objects)
            elementwise = config.get("elementwise", False)
            op = lift(function, elementwise=elementwise, name=config.get("op_name"))
        return cls(op, name=config.get("name"), trainable=config.get("trainable", True))


def lift(
    function: Callable[Parameters, Any], *, elementwise: bool = False, name: str | None = None
) -> Op[Parameters]:
    """Returns an operation of any function of arrays, which is one node on symbolic tensors.

    Args:
        function: maps arrays to an array, or to a list, tuple or dictionary of arrays.
        elementwise: whether the function keeps masks; see `Op`.
        name: the node's name; the function's name by default.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> y = fk.ops.lift(jnp.cumsum)(fk.Input((3,)), axis=1)
        >>> y.shape
        (None, 3)
    """
    if not callable(function):
        raise TypeError(
            f"lift: expected a function of arrays, received {type(function).__name__}. Write "
            "fk.ops.lift(jnp.cumsum)(x, axis=1)."
        )
    op_name = name or getattr(function, "__name__", "function")
    op_name = "lambda_function" if op_name == "<lambda>" else op_name
    return Op(op_name, function, elementwise, builtin=False)


def _count_elements(x: Leaf) -> Any:
    return jnp.asarray(x.size, "int32")


def _count_axes(x: Leaf) -> Any:
    return jnp.asarray(x.ndim, "int32")


#: operations behind plain functions of `fk.ops` with the same names, which return a Python integer for
#: known sizes; graphs and files hold the operations
BEHIND_FUNCTIONS = types.MappingProxyType(
    {op.name: op for op in (Op("size", _count_elements), Op("ndim", _count_axes))}
)


def to_array(x: TensorLike) -> jax.Array:
    """Converts lists and tuples to arrays; a Python number is unchanged, so its dtype is weak."""
    # jax.numpy accepts numbers and NumPy's arrays as they are: type checkers may see an array
    array: Any = x
    return jnp.asarray(array) if isinstance(array, list | tuple) else array


def described(doc: str, arguments: str, example: str, shown: str) -> str:
    """Returns the docstring of an operation.

    Args:
        arguments: a line for each argument, "x: an array."
        example: call of a function of `fk.ops`, without the prefix "fk.ops.".

    Example:
        >>> text = described("-x.", "x: an array.", "negative(3)", "-3")
        >>> "print(fk.ops.negative(3))" in text
        True
    """
    output_lines = "".join(f"        {line}\n" for line in shown.splitlines())
    args = "".join(f"        {line}\n" for line in arguments.splitlines())
    return (
        f"{doc}\n\n    Args:\n{args}\n    Example:\n        >>> import fkeras as fk\n"
        f"        >>> print(fk.ops.{example})\n{output_lines}    "
    )


def unary(name: str, function: Callable, doc: str, example: str = "", shown: str = "") -> Unary:
    """Creates an elementwise operation of one array, `x`.

    Args:
        name: name in `fk.ops`.
        doc: the docstring; only its first line if `example` is passed.
        example: call for the docstring; see `described`.

    Example:
        >>> unary("double", lambda x: 2 * x, "2 * x.")(x=3)
        6
    """

    def compute(x: TensorLike) -> Any:
        return function(to_array(x))

    args = "x: an array of any shape."
    compute.__doc__ = described(doc, args, example, shown) if example else doc
    return Unary(name, compute, elementwise=True)


def binary(
    name: str,
    function: Callable,
    doc: str,
    example: str = "",
    shown: str = "",
    *,
    elementwise: bool = True,
) -> Binary:
    """Creates an operation of two arrays, `x1` and `x2`.

    Args:
        name: name in `fk.ops`.
        doc: the docstring; only its first line if `example` is passed.
        example: call for the docstring; see `described`.
        elementwise: whether the operation keeps masks; see `Op`.

    Example:
        >>> binary("both", lambda a, b: a + b, "x1 + x2.")(x1=1, x2=2)
        3
    """

    def compute(x1: TensorLike, x2: TensorLike) -> Any:
        arrays = to_array(x1), to_array(x2)
        try:
            return function(*arrays)
        except TypeError as error:
            if "incompatible shapes" not in str(error):
                raise
            first, second = (str(array.shape).replace("'", "") for array in arrays)
            raise TypeError(
                f"ops.{name}: expected shapes that broadcast, received {first} and {second}. The sizes of "
                "an axis, counted from the last, are equal or 1: give one array another shape, with a "
                "layer or with ops.reshape."
            ) from None

    second = "x2: an array; the two broadcast." if elementwise else "x2: an array."
    args = f"x1: an array.\n{second}"
    compute.__doc__ = described(doc, args, example, shown) if example else doc
    return Binary(name, compute, elementwise=elementwise)
