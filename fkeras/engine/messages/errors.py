"""What fkeras raises, and the phrases its messages share.

A message has three parts: where it happened, what was expected and what was received, and what
to do. Built-in exceptions serve everywhere except where a caller may want to catch our own.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from typing import Any

# what a name is compared with: a file may have thousands of long ones, which takes minutes
_WORD, _WORDS = 80, 2000


class FKerasError(ValueError):
    """A value that the engine cannot work with.

    Attributes:
        layer: name or class of the layer concerned, or None.
        node: index of the call of that layer, or None.
        input_index: which of the call's inputs, or None.

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


class InputSpecError(FKerasError):
    """Inputs that do not fit what a layer declared with its `InputSpec`.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Conv2D(2, 3)(fk.Input((8,)))
        ... except fk.InputSpecError as error:
        ...     print(error.layer)
        Conv2D
    """


class DisconnectedGraphError(FKerasError):
    """Outputs that cannot be computed from the inputs that were named.

    Example:
        >>> import fkeras as fk
        >>> x, other = fk.Input((2,)), fk.Input((2,))
        >>> try:
        ...     fk.Model(other, fk.layers.Dense(1)(x))
        ... except fk.DisconnectedGraphError:
        ...     print("the output needs x")
        the output needs x
    """


class SymbolicValueError(FKerasError):
    """A symbolic tensor where only numbers can stand.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     bool(fk.Input((2,)))
        ... except fk.SymbolicValueError:
        ...     print("no number yet")
        no number yet
    """

    # no TypeError: jax replaces the message of one that it meets while it reads its arguments


def suggest(name: str, candidates: Iterable[str]) -> str:
    """The end of a sentence that offers the nearest of `candidates`, or an empty string.

    Example:
        >>> suggest("rleu", ["relu", "tanh"])
        " Did you mean 'relu'?"
    """
    name = str(name)
    if len(name) > _WORD:
        return ""
    words = (word for word in candidates if isinstance(word, str) and len(word) <= _WORD)
    near = difflib.get_close_matches(name, list(itertools.islice(words, _WORDS)), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def describe_value(value: Any) -> str:
    """A value and its type for an error message; long values are cut.

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
