"""Converts HDF5 types to NumPy dtypes, and rejects types that weights do not have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fkeras.engine.messages.optional_packages import missing_package
from fkeras.host.containers.errors import FileError

_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def load_h5py(what: str) -> Any:
    """Imports and returns the package h5py, an optional dependency.

    Args:
        what: the operation that needs h5py, for the message.
    """
    try:
        import h5py
    except ImportError as error:
        raise missing_package(what, "h5py", error) from error
    return h5py


def array_dtype(kind: Any, named: str | None = None) -> np.dtype:
    """Returns the NumPy dtype of an HDF5 type, in native byte order.

    Args:
        named: the array's attribute `dtype`. HDF5 has no bfloat16, so Keras stores the bytes as an
            opaque type and the name of the dtype in this attribute.
    """
    h5t = load_h5py("Reading an HDF5 file").h5t
    size = kind.get_size()
    family = kind.get_class()
    # only these types: h5py maps variable-length and reference types to Python objects
    dtype = None
    if (family == h5t.INTEGER and size in (1, 2, 4, 8)) or (
        family == h5t.FLOAT and size in (2, 4, 8)
    ):
        dtype = kind.dtype
    # h5py stores booleans as an enum and complex numbers as a compound of two floats
    elif family == h5t.ENUM and size == 1 and kind.get_nmembers() == 2:
        dtype = kind.dtype if kind.dtype == np.bool_ else None
    elif family == h5t.COMPOUND and size in (8, 16) and kind.get_nmembers() == 2:
        dtype = kind.dtype if kind.dtype.kind == "c" else None
    elif family == h5t.OPAQUE and size <= 2 and named in _SMALL_FLOATS:
        dtype = np.dtype(getattr(ml_dtypes, named))
    elif family == h5t.STRING and not kind.is_variable_str() and 0 < size <= 1 << 16:
        dtype = np.dtype(f"S{size}")
    if dtype is None or dtype.itemsize != size or dtype.hasobject:
        raise FileError(
            "expected integers, floats, complex numbers or booleans of at most 8 bytes, received "
            f"the HDF5 type {type(kind).__name__} of {size} bytes. Save the array as float32."
        )
    # HDF5 allows any widths of exponent and mantissa; NumPy would read other values
    if dtype.kind in "iuf" and dtype.name not in _SMALL_FLOATS:
        if not kind.equal(h5t.py_create(dtype)):
            raise FileError(
                f"expected a standard number format, received a custom format of {size} bytes. Save "
                "the array as float32."
            )
    return dtype.newbyteorder("=")
