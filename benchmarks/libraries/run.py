"""The same ten programs in fkeras, equinox, flax.nnx and blox: equal numbers, lines, compile and step time.

    pip install equinox jax-blox
    python benchmarks/libraries/run.py [rounds]

All libraries start from the same weights; predictions and the losses of three steps must agree. CPU
time of one thread, steps in turn; ratios against fkeras with quartiles. Writes `results.json`, which
the page "The same ten programs" shows.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import meter  # isort: skip  (it sets up XLA before jax is there)

import importlib
import importlib.metadata
import json
import statistics
import tempfile
import time

import jax
import numpy as np
import tasks
from lines import count_lines

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 11
LIBRARIES = ("fkeras", "equinox", "nnx", "blox")
FAST = ("equinox arrays", "nnx split")  # `fast_training` of these libraries
FOLDER = pathlib.Path(__file__).parent
PROGRAMS = {name: importlib.import_module(f"{name}_programs") for name in LIBRARIES}
TRAINED = ("mlp", "convnet", "lstm", "transformer", "siamese")


def filled(library, task):
    module = PROGRAMS[library]
    return module.filled(getattr(module, task)(), tasks.weights_of_shape)


def started(contender, program):
    """Returns the first values, the step and the batch of a training."""
    library, _, fast = contender.partition(" ")
    module = PROGRAMS[library]
    task = program if program in TRAINED else "mlp"
    name = ("fast_training" if fast else "training") if program in TRAINED else program
    return (*getattr(module, name)(filled(library, task)), *tasks.batch(task))


def check():
    for task in TRAINED:
        x, _ = tasks.batch(task)
        outputs = {
            name: np.asarray(PROGRAMS[name].predict(filled(name, task), x)) for name in LIBRARIES
        }
        for name in LIBRARIES[1:]:
            np.testing.assert_allclose(
                outputs[name], outputs["fkeras"], atol=1e-4, err_msg=f"{name} {task}"
            )
    x, _ = tasks.batch("mlp")
    for name in LIBRARIES:
        network, module = filled(name, "mlp"), PROGRAMS[name]
        expected = PROGRAMS["fkeras"].features(filled("fkeras", "mlp"), x)
        np.testing.assert_allclose(module.features(network, x), expected, atol=1e-5)
        with tempfile.TemporaryDirectory() as folder:
            other = module.saved_and_loaded(network, folder)
        np.testing.assert_allclose(module.predict(other, x), module.predict(network, x), atol=1e-6)


def measure(program):
    """First calls and steps of all libraries, after three steps with equal losses."""
    contenders = (*LIBRARIES, *(FAST if program in TRAINED else ()))
    runs, first, losses = {}, {}, {}
    for name in contenders:
        carry, step, x, y = started(name, program)
        begin = time.process_time()
        carry, loss = step(carry, x, y)
        jax.block_until_ready(loss)
        first[name] = time.process_time() - begin
        values = [loss]
        for _ in range(2):
            carry, loss = step(carry, x, y)
            values.append(loss)
        losses[name] = np.asarray(values)
        runs[name] = [carry, step, x, y]
    for name in contenders:
        np.testing.assert_allclose(
            losses[name], losses["fkeras"], rtol=2e-4, err_msg=f"{name} {program}"
        )
    count = 10 if program in ("convnet", "transformer", "lstm") else 50

    def steps(name):
        carry, step, x, y = runs[name]
        for _ in range(count):
            carry, loss = step(carry, x, y)
        jax.block_until_ready((jax.tree.leaves(carry), loss))
        runs[name][0] = carry

    times = meter.compare({name: lambda name=name: steps(name) for name in contenders}, ROUNDS)
    meter.report(program, times)
    ratios = {n: [t / b for t, b in zip(times[n], times["fkeras"], strict=True)] for n in times}
    return {
        name: {
            "first": round(first[name], 2),
            "step_ms": round(statistics.median(times[name]) / count * 1e3, 3),
            "ratio": [round(q, 2) for q in statistics.quantiles(ratios[name], n=4)],
        }
        for name in contenders
    }


def main():
    check()
    programs = (*TRAINED, "training_of_the_head", "ensemble")
    results = {
        "lines": {name: count_lines(name) for name in LIBRARIES},
        "times": {program: measure(program) for program in programs},
        "versions": {
            n: importlib.metadata.version(n) for n in ("jax", "equinox", "flax", "jax-blox")
        },
    }
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
