"""Migration hints for declarations and constructor calls that have Keras's or Python's usual form."""

from __future__ import annotations

import inspect

_TENSORS = ("KerasTensor", "GraphTensor")


def check_defaults(cls: type) -> None:
    """Rejects lists, dictionaries and sets as defaults of fields.

    Raises:
        ValueError: for a list, dictionary or set; the message has the line to write.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     class Blocks(fk.Layer):
        ...         sizes: list = [1, 2]
        ... except ValueError as error:
        ...     print(error)
        Blocks: the default of 'sizes' is a list, which could change. Write `sizes: tuple = (1, 2)`.
    """
    for name in inspect.get_annotations(cls):
        default = cls.__dict__.get(name)
        if isinstance(default, list | dict | set):
            kind = type(default).__name__
            line = f"{name}: tuple = {tuple(default)!r}"
            if isinstance(default, dict):
                line = f"{name}: dict = fk.engine.FrozenDict({default!r})"
            raise ValueError(
                f"{cls.__name__}: the default of {name!r} is a {kind}, which could change. Write "
                f"`{line}`."
            )


def check_declared(cls: type, name: str) -> None:
    """Rejects an argument for a class attribute without annotation, which is no field.

    Raises:
        TypeError: if the class has the attribute; the message has the line to write.

    Example:
        >>> import fkeras as fk
        >>> class Blocks(fk.Layer):
        ...     units = 3
        >>> try:
        ...     Blocks(units=4)
        ... except TypeError as error:
        ...     print(error)
        Blocks: 'units' is no field, as the class declares no type. Write `units: int = 3`.
    """
    value = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if isinstance(value, bool | int | float | str | tuple):
        raise TypeError(
            f"{cls.__name__}: {name!r} is no field, as the class declares no type. Write `{name}: "
            f"{type(value).__name__} = {value!r}`."
        )


def check_layer_arguments(cls: type, args: tuple) -> None:
    """Rejects tensors in a layer's constructor, and a shape in several arguments.

    Called when the constructor has failed already.

    Raises:
        TypeError: for a tensor or a shape; the message has the line to write.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Dense(10, fk.Input((3,)))
        ... except TypeError as error:
        ...     print(error)
        Dense: the constructor takes no tensor. Make the layer, then call it: `y = layers.Dense(10)(x)`.
    """
    if not hasattr(cls, "_transparent_field"):
        return
    tensors = [type(v).__name__ in _TENSORS or getattr(v, "ndim", 0) > 1 for v in args]
    if any(tensors):
        before = ", ".join(map(repr, args[: tensors.index(True)]))
        raise TypeError(
            f"{cls.__name__}: the constructor takes no tensor. Make the layer, then call it: "
            f"`y = layers.{cls.__name__}({before})(x)`."
        ) from None
    if len(args) > 1 and cls.__name__ == "Reshape" and all(isinstance(v, int) for v in args):
        raise TypeError(
            f"{cls.__name__}: expected 1 argument by position, received {len(args)}. Write the sizes "
            f"as a tuple: `layers.{cls.__name__}({args!r})`."
        ) from None
