"""Runs Keras's own unit tests on fkeras and compares the results with `expected.tsv`.

    python tools/stress/keras_tests/run.py CHECKOUT [AREA ...] [--jobs N] [--seconds N] [--update]

CHECKOUT is a checkout of keras-team/keras of the version of the installed package `keras`, whose
helpers the tests use. An area is a folder or file below `keras/src`, such as `layers/core` or
`ops/nn_test.py`; without areas all run, in an hour or two of CPU. Each folder has a process of its
own, and so has each file of `ops`. A test that ends its process counts as a failure, and a new
process runs the rest. With `--folder` a later run, of the same or other areas, takes the results
that the folder has, so that a run in pieces gives the total of all. Tests of `ops/image_test.py` need
TensorFlow as a reference, and tests with `tf.data` need TensorFlow too: without the package they are
skipped.

The tests run in a temporary folder, where their imports name `fka`, which stands in for `keras`.
`expected.tsv` lists each test that calls fkeras and does not pass, with a code; lines that begin
with `code` explain the codes, whose kinds are:

- `documented`: a row of docs/explanation/differences.md or a name of omitted.md
- `internals`: the test checks objects, attributes or messages of Keras that no user sees
- `adapter`: the stand-in cannot express the test
- `open`: a difference that is neither mended nor documented yet
- `keras`: Keras itself fails

A test is judged if it calls fkeras, passes or fails, and checks neither internals nor a failure of
Keras. Prints the counts of each area with the share of judged tests that pass or have a row, then the
tests whose results differ from the table, with their errors. Exits with 1 if any differ. `--update` rewrites the table for the areas that ran: new
failures get the code `new`, for you to replace.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
TABLE = HERE / "expected.tsv"
# Tests that do not run. tools/stress/applications.py compares the applications.
_OMITTED = """callbacks/backup callbacks/orbax callbacks/remote distillation distribution
dtype_policies legacy ops/function_test.py quantizers/awq_config quantizers/gptq_config
saving/file_editor saving/object_registration tree utils/file_utils utils/progbar wrappers"""
_INTERNAL = """applications/applications_test.py backend datasets export/litert export/openvino
export/saved_model export/tfsm export/torch testing trainers/data_adapters
trainers/compile_utils trainers/epoch_iterator ops/operation ops/symbolic ops/node_test.py
ops/ops_test.py quantizers/gptq_core quantizers/gptq_test.py quantizers/awq_test.py
utils/naming utils/tracking models/variable_mapping"""
# public, but nearly all of these tests derive classes with weights, change maps, or call Keras's
# loader, which knows no class of fkeras
_FOREIGN = """export/onnx layers/layer_test.py optimizers/multi_optimizer saving/saving_lib
saving/serialization_lib"""
NOT_RUN = (_OMITTED + " " + _INTERNAL + " " + _FOREIGN).split()
UNJUDGED = ("skipped", "unjudged", "internals", "keras")
CONFTEST = """import pytest

def skip_if_backend(backend, reason):
    return pytest.mark.skipif(backend == "jax", reason=reason)
