"""Size and one call of quantized models, against Keras 3 and against float models.

    python benchmarks/quantized.py [rounds]

Three layers of 1024 units on 256 rows. Both sides call the same codes as one compiled program whose
arguments are the weights. The outputs are compared first.
"""

import sys
import tempfile
import time

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import numpy as np

import fkeras as fk

MODES = ("int8", "int4", "int4/-1", "float8")
CALLS = 3


def floats():
    layers = [fk.layers.Dense(1024, "relu") for _ in range(3)]
    return fk.Sequential([fk.Input((1024,)), *layers]).build(jax.random.key(0))


def our_side(model, x):
    call = jax.jit(lambda model, x: model(x))
    return lambda: call(model, x)


def keras_side(model, x):
    """Keras's model of the same codes."""
    import keras

    with tempfile.TemporaryDirectory() as folder:
        fk.save_model(f"{folder}/m.keras", model)
        made = keras.saving.load_model(f"{folder}/m.keras")
    call = jax.jit(lambda trained, rest, x: made.stateless_call(trained, rest, x)[0])
    trained = [v.value for v in made.trainable_variables]
    rest = [v.value for v in made.non_trainable_variables]
    return lambda: call(trained, rest, x)


def several(function):
    def run():
        for _ in range(CALLS):
            jax.block_until_ready(function())

    return run


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    x = np.random.default_rng(0).normal(size=(256, 1024)).astype("float32")
    plain = floats()
    whole = sum(w.nbytes for w in jax.tree.leaves(plain))
    for mode in MODES:
        start = time.process_time()
        model = fk.quantize(plain, mode)
        spent = time.process_time() - start
        size = sum(w.nbytes for w in jax.tree.leaves(model)) / whole
        sides = {"Keras": keras_side(model, x), "fkeras": our_side(model, x)}
        one, other = (np.asarray(side()) for side in sides.values())
        apart = float(np.abs(one - other).max() / np.abs(one).max())
        assert apart < 1e-5, f"{mode}: {apart}"
        sides["fkeras, floats"] = our_side(plain, x)
        times = meter.compare({name: several(side) for name, side in sides.items()}, rounds)
        title = f"{mode}: {size:.3f} of the size, made in {spent:.3f} s, {apart:.0e} from Keras"
        meter.report(title, times)


if __name__ == "__main__":
    main()
