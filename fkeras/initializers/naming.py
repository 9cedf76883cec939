"""Initializers by name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.configurable import lookup
from fkeras.initializers.constant import Constant, Identity, Ones, Zeros
from fkeras.initializers.distributions import RandomNormal, RandomUniform, TruncatedNormal
from fkeras.initializers.orthogonal import Orthogonal
from fkeras.initializers.scaling import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    VarianceScaling,
)
from fkeras.initializers.stft import STFT

_CLASSES = (
    ("zeros", Zeros),
    ("ones", Ones),
    ("constant", Constant),
    ("identity", Identity),
    ("random_uniform", RandomUniform),
    ("random_normal", RandomNormal),
    ("truncated_normal", TruncatedNormal),
    ("variance_scaling", VarianceScaling),
    ("glorot_uniform", GlorotUniform),
    ("glorot_normal", GlorotNormal),
    ("lecun_uniform", LecunUniform),
    ("lecun_normal", LecunNormal),
    ("he_uniform", HeUniform),
    ("he_normal", HeNormal),
    ("orthogonal", Orthogonal),
    ("stft", STFT),
)
_NAMES: Mapping[str, type] = types.MappingProxyType(
    {
        **dict(_CLASSES),
        **{cls.__name__: cls for _, cls in _CLASSES},
        "uniform": RandomUniform,
        "normal": RandomNormal,
        "zero": Zeros,
        "one": Ones,
        "OrthogonalInitializer": Orthogonal,
        "IdentityInitializer": Identity,
        "STFTInitializer": STFT,
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The initializer that a name, a configuration or an object means.

    Any function `(key, shape, dtype) -> array` serves, those of `jax.nn.initializers` included.

    Args:
        identifier: a name such as "he_normal" or "HeNormal", what `serialize` wrote, an
            initializer or its class, any such function, or None.
        custom_objects: your own classes and functions by name.

    Returns:
        The initializer; None for None.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.initializers.get("he_normal")
        HeNormal()
    """
    return lookup(identifier, "initializer", _NAMES, custom_objects)
