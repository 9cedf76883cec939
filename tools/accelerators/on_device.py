"""Compares values, times and memory of fkeras on this machine's GPU or TPU; writes one JSON file.

    python tools/accelerators/on_device.py RESULT.json [--minutes 8] [--rows PATTERN]

measures in turn, each within its share of the time, and writes the file after each part:

- `fit`: the peak memory of `fit` on a run larger than 1/16 of the device, in bytes of the run;
- `kernels`: the attention of each kernel against the einsum, as relative differences, for masks by
  name, in float32 and bfloat16, and the time of forward and gradient;
- `rows`: the rows of `benchmarks/accelerators.py`, whose sizes here are those of the compiled programs:
  milliseconds of each side, and the ratio to the faster side by hand;
- `values`: calls and gradients of the layer table against the CPU, in a fixed random order: a line for
  each wrong array, and how many rows the time admitted.

flax is necessary for `rows` by flax.linen, pytest for `values`. JAX takes the CPU as the device where it
has no other; `--small` then uses the sizes of the benchmark's checks.
"""

import argparse
import fnmatch
import inspect
import json
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))

import accelerator_rows
import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers
from tests.cases import all_cases
from tools.ci import layer_values

# of the whole time, up to the end of each part
SHARES = {"fit": 0.1, "kernels": 0.25, "rows": 0.65, "values": 1.0}
KERNELS = ("xla", "cudnn", "blockwise", "splash")
MASKS = {"none": None, "causal": fk.masks.Causal(), "window": fk.masks.Window(100, both_sides=True)}
ROUNDS = 7


def seconds(function, *arguments):
    """Seconds of one call of a compiled function."""
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def peak_of_fit(deadline, options):
    """Trains dense layers; must be the first part, since a device states the peak since its start."""
    device = jax.devices()[0]
    statistics_of = device.memory_stats() or {}
    limit = statistics_of.get("bytes_limit", 2**26)
    # weights, two slots of Adam: the run is 1/8 of the device
    width = int((limit / 8 / 3 / 4 / 4) ** 0.5) // 128 * 128
    x = fk.Input((width,))
    model = fk.Sequential([x, *(layers.Dense(width) for _ in range(4))])
    trainer = fk.Trainer("adam", "mse")
    run = trainer.init(model, jax.random.key(0))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(run))
    rows = np.zeros((64, width), "float32")
    _ = trainer.fit(run, rows, rows, epochs=3, batch_size=32, verbose=0)
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return {"run": size, "peak": peak, "peak in runs": peak and peak / size}


def kernels(deadline, options):
    """Relative differences to the einsum, and seconds, by dtype, mask and kernel."""
    time_steps = 64 if options.small else 1024
    found = {}
    for dtype in ("float32", "bfloat16"):
        shape = (2, time_steps, 8, 64)
        query, key, value = (accelerator_rows.normal(shape, dtype, i) for i in range(3))
        for name, mask in MASKS.items():
            reference = None
            for kernel in ("einsum", *KERNELS):
                if time.monotonic() > deadline:
                    return found
                layer = layers.DotProductAttention(mask=mask, kernel=kernel)
                place = found[f"{dtype}, {name}, {kernel}"] = {}
                try:
                    # a kernel that does not apply gives way to another one
                    place["ran"] = layer.kernel_for(query, value, jax.default_backend())
                    lowered = jax.jit(squares, static_argnums=0).lower(layer, query, key, value)
                    compiled = lowered.compile()
                    result = jax.tree.leaves(compiled(query, key, value))
                except Exception as error:  # the reasons why a kernel does not apply are many
                    place["error"] = f"{type(error).__name__}: {error}"[:300]
                    continue
                reference = reference or result
                place["apart"] = max(map(apart, result, reference))
                times = [seconds(compiled, query, key, value) for _ in range(ROUNDS)]
                place["ms"] = 1e3 * statistics.median(times)
    return found


