"""Public functions of architectures, with the arguments that most of Keras's architectures have."""

from __future__ import annotations

from typing import Any, Protocol, cast, overload

from fkeras.applications.building.arguments import Activation, ImageShape, Options, Path
from fkeras.applications.building.compose import Loaded, Plan, compose
from fkeras.applications.building.documents import Document, docstring
from fkeras.engine import KerasTensor, Model


class Architecture(Protocol):
    """A function that composes an architecture.

    Without a file of weights it returns the model, otherwise `(model, state)`.
    """

    __name__: str

    @overload
    def __call__(
        self,
        include_top: bool = True,
        *,
        weights: None,
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Model: ...

    @overload
    def __call__(
        self,
        include_top: bool = True,
        weights: Path = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Loaded: ...


def architecture(plan: Plan, document: Document, name: str, module: str) -> Architecture:
    """Returns the public function of an architecture."""
    default_name = name

    def build(
        include_top: bool = True,
        weights: Path | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = default_name,
    ) -> Any:
        return compose(
            plan,
            Options(
                include_top=include_top,
                weights=weights,
                input_tensor=input_tensor,
                input_shape=input_shape,
                pooling=pooling,
                classes=classes,
                classifier_activation=classifier_activation,
                name=name,
            ),
        )

    return cast(Architecture, describe(build, plan, document, module))


def describe(function: Any, plan: Plan, document: Document, module: str) -> Any:
    """Sets the name, the module and the docstring of an architecture's function."""
    code = function.__code__
    arguments = code.co_varnames[: code.co_argcount]
    function.__name__ = function.__qualname__ = plan.function
    function.__module__ = module
    function.__doc__ = docstring(plan.function, document, arguments, plan.sizes)
    return function
