"""Files of weights that two processes with two devices each hold together."""

import os
import pathlib

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import fkeras as fk
from fkeras.host.processes.arrays import is_key, put
from fkeras.host.processes.gathering import gathered, is_spread
from fkeras.training.callbacks import save_weights as save_run

TRAINER = fk.Trainer("adam", "mse", ["mae"])
X, Y = np.ones((4, 8), "float32"), np.zeros((4, 4), "float32")
WEIGHTS = ("w.weights.h5", "w.npz", "w.safetensors")
PATHS = ("m.keras", "t.keras", *WEIGHTS, "r.npz", "m.jax", "s.jax")


def run_alone():
    """A run after one step, equal in every process."""
    x = fk.Input((8,))
    h = fk.layers.BatchNormalization(name="norm")(fk.layers.Dense(8, name="up")(x))
    model = fk.Model(x, fk.layers.Dense(4, name="down")(h))
    return TRAINER.step(TRAINER.init(model, jax.random.key(0)), (X, Y))[0]


def write(folder, run):
    folder = pathlib.Path(folder)
    fk.save_model(folder / "m.keras", run.model, run.state)
    fk.save_model(folder / "t.keras", run.model, run.state, trainer=TRAINER, run=run)
    for name in WEIGHTS:
        fk.save_weights(folder / name, run.model, run.state)
    save_run(folder / "r.npz", run, weights_only=False)
    fk.export(run.model, run.state, folder / "m.jax", platforms=("cpu",))
    fk.export_step(TRAINER, run, (X, Y), folder / "s.jax", platforms=("cpu",))


def spread(mesh, tree):
    """The tree with its arrays split over a mesh where their first axis can be, as with "fsdp"."""

    def place(array):
        split = np.ndim(array) and array.shape[0] % mesh.size == 0
        return put(array, NamedSharding(mesh, PartitionSpec("data") if split else PartitionSpec()))

    return jax.tree.map(place, tree)


def equal(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y) and np.asarray(x).dtype == np.asarray(y).dtype
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def run(process, folder):
    replaced = []
    replace = os.replace

    def recording(source, target):
        replaced.append(pathlib.Path(target).name)
        replace(source, target)

    os.replace = recording
    mesh = jax.make_mesh((4,), ("data",))
    alone = run_alone()
    together = spread(mesh, alone)
    facts = {"spread": is_spread(together)}

    write(folder / "together", together)
    facts["written"], facts["complete"] = list(replaced), sorted(os.listdir(folder / "together"))
    if process == 0:
        write(folder / "alone", alone)

    facts["gathered"] = equal(gathered(together), alone)
    keys = spread(mesh, {"key": jax.random.key(3), "keys": jax.random.split(jax.random.key(4), 4)})
    whole = gathered(keys)
    facts["keys are keys"] = all(is_key(key) for key in whole.values())
    facts["keys"] = [jax.random.key_data(key).tolist() for key in whole.values()]
    columns = NamedSharding(mesh, PartitionSpec(None, "data"))
    moved = put(spread(mesh, X), columns)
    facts["moved"] = [
        list(moved.addressable_shards[0].data.shape),
        np.array_equal(gathered(moved), X),
    ]

    model, state = fk.load_model(folder / "together/m.keras", mesh=mesh, sharding="fsdp")
    facts["loaded"] = {
        "m.keras": [is_spread(model), equal(gathered((model, state)), (alone.model, alone.state))]
    }
    unbuilt = fk.engine.unbuilt(alone.model)
    for name in WEIGHTS:
        loaded = fk.load_weights(folder / "together" / name, unbuilt, mesh=mesh, sharding="fsdp")
        shards = {s.data.shape for s in loaded[0].layers["up"].kernel.addressable_shards}
        facts["loaded"][name] = [
            shards == {(2, 8)},
            equal(gathered(loaded), (alone.model, alone.state)),
        ]
    # without a mesh, the arrays of a spread model keep their devices
    kept = fk.load_weights(folder / "together/w.npz", together.model, together.state)
    facts["loaded"]["kept"] = [is_spread(kept[0]), equal(gathered(kept[0]), alone.model)]

    replaced.clear()
    model, state = together.model, together.state
    (folder / "file").touch()
    errors = {
        "folder": error_of(fk.save_weights, folder / "file/w.npz", model, state),
        "path": error_of(fk.save_weights, folder / f"other-{process}.npz", model, state),
        "model path": error_of(fk.save_model, folder / f"other-{process}.keras", model, state),
        "get_weights": error_of(model.get_weights),
    }
    facts["errors"], facts["written after errors"] = errors, list(replaced)
    fk.save_weights(folder / "after.npz", model, state)
    return facts