def squares(layer, *inputs):
    """The sum of the squares of a layer's output, and its gradients."""

    def score(*inputs):
        y = layer(*inputs).astype("float32")
        return jnp.square(y).sum(), y

    return jax.value_and_grad(score, (0, 1, 2), has_aux=True)(*inputs)


def apart(a, b):
    a, b = (np.asarray(x, "float64") for x in (a, b))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6))


def rows(deadline, options):
    """Milliseconds of each side of the rows of the benchmark, in turns, and the ratio."""
    found = {}
    for name in fnmatch.filter(accelerator_rows.ROWS, options.rows):
        make = accelerator_rows.ROWS[name]
        if "devices" in inspect.signature(make).parameters:
            continue
        if time.monotonic() > deadline:
            break
        row = make(options.small)
        calls = {}
        place = found[name] = {}
        for side, program in {"fkeras": row.ours, **row.by_hand}.items():
            try:
                arguments = jax.jit(program.arguments)()
                calls[side] = jax.jit(program.function), arguments
                seconds(calls[side][0], *arguments)
            except Exception as error:
                calls.pop(side, None)
                place[side] = f"{type(error).__name__}: {error}"[:300]
        times = {side: [] for side in calls}
        for _ in range(ROUNDS):
            for side, (function, arguments) in calls.items():
                times[side].append(1e3 * seconds(function, *arguments))
        place |= {side: statistics.median(ms) for side, ms in times.items()}
        if "fkeras" in times and len(times) > 1:
            best = min((side for side in times if side != "fkeras"), key=place.get)
            ratios = [a / b for a, b in zip(times["fkeras"], times[best], strict=True)]
            place["ratio"] = statistics.median(ratios)
    return found


def values(deadline, options):
    """Lines about the arrays that differ from those of the CPU, and the number of compared rows."""
    cases = [c for c in all_cases() if fnmatch.fnmatch(c.id, options.layers)]
    random.Random(0).shuffle(cases)
    lines, done = [], 0
    host = jax.devices("cpu")[0]
    for case in cases:
        if time.monotonic() > deadline:
            break
        with jax.default_device(host):
            layer, _ = case.build()
            call = layer_values.Call(case, layer, 8)
        results = []
        for device in (jax.devices()[0], host):
            arguments = jax.device_put((layer, call.inputs, layer_values.KEY), device)
            # products of float32 in float32, as on the CPU
            with jax.default_device(device), jax.default_matmul_precision("highest"):
                output = jax.jit(call.outputs)(*arguments)
                results.append((output, jax.jit(call.gradients)(*arguments, call.factors)))
        pairs = zip(*(jax.tree_util.tree_leaves_with_path(r) for r in results), strict=True)
        for (path, found), (_, right) in pairs:
            largest, wrong = layer_values.difference(found, right)
            if wrong > layer_values.JUMPS * right.size:
                place = jax.tree_util.keystr(path)
                lines.append(f"{case.id}{place}: {wrong} of {right.size}, by up to {largest:.1e}")
        done += 1
        jax.clear_caches()
    return {"rows": done, "of": len(cases), "wrong": lines}


PARTS = {"fit": peak_of_fit, "kernels": kernels, "rows": rows, "values": values}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rows", default="*", help="a pattern of rows of the benchmark")
    parser.add_argument("--layers", default="*", help="a pattern of rows of the layer table")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device, start = jax.devices()[0], time.monotonic()
    report = {"device": device.device_kind, "platform": device.platform, "jax": jax.__version__}
    for name, part in PARTS.items():
        begin = time.monotonic()
        try:
            report[name] = part(start + 60 * options.minutes * SHARES[name], options)
        except Exception as error:  # the other parts still run
            report[name] = {"error": f"{type(error).__name__}: {error}"[:1000]}
        report[name]["seconds"] = round(time.monotonic() - begin, 1)
        options.file.write_text(json.dumps(report, indent=1) + "\n")
        print(f"{name}: {report[name]['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