"""


def prepare(checkout, folder, areas):
    """Writes the tests with other imports; returns the files of each process by area."""
    sys.path.insert(0, str(HERE))
    from fka import rewritten

    source = checkout / "keras" / "src"
    groups = collections.defaultdict(list)
    for path in sorted(source.rglob("*_test.py")):
        name = path.relative_to(source).as_posix()
        if any(name.startswith(start) for start in NOT_RUN):
            continue
        if areas and not any(name.startswith(area.rstrip("/")) for area in areas):
            continue
        # a folder `random` would hide Python's module
        copy = folder / name.replace("random/", "random_/", 1)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(rewritten(path.read_text()))
        area = name if name.startswith("ops/") else os.path.dirname(name)
        groups[area].append(copy.relative_to(folder).as_posix())
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return groups


def run(area, files, folder, checkout, seconds):
    """Runs files in one process, or more if tests end it; returns the results, by file and test."""
    results = folder / (area.replace("/", ".") + ".jsonl")
    results.touch()
    finished = results.with_suffix(".finished")  # the files of complete runs
    environment = {
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "KERAS_TESTS": str(checkout),
        "FKA_RESULTS": str(results),
        "FKA_SECONDS": str(seconds),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "fka.plugin", *files]
    command += ["--import-mode=importlib", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors"]
    problem, size = "", -1
    while not (finished.exists() and {*files} <= {*finished.read_text().split()}):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode in (0, 1, 5):  # passed, failed, nothing left to run
            with open(finished, "a") as names:
                names.write("\n".join(files) + "\n")
        elif results.stat().st_size == size:
            problem = f"exit code {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
            break
        size = results.stat().st_size
    entries = [e for e in map(json.loads, results.read_text().splitlines()) if e["file"] in files]
    found = {(e["file"].replace("random_/", "random/"), e["test"]): e for e in entries}
    if problem:
        found[area, "process"] = {"outcome": "failed", "error": problem}
    return found


def read_table():
    """Returns `(explanations, codes)`: by code, and by file and test."""
    explanations, codes = {}, {}
    for line in TABLE.read_text().splitlines():
        first, second, third = line.split("\t")
        if first == "code":
            explanations[second] = third
        else:
            codes[first, second] = third
    return explanations, codes


def write_table(explanations, codes):
    lines = [("code", code, text) for code, text in sorted(explanations.items())]
    lines += [(*key, code) for key, code in sorted(codes.items())]
    TABLE.write_text("".join("\t".join(line) + "\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("areas", nargs="*")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes at a time")
    parser.add_argument("--seconds", type=int, default=120, help="limit of each test")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps results, for later runs")
    parser.add_argument("--update", action="store_true", help="rewrites the table")
    options = parser.parse_intermixed_args()
    checkout, installed = options.checkout.resolve(), importlib.metadata.version("keras")
    version = checkout / "keras" / "src" / "version.py"
    if not version.exists() or f'"{installed}"' not in version.read_text():
        parser.error(f"expected a checkout of Keras {installed}, the installed version")
    explanations, codes = read_table()
    found, start = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = (options.folder or pathlib.Path(name)).resolve()
        groups = prepare(checkout, folder, options.areas)
        if not groups:
            parser.error(f"no tests in {options.areas}")
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(options.jobs))
        tasks = {
            pool.submit(run, area, files, folder, checkout, options.seconds): area
            for area, files in groups.items()
        }
        for task in concurrent.futures.as_completed(tasks):
            found.update(task.result())
            area = f"{time.monotonic() - start:6.0f} s {tasks[task]:42}"
            print(area, counted(task.result(), explanations, codes), flush=True)
    reached = {file for file, test in found if test != "collection"}
    if options.update:
        absent = {key for key, entry in found.items() if "tensorflow" in entry["error"]}
        kept = {k: code for k, code in codes.items() if k[0] not in reached or k in absent}
        failed = [key for key, entry in found.items() if entry["outcome"] == "failed"]
        write_table(explanations, kept | {key: codes.get(key, "new") for key in failed})
        return 0
    print(f"{'all':51}", counted(found, explanations, codes))
    changed = {k: e for k, e in found.items() if kind(k, e, explanations, codes) == "DIFFERENT"}
    for (file, test), entry in sorted(changed.items()):
        print(f"{file}::{test}: {entry['outcome']}: {entry['error'][:300]}")
    missing = [key for key in codes if key[0] in reached and key not in found]
    for file, test in missing:
        print(f"{file}::{test}: in the table, but did not run")
    return bool(changed or missing)


def counted(results, explanations, codes):
    """Returns the numbers of results by kind, in words."""
    counts = collections.Counter(kind(k, e, explanations, codes) for k, e in results.items())
    judged = sum(n for c, n in counts.items() if c not in UNJUDGED)
    share = (counts["passed"] + counts["documented"]) / max(judged, 1)
    numbers = ", ".join(f"{n} {c}" for c, n in sorted(counts.items()))
    return f"{judged} judged, {share:.1%} pass or have a row: {numbers}"


def kind(key, entry, explanations, codes):
    """Returns the class of a result in the counts."""
    if entry["outcome"] == "failed":
        return explanations[codes[key]].partition(":")[0] if key in codes else "DIFFERENT"
    return "DIFFERENT" if key in codes and entry["outcome"] == "passed" else entry["outcome"]


if __name__ == "__main__":
    sys.exit(main())
