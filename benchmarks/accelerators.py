"""fkeras beside the same programs by hand, compiled for a TPU v5e or an H100 without the device.

    python benchmarks/accelerators.py [--device v5e|h100] [--rows PATTERN] [--no-check] [--write]

The numbers are estimates of the compilers, not times: the cycles that the TPU's compiler expects of the
operations (the GPU's compiler states none), the bytes that the operations read and write, temporary memory,
and counts of operations. A ratio compares fkeras with the better side by hand, of flax.linen and
`jax.numpy`. Below a row with a ratio above 1.05 are the operations that cost most on both sides. Each row is
first checked with small sizes on the CPU: both sides compute the same values from the same weights.
`--write` writes the ratios into the tables of `docs/guides/accelerator_speed.md`. Goals: ratios of at most
1.02 for cycles and bytes, and 1.05 for temporary memory. `tools/accelerators/programs.py` names the
packages to install.
"""

import argparse
import fnmatch
import inspect
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tools.accelerators import programs  # before jax

# isort: split
import accelerator_rows
import jax
import numpy as np

PAGE = pathlib.Path(__file__).parents[1] / "docs/guides/accelerator_speed.md"
LIMIT = 1.05
COMPARED = ("cycles", "bytes", "temporary")
# the checks' own programs run once
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# without a device, XLA finds no tiles for its own kernel of some products; cuBLAS has others
NO_TILES, CUBLAS = "Couldn't find output tile sizes", {"xla_gpu_enable_triton_gemm": False}
COUNTS = ("fusions", "copies", "loops", "custom calls")


def first_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def computed(side):
    """Returns the values that the check compares."""
    function = jax.jit(side.function, compiler_options=QUICK)
    first, *rest = jax.jit(side.arguments, compiler_options=QUICK)()
    if not side.carries:
        return jax.tree.leaves(side.seen(function(first, *rest)))
    losses = []
    for _ in range(2):
        first, loss = function(first, *rest)
        losses.append(loss)
    return losses


def check(name):
    """Compares the values of all sides with small sizes on the CPU; returns what was compared."""
    row = accelerator_rows.ROWS[name](True)
    if row.tolerance is None:
        return "values not compared: the program by hand is not quantized"
    expected = computed(row.ours)
    for library, side in row.by_hand.items():
        for a, b in zip(expected, computed(side), strict=True):
            a, b = (np.asarray(leaf, "float64") for leaf in (a, b))
            apart = np.abs(a - b).max() / max(np.abs(b).max(), 1.0)
            if a.shape != b.shape or not apart <= row.tolerance:
                raise AssertionError(f"{name}: {library} differs from fkeras by {apart:.1e}")
    return f"{len(expected)} values within {row.tolerance:g}"


def compiled(side, target, device, trips, known):
    """Returns the figures of a side, or the error; `known` has those of equal programs."""
    start = time.process_time()
    try:
        specs = side.specs() if side.specs else jax.eval_shape(side.arguments)
        specs = programs.specs_on(device, specs)
        lowered = programs.lowered_for(target.platform, side.function, specs, side.donate)
        text = lowered.as_text()
        if text not in known:
            try:
                program = lowered.compile()
            except jax.errors.JaxRuntimeError as error:
                if NO_TILES not in str(error):
                    raise
                program = lowered.compile(compiler_options=CUBLAS)
            known[text] = programs.figures(program, trips)
    except Exception as error:  # a compiler raises errors of several classes
        return {"error": first_line(error)}
    return known[text] | {"seconds": time.process_time() - start}


def measured(name, target):
    """Returns the figures of each side, the name of the better side by hand, and the ratios to that."""
    make = accelerator_rows.ROWS[name]
    several = "devices" in inspect.signature(make).parameters
    devices = target.devices(8 if several else 1)
    row, known = make(False, devices) if several else make(False), {}
    sides = {"fkeras": row.ours, **row.by_hand}
    found = {n: compiled(s, target, devices[0], row.trips, known) for n, s in sides.items()}
    ours, others = found["fkeras"], {n: f for n, f in found.items() if n in row.by_hand}
    others = {n: f for n, f in others.items() if "error" not in f}
    if "error" in ours or not others:
        return found, None, {}
    best = min(others, key=lambda n: others[n]["cycles"] or others[n]["bytes"])
    pairs = {figure: (ours[figure], others[best][figure]) for figure in COMPARED}
    return found, best, {f: a / b for f, (a, b) in pairs.items() if a and b}


def show(name, found, best, ratios):
    print(name, *(f"{figure} {ratio:.3f}" for figure, ratio in ratios.items()), sep="  ")
    for side, figures in found.items():
        if "error" in figures:
            print(f"    {side:12s} {figures['error']}")
            continue
        sizes = f"{figures['cycles']:>13,} cycles {figures['bytes'] / 1e6:>9,.1f} MB moved"
        sizes += f" {figures['temporary'] / 1e6:>8,.1f} MB temporary "
        counts = [f"{figures[c]} {c}" for c in COUNTS]
        counts += [f"{n} {kind}" for kind, n in figures["collectives"].items()]
        counts += [f"{figures['rare']:,} more cycles by rare branches"] * bool(figures["rare"])
        counts += [f"{figures['unknown']} unknown"] * bool(figures["unknown"])
        print(f"    {side:12s} {sizes} {', '.join(counts)} ({figures['seconds']:.0f} s)")
    if ratios.get("cycles", 0) > LIMIT:
        for side in ("fkeras", best):
            for cycles, operation, origin in found[side]["costly"]:
                print(f"        {side:12s} {cycles:>11,} {operation:32s} {origin}")


def table_line(name, found, best, ratios):
    """Returns the line of the page: the ratios, and the figures of fkeras."""
    ours = found["fkeras"]
    if "error" in ours:
        return f"| {name} | does not compile |||||"
    cells = [f"{ratios[f]:.2f}" if f in ratios else "" for f in COMPARED]
    cells += [f"{ours['cycles'] / 1e6:.3g}" if ours["cycles"] else ""]
    return f"| {name} | {' | '.join(cells)} | {ours['bytes'] / 1e6:,.0f} | {best or ''} |"


def write(device, name, line):
    """Puts a line into the table of a device, in the order of the rows."""
    before, heading, rest = PAGE.read_text().partition(f"## Rows on {device}\n")
    lines = rest.split("\n")
    first = next(i for i, text in enumerate(lines) if text.startswith("|---")) + 1
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    rows = {text.split("|")[1].strip(): text for text in lines[first:last]} | {name: line}
    lines[first:last] = [rows[n] for n in accelerator_rows.ROWS if n in rows]
    PAGE.write_text(before + heading + "\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=[*programs.TARGETS], default="v5e")
    parser.add_argument("--rows", default="*", help="a pattern such as 'ConvNet*'")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write to {PAGE.name}")
    options = parser.parse_args()
    target = programs.TARGETS[options.device]
    if target.missing:
        sys.exit(target.missing)
    for name in fnmatch.filter(accelerator_rows.ROWS, options.rows):
        values = "values not checked" if options.no_check else check(name)
        result = measured(name, target)
        show(name, *result)
        print(f"    {values}", flush=True)
        if options.write:
            write(options.device, name, table_line(name, *result))
        jax.clear_caches()


if __name__ == "__main__":
    main()
