"""Public names: every name of Keras is in fkeras or in docs/explanation/omitted.md; `dir` shows all."""

import ast
import importlib
import pathlib
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


def _spaces(module=fk):
    """The package, and all modules among public names."""
    yield module
    for name in module.__all__:
        if isinstance(value := getattr(module, name), types.ModuleType):
            yield from _spaces(value)


ALL_SPACES = sorted({space.__name__: space for space in _spaces()}.items())


def test_all_spaces_are_found():
    names = dict(ALL_SPACES)
    assert len(names) > 40 and {f"fkeras.{space}" for space in SPACES} < names.keys()
    # documented as public or internal in docs/reference/index.md
    assert {"fkeras.training", "fkeras.saving", "fkeras.planning"} < names.keys()
    assert not {"fkeras.nn", "fkeras.atomic_files", "fkeras.layers.core"} & names.keys()


def _source_names(space):
    """Names that a file makes public for type checkers: definitions, and `from x import A as A`."""
    for node in ast.walk(ast.parse(pathlib.Path(space.__file__).read_text())):
        match node:
            case ast.ImportFrom(module=module, names=[ast.alias(name="*")]):
                yield from importlib.import_module(module).__all__
            case ast.ImportFrom(names=aliases):
                yield from (alias.name for alias in aliases if alias.name == alias.asname)
    for node in ast.parse(pathlib.Path(space.__file__).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name


@pytest.mark.parametrize("space", dict(ALL_SPACES).values(), ids=dict(ALL_SPACES))
def test_dir_shows_the_public_names(space):
    shown = [name for name in dir(space) if not name.startswith("__")]
    assert shown == sorted(shown) and set(shown) == set(space.__all__)
    assert all(hasattr(space, name) for name in shown)
    assert not [name for name in shown if name.startswith("_")]
    if "__all__ = (" not in pathlib.Path(space.__file__).read_text():
        assert {name for name in _source_names(space) if name[0] != "_"} == set(shown)


@pytest.mark.parametrize("space", dict(ALL_SPACES))
def test_import_with_a_star(space):
    names: dict = {}
    exec(f"from {space} import *", names)
    del names["__builtins__"]
    assert names.keys() == set(dict(ALL_SPACES)[space].__all__)


@pytest.mark.parametrize("space", SPACES)
def test_every_available_keras_name_is_listed(space):
    """`dir` and `__all__` agree on Keras's names, so that `from ... import *` imports them."""
    public_names = set(getattr(_ours(space), "__all__", ()))
    hidden = (_names(space) & set(dir(_ours(space)))) - public_names
    assert not hidden, f"fk.{space}.__all__ lacks {sorted(hidden)}"
