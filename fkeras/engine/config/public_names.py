"""The public names of a namespace: for `dir`, for `from ... import *`, and in errors."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fkeras.engine.config.late_module import late_module
from fkeras.engine.migration_hints.names import missing_name_error


def publish(
    module: str,
    namespaces: Iterable[str] | None = None,
    late: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
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
        late: modules that are imported at first use, by their names below `fkeras`, each with the
            names that the namespace takes from the module.

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
        contents["__all__"] = tuple(sorted(names.union(map(_last_part, late), *late.values())))
    contents["__dir__"] = lambda: [*(n for n in contents if n[:2] == "__"), *contents["__all__"]]
    contents.setdefault("__getattr__", _importer(module, late))


def public_names(namespace: types.ModuleType) -> tuple[str, ...]:
    """Returns the names that a published namespace lists.

    Example:
        >>> import fkeras as fk
        >>> public_names(fk.constraints)[:2]
        ('Constraint', 'MaxNorm')
    """
    return vars(namespace)["__all__"]


def _importer(module: str, late: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    def import_late(name: str) -> Any:
        for home, names in late.items():
            if name == _last_part(home):
                return late_module(home)
            if name in names:
                return getattr(late_module(home), name)
        raise missing_name_error(module, name)

    return import_late


def _last_part(module: str) -> str:
    return module.rpartition(".")[2]
