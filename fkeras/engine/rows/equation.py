"""`Equation`: one operation in the programs of a padded batch and of its real rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fkeras.engine.values.annotations import Leaf

# layouts and labels, which change no number
_LABELS = ("sharding", "out_sharding", "name", "debug_info", "source_info")


@dataclasses.dataclass(frozen=True)
class Equation:
    """The equations of one operation in both programs.

    Attributes:
        large: the equation in the program of the padded batch.
        small: the equation in the program of the real rows; the same as `large` if that program
            cannot be traced.
        ordered: whether padded rows come after all real rows. Otherwise a result that depends on
            the position of a row differs between the programs.
    """

    large: Any
    small: Any
    ordered: bool = True

    @property
    def name(self) -> str:
        """Name of the primitive."""
        return self.large.primitive.name

    @property
    def single(self) -> bool:
        """Whether only the program of the padded batch is known."""
        return self.large is self.small

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters in the program of the padded batch."""
        return self.large.params

    def shape(self, number: int) -> tuple[int, ...]:
        """Returns the shape of an operand in the program of the padded batch."""
        return self.large.invars[number].aval.shape

    @property
    def results(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Shapes of the results in both programs."""
        pairs = zip(self.large.outvars, self.small.outvars, strict=True)
        return [(a.aval.shape, b.aval.shape) for a, b in pairs]

    @property
    def new_axis(self) -> int | None:
        """The only axis whose size differs between the first results of both programs; else None."""
        large, small = self.results[0]
        if len(large) != len(small):
            return None
        axes = [
            axis for axis, sizes in enumerate(zip(large, small, strict=True)) if len({*sizes}) > 1
        ]
        return axes[0] if len(axes) == 1 else None

    def same_params(self) -> bool:
        """Returns whether the parameters are equal in both programs."""
        if self.single:
            return True
        large, small = self.large.params, self.small.params
        return large.keys() == small.keys() and all(
            name in _LABELS or _equal(large[name], small[name]) for name in large
        )


def _equal(a: Leaf, b: Leaf) -> bool:
    if a is b:
        return True
    if hasattr(a, "eqns") or hasattr(a, "jaxpr"):
        return str(a) == str(b)
    try:
        return bool(a == b)
    except Exception:  # an object without a usable comparison
        return False
