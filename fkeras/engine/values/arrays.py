"""Conversion of the user's arrays to arrays that JAX computes with.

Every entry point (calls of layers, losses, metrics, the Trainer) converts its arrays with this
module. `read_array` returns an array of numbers in its original dtype, so that checks of labels and
ids see the original values. `narrow` casts to the dtype that JAX computes in and rejects integers
that this dtype cannot hold. Without these steps JAX would wrap integers around, misread the other
byte order, or drop the mask of a masked array.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.values.annotations import Leaf
from fkeras.engine.values.tables import column_problem, missing_problem

# dtypes that JAX takes unchanged: the fast path for calls on single rows
TAKEN = frozenset(
    np.dtype(name)
    for name in ("float32", "int32", "bool", "uint8", "int8", "uint16", "int16", "float16")
)
_PROTOCOLS = ("__array__", "__array_interface__", "__jax_array__", "__dlpack__")
_REMEDIES = (
    ("O", "Pad rows to one length and make the elements numbers: x.astype('float32')."),
    (
        "SUT",
        "Encode it first, with layers.StringLookup or layers.TextVectorization; a model that begins "
        'with such a layer and fk.Input((), dtype="string") takes strings.',
    ),
    ("Mm", "Convert it to numbers, such as days: (x - x.min()) / np.timedelta64(1, 'D')."),
    ("V", "Convert its numbers (of a structured array each field): x['field'].astype('float32')."),
    ("c", "Pass the parts as real numbers: np.stack([x.real, x.imag], axis=-1)."),
)


def plain(array: np.ndarray, where: str) -> np.ndarray:
    """Returns a NumPy array of any dtype in the native byte order; rejects masked arrays.

    Raises:
        TypeError: for a masked array.

    Example:
        >>> plain(np.array([1.0], ">f4"), "x").dtype
        dtype('float32')
    """
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{where}: expected an array without a mask, received a NumPy masked array, whose mask "
            "JAX would drop. Fill it, x.filled(0), and give rows that must not count a "
            "sample_weight of 0, or steps a mask."
        )
    if array.dtype.isnative:
        return array
    return array.astype(array.dtype.newbyteorder("="))


def is_array_like(value: Leaf) -> bool:
    """Returns whether `value` is an array or an object with a conversion to an array.

    Example:
        >>> is_array_like(np.ones(2)), is_array_like([1.0, 2.0])
        (True, False)
    """
    return any(hasattr(type(value), name) for name in _PROTOCOLS)


def read_array(value: Leaf, where: str, complex_numbers: bool = False) -> Leaf:
    """Returns `value` as an array of numbers in its original dtype.

    JAX arrays, tracers included, and memory-mapped arrays come back unchanged. A memory-mapped array
    may have the other byte order; `narrow` converts the rows that are read. Objects of other
    libraries are converted through `__array__` or `__dlpack__`.

    Args:
        value: an array, or an object with `__array__` or `__dlpack__`.
        complex_numbers: whether complex numbers are allowed.

    Raises:
        TypeError: for a value that is no array, and for an array without numbers.
        ValueError: for missing values in a nullable column of a table.

    Example:
        >>> read_array(np.array([1, 2], ">i8"), "x").dtype
        dtype('int64')
    """
    kind = type(value)
    if kind is np.ndarray:
        array = value
    elif isinstance(value, jax.Array):
        return value
    elif isinstance(value, np.memmap):
        array = value
    elif isinstance(value, np.ma.MaskedArray):
        array = plain(value, where)
    elif isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)  # a matrix, a record array or a number
    elif is_array_like(value):
        missing = missing_problem(value)
        if missing is not None:
            raise ValueError(f"{where}: expected numbers, received {missing}")
        array = _convert(value, where)
        if isinstance(array, jax.Array):
            return array
    else:
        raise TypeError(
            f"{where}: expected arrays, received {kind.__name__}. Convert it: {conversion(value)}."
        )
    array = _unbox_numbers(array) if array.dtype == object else array
    dtype = array.dtype
    if dtype in TAKEN:
        return array
    if not _is_number(dtype) or (dtype.kind == "c" and not complex_numbers):
        _reject_dtype(value, dtype, where)
    return array if isinstance(array, np.memmap) else plain(array, where)


def conversion(value: Leaf) -> str:
    """Returns code that makes an array of a value `x`, for error messages."""
    if hasattr(value, "dense_shape"):  # a SparseTensor of TensorFlow
        return "tf.sparse.to_dense(x)"
    names = ("toarray", "todense", "to_tensor")  # the last for a RaggedTensor of TensorFlow
    return next((f"x.{name}()" for name in names if hasattr(value, name)), "np.asarray(x)")


def is_sparse(value: object) -> bool:
    """Returns whether `value` is a sparse array, which may be a pytree of arrays."""
    return hasattr(type(value), "todense")


def _is_number(dtype: np.dtype) -> bool:
    # the dtypes of ml_dtypes (bfloat16, int4) have the kind of structured arrays
    return dtype.kind in "biufc" or (dtype.kind == "V" and jnp.issubdtype(dtype, np.number))


def _reject_dtype(value: Leaf, dtype: np.dtype, where: str) -> None:
    expected = "real numbers" if dtype.kind == "c" else "numbers"
    column = None if isinstance(value, np.ndarray | np.generic) else column_problem(value)
    if column is not None:
        raise TypeError(f"{where}: expected {expected}, received {column}")
    remedy = next((text for kinds, text in _REMEDIES if dtype.kind in kinds), _REMEDIES[0][1])
    kind = (
        ""
        if isinstance(value, np.ndarray | np.generic | jax.Array)
        else f" out of a {type(value).__name__}"
    )
    raise TypeError(f"{where}: expected {expected}, received an array of {dtype}{kind}. {remedy}")


def _convert(value: Leaf, where: str) -> Leaf:
    first: Exception | None = None
    for name, convert in zip(
        _PROTOCOLS, (np.asarray, np.asarray, jnp.asarray, _from_dlpack), strict=True
    ):
        if not hasattr(type(value), name):
            continue
        try:
            return convert(value)
        except FKerasError:  # the message of a symbolic tensor has the remedy
            raise
        except Exception as error:
            first = first or error
    check_not_keras(value, where)
    reason = str(first).strip().splitlines()[0].rstrip(".") if str(first).strip() else repr(first)
    raise TypeError(
        f"{where}: expected an array, received a {type(value).__name__} whose conversion failed: "
        f"{reason:.200}. Convert it to a NumPy array first, for example with "
        "x.detach().cpu().numpy() for a tensor of PyTorch."
    ) from first


def _unbox_numbers(array: np.ndarray) -> np.ndarray:
    """Returns an object array of Python numbers, as tables with mixed columns give, as numbers.

    Strings come back as an array of strings, for the message.
    """
    values = array.ravel().tolist()
    if values and all(isinstance(v, str) for v in values[:100]):
        return array.astype(str)
    if not all(isinstance(v, bool | int | float | np.number | np.bool) for v in values):
        return array
    return np.array(values).reshape(array.shape)


def _from_dlpack(value: Leaf) -> Leaf:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy lacks the dtype or device
        return jnp.from_dlpack(value, copy=True)


def as_argument(value: Leaf, where: str) -> Leaf:
    """Returns the argument of an operation; converts NumPy arrays that JAX would misread.

    JAX wraps integers of 64 bits modulo 2**32 and rejects the other byte order and `longdouble`.
    """
    if not isinstance(value, np.ndarray) or value.dtype in TAKEN:
        return plain(value, where) if isinstance(value, np.ma.MaskedArray) else value
    dtype = value.dtype
    needs_conversion = dtype.kind in "iu" or (dtype.kind in "fc" and dtype.itemsize > 8)
    return as_array(value, where, complex_numbers=True) if needs_conversion else plain(value, where)


def computed_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype in which JAX computes for arrays of a dtype of numbers.

    Example:
        >>> computed_dtype(np.dtype(">i8")), computed_dtype(np.dtype("longdouble"))
        (dtype('int32'), dtype('float32'))
    """
    if dtype.isbuiltin == 2 and dtype != jnp.bfloat16:
        # floats of 8 bits and integers of 4 are storage formats: not every device computes in them
        is_integer = jnp.issubdtype(dtype, jnp.integer)
        return np.dtype("int8" if is_integer else "float32")
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype("float64")
    elif dtype.kind == "c" and dtype.itemsize > 16:
        dtype = np.dtype("complex128")
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype.newbyteorder("=")))


