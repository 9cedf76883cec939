"""The declared dependencies, the hints to install optional packages, and the version."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# dependencies of optional packages
BROUGHT = {
    "etils": "orbax-checkpoint",
    "tensorstore": "orbax-checkpoint",
    # printers that call the hooks of layers; nobody else reaches these imports
    "treescope": "flax",
    "wadler_lindig": "equinox",
}
IMPORTED_AS = {"orbax-checkpoint": "orbax", "pillow": "PIL", "scikit-learn": "sklearn"}


def _name(requirement):
    return re.match(r"[\w.-]+", requirement)[0]


def _imports(tree):
    """`(package, whether the import is at the module's top)` of each absolute import."""
    top_level_ids = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (alias.name.partition(".")[0], id(node) in top_level_ids) for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0], id(node) in top_level_ids


@pytest.mark.exhaustive
def test_every_imported_package_is_declared():
    core = {_name(r) for r in PROJECT["dependencies"]}
    optional = {
        _name(r)
        for name, requirements in EXTRAS.items()
        if name not in ("examples", "test", "docs", "dev")
        for r in requirements
    }
    optional |= {IMPORTED_AS.get(name, name) for name in optional} | set(BROUGHT)
    used = set()
    for path in (ROOT / "fkeras").rglob("*.py"):
        for package, at_top in _imports(ast.parse(path.read_text())):
            if package != "fkeras" and package not in sys.stdlib_module_names:
                used.add(package)
                declared = core if at_top else core | optional
                assert package in declared, f"{path} imports {package}, which is not declared"
    assert core == core & used, "a core dependency that the package does not import"


def test_hints_to_install_name_packages_that_exist():
    declared = {_name(r) for requirements in EXTRAS.values() for r in requirements} - {"fkeras"}
    declared |= {_name(r) for r in PROJECT["dependencies"]}
    texts = [
        ROOT / "README.md",
        *(ROOT / "fkeras").rglob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    ]
    hints = 0
    for path in texts:
        text = path.read_text()
        assert not re.search(r"fkeras\[", text), f"{path} names an unpublished package"
        # a hint with a placeholder belongs to the shared helper; the next test reads its packages
        for packages in re.findall(r"pip install (?!-|\.|\"\.|\{)([\w \[\]\"-]+)", text):
            hints += 1
            names = {_name(p) for p in packages.replace('"', "").split()}
            assert names <= declared, f"{path}: pip install {packages}"
    assert hints >= 4


def _model():
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
    return model.build(jax.random.key(0))


def _fit(**options):
    trainer = fk.Trainer(loss="mse")
    run = trainer.init(_model(), jax.random.key(0))
    _ = trainer.fit(
        run, np.ones((2, 2), "float32"), np.ones((2, 1), "float32"), verbose=0, **options
    )


# the missing module, the package to install, and a function that needs the module
OPTIONAL = (
    ("h5py", "h5py", lambda path: fk.save_model(path / "m.keras", _model(), {})),
    ("h5py", "h5py", lambda path: fk.save_weights(path / "m.weights.h5", _model(), {})),
    (
        "h5py",
        "h5py",
        lambda path: _fit(callbacks=[fk.callbacks.ModelCheckpoint(path / "m.keras")]),
    ),
    ("orbax.checkpoint", "orbax-checkpoint", lambda path: _fit(checkpoint=path)),
    ("tensorboardX", "tensorboardX", lambda path: _fit(callbacks=[fk.callbacks.TensorBoard(path)])),
    ("wandb", "wandb", lambda path: _fit(callbacks=[fk.callbacks.WandbMetricsLogger()])),
    ("mlflow", "mlflow", lambda path: _fit(callbacks=[fk.callbacks.MlflowCallback()])),
    ("grain", "grain", lambda path: list(fk.utils.Dataset(4, lambda ids: ids))),
    ("PIL", "pillow", lambda path: fk.utils.load_img(path / "a.png")),
    ("matplotlib.figure", "matplotlib", lambda path: fk.utils.plot_model(_model(), path / "m.png")),
    ("matplotlib.figure", "matplotlib", lambda path: fk.History({}, [], {}).plot()),
    (
        "flax.linen",
        "flax",
        lambda path: layers.FlaxLayer.from_config(
            {"module": {"module": "flax.linen", "class_name": "Dense", "config": {"features": 2}}}
        ),
    ),
    ("pyarrow.parquet", "pyarrow", lambda path: fk.utils.parquet_dataset(path / "a.parquet")),
    # a second module: the classes of the first stay those of other tests
    (
        "sklearn.base",
        "scikit-learn",
        lambda path: runpy.run_path(str(ROOT / "fkeras/wrappers/estimators.py")),
    ),
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("module", "package", "use"), OPTIONAL, ids=[row[0] for row in OPTIONAL])
def test_a_missing_package_is_named_with_its_install_command(
    module, package, use, tmp_path, monkeypatch
):
    for name in [n for n in sys.modules if n == module or n.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs the package {package}\b") as caught:
        use(tmp_path)
    assert f"`pip install {package}`" in str(caught.value)
    assert package in {_name(r) for requirements in EXTRAS.values() for r in requirements}


def test_export_without_flatbuffers(tmp_path, monkeypatch):
    def serialize(exported):  # jax keeps flatbuffers once it has imported the package
        raise ImportError("No module named 'flatbuffers'")

    monkeypatch.setattr(jax.export.Exported, "serialize", serialize)
    with pytest.raises(ImportError, match="export: needs .*`pip install flatbuffers`"):
        fk.export(_model(), {}, tmp_path / "m.jax")


def test_the_import_leaves_slow_packages_out():
    """`jax.extend` imports Pallas, which took a third of the time of `import fkeras`."""
    program = (
        "import jax, optax, sys\n"
        "before = set(sys.modules)\n"
        "import fkeras\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})\n"
        "print(*(name for name in sys.modules if 'pallas' in name or name == 'jax.extend'))"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    packages, slow = run.stdout.split("\n")[:2]
    assert set(packages.split()) <= {"fkeras", "jax", "jaxlib"} | sys.stdlib_module_names
    assert slow == ""


def test_the_version_is_defined_once():
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", fk.__version__)  # main has the next one's .dev0
    for path in (ROOT / "pyproject.toml", ROOT / "README.md"):
        assert fk.__version__ not in re.findall(r"\d+\.\d+\.\d+", path.read_text())
