"""Tests a sample of the suite with the oldest Python packages that pyproject.toml allows.

    python tools/ci/lower_bounds.py

finds Python 3.13, installs the lowest allowed version of every requirement into `.venv-lowest`, and
runs the sample there. FKERAS_PYTHON313 may name the interpreter. Without Python 3.13 the program
reports this; it then fails if CI=true, unless FKERAS_SKIP_LOWER_BOUNDS=1.
"""

import argparse
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "3.13"
ENVIRONMENT = ROOT / ".venv-lowest"
EXTRAS = ("files", "onnx", "train", "viz", "flax", "data", "grammars", "sklearn", "arrow", "test")
# engine, files, training, checkpoints, wrappers of Flax and JAX; then a part of the layer table
SAMPLE = (
    "tests/engine/graph/test_graph.py",
    "tests/engine/network/test_network.py",
    "tests/saving/keras/test_keras_file.py",
    "tests/host/containers/test_hdf5.py",
    "tests/saving/export/test_exporting.py",
    "tests/saving/onnx/test_onnx.py",
    "tests/training/test_training.py",
    "tests/training/checkpoint/test_store.py",
    "tests/layers/test_wrappers.py",
    "tests/package/test_installation.py",
)
LAYERS = ("tests/layers/test_layer_table.py", "tests/layers/test_keras_parity.py")
CHOSEN = "Dense or LSTM or Conv2D or BatchNormalization"


def lowest(requirement):
    """The requirement at its lower bound: "numpy>=2.1.0" gives "numpy==2.1.0"."""
    found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement!r} has no plain lower bound, name>=version")
    return f"{found[1]}=={found[2]}"


def requirements():
    """Every requirement of the package and of the extras at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"]]
    for extra in EXTRAS:
        listed += project["optional-dependencies"][extra]
    return sorted({lowest(r) for r in listed if not r.startswith(f"{project['name']}[")})


def candidates():
    """Commands that may start Python 3.13, the likeliest first."""
    if "FKERAS_PYTHON313" in os.environ:
        yield os.environ["FKERAS_PYTHON313"]
    if sys.version_info[:2] == (3, 13):
        yield sys.executable
    yield from filter(None, [shutil.which(f"python{VERSION}")])
    yield from sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{VERSION}*/bin/python")))
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", VERSION], capture_output=True, text=True)
        yield from filter(None, [found.stdout.strip()])


def interpreter():
    """The first candidate that is Python 3.13, or None."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    for command in candidates():
        try:
            answer = subprocess.run([command, "-c", show], capture_output=True, text=True)
        except OSError:
            continue
        if answer.stdout.strip() == VERSION:  # a shim of pyenv may exist without its version
            return command
    return None


def missing():
    """Says that nothing was tested; the exit status."""
    print(f"LOWER BOUNDS NOT TESTED: Python {VERSION} was not found.", file=sys.stderr)
    print("Name it: FKERAS_PYTHON313=/path/to/python3.13", file=sys.stderr)
    allowed = os.environ.get("FKERAS_SKIP_LOWER_BOUNDS") == "1"
    if os.environ.get("CI") == "true" and not allowed:
        print("CI needs it; FKERAS_SKIP_LOWER_BOUNDS=1 allows CI to go on.", file=sys.stderr)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", default="2", help="processes that run tests")
    options = parser.parse_args()
    command = interpreter()
    if command is None:
        return missing()
    # the exact versions of CI would contradict the lower bounds
    environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}

    def run(*arguments):
        subprocess.run([str(a) for a in arguments], check=True, cwd=ROOT, env=environment)

    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    run(command, "-m", "venv", ENVIRONMENT)
    python = ENVIRONMENT / "bin" / "python"
    pinned = requirements()
    print(" ".join(pinned), flush=True)
    run(python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *pinned)
    test = (python, "-m", "pytest", "-q", "-n", options.workers, "-p", "no:cacheprovider")
    run(*test, *SAMPLE)
    run(*test, *LAYERS, "-k", CHOSEN)
    return 0


if __name__ == "__main__":
    sys.exit(main())
