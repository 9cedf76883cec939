"""`fit` and `predict` of convolutional networks, against Keras 3 on TensorFlow and on JAX.

    python benchmarks/convolutional.py --tensorflow PYTHON [--jax] [--rounds N] [network ...]

Keras opens a file that `fk.save_model` wrote, in a process of the interpreter PYTHON. All sides have the
same weights, data and optimizer, use all threads, and train the batches in the same order without
dropout. Their predictions, the losses of two steps and the predictions after the steps must agree. The
measured `fit` continues the training, with compiled programs. With `--jax`, Keras on JAX opens the file
in this process. Goal: at most 1.1 of Keras on TensorFlow.
"""

import argparse
import os

# XLA has another, slow convolution for one thread
os.environ.setdefault("XLA_FLAGS", "")
os.environ.setdefault("NPROC", str(os.cpu_count()))

import meter  # isort: skip

import jax
import keras_networks
import networks
import numpy as np
import peer

import fkeras as fk

GOAL = 1.1
# deep networks amplify rounding in training: the sides may differ by so many times as much as the
# results of fkeras differ with inputs that are larger by 1e-6, and by 1e-5
AMPLIFIED, ROUNDING = 10, 1e-5


class Network:
    """A model of fkeras and its data, with the methods of `keras_networks.Network`."""

    def __init__(self, trainer, run, x, y, batch):
        self.trainer, self.run, self.x, self.y, self.batch = trainer, run, x, y, batch

    def predict(self):
        return self.trainer.predict(self.run, self.x, self.batch)

    def fit(self, count=None, epochs=1):
        x, y = self.x[:count], self.y[:count]
        self.run, history = self.trainer.fit(
            self.run, x, y, self.batch, epochs, shuffle=False, verbose=0
        )
        return history["loss"]


def apart(found, others):
    """The largest difference of each result of `started`, relative to the largest number."""
    differences = {}
    for result in found:
        a, b = np.asarray(found[result]), np.asarray(others[result])
        differences[result] = float(np.abs(a - b).max() / np.abs(b).max())
    return differences


def agree(side, differences, moved):
    """Prints and checks the differences of another side from fkeras."""
    shown = (f"{result} {d:.0e} ({moved[result]:.0e})" for result, d in differences.items())
    print(f"  differences of {side:19s} {', '.join(shown)}", flush=True)
    for result, difference in differences.items():
        assert difference <= max(ROUNDING, AMPLIFIED * moved[result]), (side, result)


def contenders(name, tensorflow, with_jax):
    """The contenders by name, and the number of batches; all have agreed."""
    make, data = networks.CONVOLUTIONS[name]
    x, y, batch = data()
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer(fk.optimizers.SGD(1e-4), loss)
    run = trainer.init(make(), jax.random.key(0))
    fk.save_model(tensorflow.folder / "model.keras", run.model, run.state, trainer=trainer)
    np.savez(tensorflow.folder / "data.npz", x=x, y=y, batch=batch)
    ours = Network(trainer, run, x, y, batch)
    found = keras_networks.started(ours)
    larger = Network(trainer, run, x * np.float32(1 + 1e-6), y, batch)
    moved = apart(keras_networks.started(larger), found)
    print(f"\n{name}, batches of {batch}; in parentheses: with inputs larger by 1e-6", flush=True)
    tensorflow.ask("open", tensorflow.folder)
    tensorflow.ask("start", tensorflow.folder / "start.npz")
    with np.load(tensorflow.folder / "start.npz") as theirs:
        agree("Keras on TensorFlow", apart(found, theirs), moved)
    sides = {"Keras on TensorFlow": None, "fkeras": ours}
    if with_jax:
        sides["Keras on JAX"] = keras_networks.Network(tensorflow.folder)
        agree("Keras on JAX", apart(found, keras_networks.started(sides["Keras on JAX"])), moved)
    return sides, len(x) // batch


def measure(name, tensorflow, with_jax, rounds):
    sides, steps = contenders(name, tensorflow, with_jax)
    for method in ("fit", "predict"):
        functions = {side: getattr(network, method, None) for side, network in sides.items()}
        functions["Keras on TensorFlow"] = lambda method=method: tensorflow.seconds(method)
        for function in functions.values():
            function()  # compiles what the first fit did not run
        times = meter.compare(functions, rounds)
        times = {side: [t / steps for t in seconds] for side, seconds in times.items()}
        meter.report(f"{name}: {method}, one batch", times, ("fkeras", GOAL))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensorflow", required=True)
    parser.add_argument("--jax", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", metavar="network")
    options = parser.parse_args()
    tensorflow = peer.TensorFlow(options.tensorflow, "keras_networks.py")
    for name in options.names or networks.CONVOLUTIONS:
        measure(name, tensorflow, options.jax, options.rounds)


if __name__ == "__main__":
    main()
