"""The public names of a namespace: for `dir`, for `from ... import *`, and in errors."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from fkeras.engine.migration_hints.names import missing_name_error


def publish(
    module: str, namespaces: Iterable[str] | None = None, late_names: Iterable[str] = ()
) -> None:
    """Sets `__all__` and `__dir__` of a public namespace, and explains names that it does not have.

    A public namespace calls this function at its end. The public names are those that the file
    defines, and those that it imports as `from x import A as A`, the form that type checkers
    recognize; other imports have an alias with an underscore. A file with an `__all__` keeps it. In
    source code, type checkers could not evaluate an `__all__` without a list of names, and a
    `def __getattr__` would prevent them from reporting unknown names.

    Args:
        module: the namespace, such as "fkeras.layers".
        namespaces: its modules that are public too; by default those with `__all__`.
        late_names: public names that are imported at first use.

    Example:
        >>> import fkeras as fk
        >>> [name for name in dir(fk.transforms) if "freez" in name]
        ['freeze', 'unfreeze']
        >>> try:
        ...     fk.layers.Dens
        ... except AttributeError as error:
        ...     print(error)
        fk.layers: has no name 'Dens'. Did you mean 'Dense'?
    """
    contents = vars(sys.modules[module])
    modules = {n: value for n, value in contents.items() if isinstance(value, types.ModuleType)}
    if namespaces is None:
        own = [name for name, value in modules.items() if value.__name__ == f"{module}.{name}"]
        namespaces = [name for name in own if "__all__" in vars(modules[name])]
    for name in namespaces:
        if "__dir__" not in vars(modules[name]):
            publish(modules[name].__name__)
    if "__all__" not in contents:
        hidden = modules.keys() - {*namespaces}
        names = {name for name in contents if not name.startswith("_")} - hidden
        contents["__all__"] = tuple(sorted(names.union(late_names)))
    contents["__dir__"] = lambda: [*(n for n in contents if n[:2] == "__"), *contents["__all__"]]
    contents.setdefault("__getattr__", _error_of(module))


def public_names(namespace: types.ModuleType) -> tuple[str, ...]:
    """Returns the names that a published namespace lists.

    Example:
        >>> import fkeras as fk
        >>> public_names(fk.constraints)[:2]
        ('Constraint', 'MaxNorm')
    """
    return vars(namespace)["__all__"]


def _error_of(module: str) -> Callable[[str], Any]:
    def raise_missing_name(name: str) -> Any:
        raise missing_name_error(module, name)

    return raise_missing_name
