"""Arrays of a file on their way to devices: the default device, or shards on a mesh.

The arrays take the dtypes of the model, which a layout may change before the model has weights. A layout also gives the shapes of a model, which a loader builds first, the shardings of a trainer. Each array
is then moved to its shards as soon as it is read, so that no device holds more than its share, and the
host holds one array at a time.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.engine import DTypePolicy, Layer, replace_weights
from fkeras.host.processes.arrays import put
from fkeras.training.step.sharding_rules import (
    as_mesh,
    as_rules,
    check_mesh,
    check_rules,
    weight_specs,
)
from fkeras.transforms.casting import cast, float_policy

# the bits of bfloat16 that are all set in NaN and infinity, and the numbers that are looked at together
_EXPONENT, _PIECE = np.uint16(0x7F80), 1 << 20
# most paths that the warning of NaN lists
_LISTED = 12
#: kind ("weight" or "state") and path of an array: a weight and a state may have equal paths
Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Places models on a mesh by the rules of a trainer, and casts models; None for no mesh, or no cast."""

    mesh: Any
    sharding: Any
    dtype: DTypePolicy | None = None

    def cast(self, model: Layer) -> Any:
        """Returns the model with the layout's dtype as the policy of all layers."""
        return model if self.dtype is None else cast(model, self.dtype)

    def apply(self, model: Layer, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns `(model, state)` with every array, or shape, laid out on the mesh.

        Args:
            state: its state; all devices have the whole state.
        """
        if self.mesh is None:
            return model, state
        check_rules(self.mesh, self.sharding, model)
        specs = weight_specs(self.mesh, self.sharding, model)
        layouts = {path: NamedSharding(self.mesh, spec) for path, spec in specs.items()}
        whole = NamedSharding(self.mesh, PartitionSpec())
        return (
            jax.tree.map(_laid_out, model, replace_weights(model, layouts)),
            jax.tree.map(lambda leaf: _laid_out(leaf, whole), state),
        )


def as_layout(
    where: str,
    mesh: jax.sharding.Mesh | None,
    sharding: str | Mapping[str, Any] | None,
    dtype: str | DTypePolicy | None = None,
) -> Layout | None:
    """Returns the layout of the arguments of a loader; None for one device and the model's own dtypes.

    Raises:
        TypeError, ValueError: as `fk.Trainer`; `where` names the loader.

    Example:
        >>> as_layout("load_model", None, "fsdp")
        Traceback (most recent call last):
        ValueError: load_model: sharding: missing mesh. Pass mesh=jax.make_mesh(...).
    """
    try:
        mesh, sharding = as_mesh(mesh), as_rules(sharding)
        if mesh is None:
            check_mesh(mesh, sharding)
    except (TypeError, ValueError) as error:
        error.args = (f"{where}: {str(error).removeprefix('Trainer: ')}",)
        raise
    policy = None if dtype is None else float_policy(where, dtype)
    return None if mesh is None and policy is None else Layout(mesh, sharding, policy)


def _laid_out(leaf: jax.Array | jax.ShapeDtypeStruct, layout: NamedSharding) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout)
    return put(leaf, layout)


class Transfer:
    """Moves the arrays of a file to devices: to shards at once, to the default device together.

    One warning names all arrays with NaN or infinite numbers, which are legal, but rarely intended.

    Args:
        file: path of the file, for the warning.

    Example:
        >>> import jax, numpy as np
        >>> transfer = Transfer()
        >>> transfer.add(("weight", "w"), np.ones(2), jax.ShapeDtypeStruct((2,), "float32"))
        >>> transfer.arrays()
        {('weight', 'w'): Array([1., 1.], dtype=float32)}
    """

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self._nonfinite: list[str] = []
        self._moved: dict[Key, jax.Array] = {}
        self._waiting: dict[Key, np.ndarray] = {}

    def add(self, key: Key, array: np.ndarray, like: jax.Array | jax.ShapeDtypeStruct) -> None:
        """Adds an array of the file.

        Args:
            key: kind, "weight" or "state", and path of the array.
            like: the array or shape that the array replaces, whose dtype and sharding it takes.
        """
        # as in Keras, the dtype of the model decides, so that a file of another dtype policy loads
        array = array.astype(like.dtype, copy=False)
        if not is_finite(array):
            self._nonfinite.append(key[1])
        layout = getattr(like, "sharding", None)
        if layout is None or (isinstance(like, jax.Array) and len(layout.device_set) == 1):
            self._waiting[key] = array
        else:
            self._moved[key] = put(array, layout)

    def arrays(self) -> dict[Key, jax.Array]:
        """Returns all arrays on their devices, by key, after one warning of NaN and infinity."""
        warn_not_finite(self._nonfinite, self._file)
        # one transfer: a call of device_put per array costs far more for small arrays
        arrays = jax.device_put(list(self._waiting.values()))
        return self._moved | dict(zip(self._waiting, arrays, strict=True))


def with_arrays(
    state: Mapping[str, Any],
    arrays: Mapping[Key, Any],
    otherwise: Callable[[Any], Any] = lambda leaf: leaf,
    at: str = "",
) -> dict[str, Any]:
    """Returns a state with arrays in the place of its leaves.

    Args:
        otherwise: converts a leaf without an array; by default the leaf stays.

    Example:
        >>> with_arrays({"rnn": {"carry": 0, "count": 1}}, {("state", "rnn/carry"): 2})
        {'rnn': {'carry': 2, 'count': 1}}
    """
    updated: dict[str, Any] = {}
    for key, value in state.items():
        path = f"{at}/{key}" if at else key
        if isinstance(value, Mapping):
            updated[key] = with_arrays(value, arrays, otherwise, path)
        else:
            array = arrays.get(("state", path))
            updated[key] = otherwise(value) if array is None else array
    return updated


def warn_not_finite(paths: Sequence[str], file: str | None = None) -> None:
    """Emits one warning that lists the paths of arrays with NaN or infinite numbers, if any.

    Args:
        paths: paths, in the model, of the arrays for which `is_finite` is False.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_not_finite(["dense/bias"], "m.keras")
        >>> print(caught[0].message)
        m.keras: 1 array holds NaN or infinite numbers: dense/bias. ...
    """
    if not paths:
        return
    shown_paths = ", ".join(paths[:_LISTED]) + (", ..." if len(paths) > _LISTED else "")
    subject = "array holds" if len(paths) == 1 else "arrays hold"
    where = f"{file}: " if file else ""
    warnings.warn(
        f"{where}{len(paths)} {subject} NaN or infinite numbers: {shown_paths}. The training that wrote the "
        "file may have diverged; load an earlier save.",
        stacklevel=2,
    )


def is_finite(array: np.ndarray) -> bool:
    """Returns whether all numbers of an array are finite; True for integers and strings.

    Example:
        >>> is_finite(np.ones(3)), is_finite(np.array([1.0, np.inf]))
        (True, False)
    """
    # NumPy gives most dtypes of ml_dtypes the kind "V"
    is_small_float = array.dtype.name.startswith(("bfloat", "float8"))
    if array.dtype.kind not in "fc" and not is_small_float:
        return True
    if array.dtype == ml_dtypes.bfloat16:
        # as integers, in pieces: the functions of ml_dtypes are slow, and make large arrays
        codes = np.ravel(array, order="K").view(np.uint16)
        pieces = (codes[n : n + _PIECE] for n in range(0, len(codes), _PIECE))
        return not any(((piece & _EXPONENT) == _EXPONENT).any() for piece in pieces)
    with np.errstate(over="ignore", invalid="ignore"):
        # one pass without a temporary; the sum of finite numbers may overflow
        if not is_small_float and np.isfinite(np.sum(array)):
            return True
        return bool(np.isfinite(array).all())
