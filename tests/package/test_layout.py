"""Rules of layout and style, checked on the sources.

Each rule is one test over all files, whose message names the file that breaks the rule: one test for
each file and rule took a fifth of the suite.
"""

import ast
import functools
import inspect
import pathlib
import re
import subprocess
import types

import pytest

import fkeras as fk

ROOT = pathlib.Path(fk.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ROOT_FILES = """
    .ci .github .gitignore .pre-commit-config.yaml CHANGELOG.md CITATION.cff CODE_OF_CONDUCT.md
    CONTRIBUTING.md LICENSE README.md SECURITY.md benchmarks constraints.txt docs examples fkeras
    notebooks pyproject.toml tests tools
"""
DOCUMENT = ROOT.parent / "docs/architecture.md"


def _import_order():
    """Position of each package in the list of docs/architecture.md."""
    _, _, block = DOCUMENT.read_text().partition("```text import-order\n")
    lines = block.partition("```")[0].splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    assert len(names) == len(set(names)) > 50
    return {f"fkeras.{name}": position for position, name in enumerate(names)}


def _package(path):
    """The package whose line of the import order a file belongs to: its folder, or its own name at the top."""
    module = _module(path)
    if path == ROOT / "__main__.py":  # runs on top of the whole package
        return "fkeras"
    if path.name == "__init__.py" or path.parent == ROOT:
        return module
    return module.rpartition(".")[0]


def _module(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _runs(tree):
    """Nodes of a file but for those below `if TYPE_CHECKING`, which only type checkers read."""
    waiting = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            test = node.test if isinstance(node, ast.If) else None
            if getattr(test, "attr", getattr(test, "id", None)) != "TYPE_CHECKING":
                yield node
                # expressions hold no imports
                if not isinstance(node, ast.expr):
                    waiting.append(node)


@functools.cache
def _imports(tree):
    """Modules of the package that a file imports at run time."""
    return tuple(module for node in _runs(tree) for module in _imported(node))


def _imported(node):
    """Modules of the package that a node imports, if the node is an import."""
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        if node.module.split(".")[0] == "fkeras":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "fkeras":
                yield alias.name


def _name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def trees():
    # seconds, once for all rules
    return {path: ast.parse(path.read_text()) for path in FILES}


@functools.cache
def _nodes(tree):
    """All nodes of a file, collected once for all rules."""
    return tuple(ast.walk(tree))


def test_imports_point_up_the_documented_order():
    order = _import_order()
    packages = {_module(path): _package(path) for path in FILES}
    for path in FILES:
        package = _package(path)
        if package == "fkeras":
            continue
        assert package in order, f"{package} has no line in {DOCUMENT.name}"
        for module in _imports(trees()[path]):
            while module not in packages:  # the name of a class or function
                module = module.rpartition(".")[0]
            target = packages[module]
            assert target != "fkeras", f"{_name(path)} imports the whole package"
            reexports = path.name == "__init__.py" and target.startswith(f"{package}.")
            allowed = target == package or reexports or order[target] < order[package]
            assert allowed, f"{_name(path)} imports {module}"
    assert order.keys() == set(packages.values()) - {"fkeras"}


def test_every_folder_has_one_sentence():
    # a folder that needs two sentences is two folders
    _, _, block = DOCUMENT.read_text().partition("```text import-order\n")
    rows = [
        line.split(maxsplit=1) for line in block.partition("```")[0].splitlines() if line.strip()
    ]
    for row in rows:
        assert len(row) == 2, f"{row[0]} has no sentence in {DOCUMENT.name}"
        assert ";" not in row[1] and ". " not in row[1], (
            f"{row[0]}: write one sentence, or split it"
        )
    sentences = [sentence for _, sentence in rows if not sentence.startswith("(")]
    assert len(sentences) == len(set(sentences))


def test_the_picture_shows_every_package_below_its_imports():
    _, _, block = DOCUMENT.read_text().partition("```text packages\n")
    rows = {
        name: number
        for number, line in enumerate(block.partition("```")[0].splitlines())
        for name in re.findall(r"[a-z_]+", line)
    }
    boxes = {_box(_module(path)) for path in trees()} - {""}
    assert rows.keys() == boxes
    for path, tree in trees().items():
        box = _box(_module(path))
        for module in _imports(tree):
            if box not in ("", _box(module)):
                assert rows[_box(module)] < rows[box], f"{_name(path)} imports {module}"


def _box(module):
    """The box of a module in the picture: its wing, or else its top package; "" for fkeras itself."""
    parts = module.split(".")
    wing = next((w for w in wings() if f"{module}.".startswith(f"{w}.")), None)
    if parts[1:2] in ([], ["__main__"]):
        return ""
    return wing.rpartition(".")[2] if wing else parts[1]


@functools.cache
def wings():
    """The packages below `authoring` in the import order, without their subfolders."""
    order = _import_order()
    below = {name for name in order if order[name] > order["fkeras.authoring"]}
    return sorted(name for name in below if name.rpartition(".")[0] not in below)


def test_the_root_holds_listed_files_only():
    if not (ROOT.parent / ".git").exists():
        pytest.skip("not a git checkout: no list of committed files")
    git = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT.parent, capture_output=True, text=True, check=True
    )
    found = {name.partition("/")[0] for name in git.stdout.split("\0") if name}
    assert found == set(ROOT_FILES.split())


def test_layers_know_neither_graph_nor_network():
    for path, tree in trees().items():
        if _name(path).startswith("layers/") and path.name != "__init__.py":
            for module in _imports(tree):
                last = module.split(".")[-1]
                assert last not in ("Graph", "graph", "Network", "network", "close"), path


def test_no_import_cycle():
    modules = {_module(path): path for path in FILES}

    def target(module):
        while module not in modules:  # the name of a class or function
            module = module.rpartition(".")[0]
        return module

    edges = {
        name: {target(m) for m in _imports(trees()[path])} - {name}
        for name, path in modules.items()
    }
    # a package's __init__ imports its files; the files do not import the package
    visited, path_now = set(), []

    def visit(name):
        if name in path_now:
            cycle = " -> ".join([*path_now[path_now.index(name) :], name])
            raise AssertionError(f"import cycle: {cycle}")
        if name in visited:
            return
        path_now.append(name)
        for target in sorted(edges[name]):
            if not name.startswith(f"{target}."):
                visit(target)
        path_now.pop()
        visited.add(name)

    for name in sorted(edges):
        visit(name)


def test_no_import_inside_functions_but_for_optional_packages():
    for path, tree in trees().items():
        nodes = {
            kind: [] for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)
        }
        for node in _nodes(tree):
            if type(node) in nodes:
                nodes[type(node)].append(node)
        functions = nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef]
        for node in filter(
            lambda node: any(_imported(node)), nodes[ast.Import] + nodes[ast.ImportFrom]
        ):
            inside = any(f.lineno <= node.lineno <= f.end_lineno for f in functions)
            assert not inside, f"{_name(path)}:{node.lineno}"


