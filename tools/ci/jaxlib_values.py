"""Checks the numbers of all layers on several releases of jaxlib (tools/ci/layer_values.py).

    python tools/ci/jaxlib_values.py --part 2/16

installs the lowest jax that pyproject.toml allows, the newest 0.8 and the newest of all, each in a folder
`.venv-jaxlib-*`, and runs the check there and with the jax of this interpreter. A sample of the
numbers must be equal in all of them. Python 3.13 is found as in tools/ci/lower_bounds.py.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.ci.layer_values import JUMPS, difference
from tools.ci.lower_bounds import ROOT, interpreter, lowest, missing

# beside jax: optax is a dependency of the package, the layer table imports pytest
PACKAGES = ("optax", "pytest")


def releases() -> dict[str, tuple[str, str]]:
    """Returns the requirements of each release, by a name."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = tuple(lowest(r) for r in declared if r.startswith(("jax>=", "jaxlib>=")))
    return {"lowest": bounds, "0.8": ("jax==0.8.*", "jaxlib==0.8.*"), "newest": ("jax", "jaxlib")}


def differences(samples: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """Returns a line for each array that differs between a release and the last one."""
    *others, last = samples
    lines = []
    for name in others:
        if samples[name].keys() != samples[last].keys():
            lines.append(f"jaxlib {name} and {last} have other arrays")
            continue
        for place, right in samples[last].items():
            largest, wrong = difference(samples[name][place], right)
            if wrong > JUMPS * right.size:
                lines.append(f"{place}: jaxlib {name} and {last} differ by up to {largest:.1e}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1", metavar="K/N", help="rows of the layer table")
    options = parser.parse_args()
    command = interpreter()
    if command is None:
        return missing()
    # the exact versions of CI would contradict those of this check
    environment = {k: v for k, v in os.environ.items() if k not in ("PIP_CONSTRAINT", "XLA_FLAGS")}
    environment["JAX_PLATFORMS"] = "cpu"

    def run(*arguments, check=True):
        done = subprocess.run([str(a) for a in arguments], check=check, cwd=ROOT, env=environment)
        return done.returncode

    pythons = {"constraints": sys.executable}
    for name, pins in releases().items():
        folder = ROOT / f".venv-jaxlib-{name}"
        if not folder.exists():
            run(command, "-m", "venv", folder)
        python = pythons[name] = folder / "bin" / "python"
        pip = (python, "-m", "pip", "install", "-q", "--only-binary", ":all:", "--upgrade")
        run(*pip, *pins, *PACKAGES)
    status, samples = 0, {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, python in pythons.items():
            file = pathlib.Path(scratch, f"{name}.npz")
            check = (python, "tools/ci/layer_values.py", "--part", options.part, "--write", file)
            status |= run(*check, check=False)
            if file.exists():
                samples[name] = dict(np.load(file))
    lines = differences(samples)
    print("\n".join(lines) or f"{len(samples)} releases agree")
    return 1 if lines or status or len(samples) < len(pythons) else 0


if __name__ == "__main__":
    sys.exit(main())
