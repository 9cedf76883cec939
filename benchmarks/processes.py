"""The same training in one, two and four processes, with four simulated devices in total.

    python benchmarks/processes.py [rounds]

Each round trains in 1 x 4, 2 x 2 and 4 x 1 processes and devices in turn, with `fit` and with a loop of JAX
alone: one jitted `lax.scan` over the batches of an epoch. Each training compiles before its epochs are
measured. The program prints seconds per epoch, as ratios to one process and to the loop of JAX: the median
and the quartiles over the rounds. All trainings must compute the same losses to 1e-5. The times are those
of the clock, since the processes wait for each other: measure on a machine without other work.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

import fkeras as fk
from fkeras import layers

DEVICES, EPOCHS, RATE = 4, 3, 1e-2
LOOPS = ("jax", "fit")
LAYOUTS = (1, 2, 4)  # numbers of processes
TIMEOUT = 600  # seconds for one training


def mlp():
    x = h = fk.Input((32,))
    for _ in range(4):
        h = layers.Dense(64, activation="relu")(h)
    return fk.Model(x, layers.Dense(10)(h)), np.random.default_rng(0).normal(size=(4096, 32)), 128


def transformer():
    x = h = fk.Input((16, 32))
    for _ in range(2):
        a = layers.LayerNormalization()(h)
        h = h + layers.MultiHeadAttention(4, 8)(a, a)
        h = h + layers.Dense(32)(layers.Dense(128, "gelu")(layers.LayerNormalization()(h)))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(h))
    return fk.Model(x, outputs), np.random.default_rng(0).normal(size=(512, 16, 32)), 32


NETWORKS = {"mlp": mlp, "transformer": transformer}


def work(options):
    """Trains in this process; process 0 prints losses and seconds per epoch as the last line."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES // options.count)
    if options.count > 1:
        jax.distributed.initialize(f"localhost:{options.port}", options.count, options.process)
    model, x, batch_size = NETWORKS[options.network]()
    x = x.astype("float32")
    y = x.reshape(len(x), -1)[:, :10].argmax(1).astype("int32")
    loop = jax_loop if options.loop == "jax" else fit_loop
    epochs = loop(model, x, y, batch_size, jax.make_mesh((DEVICES,), ("data",)))
    epochs()  # compiles
    start = time.perf_counter()
    losses = epochs()
    seconds = (time.perf_counter() - start) / EPOCHS
    if jax.process_index() == 0:
        print(json.dumps({"losses": losses, "seconds": seconds}), flush=True)


def fit_loop(model, x, y, batch_size, mesh):
    """Returns a function that trains with `fit` from the start, and returns the losses of the epochs."""
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer(fk.optimizers.SGD(RATE), loss, mesh=mesh)
    run = trainer.init(model, jax.random.key(0))

    def epochs():
        _, history = trainer.fit(run, x, y, batch_size, epochs=EPOCHS, shuffle=False, verbose=0)
        return list(history["loss"])

    return epochs


def jax_loop(model, x, y, batch_size, mesh):
    """Returns a function that trains with a loop of JAX, and returns the losses of the epochs."""
    # the weights of the run of `fit_loop`
    model = fk.Trainer("sgd", "mse").init(model, jax.random.key(0)).model
    everywhere = NamedSharding(mesh, PartitionSpec())
    rows = NamedSharding(mesh, PartitionSpec(None, "data"))

    def put(array, layout):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, layout, lambda index: array[index])

    weights, layers_of = jax.tree.flatten(model)
    start = [put(weight, everywhere) for weight in weights]
    data = tuple(put(a.reshape(-1, batch_size, *a.shape[1:]), rows) for a in (x, y))

    def loss_of(weights, rows, labels):
        logits = layers_of.unflatten(weights)(rows)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(weights, batch):
        loss, slopes = jax.value_and_grad(loss_of)(weights, *batch)
        return [w - RATE * slope for w, slope in zip(weights, slopes, strict=True)], loss

    @jax.jit
    def epoch(weights, data):
        return jax.lax.scan(step, weights, data)

    def epochs():
        weights, losses = start, []
        for _ in range(EPOCHS):
            weights, steps = epoch(weights, data)
            losses.append(float(steps.mean()))
        return losses

    return epochs


def free_port():
    """Returns a port on which process 0 can wait for the others."""
    with contextlib.closing(socket.socket()) as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def measure(network, loop, count):
    """Starts the processes of a training; returns the results that process 0 prints."""
    command = [sys.executable, __file__, "--network", network, "--loop", loop]
    command += ["--count", str(count), "--port", str(free_port())]
    processes = [
        subprocess.Popen(
            [*command, "--process", str(i)],
            stdout=subprocess.PIPE if i == 0 else subprocess.DEVNULL,
            text=True,
        )
        for i in range(count)
    ]
    try:
        output, _ = processes[0].communicate(timeout=TIMEOUT)
        codes = [process.wait(timeout=TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"{network}, {count} processes: exit codes {codes}")
    return json.loads(output.splitlines()[-1])


def quartiles(seconds, others):
    """Returns the ratios of measurements of the same rounds, as text: median, first and last quartile."""
    ratios = sorted(a / b for a, b in zip(seconds, others, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{statistics.median(ratios):6.2f} [{low:.2f}, {high:.2f}]"


def report(network, rounds):
    """Measures one network in all layouts and prints ratios with their spread."""
    places = [(loop, count) for count in LAYOUTS for loop in LOOPS]
    seconds = {place: [] for place in places}
    losses = []
    for number in range(rounds):
        for place in places if number % 2 == 0 else reversed(places):
            result = measure(network, *place)
            seconds[place].append(result["seconds"])
            losses.append(result["losses"])
    np.testing.assert_allclose(losses, np.tile(losses[0], (len(losses), 1)), rtol=1e-5)
    print(f"\n{network}: seconds per epoch, {rounds} rounds; equal losses to 1e-5")
    for loop, count in places:
        own = seconds[loop, count]
        print(
            f"  {loop:3} in {count} x {DEVICES // count}  {statistics.median(own):7.3f} s"
            f"   to one process {quartiles(own, seconds[loop, 1])}"
            f"   to the loop of JAX {quartiles(own, seconds['jax', count])}"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    worker = parser.add_argument_group("arguments of the processes that the program starts")
    worker.add_argument("--network", choices=NETWORKS)
    worker.add_argument("--loop", choices=LOOPS)
    worker.add_argument("--process", type=int)
    worker.add_argument("--count", type=int)
    worker.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.process is not None:
        return work(options)
    for network in NETWORKS:
        report(network, options.rounds)


if __name__ == "__main__":
    main()
