"""Kills a training repeatedly and checks that the resumed training ends with identical results.

    python tools/stress/kill_training.py [--kills 100] [--seed 0] [--folder DIR] [--quiet]

A training with Dropout, BatchNormalization, shuffling and checkpoints within epochs runs in a child
process and is killed (SIGKILL) at random moments, also while saving. The same call resumes until the
training is complete. Weights, optimizer state, statistics, key and logs must be bit-identical to those
of an uninterrupted training.
"""

import argparse
import gc
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

# one core a training; what is compiled is kept for the next process
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import numpy as np
import orbax.checkpoint  # noqa: F401  (once, before the processes part)

import fkeras as fk
from tools.stress.small_training import BATCH, EPOCHS, small_training


def warm():
    """Traces a training, so that children find what JAX remembers of it; it computes nothing."""
    trainer, model, *rows = small_training()
    key = jax.random.key
    jax.eval_shape(lambda *rows: trainer.run(trainer.init(model, key(7)), rows, 1, BATCH), *rows)
    gc.collect()
    gc.freeze()  # children need not look through it again
    gc.disable()  # they are gone before their own garbage matters


def train(folder):
    """Trains, or goes on, and returns a digest of all that is left."""
    trainer, model, x, y = small_training()
    run = trainer.init(model, jax.random.key(7))
    checkpoint = None if folder is None else fk.Checkpoint(str(folder), every=3)
    run, history = trainer.fit(
        run, x, y, BATCH, EPOCHS, verbose=0, validation_split=0.2, checkpoint=checkpoint
    )
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(run)[0]:
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    digest.update(json.dumps([history.history, history.epoch]).encode())
    return digest.hexdigest()


def child(folder, answer, errors):
    """Trains in a process of its own; returns its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it forks: no computation has run in this process
        number = os.fork()
    if number:
        return number
    code = 1
    try:
        os.setsid()
        warnings.simplefilter("error", UserWarning)  # a kill leaves nothing to warn of
        sys.stderr = errors.open("a")
        done = answer.with_suffix(".part")
        done.write_text(train(folder))
        done.rename(answer)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def wait(number, limit=None):
    """Whether the process ended in time by itself, and its exit code."""
    began = time.monotonic()
    while limit is None or time.monotonic() - began < limit:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return True, os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return False, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    home = options.folder or pathlib.Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(home / "programs"))
    errors, answer, folder = home / "errors.txt", home / "answer", home / "saves"

    def ended(code):
        if code:
            sys.exit(f"the training failed:\n{errors.read_text()}")
        digest = answer.read_text()
        answer.unlink()
        return digest

    def whole(place):
        number = child(place, answer, errors)
        began = time.monotonic()
        return ended(wait(number)[1]), time.monotonic() - began

    warm()
    plain, _ = whole(None)
    expected, _ = whole(folder)
    assert plain == expected, "saving changes the training"
    shutil.rmtree(folder)
    _, seconds = whole(folder)  # all programs are compiled now
    shutil.rmtree(folder)
    draw, kills, trainings, longest = random.Random(options.seed), 0, 0, 0
    row = 0
    while kills < options.kills:
        number = child(folder, answer, errors)
        done, code = wait(number, draw.uniform(0.1, 1.0) * seconds)
        if done:
            assert ended(code) == expected, f"training {trainings} ended with other numbers"
            trainings, longest, row = trainings + 1, max(longest, row), 0
            shutil.rmtree(folder)
            continue
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        kills, row = kills + 1, row + 1
        if not options.quiet:
            print(f"\r{kills} kills, {trainings} trainings ended alike", end="", flush=True)
    assert whole(folder)[0] == expected, "the last training ended with other numbers"
    print(f"\r{kills} kills, {trainings + 1} trainings ended bit for bit alike", flush=True)
    if options.folder is None:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
