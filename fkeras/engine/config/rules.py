"""`Rule`: a converter of one configuration field that declares the accepted values.

A rule returns the plain Python value (a NumPy scalar becomes a Python scalar) or raises a
`ValueError`; the constructor puts its class and the field's name before the message. Rules are
idempotent, since copies and file readers run them again. `converters` defines the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.values.annotations import Field

# parsers return this for a value that the rule does not accept
REJECTED: Any = object()


class Rule:
    """Converter of one field, with a description of the accepted values.

    Attributes:
        kind: "boolean", "integer", "real", "choice", "text", "integers", "several",
            "numeric", "function" or "either".
        expected: the accepted values in words.
        optional: whether None is accepted; None stays None.
        limits: the bounds of numbers `(minimum, maximum, above, below)`, the words of a choice, or
            the rules of items and alternatives.
        hint: a sentence for the end of the message, with a leading space.
        parse: converts a value other than None, or returns `REJECTED`.

    Example:
        >>> from fkeras.engine.config.converters import integer
        >>> integer(minimum=1, maximum=8).expected
        'an integer from 1 to 8'
    """

    __slots__ = ("parse", "expected", "hint", "kind", "limits", "optional")

    def __init__(
        self,
        kind: str,
        expected: str,
        parse: Callable[[Any], Any],
        *,
        optional: bool = False,
        limits: tuple = (),
        hint: str = "",
    ):
        self.kind = kind
        add_none = optional and not expected.endswith("None")
        comma = "," if " or " in expected else ""
        self.expected = f"{expected}{comma} or None" if add_none else expected
        self.optional = optional
        self.limits = limits
        self.hint = f" {hint}" if hint else ""
        self.parse = parse

    def __call__(self, value: Field) -> Any:
        if value is None and self.optional:
            return None
        result = self.parse(value)
        if result is REJECTED:
            raise ValueError(
                f"expected {self.expected}, received {describe_value(value)}."
                f"{self.hint or _advice(self, value)}"
            )
        return result

    def check(self, where: str, value: Field) -> Any:
        """Converts an argument of a function; `where` names the function and the argument.

        Example:
            >>> from fkeras.engine.config.converters import sizes
            >>> sizes(2).check("conv: strides", 1)
            (1, 1)
        """
        try:
            return self(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    def accepts(self, value: Field) -> bool:
        """Returns whether the rule accepts a value.

        Example:
            >>> from fkeras.engine.config.converters import boolean
            >>> boolean.accepts(True), boolean.accepts("True")
            (True, False)
        """
        return (value is None and self.optional) or self.parse(value) is not REJECTED

    def __repr__(self) -> str:
        return f"<{self.kind} rule: {self.expected}>"


def _advice(rule: Rule, value: Field) -> str:
    """Returns advice for a misspelt word, or for a number or boolean written as a string."""
    if not isinstance(value, str):
        return ""
    if rule.kind == "choice":
        return suggest(value, rule.limits)
    if rule.kind == "either":
        return next(filter(None, (_advice(other, value) for other in rule.limits)), "")
    plain = value.strip()
    if rule.kind == "boolean" and plain.lower() in ("true", "false"):
        return f" Write {plain.capitalize()} without quotes."
    if rule.kind in ("integer", "real"):
        try:
            float(plain)
        except ValueError:
            return ""
        return f" Write {plain} without quotes."
    return ""


def scalar(value: Field) -> Any:
    """Converts a NumPy scalar or a zero-dimensional array to a Python scalar.

    Other values are returned unchanged.

    Raises:
        TypeError: for a traced value, since configuration is static.

    Example:
        >>> import numpy as np
        >>> scalar(np.int64(3)), scalar("3")
        (3, '3')
    """
    if isinstance(value, Tracer):
        raise TypeError(
            "A configuration value is being traced by a JAX transformation, and configuration "
            "is static. Pass it as an input of the call, or give a plain Python or NumPy value."
        )
    if isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0:
        # item() of bfloat16 and the float8 types returns an ml_dtypes scalar, no Python float
        return float(value) if jax.numpy.issubdtype(value.dtype, np.floating) else value.item()
    return value
