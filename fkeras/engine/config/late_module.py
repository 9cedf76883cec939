"""Run-time import of modules that depend on the caller's module.

Imports at the top of a file always point to lower layers of the package. Four callers need a
higher module at run time: the engine, which resolves the class names of a configuration;
`ModelCheckpoint`, which writes .keras files with `fkeras.saving`; `transforms.agree`, which opens
files with `fkeras.saving`; and `publish`, for namespaces that import packages at first use. No
other code imports a module by a string.
"""

from __future__ import annotations

import importlib
from typing import Any


def late_module(name: str) -> Any:
    """Imports and returns a module of this package.

    Args:
        name: the name below `fkeras`, such as "layers" or "ops.image"; "" for `fkeras` itself.
            Callers must check a name from a file against a fixed table first.

    Example:
        >>> late_module("ops").__name__, late_module("").__name__
        ('fkeras.ops', 'fkeras')
    """
    return importlib.import_module(f"fkeras.{name}" if name else "fkeras")
