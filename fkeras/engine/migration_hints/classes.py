"""Migration hints for layer and model subclasses written for Keras.

The checks run at the definition of the class, since a method that the engine never calls would
otherwise be ignored without an error.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fkeras.engine.layer.layer import Layer

_MODEL = """\
{where}: fk.Model.__init__ expected inputs and outputs, received none. A subclass of fk.Model has \
no `__init__`: its fields are the arguments, and `call` composes layers. Write:

    class {name}(fk.Model):
        units: int = 64

        def call(self, x):
            return layers.Dense(self.units)(x)
"""
_BUILD = (
    "create the weights from a key and specs: `def build(self, key, x): return "
    "self.with_weights(key, kernel=(x.shape[-1], self.units))`"
)
_FORWARD = (
    "write forward, whose context has training, mask, key and state: `def forward(self, context, "
    "x): return fk.Output(x * 2 if context.training else x, mask=context.mask)`"
)
_COMPOSED = (
    "leave the argument out: layers composed in `call` receive training and mask automatically"
)


def model_without_graph(model: Layer) -> str:
    """Returns the error message for a model constructed without inputs and outputs.

    Example:
        >>> import fkeras as fk
        >>> class Encoder(fk.Model):
        ...     def __init__(self):
        ...         super().__init__()
        >>> try:
        ...     Encoder()
        ... except TypeError as error:
        ...     print(str(error).split(".")[0])
        Encoder: fk
    """
    name = type(model).__name__
    if name == "Model":
        return (
            "Model: expected inputs and outputs. Write `model = fk.Model(inputs, outputs)` with "
            "tensors from fk.Input, or `model = fk.Sequential([layers.Dense(2)])`."
        )
    return _MODEL.format(where=name, name=name)


def check_class(cls: type, composes: bool) -> None:
    """Rejects methods of a layer class that Keras calls and the engine does not.

    Args:
        composes: whether `call` composes layers on symbolic tensors, as in fk.Model.

    Raises:
        TypeError: for `build(self, input_shape)`, for a `call` with a parameter `training` or
            `mask`, for a `compute_mask` that no base class declares, for a field with the name of
            an attribute of all layers, and for `keras_class_name`, which became `keras_form`.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     class Scale(fk.Layer):
        ...         def build(self, input_shape): ...
        ... except TypeError as error:
        ...     print(str(error).split(".")[0])
        Scale: build(self, input_shape) has Keras's form
    """
    if "keras_class_name" in cls.__dict__:
        name = cls.__dict__["keras_class_name"]
        raise TypeError(
            f"{cls.__name__}: keras_class_name is never read. Instead: `keras_form = "
            f"fk.engine.KerasForm(class_name={name!r})`."
        )
    # the property would be the default of such a field
    taken = next(
        (
            name
            for name in inspect.get_annotations(cls)
            if name not in cls.__dict__ and isinstance(getattr(cls, name, None), property)
        ),
        None,
    )
    if taken is not None:
        raise TypeError(
            f"{cls.__name__}: the field {taken!r} has the name of an attribute that all layers have. Rename the "
            f"field, or give it a default: `{taken}: int = fk.option(default=...)`."
        )
    build, call = cls.__dict__.get("build"), cls.__dict__.get("call")
    names = _parameters(build)
    # Keras's build takes one shape; the engine's build takes a key and specs
    if len(names) == 2 and "shape" in names[1]:
        raise TypeError(
            f"{cls.__name__}: build(self, {names[1]}) has Keras's form. Instead: {_BUILD}."
        )
    unused = next((n for n in _parameters(call) if n in ("training", "mask")), None)
    if unused is not None:
        raise TypeError(
            f"{cls.__name__}: call has an argument {unused!r}, which is never passed. Instead: "
            f"{_COMPOSED if composes else _FORWARD}."
        )
    if "compute_mask" in cls.__dict__ and not any(
        "compute_mask" in base.__dict__ for base in cls.__mro__[1:]
    ):
        if not cls.__module__.startswith("fkeras."):
            raise TypeError(
                f"{cls.__name__}: compute_mask is never called. Instead, forward returns the mask: "
                "`def forward(self, context, x): return fk.Output(x, mask=x != 0)`."
            )


def _parameters(method: object) -> tuple[str, ...]:
    """Returns the parameter names of a plain method, including `self`.

    Only the checks of this module read signatures: the engine's calls never depend on them.
    """
    code = getattr(method, "__code__", None)
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