def test_imports_by_string_are_optional_packages_or_the_late_lookup():
    # a string hides an import from the tests above
    direct, late = set(), set()
    for path, tree in trees().items():
        for node in _nodes(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", None))
                if name in ("import_module", "__import__"):
                    direct.add(_name(path))
                elif name in ("late_module", "_late_module"):
                    late.add(_name(path))
    assert direct == {
        "engine/config/late_module.py",
        "layers/foreign/flax_layer.py",  # flax
        "layers/foreign/nnx_module.py",  # flax
        "saving/computed_files.py",  # onnxruntime
        "saving/onnx/exporting.py",  # onnx
        "training/callbacks/reporting/logs.py",  # tensorboardX, wandb, mlflow
    }
    assert late == {
        "engine/__init__.py",
        "engine/config/namespaces.py",
        "engine/config/public_names.py",
        "engine/config/serialization.py",
        "training/callbacks/checkpoint.py",
        "transforms/comparison/call_values.py",  # saving, for files
    }


def test_layer_declares_at_most_eight_class_variables():
    # related options belong into one record, such as Keras's file form into `KerasForm`
    tree = trees()[ROOT / "engine/layer/layer.py"]
    layer = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Layer")
    declared = [
        ast.unparse(node.target)
        for node in layer.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("ClassVar")
    ]
    assert 0 < len(declared) <= 8, declared


# public names that begin with an underscore: methods of named tuples, `os._exit`
_PUBLIC = ("_asdict", "_fields", "_make", "_replace", "_exit")


def _is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def _defined_names(tree):
    """Names that a file defines: functions, classes, variables, attributes, arguments, slots."""
    for node in _nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Constant(value=str(name)):  # `__slots__`, `object.__setattr__(self, "_x", x)`
                yield name


def _foreign_private_names(tree, defined):
    """Private names of other packages in a file: imports, and attributes that the package does not define."""
    for node in _nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (a.name for a in names if any(map(_is_private, a.name.split("."))))
            case ast.ImportFrom(module=str(module), names=names) if "fkeras" not in module:
                parts = [*module.split("."), *(alias.name for alias in names)]
                yield from filter(_is_private, parts)
            case ast.Attribute(attr=name) if _is_private(name) and name not in defined:
                yield name


def test_private_names_of_other_packages_are_isolated():
    defined = {name for tree in trees().values() for name in _defined_names(tree)}
    uses = {}
    for path, tree in trees().items():
        for name in _foreign_private_names(tree, defined):
            uses.setdefault(_name(path), set()).add(name)
    hints = ("dropped", "names")  # `sys._getframe` is documented: the frame of the caller
    assert uses == {
        "engine/values/private_jax.py": {"_src"},
        **{f"engine/migration_hints/{name}.py": {"_getframe"} for name in hints},
    }
    # the name of JAX's file of operators is also private
    for path in FILES:
        if path.name != "private_jax.py":
            assert ".co_filename.endswith(" not in path.read_text(), _name(path)


def test_private_names_of_jax_in_tests_are_isolated():
    folders = (ROOT.parent / name for name in ("tests", "tools", "benchmarks", "examples"))
    files = [path for folder in folders for path in folder.rglob("*.py")]
    private = re.compile(r"^\s*(from|import) (jax|jaxlib)\._|sys\._getframe\(", re.M)
    uses = {path.name for path in files if private.search(path.read_text())}
    assert uses <= {"private_jax.py"}


def test_no_module_level_mutable_object():
    for path, tree in trees().items():
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
            is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
            mutable = mutable or (is_call and value.func.id in ("dict", "list", "set"))
            assert not mutable, f"{_name(path)}:{node.lineno} keeps something that can change"


def test_files_are_short_and_explained():
    for path, tree in trees().items():
        text = path.read_text()
        assert len(text.splitlines()) <= 600, f"{_name(path)} is two concerns"
        if path.name != "__init__.py" or text.strip():
            assert ast.get_docstring(tree), f"{_name(path)} has no docstring"


def test_no_metaclass_and_no_signature_reflection():
    for path, tree in trees().items():
        text = path.read_text()
        assert "inspect.signature(" not in text, path
        for node in _nodes(tree):
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


def test_one_interpreter_runs_the_calls_of_graphs():
    # a second loop over the calls would duplicate the definition of their order and slots;
    # comprehensions that only query calls are allowed
    for path, tree in trees().items():
        if _name(path).startswith("engine/graph/"):
            continue
        for node in _nodes(tree):
            if isinstance(node, ast.Attribute):
                assert node.attr != "first_slots", f"{_name(path)}:{node.lineno}"
            if isinstance(node, ast.For):
                source = ast.unparse(node.iter)
                loops = "graph.calls" in source or "run_order" in source
                assert not loops, f"{_name(path)}:{node.lineno} loops over calls: use run_calls"


def _documented_names(text):
    """Names at the start of "name: ..." or "name, other: ..." lines."""
    lines = re.findall(r"^\s+([*\w]+(?:, [*\w]+)*):", text, flags=re.MULTILINE)
    return {name.lstrip("*") for line in lines for name in line.split(", ")}


def _shared_names(path):
    """Arguments that the package of a file, or the file, documents once for all its functions."""
    names = set()
    for owner in (path, *(folder / "__init__.py" for folder in path.parents)):
        if owner in trees():
            doc = ast.get_docstring(trees()[owner]) or ""
            _, marker, block = doc.partition("documented here only:")
            names |= _documented_names(block) if marker else set()
    return names


def _public_functions():
    """Name and function of each public function and of each public method of a class of fkeras."""
    for name, value in _public():
        if isinstance(value, type):
            for owner in value.__mro__:
                for member, inner in vars(owner).items():
                    inner = getattr(inner, "__func__", getattr(inner, "fget", inner))
                    if owner.__module__.startswith("fkeras") and not member.startswith("_"):
                        yield (
                            f"{name}.{member}",
                            inspect.unwrap(inner) if callable(inner) else inner,
                        )
        elif callable(value):
            yield name, inspect.unwrap(value)


def test_arguments_of_public_functions_are_documented_in_the_function_or_once_in_the_package():
    checked = 0
    for name, function in _public_functions():
        doc = (inspect.isfunction(function) and function.__doc__) or ""
        if "Args:" not in doc or "rguments: those of `" in doc:
            continue
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = set(code.co_varnames[:count]) - {"self", "cls"}
        path = pathlib.Path(code.co_filename)
        missing = names - _documented_names(doc) - _shared_names(path)
        assert not missing, f"{name} does not document {sorted(missing)}"
        checked += 1
    assert checked > 400


def test_no_literal_is_unpacked():
    # `*("a", "b")` in a list only keeps the formatter from writing an entry a line
    for path, tree in trees().items():
        for node in _nodes(tree):
            star = isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load)
            assert not (star and isinstance(node.value, ast.Tuple | ast.List)), _name(path)
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                assert not any(k is None and isinstance(v, ast.Dict) for k, v in pairs), _name(path)
