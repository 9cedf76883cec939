"""Kills processes that train together, and checks that the continued training ends with equal results.

    python tools/stress/kill_processes.py [--kills 10] [--all] [--change] [--seed 0] [--folder DIR]

Two processes with two devices each train a network with Dropout and BatchNormalization: on arrays, then on
a dataset of which each process reads its share, with a checkpoint after every third step. At random
moments, and within saves, one of the processes is killed (SIGKILL), or all of them. The others must
then end by themselves, with an error that names a lost process. The same call continues from the last
save, until the training is complete. Weights, statistics, optimizer state and history must be
bit-identical to those of an uninterrupted training of the same processes, and close to those of a single
process. With --change, each start has another number of processes, and the results are close.
"""

import argparse
import collections
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import jax
import numpy as np

import fkeras as fk
from fkeras.utils.sources.dataset import Dataset
from tests.support.processes import run_processes, start_processes
from tools.stress.small_training import BATCH, EPOCHS, ROWS, small_training

KINDS = ("arrays", "dataset")
LAYOUT, ONE = (2, 2), (1, 4)
LAYOUTS = (LAYOUT, ONE, (4, 1))
# seconds in which the processes that are left must end, and in which a training must end
LIMIT, LONG = 60, 300


def train(rank, folder):
    """Trains, or continues, in each process; returns history and arrays by kind of data."""
    return {kind: _fit(kind, folder, rank) for kind in KINDS}


def _fit(kind, folder, rank):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    trainer, model, x, y = small_training(mesh)
    run = trainer.init(model, jax.random.key(7))
    if folder is not None:
        pathlib.Path(folder).mkdir(exist_ok=True)
        pathlib.Path(folder, f"begun-{rank}").touch()
    # a callback makes the training slow enough for kills between its steps
    pause = fk.callbacks.LambdaCallback(on_batch_end=lambda step, run, logs: time.sleep(0.02))
    options = {"epochs": EPOCHS, "verbose": 0, "callbacks": [pause]}
    if folder is not None:
        options["checkpoint"] = fk.Checkpoint(f"{folder}/{kind}", every=3, seconds=0.4)
    if kind == "arrays":
        run, history = trainer.fit(run, x, y, BATCH, validation_split=0.2, **options)
    else:
        rows = Dataset(ROWS, lambda ids: (x[ids], y[ids]), BATCH, shuffle=True, shard=trainer.share)
        run, history = trainer.fit(run, rows, **options)
    tree = {
        "model": run.model,
        "state": run.state,
        "opt_state": run.opt_state,
        "step": run.step,
        "key": run.key_data,
    }
    arrays = {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    return {"history": {**history.history, "epoch": history.epoch}, "arrays": arrays}


def run_whole(layout, folder=None):
    """The results of an uninterrupted training, equal in all processes, and its seconds."""
    began = time.monotonic()
    first, *others = [
        result.get() for result in run_processes(CASE, *layout, arguments=(folder,), timeout=LONG)
    ]
    for other in others:
        require_equal(other, first, f"the processes of {layout}", exact=True)
    return first, time.monotonic() - began


def require_equal(results, expected, what, exact):
    """Ends the program if results differ: at all, or by more than rounding."""
    for kind in KINDS:
        for part in ("history", "arrays"):
            one, other = results[kind][part], expected[kind][part]
            if set(one) != set(other):
                sys.exit(f"{what}: {kind}: {sorted(one)} instead of {sorted(other)}")
            for name in one:
                value, wanted = np.asarray(one[name]), np.asarray(other[name])
                equal = value.shape == wanted.shape and (
                    value.tobytes() == wanted.tobytes() if exact else is_close(value, wanted)
                )
                if not equal:
                    sys.exit(f"{what}: {kind}: {name} is {value}, expected {wanted}")


def is_close(value, wanted):
    """Whether two arrays are equal up to 1e-5 of the largest number."""
    size = np.abs(wanted).max(initial=0)
    return bool(np.allclose(value, wanted, rtol=1e-5, atol=1e-5 * size))


def unpublished(folder):
    """The folders of saves that are under way, or that a kill has left."""
    return {path for kind in KINDS for path in pathlib.Path(folder, kind).glob("partial/*")}


def begun(folder):
    """The files of the processes that have made their first call."""
    return list(pathlib.Path(folder).glob("begun-*"))


def await_moment(processes, count, draw, folder, seconds):
    """Waits until a random moment, or until the next save after it.

    Before the first call of the trainer only JAX could notice a lost process, after 100 seconds.

    Returns:
        Whether the processes still run, and whether they save.
    """
    while not processes.ended() and len(begun(folder)) < count:
        time.sleep(0.01)
    left = unpublished(folder)
    deadline = time.monotonic() + draw.uniform(0, seconds)
    in_save = draw.random() < 0.5
    while not processes.ended() and time.monotonic() < deadline:
        time.sleep(0.001)
    while in_save and not processes.ended() and not unpublished(folder) - left:
        time.sleep(0.0005)
    return not processes.ended(), bool(unpublished(folder) - left)


def check_ends(results, victims):
    """Ends the program if a process that was left ended otherwise than it should."""
    for result in results:
        if result.rank in victims or result.code == 0:
            continue
        # JAX ends all processes that lose process 0
        by_jax = 0 in victims and result.code == -signal.SIGABRT
        if not by_jax and "ProcessError" not in (result.error or ""):
            sys.exit(
                f"process {result.rank} ended with code {result.code} after kills of {victims}:\n"
                f"{result.output}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--all", action="store_true", help="kill all processes at once")
    parser.add_argument("--change", action="store_true", help="change the number of processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        home = options.folder or pathlib.Path(home)
        one, _ = run_whole(ONE)
        expected, seconds = (one, None) if options.change else run_whole(LAYOUT)
        require_equal(expected, one, "one process and two", exact=False)
        if seconds is None:
            _, seconds = run_whole(LAYOUT)
        counts = collections.Counter()
        draw, number = random.Random(options.seed), 0
        while counts["kills"] < options.kills or counts["unfinished"]:
            folder = str(home / f"saves{number}")
            layout = draw.choice(LAYOUTS) if options.change else LAYOUT
            counts["starts"] += 1
            for path in begun(folder):
                path.unlink()
            with start_processes(CASE, *layout, arguments=(folder,)) as processes:
                runs, saves = False, False
                if counts["kills"] < options.kills:
                    runs, saves = await_moment(processes, layout[0], draw, folder, seconds)
                if runs:
                    ranks = range(layout[0])
                    every = options.all or draw.random() < 0.25
                    victims = list(ranks) if every else [draw.choice(ranks)]
                    counts["in saves"] += saves
                    for rank in victims:
                        processes.kill(rank)
                    check_ends(processes.wait(LIMIT), victims)
                    counts["kills"] += 1
                    counts["unfinished"] = 1
                else:
                    results = [result.get() for result in processes.wait(LONG)]
                    for result in results:
                        require_equal(
                            result, expected, f"training {number}", exact=not options.change
                        )
                    # the next training begins from the start
                    number, counts["unfinished"] = number + 1, 0
            if not options.quiet:
                text = f"{counts['kills']} kills, {counts['in saves']} in saves"
                print(f"\r{text}", end="", flush=True)
    end = "results within 1e-5" if options.change else "results identical"
    kills, saves, starts = counts["kills"], counts["in saves"], counts["starts"]
    print(f"\r{kills} kills, {saves} in saves, {starts} starts: {end}", flush=True)


#: the name under which the processes import this file
CASE = "tools.stress.kill_processes:train"

if __name__ == "__main__":
    main()
