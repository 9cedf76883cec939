"""Compiles the layers of the layer table for a TPU v5e and an H100, without the devices.

    python tools/ci/accelerator_layers.py --install --part 2/16    # in an environment of its own
    python tools/ci/accelerator_layers.py --rows 'Dense*'          # with the compilers of this Python
    python tools/ci/accelerator_layers.py --write                  # also writes the numbers of all rows

`--install` makes the folder `.venv-accelerators` with the jax of this interpreter and the compilers of
`tools/accelerators/programs.py`; a device without wheels for this machine is skipped. The call and the
gradients of each row of `tests/cases` are compiled, with 256 rows of inputs. The check fails if

- a program does not compile, and no line of the table "What does not compile" of
  `docs/guides/accelerator_speed.md` names its layer, device and error,
- or a program needs over 5 % more cycles or bytes than `accelerator_layers.json` says. Cycles are
  estimates of the TPU's compiler, bytes are those that operations read and write. Other versions of
  the compilers than those of the file are not compared.
"""

import argparse
import collections
import copy
import fnmatch
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.accelerators import programs  # before jax

# isort: split
import jax

from tests.cases import Case, all_cases
from tools.ci.layer_values import Call

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = pathlib.Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs/guides/accelerator_speed.md"
ENVIRONMENT = ROOT / ".venv-accelerators"
# the compilers, optax as a dependency of the package, pytest for the layer table
PACKAGES = ("optax", "pytest")
VERSIONS = ("jaxlib", "libtpu", "jax-cuda12-plugin")
ROWS = 256
LIMIT = 1.05


def install() -> pathlib.Path:
    """Makes the environment, and returns its interpreter."""
    python = ENVIRONMENT / "bin" / "python"
    if not ENVIRONMENT.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    # the exact versions of CI would forbid the versions of the compilers
    environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
    pip = (str(python), "-m", "pip", "install", "-q", "--only-binary", ":all:")
    needed = [f"jax=={jax.__version__}", *PACKAGES]
    for packages in (needed, *(target.install.split() for target in programs.TARGETS.values())):
        done = subprocess.run([*pip, *packages], env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode and (
            packages is needed or "No matching distribution" not in done.stderr
        ):
            raise SystemExit(done.stderr)
    return python


def named_cases() -> dict[str, Case]:
    """The rows of the layer table by name; equal names get a number."""
    named: dict[str, Case] = {}
    seen: collections.Counter = collections.Counter()
    for case in all_cases():
        name = case.id
        seen[name] += 1
        named[f"{name} #{seen[name]}" if seen[name] > 1 else name] = case
    return named


def measured(case: Case, target: programs.Target) -> dict[str, list[int]]:
    """Returns cycles and bytes of the call and of the gradients."""
    layer, _ = case.build()
    call = Call(case, layer, ROWS)

    def arguments_in(function):
        # state and mask as arguments, which XLA cannot compute in advance
        def compute(layer, inputs, key, state, mask, *factors):
            traced = copy.copy(call)
            traced.state, traced.mask = state, mask
            return getattr(traced, function)(layer, inputs, key, *factors)

        return compute

    arguments = (layer, call.inputs, jax.random.key(0), call.state, call.mask)
    found = {}
    for function, extra in {"outputs": (), "gradients": (call.factors,)}.items():
        specs = jax.eval_shape(lambda *a: a, *arguments, *extra)
        specs = programs.specs_on(target.devices(1)[0], specs)
        lowered = programs.lowered_for(target.platform, arguments_in(function), specs)
        figures = programs.figures(lowered.compile())
        found[function] = [figures["cycles"] + figures["rare"], figures["bytes"]]
    return found


def documented(case: Case, device: str, error: str) -> bool:
    """Whether the page has a line `| layers or any | devices | error | remedy |` for an error."""
    table = PAGE.read_text().partition("## What does not compile")[2]
    for line in table.splitlines():
        if line.count("|") == 5 and "`" in line:
            names, devices, text = line.split("|")[1:4]
            named = names.strip() == "any" or f"`{type(case.layer).__name__}`" in names
            if named and device in devices and text.strip(" `") in error:
                return True
    return False


def losses(found: dict[str, list[int]], before: dict[str, list[int]]) -> list[str]:
    """Returns a line for each number that is larger than before."""
    return [
        f"{function}: {new:,} {unit}, {new / old - 1:.0%} more than {old:,}"
        for function, numbers in found.items()
        for unit, new, old in zip(("cycles", "bytes"), numbers, before[function], strict=True)
        if new > LIMIT * old
    ]


def versions() -> dict[str, str]:
    installed = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return {name: installed[name] for name in VERSIONS if name in installed}


def read() -> tuple[dict[str, str], dict[str, dict]]:
    """Returns the versions of the file, and its rows."""
    content = json.loads(FILE.read_text()) if FILE.exists() else {"versions": {}, "rows": {}}
    return content["versions"], content["rows"]


def write(rows: dict[str, dict], names: Iterable[str]) -> None:
    """Writes the file, a line for each row, in the order of the names."""
    lines = (f"  {json.dumps(name)}: {json.dumps(rows[name])}" for name in names if name in rows)
    FILE.write_text(
        f'{{\n "versions": {json.dumps(versions())},\n "rows": {{\n'
        + ",\n".join(lines)
        + "\n }\n}\n"
    )


def check(options: argparse.Namespace) -> int:
    """Compiles the chosen rows; returns the number of failures."""
    targets = {}
    for device, target in programs.TARGETS.items():
        if target.missing:
            print(f"{device} is skipped: {target.missing}")
        else:
            targets[device] = target
    written_with, before = read()
    comparable = written_with == versions()
    number, count = map(int, options.part.split("/"))
    cases = named_cases()
    names = fnmatch.filter(cases, options.rows)[number - 1 :: count]
    failures, rows = 0, dict(before)
    start = time.process_time()
    for name in names:
        for device, target in targets.items():
            lines = []
            try:
                found = measured(cases[name], target)
            except Exception as error:  # a compiler raises errors of several classes
                if not documented(cases[name], device, str(error)):
                    lines = [f"{type(error).__name__}: {str(error)[:2000]}"]
                found = None
            else:
                if comparable and device in before.get(name, {}):
                    lines = losses(found, before[name][device])
            if found is not None:
                rows[name] = rows.get(name, {}) | {device: found}
            failures += bool(lines)
            for line in lines:
                print(f"{name} on {device}: {line}", flush=True)
        if options.write:
            write(rows, cases)
        jax.clear_caches()
    if not comparable:
        print(f"not compared: {FILE.name} has {written_with}, and {versions()} are installed")
    unknown = sum(name not in before for name in names)
    if comparable and unknown and not options.write:
        print(f"not compared: {unknown} rows are not in {FILE.name}")
    seconds = time.process_time() - start
    print(f"{len(names)} rows for {', '.join(targets)}: {failures} failures, {seconds:.0f} CPU s")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", default="1/1", metavar="K/N", help="rows of the layer table")
    parser.add_argument("--rows", default="*", help="a pattern such as 'Dense*'")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument("--install", action="store_true", help=f"use {ENVIRONMENT.name}")
    options = parser.parse_args()
    if options.install:
        arguments = [a for a in sys.argv[1:] if a != "--install"]
        command = [str(install()), str(pathlib.Path(__file__).resolve()), *arguments]
        return subprocess.run(command, cwd=ROOT).returncode
    return 1 if check(options) else 0


if __name__ == "__main__":
    sys.exit(main())
