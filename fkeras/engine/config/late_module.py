"""The late lookup of modules that import the caller's module.

Imports in this package point downward. Three callers need a module above their own when they run: the
engine finds the classes and functions that a configuration names, `ModelCheckpoint` writes Keras's
files with the package `saving`, which imports the training loop, and the package itself imports `saving`
and `training` at the first use. No other file imports a module of this package by a string.
"""

from __future__ import annotations

import importlib
from typing import Any


def late_module(name: str) -> Any:
    """Returns a module of this package, imported when the caller runs.

    Args:
        name: the name below `fkeras`, such as "layers" or "ops.image"; "" for `fkeras` itself. A name out
            of a file has to be looked up in a table first.

    Example:
        >>> late_module("ops").__name__, late_module("").__name__
        ('fkeras.ops', 'fkeras')
    """
    return importlib.import_module(f"fkeras.{name}" if name else "fkeras")
