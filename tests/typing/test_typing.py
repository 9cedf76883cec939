"""pyright and mypy at default settings accept users' programs and find planted mistakes.

The programs lie in a folder of their own, and both checkers find fkeras as an installed package: a
virtual environment whose path holds the sources. The checkers then report errors of the programs
only, and read only types that the package publishes (`py.typed`).
"""

import functools
import importlib.util
import json
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import tomllib
import types
import venv

import pytest

import fkeras as fk

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(fk.__file__).parent
EXAMPLES = sorted((PACKAGE.parent / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """`(folder, python)`: the programs, and an interpreter that imports fkeras from anywhere."""
    folder = tmp_path_factory.mktemp("programs")
    for program in (*EXAMPLES, HERE / "user.py", HERE / "mistakes.py"):
        shutil.copy(program, folder)
    for name, text in _uses_of_all_names():
        (folder / name).write_text(text)
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False)
    purelib = next(environment.glob("lib/python*/site-packages"))
    paths = [str(PACKAGE.parent), *site.getsitepackages()]
    (purelib / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder, environment / "bin" / "python"


def _uses_of_all_names(module=fk):
    """Yields name and text of a program for each namespace, which imports all its names in three ways."""
    path = module.__name__
    lines = [f"import {path}", f"from {path} import *"]
    for name in module.__all__:
        lines += [f"from {path} import {name}", f"print({path}.{name}, {name})"]
        if isinstance(value := getattr(module, name), types.ModuleType):
            yield from _uses_of_all_names(value)
    yield f"names_{path.replace('.', '_')}.py", "\n".join(lines)


def _pyright(folder, python):
    program = pathlib.Path(sys.executable).with_name("pyright")
    if importlib.util.find_spec("pyright") is None or not program.exists():
        pytest.skip("pyright is not installed: pip install fkeras[dev]")
    command = [program, "--outputjson", "--pythonpath", python, "."]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:  # the first use of pyright downloads its program
        pytest.skip(f"pyright does not run: {(run.stderr or run.stdout)[:200]}")
    return {
        (pathlib.Path(d["file"]).name, d["range"]["start"]["line"] + 1): d["message"]
        for d in report["generalDiagnostics"]
        if d["severity"] == "error"
    }


def _mypy(folder, python):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: pip install fkeras[dev]")
    names = sorted(path.name for path in folder.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--python-executable", python, *names]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stderr or run.stdout
    rows = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", run.stdout, re.M)
    assert rows, run.stdout  # the mistakes
    return {(name, int(line)): message for name, line, message in rows}


@pytest.fixture(scope="module", params=[_pyright, _mypy], ids=["pyright", "mypy"])
def errors(request, programs):
    """The errors that a checker reports, by file and line."""
    return request.param(*programs)


@functools.cache
def _marked():
    lines = (HERE / "mistakes.py").read_text().splitlines()
    return {number: line for number, line in enumerate(lines, 1) if line.endswith("# mistake")}


def test_users_programs_have_no_errors(errors):
    assert len(EXAMPLES) > 5
    assert {place: text for place, text in errors.items() if place[0] != "mistakes.py"} == {}


def test_planted_mistakes_are_found(errors):
    marked = _marked()
    lines = {line for name, line in errors if name == "mistakes.py"}
    assert lines <= marked.keys(), "an error in a line without a mistake"
    missed = [text for line, text in marked.items() if line not in lines]
    # in mypy's frozen dataclasses an inherited field has the type of its argument: see `Traits`
    assert missed in ([], ["layers.Dense(4).units = 5  # mistake"])


@pytest.mark.exhaustive
def test_the_users_program_runs():
    command = [sys.executable, "-W", "ignore", HERE / "user.py"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run(
        command, cwd=PACKAGE.parent, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_the_wheel_publishes_its_types():
    assert (PACKAGE / "py.typed").exists()
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["fkeras"]}  # all files of the package, py.typed among them
