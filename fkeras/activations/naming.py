"""Activations by name."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.activations.gated import gelu, glu, hard_silu, mish, silu
from fkeras.activations.positive import exponential, softplus, sparse_plus, squareplus
from fkeras.activations.rectified import (
    celu,
    elu,
    leaky_relu,
    linear,
    relu,
    relu6,
    selu,
    threshold,
)
from fkeras.activations.saturating import (
    hard_sigmoid,
    hard_tanh,
    log_sigmoid,
    sigmoid,
    softsign,
    sparse_sigmoid,
    tanh,
)
from fkeras.activations.shares import log_softmax, softmax, sparsemax
from fkeras.activations.shrinking import hard_shrink, soft_shrink, tanh_shrink
from fkeras.engine.config.configurable import lookup

_NAMES: Mapping[str, Any] = types.MappingProxyType(
    {
        **{f.__name__: f for f in (linear, relu, leaky_relu, relu6, softmax, log_softmax, celu)},
        **{f.__name__: f for f in (elu, selu, softplus, softsign, squareplus, soft_shrink, mish)},
        **{f.__name__: f for f in (hard_shrink, tanh_shrink, sparse_plus, silu, gelu, glu, tanh)},
        **{f.__name__: f for f in (threshold, sigmoid, exponential, hard_sigmoid, hard_silu)},
        **{f.__name__: f for f in (hard_tanh, log_sigmoid, sparse_sigmoid, sparsemax)},
        "swish": silu,
        "hard_swish": hard_silu,
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that a name, a configuration or a function means; None means `linear`.

    Args:
        identifier: a name such as "relu", what `serialize` wrote, a function, or None.
        custom_objects: your own functions by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.activations.get("relu") is fk.activations.relu
        True
        >>> fk.activations.get(None)(3.0)
        3.0
    """
    if identifier is None:
        return linear
    return lookup(identifier, "activation", _NAMES, custom_objects)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that `serialize` wrote.

    Args:
        config: the name of a function of this package, or JSON data of one of your own.
        custom_objects: your own functions by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.activations.serialize(fk.activations.gelu)
        'gelu'
        >>> fk.activations.deserialize("gelu") is fk.activations.gelu
        True
    """
    return get(config, custom_objects)
