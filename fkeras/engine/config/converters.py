"""Rules for configuration fields: each declares the accepted values and converts them.

`option(default, convert=integer(minimum=1))` declares type and range with the field.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fkeras.engine.config.rules import REJECTED, Rule, scalar
from fkeras.engine.values.annotations import Field


def _boolean(value: Field) -> Field:
    if value is True or value is False:
        return value
    value = scalar(value)
    # 0, 1 and "False" are rejected: truth values of other types hide mistakes
    return value if isinstance(value, bool) else REJECTED


boolean = Rule("boolean", "True or False", _boolean)


def integer(
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    also: tuple[int, ...] = (),
    optional: bool = False,
    hint: str = "",
) -> Rule:
    """Accepts integers in a closed range; booleans and floats are not integers.

    Args:
        also: further accepted integers, such as -1 for "all".
        optional: whether None is accepted.

    Example:
        >>> import numpy as np
        >>> integer(minimum=1)(np.int64(3))
        3
    """
    low = -math.inf if minimum is None else minimum
    high = math.inf if maximum is None else maximum

    def parse(value: Field) -> Field:
        if type(value) is not int:
            value = scalar(value)
            # bool is an Integral in Python, and units=True is always a mistake
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                return REJECTED
            value = int(value)
        return value if low <= value <= high or value in also else REJECTED

    if minimum is not None and minimum == maximum:
        expected = str(minimum)
    elif minimum is not None and maximum is not None:
        expected = f"an integer from {minimum} to {maximum}"
    elif minimum is not None:
        expected = "a positive integer" if minimum == 1 else f"an integer of {minimum} or more"
    else:
        expected = "an integer" if maximum is None else f"an integer of {maximum} or less"
    expected = " or ".join((expected, *map(str, also)))
    limits = (minimum, maximum, None, None)
    return Rule("integer", expected, parse, optional=optional, limits=limits, hint=hint)


def _range_words(
    minimum: float | None, maximum: float | None, above: float | None, below: float | None
) -> str:
    if above is not None and below is not None:
        return f" between {above} and {below}"
    if minimum is not None and maximum is not None:
        return f" from {minimum} to {maximum}"
    if minimum is not None:
        return f" of {minimum} or more" if below is None else f" from {minimum} and below {below}"
    if above is not None:
        return f" above {above}" if maximum is None else f" above {above} and up to {maximum}"
    if maximum is not None:
        return f" of {maximum} or less"
    return "" if below is None else f" below {below}"


def real(
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    optional: bool = False,
    hint: str = "",
) -> Rule:
    """Accepts numbers in a range and returns floats; NaN and booleans are never accepted.

    Args:
        maximum: the inclusive upper bound.
        below: the exclusive upper bound.
        infinite: whether infinity is accepted.
        optional: whether None is accepted.

    Example:
        >>> real(minimum=0, maximum=1)(1)
        1.0
    """

    def parse(value: Field) -> Field:
        if type(value) is not float:
            value = scalar(value)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                return REJECTED
            try:
                value = float(value)
            except OverflowError:  # an integer beyond the range of floats
                return REJECTED
        # every comparison with NaN is False; `value == value` rejects NaN where infinity is allowed
        in_range = (
            (minimum is None or value >= minimum)
            and (maximum is None or value <= maximum)
            and (above is None or value > above)
            and (below is None or value < below)
            and (value == value if infinite else math.isfinite(value))
        )
        return value if in_range else REJECTED

    bounds = _range_words(minimum, maximum, above, below)
    expected = f"a number{bounds}" if bounds or infinite else "a finite number"
    limits = (minimum, maximum, above, below)
    return Rule("real", expected, parse, optional=optional, limits=limits, hint=hint)


probability = real(
    minimum=0, maximum=1, hint="The value is a share, not a percentage: 20 % is 0.2."
)


def choice(*words: str, optional: bool = False, hint: str = "") -> Rule:
    """Accepts one of several words, ignoring case, and returns the declared spelling.

    Example:
        >>> choice("valid", "same")("SAME")
        'same'
    """
    spellings = {word.lower(): word for word in words}

    def parse(value: Field) -> Field:
        return spellings.get(value.lower(), REJECTED) if isinstance(value, str) else REJECTED

    quoted = [repr(word) for word in words]
    expected = " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if quoted[1:] else quoted[0]
    return Rule("choice", expected, parse, optional=optional, limits=words, hint=hint)


def text(*, empty: bool = False, optional: bool = False, hint: str = "") -> Rule:
    """Accepts strings; `empty` allows the empty string.

    Example:
        >>> text()("loss")
        'loss'
    """

    def parse(value: Field) -> Field:
        # str(): np.str_ is a subclass of str, and configurations hold plain Python values
        return str(value) if isinstance(value, str) and (value or empty) else REJECTED

    expected = "a string" if empty else "a non-empty string"
    return Rule("text", expected, parse, optional=optional, limits=(empty,), hint=hint)


def _items(value: Field) -> tuple | None:
    """Returns the items of a list, tuple or one-dimensional array as a tuple, otherwise None."""
    if isinstance(value, list | tuple):
        return tuple(value)
    if isinstance(value, np.ndarray | jax.Array) and value.ndim == 1:
        return tuple(np.asarray(value))
    array = getattr(value, "array", None)  # an ArrayConstant
    return tuple(array) if isinstance(array, np.ndarray) and array.ndim == 1 else None


def _parse_items(rule: Rule, value: Field) -> Field:
    items = _items(value)
    if items is None:
        return REJECTED
    results = tuple(None if item is None and rule.optional else rule.parse(item) for item in items)
    return REJECTED if any(result is REJECTED for result in results) else results


def sizes(count: int, *, minimum: int = 1, optional: bool = False, hint: str = "") -> Rule:
    """Accepts `count` integers, or a single integer that is repeated `count` times.

    Example:
        >>> sizes(2)(3), sizes(2)([3, 5])
        ((3, 3), (3, 5))
    """
    item = integer(minimum=minimum)

    def parse(value: Field) -> Field:
        size = item.parse(value)
        if size is not REJECTED:
            return (size,) * count
        result = _parse_items(item, value)
        return result if result is not REJECTED and len(result) == count else REJECTED

    tuple_words = f"a tuple of {count}" if count > 1 else "a tuple of one"
    expected = f"an integer of {minimum} or more, or {tuple_words}"
    hint = hint or f"Give {minimum + 1}, or {(minimum + 1,) * count}."
    return Rule("integers", expected, parse, optional=optional, limits=(minimum, count), hint=hint)


def axes(*, batch: bool = True, optional: bool = False, hint: str = "") -> Rule:
    """Accepts one axis or several distinct axes and returns an integer or a tuple of integers.

    Args:
        batch: whether axis 0 is accepted.
        optional: whether None is accepted.

    Example:
        >>> axes()(-1), axes()([1, 2])
        (-1, (1, 2))
    """
    item = integer()

    def parse(value: Field) -> Field:
        result = item.parse(value)
        if result is REJECTED:
            result = _parse_items(item, value)
        if result is REJECTED:
            return result
        axis_tuple = result if isinstance(result, tuple) else (result,)
        # the rank is unknown here, so -1 and the number of the last axis count as distinct axes
        invalid = (
            not axis_tuple
            or len(set(axis_tuple)) < len(axis_tuple)
            or (not batch and 0 in axis_tuple)
        )
        return REJECTED if invalid else result

    expected = f"an integer or different integers{'' if batch else ' other than 0'}"
    return Rule("integers", expected, parse, optional=optional, limits=(None, None), hint=hint)


def axis_or_axes(*, hint: str = "") -> Callable[[Any], int | tuple[int, ...]]:
    """Accepts the same values as `axes` and returns a list of one axis as an integer.

    Example:
        >>> axis_or_axes()([-1]), axis_or_axes()([1, 2])
        (-1, (1, 2))
    """
    rule = axes(hint=hint)

    def convert(value: Field) -> int | tuple[int, ...]:
        result = rule(value)
        return result[0] if isinstance(result, tuple) and len(result) == 1 else result

    return convert


def several(
    item: Rule, words: str, *, single: bool = False, least: int = 1, **options: Any
) -> Rule:
    """Accepts a list, tuple or array of values that one rule accepts, and returns a tuple.

    Args:
        single: whether a single value is accepted and returned as a tuple of one.
        options: `optional` and `hint`, as in other rules.

    Example:
        >>> several(real(), "a list of numbers")([1, 2])
        (1.0, 2.0)
    """

    def parse(value: Field) -> Field:
        result = _parse_items(item, value)
        if result is REJECTED and single:
            element = item.parse(value)
            result = element if element is REJECTED else (element,)
        return REJECTED if result is REJECTED or len(result) < least else result

    return Rule("several", words, parse, limits=(item,), **options)


def numeric(*, infinite: bool = False, optional: bool = False, hint: str = "") -> Rule:
    """Accepts a number, or a list or array of numbers without NaN, and returns it unchanged.

    Example:
        >>> numeric()([[1, 2], [3, 4]])
        [[1, 2], [3, 4]]
    """

    def parse(value: Field) -> Field:
        if isinstance(value, bool):
            return REJECTED
        value = scalar(value)
        try:
            array = np.asarray(getattr(value, "array", value))
        except (TypeError, ValueError):  # nested lists of different lengths
            return REJECTED
        kind = array.dtype
        # jax.numpy knows bfloat16 and the float8 types as floats; np.issubdtype does not
        if not any(
            jax.numpy.issubdtype(kind, number_type) for number_type in (np.integer, np.floating)
        ):
            return REJECTED
        invalid = np.isnan(array) if infinite else ~np.isfinite(array)
        return REJECTED if invalid.any() else value

    expected = "a number, or numbers in a list or array"
    return Rule("numeric", expected, parse, optional=optional, hint=hint)


def function(*, optional: bool = False, hint: str = "") -> Rule:
    """Accepts callables other than classes.

    Example:
        >>> import math
        >>> function()(math.sqrt)(4)
        2.0
    """

    def parse(value: Field) -> Field:
        return value if callable(value) and not isinstance(value, type) else REJECTED

    return Rule("function", "a function", parse, optional=optional, hint=hint)


def either(*rules: Rule, optional: bool = False, hint: str = "") -> Rule:
    """Accepts a value that any of several rules accepts; the first such rule converts the value.

    Example:
        >>> either(choice("epoch"), integer(minimum=1))(100)
        100
    """

    def parse(value: Field) -> Field:
        for rule in rules:
            if rule.accepts(value):
                return rule(value)
        return REJECTED

    expected = ", or ".join([*(rule.expected for rule in rules), *(["None"] if optional else [])])
    return Rule("either", expected, parse, optional=optional, limits=rules, hint=hint)


def dtype_name(value: Field) -> str | None:
    """Returns the name of a numeric or boolean dtype, or None for any other value.

    Example:
        >>> dtype_name(np.float32), dtype_name("bfloat16"), dtype_name(np.float32(1.0))
        ('float32', 'bfloat16', None)
    """
    # np.dtype accepts an array and returns the array's dtype; here an array is a mistake
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return None
    # NumPy 2.1 accepts an attribute `dtype` that is no dtype; a class such as np.float32 is a dtype itself
    if not isinstance(value, type) and not isinstance(
        getattr(value, "dtype", np.dtype(bool)), np.dtype
    ):
        return None
    try:
        dtype = jax.numpy.dtype(value)
    except (TypeError, ValueError):
        return None
    # np.dtype(None) is float64
    is_numeric = value is not None and (jax.numpy.issubdtype(dtype, np.number) or dtype == np.bool_)
    return dtype.name if is_numeric else None


_data_format = choice("channels_last", "channels_first", optional=True)


def data_format_name(value: Field) -> str:
    """Converts "channels_last", "channels_first" or None; None means "channels_last"."""
    return _data_format(value) or "channels_last"
