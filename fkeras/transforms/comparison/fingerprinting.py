"""Fingerprints of models: digests that are equal in every process.

`hash` differs between processes, because Python salts the hashes of strings. A fingerprint is the
digest of a canonical form: JSON data with everything that `==` of two layers compares, where
mappings are sorted, numbers are text and arrays are digests of their bytes.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.models.partition import require_layer
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.tree.donated import check_donated
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.values.annotations import Leaf
from fkeras.engine.values.frozen import ArrayConstant, is_array
from fkeras.transforms.comparison.array_bytes import array_bytes

_VERSION = "fkeras fingerprint 1"


@hides_internal_frames
def fingerprint(model: Layer, weights: bool = False) -> str:
    """Returns a digest of a model that is equal in every process.

    Models that are equal (`==`) have equal fingerprints, whatever the process, the version of Python,
    the hash seed and the devices of the arrays. A fingerprint can therefore be the key of a cache of
    compiled programs, or of computed features. The digest covers

    - classes, by module and name, and all arguments of the layers, names included;
    - the graph: calls, their arguments, inputs and outputs;
    - shapes and dtypes of the weights, so a built model differs from the same model without weights;
    - with `weights=True`, the bytes of the weights: `-0.0` differs from `0.0`.

    A class, or a function defined with `def` in a module, counts by its name: the digest does not
    change if its code changes. A lambda, or a function inside a function, counts by its compiled code,
    its defaults and the values that it closes over. The compiled code depends on the minor version
    of Python. State is not a part of a model.

    Args:
        model: a layer or model.
        weights: whether the values of the weights count. Arrays are read in pieces of at most 16 MiB;
            the shards of an array on several devices are not gathered.

    Returns:
        32 hexadecimal digits.

    Raises:
        TypeError: for a value that is no layer, and for an object in a configuration without a
            form that is equal in every process.
        ValueError: with `weights=True`, for a model without weights, for weights that are being
            traced, and for weights that are spread over several processes.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)])
        >>> one, two = (model.build(jax.random.key(seed)) for seed in (0, 1))
        >>> transforms.fingerprint(one) == transforms.fingerprint(two)
        True
        >>> transforms.fingerprint(one, weights=True) == transforms.fingerprint(two, weights=True)
        False
    """
    require_layer(model, "transforms.fingerprint")
    if not weights:
        return fingerprint_of(model)
    if not model.built:
        raise ValueError(
            f"transforms.fingerprint, {model._where}: expected a built model for weights=True, received "
            "a model without weights. Build it: `model = model.build(jax.random.key(0))`."
        )
    return fingerprint_of(model, weight_digests(model))


def fingerprint_of(model: Layer, digests: Sequence[str | None] | None = None) -> str:
    """Returns the fingerprint of a model, with the digests of its weights where they count."""
    skeleton = skeleton_of(model)
    leaves = [None if leaf is None else kind_of(leaf) for leaf in leaves_of(model)]
    return digest([_VERSION, _canonical_layer(skeleton, ()), leaves, digests], size=16)


def weight_digests(model: Layer, where: str = "transforms.fingerprint") -> list[str | None]:
    """Returns a digest of the bytes of each leaf, in the order of the leaves; None for None.

    Args:
        where: the function of the user's call, for messages.
    """
    check_donated(model, where, "Use the new model.")
    leaves = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    return [None if leaf is None else array_digest(leaf, name, where) for name, leaf in leaves]


def array_digest(
    array: Leaf, name: str = "the array", where: str = "transforms.fingerprint"
) -> str:
    """Returns a digest of dtype, shape and bytes of an array, 32 hexadecimal digits."""
    if isinstance(array, Tracer) or not is_array(array):
        raise ValueError(
            f"{where}: expected arrays with values, received {name!r} as {type(array).__name__}. Call "
            "the function outside of jit, grad and vmap, with a model of arrays."
        )
    state = hashlib.blake2b(kind_of(array).encode(), digest_size=16)
    for piece in array_bytes(array, name, where):
        state.update(piece)
    return state.hexdigest()


def digest(value: object, size: int = 8) -> str:
    """Returns a digest of JSON data or bytes.

    Args:
        size: number of bytes of the digest; twice as many hexadecimal digits.
    """
    # Python's `hash` is salted per process; a fingerprint must be equal in every process.
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def kind_of(array: Leaf) -> str:
    """Returns the dtype and shape of an array as text, such as "float32[3, 4]"."""
    dtype = array.dtype  # the dtype of a typed key is no dtype of NumPy
    name = str(dtype) if jnp.issubdtype(dtype, jax.dtypes.extended) else np.dtype(dtype).name
    return f"{name}{list(array.shape)}"


def function_name(value: object) -> str:
    """Returns a name for a value without JSON form; the name is the same in every process."""
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    module = getattr(value, "__module__", None) or type(value).__module__
    return f"{module}.{name}"


def _canonical_layer(skeleton: Skeleton, outer: tuple) -> Any:
    # whether weights exist follows from the leaves
    static = {name: value for name, value in skeleton.static.items() if name != "_built"}
    parts = [_canonical(part, outer) for part in (static, skeleton.children)]
    return ["layer", function_name(skeleton.cls), *parts, list(skeleton.weights)]


def _canonical(value: Any, outer: tuple = ()) -> Any:
    """Returns JSON data that is equal for equal values, and differs for different values.

    Args:
        outer: functions whose closures are being read: a recursive function closes over itself.
    """
    if value is None or (isinstance(value, str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return ["enum", function_name(type(value)), value.name]
    if isinstance(value, int | float | complex | np.generic):
        return ["number", _canonical_number(value)]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, slice):
        return ["slice", *(_canonical(v, outer) for v in (value.start, value.stop, value.step))]
    if value is Ellipsis:
        return ["ellipsis"]
    if isinstance(value, tuple | list):
        return ["list", *(_canonical(item, outer) for item in value)]
    if isinstance(value, Mapping):
        items = [[_canonical(k, outer), _canonical(v, outer)] for k, v in value.items()]
        return ["dict", *sorted(items, key=json.dumps)]
    if isinstance(value, frozenset | set):
        return ["set", *sorted((_canonical(item, outer) for item in value), key=json.dumps)]
    if isinstance(value, ArrayConstant) or is_array(value):
        return ["array", array_digest(value.array if isinstance(value, ArrayConstant) else value)]
    if isinstance(value, Skeleton):
        return _canonical_layer(value, outer)
    if isinstance(value, Layer):  # in a field that is no field of children
        leaves = [_canonical(leaf, outer) for leaf in leaves_of(value)]
        return [*_canonical_layer(skeleton_of(value), outer), leaves]
    if isinstance(value, np.dtype):
        return ["dtype", value.name]
    if isinstance(value, type):
        return ["class", function_name(value)]
    if isinstance(value, Op) and value.builtin:
        return ["operation", value.name]
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.compare]
        pairs = [[name, _canonical(getattr(value, name), outer)] for name in fields]
        return ["object", function_name(type(value)), pairs]
    if callable(getattr(value, "get_config", None)):
        config = _canonical(getattr(value, "get_config")(), outer)  # noqa: B009
        return ["object", function_name(type(value)), config]
    return _canonical_function(value, outer)


def _canonical_number(value: Any) -> str:
    # `==` of two layers does not see the type of equal numbers: 1 == 1.0 == True
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return repr(int(number) if isinstance(number, int) else number)


def _canonical_function(value: Any, outer: tuple) -> Any:
    if isinstance(value, functools.partial):
        return [
            "partial",
            *(_canonical(v, outer) for v in (value.func, value.args, value.keywords)),
        ]
    if isinstance(value, types.MethodType):
        return ["method", _canonical(value.__self__, outer), value.__name__]
    if isinstance(value, types.CodeType):
        parts = (value.co_code, value.co_names, value.co_varnames, value.co_consts)
        return [_canonical(part, outer) for part in parts]
    name = function_name(value)
    has_name = isinstance(getattr(value, "__qualname__", getattr(value, "__name__", None)), str)
    if isinstance(value, types.FunctionType):
        if "<" not in value.__qualname__:
            return ["function", name]
        if value in outer:
            return ["recursion", outer.index(value)]
        inner = (*outer, value)
        cells = [_canonical(cell.cell_contents, inner) for cell in value.__closure__ or ()]
        defaults = _canonical((value.__defaults__, value.__kwdefaults__), inner)
        return ["code", name, _canonical(value.__code__), defaults, cells]
    if callable(value) and has_name:
        # functions of jax.numpy, and functions below jax.jit or functools.wraps
        wrapped = getattr(value, "__wrapped__", None)
        return ["function", name] if wrapped is None else ["wrapped", _canonical(wrapped, outer)]
    raise TypeError(
        f"transforms.fingerprint: a configuration holds a value of type {name}, which has no form that "
        "is equal in every process. Use a frozen dataclass or a class with get_config."
    )
