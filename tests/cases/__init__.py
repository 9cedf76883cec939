"""The layer table: each row is a configuration of a layer, and runs all tests that layers share.

To test a new layer, add a row to one of the modules in this folder.
"""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
import pytest

from fkeras.engine import Layer


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One configuration of one layer.

    Attributes:
        layer: the unbuilt layer.
        inputs: for each positional input a shape with batch, `("int32", shape, high)` for ids
            below `high`, or a list of these.
        options: options of the call.
        mask: the shape of a mask for the first input, or None.
        keras: whether Keras 3 is the oracle.
        training: whether the calls are training calls.
        tolerance: how far from Keras the numbers may be.
        exhaustive: whether CI alone runs the row, as others run the same code for every change.
    """

    layer: Layer
    inputs: tuple
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    mask: tuple | None = None
    keras: bool = True
    training: bool = False
    tolerance: float = 1e-5
    exhaustive: bool = False

    @functools.cached_property
    def id(self) -> str:
        text = repr(self.layer)
        extras = [field for field in ("mask", "training") if getattr(self, field)]
        return "-".join([text if len(text) < 90 else text[:87] + "...", *extras])

    def arrays(self, seed: int = 0, batch: int | None = None) -> list[Any]:
        """Inputs of this case; `batch` replaces the size of the first axis."""
        rng = np.random.default_rng(seed)
        return [_draw(rng, entry, batch) for entry in self.inputs]

    def mask_array(self, seed: int = 0) -> Any:
        """A mask that keeps at least one step of each row."""
        if self.mask is None:
            return None
        mask = np.random.default_rng(seed + 1).random(self.mask) < 0.6
        mask[:, 0] = True
        return mask

    def build(self) -> tuple[Layer, dict]:
        """The built layer and its first state, computed once for all tests of the row."""
        if "built" not in self.__dict__:
            object.__setattr__(self, "built", self.build_again())
        return self.__dict__["built"]

    def build_again(self) -> tuple[Layer, dict]:
        """A newly built layer and its first state."""
        inputs = self.arrays()
        layer = self.layer.build(jax.random.key(0), *inputs)
        return layer, layer.init_state(*inputs)


def _draw(rng: Any, entry: Any, batch: int | None) -> Any:
    if isinstance(entry, list):
        return [_draw(rng, e, batch) for e in entry]
    if isinstance(entry, tuple) and entry and isinstance(entry[0], str):
        dtype, shape, high = entry
        return rng.integers(0, high, _shape(shape, batch)).astype(dtype)
    return rng.normal(size=_shape(entry, batch)).astype("float32")


def _shape(shape: tuple, batch: int | None) -> tuple:
    return tuple(shape) if batch is None else (batch, *shape[1:])


def marked(cases: Iterable[Case], value: Callable = lambda case: case) -> list[Any]:
    """Test parameters, one for each row; exhaustive rows are marked `exhaustive`."""
    return [
        pytest.param(value(case), marks=pytest.mark.exhaustive if case.exhaustive else ())
        for case in cases
    ]


def all_cases() -> tuple[Case, ...]:
    """The rows of all modules in this package, by module name."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__))
    tables = [importlib.import_module(f"{__name__}.{name}").CASES for name in modules]
    return tuple(case for cases in tables for case in cases)
