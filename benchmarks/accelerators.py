"""fkeras beside the same programs by hand, compiled for a TPU v5e or an H100 without the device.

    python benchmarks/accelerators.py [--device v5e|h100] [--rows PATTERN] [--json FILE] [--no-check]

The numbers are estimates of the compilers, not times: the cycles that the TPU's compiler expects of the
operations (the GPU's compiler states none), the bytes that the operations read and write, temporary memory,
and counts of operations. A ratio compares fkeras with the better side by hand, of flax.linen and
`jax.numpy`. Below a row with a ratio above 1.05 are the operations that cost most on both sides. Each row is
first checked with small sizes on the CPU: both sides compute the same values from the same weights. Goals:
ratios of at most 1.02 for cycles and bytes, and 1.05 for temporary memory. `accelerator_programs.py`
names the packages to install.
"""

import accelerator_programs as programs  # before jax

# isort: split
import argparse
import fnmatch
import inspect
import json
import pathlib
import sys
import time

import accelerator_rows
import jax
import numpy as np

LIMIT = 1.05
# what is compared, with the name in the table
COMPARED = {"cycles": "cycles", "bytes": "bytes", "temporary": "memory"}
COUNTS = ("fusions", "copies", "loops", "custom_calls")


def first_line(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def computed(side):
    """Returns the values that the check compares."""
    function, (first, *rest) = jax.jit(side.function), side.arguments()
    if not side.carries:
        return jax.tree.leaves(side.seen(function(first, *rest)))
    losses = []
    for _ in range(2):
        first, loss = function(first, *rest)
        losses.append(loss)
    return losses


def check(make):
    """Compares the values of all sides with small sizes on the CPU; returns what was compared."""
    row = make(True)
    expected = computed(row.ours)
    for name, side in row.by_hand.items():
        for a, b in zip(expected, computed(side), strict=True):
            a, b = (np.asarray(leaf, "float64") for leaf in (a, b))
            apart = np.abs(a - b).max() / max(np.abs(b).max(), 1.0)
            if a.shape != b.shape or not apart <= row.tolerance:
                raise AssertionError(f"{name} differs from fkeras by {apart:.1e}")
    return f"{len(expected)} values within {row.tolerance:g}"


def compiled(side, target, device, trips):
    """Returns the figures of a side, or the error."""
    start = time.process_time()
    try:
        specs = side.arguments() if side.laid_out else jax.eval_shape(side.arguments)
        specs = programs.specs_on(device, specs)
        program = programs.compile_for(target.platform, side.function, specs, side.donate)
    except Exception as error:  # a compiler raises errors of several classes
        return {"error": first_line(error)}
    found = programs.figures(program, trips)
    return found | {"seconds": round(time.process_time() - start, 1)}


def ratios(ours, by_hand):
    """Returns the ratios to the better side, by figure, and the name of the better side."""
    found = {name: side for name, side in by_hand.items() if "error" not in side}
    if "error" in ours or not found:
        return {}, None
    by = "cycles" if ours["cycles"] else "bytes"
    best = min(found, key=lambda name: found[name][by])
    pairs = {figure: (ours[figure], found[best][figure]) for figure in COMPARED}
    return {f: round(a / b, 3) for f, (a, b) in pairs.items() if a and b}, best


def measured(name, target, checks):
    make = accelerator_rows.ROWS[name]
    result = {}
    if checks:
        try:
            result["checked"] = check(make)
        except Exception as error:
            result["check_failed"] = first_line(error)
    several = "devices" in inspect.signature(make).parameters
    devices = target.devices(8 if several else 1)
    row = make(False, devices) if several else make(False)
    sides = {"fkeras": row.ours, **row.by_hand}
    found = {n: compiled(side, target, devices[0], row.trips) for n, side in sides.items()}
    result["ratios"], result["best"] = ratios(found["fkeras"], dict(list(found.items())[1:]))
    return result | {"sides": found}


def show(name, result):
    ours = result["sides"]["fkeras"]
    if "error" in ours:
        print(f"{name:36s} {ours['error']}")
    else:
        against = "  ".join(f"{COMPARED[f]} {r:.3f}" for f, r in result["ratios"].items())
        print(f"{name:36s} {against}  (beside {result['best']})")
    for side, figures in result["sides"].items():
        if "error" in figures:
            print(f"    {side:24s} {figures['error']}")
            continue
        sizes = f"{figures['cycles']:>13,} cycles {figures['bytes'] / 1e6:>9,.1f} MB moved"
        sizes += f" {figures['temporary'] / 1e6:>8,.1f} MB temporary "
        counts = ", ".join(f"{figures[c]} {c.replace('_', ' ')}" for c in COUNTS)
        collectives = ", ".join(f"{n} {kind}" for kind, n in figures["collectives"].items())
        unknown = f", {figures['unknown']} unknown" if figures["unknown"] else ""
        print(f"    {side:24s} {sizes} {counts}{unknown} {collectives}")
    if result["ratios"].get("cycles", 0) > LIMIT:
        for side in ("fkeras", result["best"]):
            for cycles, operation, origin in result["sides"][side]["costly"]:
                print(f"        {side:12s} {cycles:>11,} {operation:32s} {origin}")
    print(
        "    " + (result.get("check_failed") or result.get("checked") or "not checked"), flush=True
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=[*programs.TARGETS], default="v5e")
    parser.add_argument("--rows", default="*", help="a pattern such as 'ConvNet*'")
    parser.add_argument("--json", help="file to which the rows are written, beside those it has")
    parser.add_argument("--no-check", action="store_true")
    options = parser.parse_args()
    target = programs.TARGETS[options.device]
    if target.missing:
        sys.exit(target.missing)
    file = pathlib.Path(options.json) if options.json else None
    table = json.loads(file.read_text()) if file is not None and file.exists() else {}
    for name in fnmatch.filter(accelerator_rows.ROWS, options.rows):
        result = measured(name, target, not options.no_check)
        show(name, result)
        table.setdefault(options.device, {})[name] = result
        if file is not None:
            file.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
