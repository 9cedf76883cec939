"""Exception classes of fkeras and helpers for error messages.

A message has three parts: the place of the error, the expected and the received value, and a
remedy. Built-in exceptions are used unless a caller may want to catch errors of fkeras only.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

# resource limits of the comparison: difflib takes minutes for thousands of long names from a file
_WORD, _WORDS = 80, 2000


class FKerasError(ValueError):
    """Base class of the engine's errors about values that it cannot use.

    Attributes:
        layer: name or class of the layer, or None.
        node: index of the layer's call, or None.
        input_index: index of the call's input, or None.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Dense(3)(fk.Input(()))
        ... except fk.FKerasError as error:
        ...     print(error.input_index)
        0
    """

    def __init__(
        self,
        message: str,
        *,
        layer: str | None = None,
        node: int | None = None,
        input_index: int | None = None,
    ):
        super().__init__(message)
        self.layer = layer
        self.node = node
        self.input_index = input_index


class NoGraphError(FKerasError, AttributeError):
    """A network without input shapes; an AttributeError, so that `hasattr(model, "inputs")` is False.

    Example:
        >>> import fkeras as fk
        >>> hasattr(fk.Sequential([fk.layers.Dense(2)]), "inputs")
        False
    """


class InputSpecError(FKerasError):
    """Inputs that do not match the `InputSpec` of a layer.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Conv2D(2, 3)(fk.Input((8,)))
        ... except fk.InputSpecError as error:
        ...     print(error.layer)
        Conv2D
    """


class DisconnectedGraphError(FKerasError):
    """Outputs of a model that do not depend on the model's inputs alone.

    Example:
        >>> import fkeras as fk
        >>> x, other = fk.Input((2,)), fk.Input((2,))
        >>> try:
        ...     fk.Model(other, fk.layers.Dense(1)(x))
        ... except fk.DisconnectedGraphError:
        ...     print("the output needs x")
        the output needs x
    """


class MissingNameError(KeyError):
    """An unknown name of a layer or of a value.

    Example:
        >>> print(MissingNameError("model.layers: there is no layer 'dens'."))
        model.layers: there is no layer 'dens'.
    """

    def __str__(self) -> str:  # a KeyError shows the repr of its message
        return str(self.args[0])


class SymbolicValueError(FKerasError):
    """A symbolic tensor in an operation that needs numbers.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     bool(fk.Input((2,)))
        ... except fk.SymbolicValueError:
        ...     print("no number yet")
        no number yet
    """

    # not a TypeError: JAX replaces the message of a TypeError raised while it converts arguments


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Returns a "Did you mean" sentence with the nearest of `candidates`, or an empty string.

    Example:
        >>> suggest("rleu", ["relu", "tanh"])
        " Did you mean 'relu'?"
    """
    name = str(name)
    if len(name) > _WORD:
        return ""
    names = (
        candidate
        for candidate in candidates
        if isinstance(candidate, str) and len(candidate) <= _WORD
    )
    # a short name resembles many words, and a wrong suggestion misleads
    cutoff = 0.5 if len(name) > 3 else 0.6
    matches = difflib.get_close_matches(
        name, list(itertools.islice(names, _WORDS)), n=1, cutoff=cutoff
    )
    return f" Did you mean {matches[0]!r}?" if matches else ""


def describe_value(value: object) -> str:
    """Returns a value and its type as text for an error message; long values are truncated.

    Example:
        >>> describe_value("False")
        "'False' (str)"
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None:
        return "None"
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{text} ({type(value).__name__})"


def add_note(error: BaseException, text: str) -> None:
    """Adds a note to an exception, even if its class rejects attributes."""
    try:
        BaseException.add_note(error, text)
    except Exception:
        notes = BaseException.__getattribute__(error, "__dict__").setdefault("__notes__", [])
        notes.append(text)
