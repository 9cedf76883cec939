"""Every public name of Keras is in fkeras, or in the tables of docs/explanation/omitted.md."""

import importlib
import re
import types

import pytest

import fkeras as fk
from tests.support.keras_oracle import keras
from tests.support.paths import ROOT

PAGE = ROOT / "docs/explanation/omitted.md"
SPACES = (
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "initializers",
    "regularizers",
    "constraints",
    "ops",
    "ops.image",
    "ops.linalg",
    "ops.nn",
    "ops.numpy",
    "random",
    "utils",
    "datasets",
)


def _names(space):
    module = importlib.import_module(f"{keras.__name__}.{space}")
    return {name for name in dir(module) if not name.startswith("_")}


def _ours(space):
    value = fk
    for part in space.split("."):
        value = getattr(value, part)
    return value


def _rows():
    """`(names, reason, remedy)` of each row of the page's tables."""
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `keras."):
            names, reason, remedy = (cell.strip() for cell in line.strip("| ").split(" | "))
            yield re.findall(r"`(keras\.[\w.*]+)`", names), reason, remedy


def _missing(path, module, ours):
    """Paths of the names of a namespace of Keras that fkeras lacks; of a whole namespace "path.*"."""
    for name in dir(module):
        value = getattr(module, name)
        is_space = isinstance(value, types.ModuleType)
        if name.startswith("_") or (is_space and not value.__name__.startswith("keras.")):
            continue
        if is_space and value.__name__.startswith("keras.src"):
            continue
        # `fk.export` is a function, and Keras's namespace `keras.export` has a single class
        counterpart = getattr(ours, name, None)
        if counterpart is None:
            yield f"{path}.{name}.*" if is_space else f"{path}.{name}"
        elif is_space:
            yield from _missing(f"{path}.{name}", value, counterpart)


def test_every_public_keras_name_is_here_or_on_the_page_of_omitted_names():
    missing = list(_missing("keras", keras, fk))
    rows = [name for names, _, _ in _rows() for name in names]
    assert len(missing) > 60
    assert sorted(set(missing) - set(rows)) == [], "names without a row"
    assert sorted(set(rows) - set(missing)) == [], "rows of names that fkeras or not even Keras has"
    assert len(rows) == len(set(rows)), "two rows of a name"


def test_every_row_has_a_reason_and_a_remedy_that_exists():
    for names, reason, remedy in _rows():
        assert names and len(reason) > 5 and remedy, names
        for path in re.findall(r"\b(fk\.[a-zA-Z_.]*[a-zA-Z_]|layers\.\w+)", remedy):
            value = fk
            for part in path.removeprefix("fk.").split("."):
                value = getattr(value, part)


def test_errors_of_missing_names_have_a_remedy():
    for path in _missing("keras", keras, fk):
        *spaces, name = path.removesuffix(".*").split(".")[1:]
        space = fk
        for part in spaces:
            space = getattr(space, part)
        if isinstance(space, types.ModuleType):  # not fk.export
            with pytest.raises(AttributeError, match="Instead: "):
                getattr(space, name)


@pytest.mark.parametrize("space", SPACES)
def test_every_available_keras_name_is_listed(space):
    """`dir` and `__all__` agree on Keras's names, so that `from ... import *` imports them."""
    public_names = set(getattr(_ours(space), "__all__", ()))
    hidden = (_names(space) & set(dir(_ours(space)))) - public_names
    assert not hidden, f"fk.{space}.__all__ lacks {sorted(hidden)}"
