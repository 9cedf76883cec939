"""Two processes train one network on handwritten digits; one process is killed and started again.

The program starts itself: once as one process with four devices, then as two processes with two devices
each. In the second training, process 1 is killed in the middle. Process 0 reports the loss and ends.
Both are started again and continue from the checkpoint. In the end the program compares both results.

On several machines, each machine starts one process with the address of the first machine; the guide
"Train in several processes" has the commands.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import jax
import numpy as np
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

DEVICES = 4  # of all processes together
TRAINING = 1400  # rows for training; the other 397 are for the test


def make_model(units=64):
    """Returns a network with two hidden layers."""
    pixels = fk.Input((64,), name="pixels")
    x = layers.Dense(units, activation="relu")(pixels)
    x = layers.Dense(units, activation="relu")(x)
    return fk.Model(pixels, layers.Dense(10, activation="softmax", name="digit")(x))


class KillProcess(fk.training.Callback):
    """Kills process 1 at the end of an epoch, as a failure of its machine would."""

    epoch: int = fk.option()

    def on_epoch_end(self, epoch, run, logs):
        if epoch == self.epoch and jax.process_index() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def train(options):
    """Trains in this process, together with the other processes; process 0 writes the weights."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = (pixels / 16).astype("float32"), labels.astype("int32")
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    trainer = fk.Trainer(
        fk.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"], mesh=mesh
    )
    # each process reads its share of the rows of a batch
    digits = fk.utils.Dataset(
        TRAINING,
        lambda rows: (pixels[rows], labels[rows]),
        batch_size=100,
        shuffle=True,
        shard=trainer.share,
    )
    run = trainer.init(make_model(), jax.random.key(0))
    run, history = trainer.fit(
        run,
        digits,
        epochs=options.epochs,
        callbacks=[KillProcess(options.kill_after)] if options.kill_after is not None else [],
        checkpoint=options.folder / "saves",
        verbose=0,
    )
    # arrays are the complete data in every process, and so are the results
    logs = trainer.evaluate(run, pixels[TRAINING:], labels[TRAINING:], verbose=0)
    if jax.process_index() == 0:
        epochs = len(history.epoch)
        print(f"  test accuracy {logs['accuracy']:.2%}, loss {logs['loss']:.4f}; {epochs} epochs")
    fk.save_weights(options.folder / "weights.npz", run.model, run.state)


def work(options):
    """Runs one process of a training."""
    # simulated devices: with GPUs or TPU cores, leave out these lines
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES // options.count)
    if options.count > 1:
        jax.distributed.initialize(f"localhost:{options.port}", options.count, options.process)
    try:
        train(options)
    except fk.training.ProcessError as error:
        print(f"  process {options.process}: {error}", flush=True)
        os._exit(1)  # at the normal end of Python, JAX would wait for the lost process
    except Exception:
        traceback.print_exc()
        os._exit(1)


def free_port():
    """Returns a port on which process 0 can wait for the others."""
    with contextlib.closing(socket.socket()) as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def start(count, epochs, folder, kill_after=None):
    """Starts the processes of a training, waits for them and returns their exit codes."""
    command = [sys.executable, __file__, "--folder", str(folder), "--epochs", str(epochs)]
    command += ["--count", str(count), "--port", str(free_port())]
    if kill_after is not None:
        command += ["--kill-after", str(kill_after)]
    processes = [subprocess.Popen([*command, "--process", str(i)]) for i in range(count)]
    try:
        return [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()


def compare(epochs):
    """Trains in one process and in two processes, and compares the weights."""
    with tempfile.TemporaryDirectory() as folder:
        alone, joint = pathlib.Path(folder) / "alone", pathlib.Path(folder) / "joint"
        alone.mkdir()
        joint.mkdir()
        print(f"one process, {DEVICES} devices", flush=True)
        codes = [start(1, epochs, alone)]
        print(f"two processes, {DEVICES // 2} devices each; process 1 is killed", flush=True)
        codes.append(start(2, epochs, joint, kill_after=epochs // 2))
        print("the same two processes, started again", flush=True)
        codes.append(start(2, epochs, joint))
        if codes != [[0], [1, -signal.SIGKILL], [0, 0]]:
            raise SystemExit(f"the processes ended with the unexpected exit codes {codes}")
        with np.load(alone / "weights.npz") as a, np.load(joint / "weights.npz") as b:
            # the file also has texts
            names = [name for name in a.files if a[name].dtype.kind == "f"]
            return max(float(abs(a[name] - b[name]).max()) for name in names)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--short", action="store_true", help="train for few epochs")
    worker = parser.add_argument_group("arguments of the processes that the program starts")
    worker.add_argument("--process", type=int, help="number of the process")
    worker.add_argument("--count", type=int, help="number of processes")
    worker.add_argument("--port", type=int, help="port of process 0")
    worker.add_argument("--folder", type=pathlib.Path, help="folder of checkpoints and weights")
    worker.add_argument("--kill-after", type=int, help="epoch after which process 1 is killed")
    options = parser.parse_args()
    if options.process is not None:
        return work(options)
    begin = time.perf_counter()
    difference = compare(options.epochs or (4 if options.short else 20))
    print(f"largest difference of a weight {difference:.1e}; {time.perf_counter() - begin:.0f} s")
    if difference > 1e-3:
        raise SystemExit("expected equal trainings up to rounding")


if __name__ == "__main__":
    main()
