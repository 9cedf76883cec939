"""Migration hints for names in Keras's and TensorFlow's namespaces that fkeras does not have."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Iterator, Sequence

from fkeras.engine.messages.errors import suggest
from fkeras.engine.migration_hints.hints import hints

# namespaces searched for a name that is missing in the namespace of the error
_SPACES = (
    "layers",
    "ops",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "initializers",
    "regularizers",
    "constraints",
    "random",
    "training.callbacks",
    "quantizers",
    "ops.image",
    "ops.linalg",
    "ops.nn",
    "ops.numpy",
    "utils",
    "datasets",
    "",
)
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
# most namespaces have these names, so a hint at another namespace would not help
_SHARED = ("get", "serialize", "deserialize")


class MissingNameError(AttributeError):
    """A missing name of a public namespace; builds its message when the message is read."""

    def __str__(self) -> str:
        return missing_name(*self.args) if len(self.args) == 2 else super().__str__()


def missing_name(module: str, name: str) -> str:
    """Returns the error message for a name that a namespace does not have.

    Args:
        module: the namespace, such as "fkeras.layers".
    """
    where = f"{_display_name(module)}: has no name {name!r}."
    remedy = hints(module).get(name)
    if remedy is not None:
        return f"{where} Instead: {remedy}."
    for space, names in _other_namespaces(module):
        if name in names and name not in _SHARED:
            return f"{where} Instead: `{_display_name(space)}.{name}`."
    module_names = _names(module)
    near_name = next(
        (candidate for candidate in module_names if _normalized(candidate) == _normalized(name)),
        None,
    )
    if near_name is not None:
        return f"{where} Did you mean {near_name!r}?"
    return where + suggest(name, module_names)


def missing_name_error(module: str, name: str) -> Exception:
    """Returns the error of a namespace's `__getattr__`: an ImportError for a `from` import.

    Python replaces an AttributeError in a `from` import by an error without a hint.
    """
    # the caller of `__getattr__`
    frame = sys._getframe(2)
    if frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM:
        return ImportError(missing_name(module, name), name=module)
    return MissingNameError(module, name)


def _normalized(name: str) -> str:
    return name.replace("_", "").lower()


def _display_name(module: str) -> str:
    return module.replace("fkeras", "fk", 1).replace("fk.training.callbacks", "fk.callbacks")


def _names(module: str) -> Sequence[str]:
    # access by attribute: the package's __getattr__ imports a namespace that is not loaded yet
    _, _, path = module.partition(".")
    package = sys.modules["fkeras"]
    namespace = operator.attrgetter(path)(package) if path else package
    return getattr(namespace, "__all__", None) or [n for n in dir(namespace) if n[0] != "_"]


def _other_namespaces(module: str) -> Iterator[tuple[str, Sequence[str]]]:
    for space in _SPACES:
        name = f"fkeras.{space}" if space else "fkeras"
        if name != module:
            yield name, _names(name)