def check_fits(array: Leaf, where: str) -> None:
    """Rejects integers that do not fit the dtype in which JAX computes.

    Raises:
        ValueError: for the first such integer, with its row.
    """
    target = computed_dtype(array.dtype)
    if array.dtype.kind not in "iu" or array.dtype.itemsize <= target.itemsize or not array.size:
        return
    limits = np.iinfo(target)
    if limits.min <= int(array.min()) and int(array.max()) <= limits.max:
        return
    index = tuple(map(int, np.argwhere((array < limits.min) | (array > limits.max))[0]))
    row_text = f", row {index[0]}" if index else ""
    raise ValueError(
        f"{where}{row_text}: expected integers from {limits.min} to {limits.max}, since JAX computes in "
        f"{target.name}, received {int(array[index])}"
        f"{f' at {list(index)}' if len(index) > 1 else ''}. Pass quantities as floats, "
        "x.astype('float32'), map ids into the range, or set jax_enable_x64."
    )


def narrow(array: Leaf, where: str, checked: bool = False) -> Leaf:
    """Returns the array in the dtype in which JAX computes, without a copy where possible.

    Args:
        array: a result of `read_array`, or some of its rows.
        checked: whether `check_fits` ran before.

    Raises:
        ValueError: for integers that do not fit the dtype, with the row.
    """
    dtype = array.dtype
    if isinstance(array, jax.Array):
        return array
    target = dtype if dtype in TAKEN else computed_dtype(dtype)
    if not checked:
        check_fits(array, where)
    with np.errstate(over="ignore"):  # the check for infinities reports an overflow later
        return np.asarray(array) if dtype == target else np.asarray(array).astype(target)


def as_array(value: Leaf, where: str, complex_numbers: bool = False) -> Leaf:
    """Applies `read_array`, then `narrow`."""
    if type(value) is np.ndarray and value.dtype in TAKEN:
        return value
    return narrow(read_array(value, where, complex_numbers), where)


def as_operand(value: Leaf, where: str) -> jax.Array:
    """Returns an array, a number or a list of numbers as a JAX array, for losses and metrics.

    Raises:
        TypeError: for other values, and for complex numbers.

    Example:
        >>> as_operand([1, 2], "y_true")
        Array([1, 2], dtype=int32)
    """
    if isinstance(value, jax.Array):
        return _real(value, where)
    if not isinstance(value, list | tuple | bool | int | float | complex):
        return jnp.asarray(as_array(value, where))
    try:
        return _real(jnp.asarray(value), where)
    except (OverflowError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise type(error)(
            f"{where}: expected numbers in rows of one length, received a {type(value).__name__} "
            f"that cannot be converted: {reason:.200}. Pass an array: np.asarray(values, "
            "'float32')."
        ) from error


def _real(array: jax.Array, where: str) -> jax.Array:
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        _reject_dtype(array, np.dtype(array.dtype), where)
    return array
