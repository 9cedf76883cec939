"""Migration hints for imports of Keras's modules, such as `import fkeras.backend as K`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from fkeras.engine.migration_hints.names import missing_name


class MissingModules(MetaPathFinder):
    """Answers imports of modules that the package does not have; the last finder that Python asks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Raises the error of a missing module of fkeras, with the code to write instead.

        Raises:
            ModuleNotFoundError: for every public name in a package of fkeras.
        """
        parent, _, name = fullname.rpartition(".")
        if not fullname.startswith("fkeras.") or name.startswith("_"):
            return
        if hasattr(sys.modules.get(parent), name):
            message = f"{fullname}: is no module. Write `from {parent} import {name}`."
        else:
            message = missing_name(parent, name)
        raise ModuleNotFoundError(message, name=fullname)


def explain_missing_modules() -> None:
    """Adds the finder of missing modules; the package calls this function at its end."""
    sys.meta_path.append(MissingModules())
