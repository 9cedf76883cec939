"""Wings, such as `fkeras.pretrained`: what they import of the core, and the core without them."""

import ast
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import pytest

import fkeras as fk
from tests.package.test_layout import ROOT, _imports, _module, _name, _nodes, trees, wings

# packages that know no layer are open to wings
_OPEN = ("nn", "programs", "atomic_files", "host")
_AUTHORING = ("fkeras.authoring", "fkeras.layers.common.authoring")


def _wing(module):
    return next((wing for wing in wings() if f"{module}.".startswith(f"{wing}.")), None)


def _public_modules(namespace=fk):
    """Namespaces with public names, by their names."""
    found = {namespace.__name__: namespace}
    for name in namespace.__all__:
        value = getattr(namespace, name)
        if isinstance(value, types.ModuleType) and hasattr(value, "__all__"):
            found |= _public_modules(value)
    return found


def _is_open(module, public):
    """Whether a wing may import a module, or a name of a module."""
    home, _, name = module.rpartition(".")
    return (
        module.split(".")[1] in _OPEN
        or f"{module}.".startswith(tuple(f"{place}." for place in _AUTHORING))
        or (home in public and name in public[home].__all__)
    )


def test_wings_import_public_names_and_names_for_wings_only():
    public, checked = _public_modules(), 0
    for path, tree in trees().items():
        if wing := _wing(_module(path)):
            for module in _imports(tree):
                if _wing(module) != wing:
                    assert _wing(module) is None, f"{_name(path)}: {module} is in another wing"
                    assert _is_open(module, public), (
                        f"{_name(path)} imports {module}: import a public name, or add the name to "
                        "fkeras/authoring"
                    )
                    checked += 1
    assert checked > 500


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("fkeras.engine.Layer", True),
        ("fkeras.engine.config.converters.integer", False),
        ("fkeras.authoring.engine.integer", True),
        ("fkeras.host.containers.limits.Limits", True),
        ("fkeras.saving.weights.filling.abstract_build", False),
        ("fkeras.layers.Dense", True),
        ("fkeras.layers.core.dense.Dense", False),
    ],
)
def test_the_rule_of_imports_tells_public_from_internal_names(module, expected):
    assert _is_open(module, _public_modules()) is expected


def test_each_name_for_wings_is_used_and_imported_from_its_own_file():
    used = {
        module
        for path, tree in trees().items()
        for module in _imports(tree)
        if module.startswith("fkeras.authoring.")
    }
    for path in sorted((ROOT / "authoring").glob("*.py")):
        module = _module(path)
        for node in trees()[path].body[1:]:
            assert isinstance(node, ast.ImportFrom), f"{_name(path)}:{node.lineno} is no re-export"
            for alias in node.names:
                assert f"{module}.{alias.name}" in used, f"{_name(path)}: {alias.name} is unused"
                home = node.module.removeprefix("fkeras.").split(".")[0]
                assert home == path.stem, f"{_name(path)} exports a name of {home}"


def test_the_page_lists_the_wings_and_the_files_of_names():
    page = (ROOT.parent / "docs/wings.md").read_text()
    paths = set(re.findall(r"^\| `(fkeras/[\w/.]+)` \|", page, re.M))
    files = {f"fkeras/authoring/{p.name}" for p in (ROOT / "authoring").glob("[!_]*.py")}
    assert paths == files | {wing.replace(".", "/") for wing in wings()}


def test_the_core_names_wings_for_late_imports_in_three_files():
    names = {wing.removeprefix("fkeras.") for wing in wings()}
    late = {}
    for path, tree in trees().items():
        for node in _nodes(tree):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", None))
                arguments = [
                    argument.value
                    for argument in node.args
                    if called == "late_module" and isinstance(argument, ast.Constant)
                ]
                if called == "_publish" and any(k.arg == "late" for k in node.keywords):
                    arguments = [  # the mapping, or the table in the file
                        constant.value
                        for mapping in _nodes(tree)
                        if isinstance(mapping, ast.Dict)
                        for constant in mapping.keys
                    ]
                for name in names.intersection(arguments):
                    late.setdefault(_name(path), set()).add(name)
    assert late == {
        "__init__.py": {"generation", "planning", "pretrained", "wrappers"},
        "saving/wings/__init__.py": {"saving.legacy", "saving.onnx"},
        "training/__init__.py": {"training.population"},
    }
    assert names == set().union(*late.values())


@pytest.mark.exhaustive
def test_the_core_imports_no_wing():
    # beyond the import order: also not by a late name that a file needs when it is imported
    modules = sorted(
        _module(path) for path in trees() if not _wing(_module(path)) and path.stem != "__main__"
    )
    code = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        f"print(*(name for name in {wings()} if name in sys.modules))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []


def test_wings_are_imported_at_first_use():
    for name in ("fkeras.training", "fkeras.saving.wings"):
        namespace = importlib.import_module(name)
        for public in namespace.__all__:
            assert getattr(namespace, public) is not None
        with pytest.raises(AttributeError, match="has no name 'populat'"):
            _ = namespace.populat
    assert fk.training.Population is fk.training.population.Population is fk.Population


_SAMPLE = """
    engine/graph/test_graph.py engine/models engine/network/test_network.py losses/test_losses.py
    transforms/test_frozen_part.py training/test_training.py saving/keras/test_keras_file.py
    saving/test_weight_files.py
"""


@pytest.mark.exhaustive
def test_tests_of_the_core_pass_without_the_wings(tmp_path):
    # without all wings at once: no wing imports another
    repository = ROOT.parent
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("fkeras", "tests"):
        shutil.copytree(repository / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(repository / "pyproject.toml", tmp_path)
    for wing in wings():
        shutil.rmtree(tmp_path / pathlib.Path(*wing.split(".")))
    # tests with legacy in their names are about files of that wing
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not legacy"]
    command = [sys.executable, "-m", "pytest", *options]
    process = subprocess.run(
        [*command, *(f"tests/{name}" for name in _SAMPLE.split())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-2000:]
    assert " passed" in process.stdout
