"""The same training in one, two and four processes, with four simulated devices in total.

    python benchmarks/processes.py [rounds]

Each round trains in 1 x 4, 2 x 2 and 4 x 1 processes and devices in turn, and each training compiles before
its epochs are measured. The program prints seconds per epoch as ratios to one process, the median and
the quartiles over the rounds. All trainings must compute the same losses to 1e-5. The times are those of
the clock, since the processes wait for each other: measure on a machine without other work.
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

import fkeras as fk
from fkeras import layers

DEVICES, EPOCHS = 4, 3
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
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    mesh = jax.make_mesh((DEVICES,), ("data",))
    trainer = fk.Trainer(fk.optimizers.SGD(1e-2), loss, mesh=mesh)
    run = trainer.init(model, jax.random.key(0))
    settings = {"batch_size": batch_size, "verbose": 0}
    trainer.fit(run, x, y, epochs=EPOCHS, **settings)  # compiles
    start = time.perf_counter()
    _, history = trainer.fit(run, x, y, epochs=EPOCHS, **settings)
    seconds = (time.perf_counter() - start) / EPOCHS
    if jax.process_index() == 0:
        print(json.dumps({"losses": list(history["loss"]), "seconds": seconds}), flush=True)


def free_port():
    """Returns a port on which process 0 can wait for the others."""
    with contextlib.closing(socket.socket()) as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def measure(network, count):
    """Starts the processes of a training; returns the results that process 0 prints."""
    command = [sys.executable, __file__, "--network", network, "--count", str(count)]
    command += ["--port", str(free_port())]
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


def report(network, rounds):
    """Measures one network in all layouts and prints ratios with their spread."""
    seconds = {count: [] for count in LAYOUTS}
    losses = []
    for number in range(rounds):
        for count in LAYOUTS if number % 2 == 0 else reversed(LAYOUTS):
            result = measure(network, count)
            seconds[count].append(result["seconds"])
            losses.append(result["losses"])
    np.testing.assert_allclose(losses, np.tile(losses[0], (len(losses), 1)), rtol=1e-5)
    print(f"\n{network}: seconds per epoch, {rounds} rounds; equal losses to 1e-5")
    for count in LAYOUTS:
        ratios = sorted(a / b for a, b in zip(seconds[count], seconds[1], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"  {count} processes x {DEVICES // count} devices {statistics.median(seconds[count]):8.3f} s"
            f"   ratio {statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}]"
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    worker = parser.add_argument_group("arguments of the processes that the program starts")
    worker.add_argument("--network", choices=NETWORKS)
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
