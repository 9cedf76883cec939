"""Stands in for the package `keras` in Keras's own unit tests.

`fka.src.a.b` mirrors `keras.src.a.b`: public objects of Keras become those of fkeras (`names.py`),
in wrappers where tests change objects (`proxies.py`, `networks.py`). Other objects are Keras's own.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import sys
import types

_OWN = ("names", "proxies", "networks", "cases", "plugin")


def rewritten(text):
    """Returns the text of a test file whose imports name `fka` in place of `keras`."""
    text = re.sub(r"^(\s*import )keras\s*$", r"\1fka as keras", text, flags=re.M)
    return re.sub(r"^(\s*(?:from|import)\s+)keras\b", r"\1fka", text, flags=re.M)


class _Mirror(types.ModuleType):
    def __init__(self, name, original):
        super().__init__(name)
        self._original = original
        self.__path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        from fka import names

        found = names.stand_in(self.__name__.partition(".")[2], name)
        if found is not names.MISSING:
            return found
        try:
            return names.translated(getattr(self._original, name))
        except AttributeError:
            try:
                return importlib.import_module(f"{self.__name__}.{name}")
            except ImportError:
                raise AttributeError(f"{self.__name__}.{name}") from None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("fka.") or name[4:] in _OWN:
            return None
        if name.endswith("_test"):
            return importlib.machinery.ModuleSpec(name, self)
        try:
            found = importlib.util.find_spec(f"keras.{name[4:]}")
        except ImportError:
            return None
        return found and importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        if spec.name.endswith("_test"):
            return None
        return _Mirror(spec.name, importlib.import_module(f"keras.{spec.name[4:]}"))

    def exec_module(self, module):
        if not isinstance(module, _Mirror):  # a test imports from another test
            parts = module.__name__.removeprefix("fka.").split(".")
            path = pathlib.Path(os.environ["KERAS_TESTS"], "keras", *parts).with_suffix(".py")
            exec(compile(rewritten(path.read_text()), path, "exec"), module.__dict__)


sys.meta_path.insert(0, _Finder())


def __getattr__(name):
    if name == "src" or name in _OWN:
        return importlib.import_module(f"fka.{name}")
    import keras

    from fka import names

    found = names.stand_in("", name)
    return names.translated(getattr(keras, name)) if found is names.MISSING else found
