"""`Lambda`: a layer that calls a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.custom_objects import custom_code
from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape


def _function(value: fk.Field) -> Callable:
    if isinstance(value, str):
        raise ValueError(
            f"expected a function, received its name {value!r}. Files store only a function's "
            f"name: load it with {custom_code(value, 'the_function')}; for an activation write "
            f"layers.Activation({value!r})."
        )
    # Keras unmarshals this bytecode into a function: a file could then run any code on loading
    if isinstance(value, Mapping):
        raise ValueError(
            "expected a function, received Python bytecode of a Keras file, which is "
            "never run here. Define the function with `def`, create the layer with it, "
            "and pass it on loading with custom_objects."
        )
    if not callable(value) or isinstance(value, type):
        raise TypeError(
            f"expected a function of arrays, received {fk.describe_value(value)}. For example: "
            "Lambda(jnp.square)."
        )
    return value


def _is_code(value: fk.Field) -> bool:
    """Returns whether a value of a configuration is Python bytecode, as Keras 2 or 3 writes it."""
    # Keras 3 writes {"class_name": "__lambda__", ...}; Keras 2 writes [code, defaults, closure]
    if isinstance(value, Mapping):
        return value.get("class_name") == "__lambda__" or "code" in value
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)


_sizes = fk.several(
    fk.integer(minimum=0, optional=True), "a tuple of sizes and None", single=True, optional=True
)


def _output_shape(value: fk.Field) -> Any:
    return value if callable(value) and not isinstance(value, type) else _sizes(value)


def _known_sizes(x: jax.Array) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in x.shape)


def _arguments(value: fk.Field) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(
            f"expected a dictionary of keyword arguments, received {fk.describe_value(value)}."
        )
    return value or {}


def _mask(value: fk.Field) -> fk.Field:
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    array = value.array if isinstance(value, fk.ArrayConstant) else value
    if isinstance(array, list | tuple | np.ndarray | jax.Array):
        if np.asarray(array).dtype.kind in "buif":
            return value
    raise ValueError(
        f"expected a function (x, mask) -> mask, an array of booleans or None, received "
        f"{fk.describe_value(value)}."
    )


class Lambda(fk.Layer):
    """Computes `function(x, **arguments)`.

    Departures from Keras: the function never receives `mask` or `training`, as Keras would inspect
    the signature to pass them; to use them, subclass `fk.Layer`. Files hold the function's name
    only: loading looks the function up in `custom_objects`, and a `lambda` cannot be saved.

    Args:
        function: function of an array, or of a list of arrays.
        output_shape: expected shape of the result without the batch axis, with None for an unknown
            size; or a function from the input's shape to the result's shape, both with the batch axis.
            Optional: the layer infers the shape, and checks the result against this argument.
        mask: mask of the output: an array, or a function `(x, mask) -> mask`. With None, the layer
            rejects inputs that carry a mask.
        arguments: further keyword arguments of the function.

    Shapes:
        any -> any.

    Raises:
        TypeError: where `function` is not a function; on saving, for a function without a name.
        ValueError: where the shape of the result differs from `output_shape`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Lambda(jnp.clip, arguments={"max": 2.0})
        >>> layer(jnp.array([[3.0]]))
        Array([[2.]], dtype=float32)
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(training_default=None)

    function: Callable = fk.option(convert=_function)
    output_shape: tuple | Callable | None = fk.option(default=None, convert=_output_shape)
    mask: Any = fk.option(default=None, convert=_mask)
    arguments: Mapping[str, Any] = fk.option(default=fk.FrozenDict(), convert=_arguments)

    @property
    def supports_masking(self) -> bool:
        """Whether inputs may carry a mask: only if `mask` defines the mask of the output."""
        return self.mask is not None

    def forward(self, context: fk.Context, x: fk.Tree) -> fk.Output:
        # options are hashable values, so arrays are stored wrapped: unwrap them for the function
        arguments = {
            name: jnp.asarray(value.array) if isinstance(value, fk.ArrayConstant) else value
            for name, value in self.arguments.items()
        }
        y = self.function(x, **arguments)
        if self.output_shape is not None:
            self._check(x, y)
        if callable(self.mask):
            mask = self.mask(x, context.mask)
        else:
            mask = self.mask.array if isinstance(self.mask, fk.ArrayConstant) else self.mask
        return fk.Output(y, mask=mask)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Returns the layer of a configuration, with the function from `custom_objects`.

        The key in `custom_objects` is the name of the function, or the name of the layer. Keras's
        files with bytecode hold no function name and need the name of the layer.
        """
        # the name comes from a file and may be any JSON value: only strings are keys
        name = config.get("name")
        function = (custom_objects or {}).get(name) if isinstance(name, str) else None
        if function is not None:
            config = {**config, "function": function}
        elif _is_code(config.get("function")) or _is_code(config.get("output_shape")):
            raise ValueError(
                f"{name!r} (Lambda): expected the name of a function, received Python bytecode, "
                "which is never run. Pass a function that computes the same on loading: "
                f"custom_objects={{{name!r}: function}}."
            )
        return super().from_config(config, custom_objects)

    def _check(self, x: fk.Tree, y: jax.Array) -> None:
        expected, sizes = self.output_shape, y.shape
        if callable(expected):
            # as in Keras, unknown sizes are None
            sizes_of_x = jax.tree.map(_known_sizes, x)
            expected = _sizes.check(f"{self._where}: output_shape", expected(sizes_of_x)) or ()
        else:
            expected = (None, *(expected or ()))
        # unequal lengths are reported below, in the same message; symbolic sizes are not compared
        pairs = zip(expected, sizes, strict=False)
        sizes_match = all(
            not isinstance(size, int) or expected_size is None or expected_size == size
            for expected_size, size in pairs
        )
        if len(sizes) != len(expected) or not sizes_match:
            raise ValueError(
                f"{self._where}: expected a result of shape {format_shape(expected)}, as "
                f"output_shape says, received {format_shape(y.shape)}. Leave output_shape out; "
                "shapes are inferred."
            )
