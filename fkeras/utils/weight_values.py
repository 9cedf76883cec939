"""Values of weights as text; the display of a layer shows shapes only."""

from __future__ import annotations

import fnmatch
from typing import Literal, overload

import numpy as np

from fkeras.engine import Layer, suggest
from fkeras.engine.models.partition import require_layer
from fkeras.engine.tree.array_list import weights_by_path
from fkeras.engine.tree.donated import check_donated
from fkeras.engine.values.frozen import short_array


@overload
def print_weights(model: Layer, pattern: str = "*", *, show: Literal[True] = True) -> None: ...


@overload
def print_weights(model: Layer, pattern: str = "*", *, show: Literal[False]) -> str: ...


def print_weights(model: Layer, pattern: str = "*", *, show: bool = True) -> str | None:
    """Prints the values of weights, each below its path, dtype and shape.

    `print(model)` and `print(layer)` show shapes only. Long arrays are printed without their middle,
    as NumPy prints them; `numpy.printoptions` sets digits and lengths.

    Args:
        model: a built layer or model.
        pattern: paths of weights or of layers, with "*" for any characters.
        show: False returns the text instead.

    Raises:
        ValueError: if nothing has such a path; names the nearest path.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(3, name="scores")])
        >>> fk.utils.print_weights(model.build(jax.random.key(0)), "*/bias")
        scores/bias: f32[3]
        [0. 0. 0.]
    """
    require_layer(model, "utils.print_weights")
    weights = {path: w for path, w in weights_by_path(model).items() if w is not None}
    patterns = (pattern, f"{pattern}/*")
    chosen = {p: w for p, w in weights.items() if any(fnmatch.fnmatchcase(p, q) for q in patterns)}
    if not chosen:
        raise ValueError(
            f"print_weights: no weight and no layer has the path {pattern!r}.{suggest(pattern, weights)} The model "
            f"has {len(weights)} weights; a model needs `model.build(key)` first."
        )
    check_donated(chosen, "print_weights", "Print the model that the function returned.")
    text = "\n".join(f"{path}: {short_array(w)}\n{np.asarray(w)}" for path, w in chosen.items())
    if not show:
        return text
    print(text)
    return None
