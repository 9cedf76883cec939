"""The rules of the house, read off the sources.

A rule is one test for all files, which are named where they break it: a test a file and rule was a
fifth of the suite's tests.
"""

import ast
import functools
import inspect
import pathlib
import types

import fkeras as fk

ROOT = pathlib.Path(fk.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# what each part may import of the package
ALLOWED = {
    "engine": {"engine"},
    "activations": {"engine", "activations"},
    "initializers": {"engine", "initializers"},
    "regularizers": {"engine"},
    "constraints": {"engine"},
    "losses": {"engine", "losses"},
    "metrics": {"engine", "losses", "metrics"},
    "optimizers": {"engine", "optimizers"},
    "image": {"image"},
    "signal": set(),
    "ops": {"engine", "ops", "activations", "layers", "losses", "image", "signal", "random"},
    "random": {"layers"},
    "quantizers": {"engine", "quantizers"},
    "layers": {
        "engine",
        "image",
        "layers",
        "activations",
        "initializers",
        "regularizers",
        "constraints",
        "quantizers",
        "signal",
    },
    "files": set(),
    "npz": {"files"},
    "training": {"engine", "files", "npz", "training", "losses", "metrics", "optimizers"},
    "saving": {
        "activations",
        "constraints",
        "engine",
        "files",
        "initializers",
        "layers",
        "losses",
        "metrics",
        "npz",
        "optimizers",
        "quantizers",
        "regularizers",
        "saving",
        "training",
    },
}


def _part(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _module(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree):
    """Modules of the package that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            if node.module.split(".")[0] == "fkeras":
                if node.module != "fkeras":
                    yield node.module
                for alias in node.names:
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fkeras":
                    yield alias.name


def _name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def trees():
    return {path: ast.parse(path.read_text()) for path in FILES}


def test_imports_point_one_way():
    for path in FILES:
        part = _part(path)
        if part == "__init__":
            continue
        for module in _imports(trees()[path]):
            names = module.split(".")
            target = names[1] if len(names) > 1 else None
            assert target is not None, f"{_name(path)} imports the whole package"
            is_module = (ROOT / target).is_dir() or (ROOT / f"{target}.py").exists()
            assert not is_module or target in ALLOWED[part], f"{_name(path)} imports {module}"


def test_layers_know_neither_graph_nor_network():
    for path, tree in trees().items():
        if _part(path) == "layers" and path.name != "__init__.py":
            for module in _imports(tree):
                last = module.split(".")[-1]
                assert last not in ("Graph", "graph", "Network", "network", "close"), path


def test_no_import_cycle():
    modules = {_module(path): path for path in FILES}
    edges = {
        name: {m for m in _imports(trees()[path]) if m in modules and m != name}
        for name, path in modules.items()
    }
    # a package's own __init__ gathers its files; the files do not import it back
    done, path_now = set(), []

    def visit(name):
        if name in path_now:
            cycle = " -> ".join([*path_now[path_now.index(name) :], name])
            raise AssertionError(f"import cycle: {cycle}")
        if name in done:
            return
        path_now.append(name)
        for target in sorted(edges[name]):
            if not name.startswith(f"{target}."):
                visit(target)
        path_now.pop()
        done.add(name)

    for name in sorted(edges):
        visit(name)


def test_no_import_inside_functions_but_for_optional_packages():
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        assert not list(_imports(inner)), f"{_name(path)}:{inner.lineno}"


def test_imports_by_string_are_optional_packages_or_the_late_lookup():
    # a string hides an import from the tests above
    direct, late = set(), set()
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                if name in ("import_module", "__import__"):
                    direct.add(_name(path))
                elif name == "late_module":
                    late.add(_name(path))
    assert direct == {
        "engine/late_module.py",
        "layers/foreign/flax_layer.py",  # flax
        "training/callbacks/events.py",  # tensorboardX
    }
    assert late == {
        "engine/namespaces.py",
        "engine/operation.py",
        "engine/serialization.py",
        "training/callbacks/checkpoint.py",
    }


def test_no_module_level_mutable_object():
    for path, tree in trees().items():
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
            called = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
            mutable = mutable or (called and value.func.id in ("dict", "list", "set"))
            assert not mutable, f"{_name(path)}:{node.lineno} keeps something that can change"


def test_files_are_short_and_explained():
    for path, tree in trees().items():
        text = path.read_text()
        assert len(text.splitlines()) <= 455, f"{_name(path)} is two concerns"
        if path.name != "__init__.py" or text.strip():
            assert ast.get_docstring(tree), f"{_name(path)} has no docstring"


def test_no_metaclass_and_no_signature_reflection():
    for path, tree in trees().items():
        text = path.read_text()
        assert "inspect.signature(" not in text, path
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                assert not any(k.arg == "metaclass" for k in node.keywords), path


def _public():
    for name in fk.__all__:
        value = getattr(fk, name)
        if isinstance(value, types.ModuleType):
            for inner in getattr(value, "__all__", ()):
                yield f"{name}.{inner}", getattr(value, inner)
        else:
            yield name, value


def test_public_names_are_documented():
    for name, value in _public():
        if isinstance(value, types.ModuleType):
            assert value.__doc__, f"{name} has no docstring"
        elif inspect.isclass(value) or callable(value):
            doc = inspect.getdoc(value)
            assert doc and len(doc.strip()) > 3, f"{name} has no docstring"
            assert ">>>" in doc, f"{name} has no example"
            if inspect.isclass(value) and value.__module__.startswith("fkeras"):
                assert value.__dict__.get("__doc__"), f"{name} has no docstring of its own"
