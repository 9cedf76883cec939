"""Files that are read into shards: layouts, the memory of each device, wrong rules."""

import warnings

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.host.containers.errors import FileError
from fkeras.saving.weights.placing import Transfer
from fkeras.training.checkpoint import Checkpoint, open_store, restore
from tests.support.keras_oracle import keras_rules

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
RULES = {"hidden": "model", "fsdp": "data"}
KEY = jax.random.key(0)


def mesh():
    return jax.make_mesh((4, 2), ("data", "model"))


def network():
    x = fk.Input((64,))
    h = layers.BatchNormalization(name="norm")(layers.Dense(256, "relu", name="up")(x))
    return fk.Model(x, layers.Dense(64, name="down")(h))


MODEL = network().build(KEY)
STATE = MODEL.init_state()


def bytes_by_device(arrays):
    totals = dict.fromkeys(jax.devices(), 0)
    for array in arrays:
        # not `addressable_shards`, which makes arrays itself
        size = int(np.prod(array.sharding.shard_shape(array.shape))) * array.dtype.itemsize
        for device in array.devices():
            totals[device] += size
    return totals


class Peak:
    """Measures the live bytes of each device, beyond those before, whenever `look` is called."""

    def __init__(self):
        self.before = {id(a) for a in jax.live_arrays()}
        self.held = jax.live_arrays()  # keeps the ids valid
        self.most = dict.fromkeys(jax.devices(), 0)

    def look(self):
        new = [a for a in jax.live_arrays() if id(a) not in self.before]
        for device, size in bytes_by_device(new).items():
            self.most[device] = max(self.most[device], size)


FILES = ["m.keras", "w.weights.h5", "w.safetensors", "w.npz"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FILES)
def test_files_are_read_into_shards_and_no_device_holds_more_than_its_share(
    name, tmp_path, monkeypatch
):
    path, on = tmp_path / name, mesh()
    if name == "m.keras":
        fk.save_model(path, MODEL, STATE)
        load = lambda: fk.load_model(path, mesh=on, sharding=RULES)  # noqa: E731
    else:
        fk.save_weights(path, MODEL, STATE)
        load = lambda: fk.load_weights(path, network(), mesh=on, sharding=RULES)  # noqa: E731
    peak, add = Peak(), Transfer.add

    def observed_add(self, key, array, like):
        add(self, key, array, like)
        peak.look()

    monkeypatch.setattr(Transfer, "add", observed_add)
    model, state = load()
    peak.look()
    share = bytes_by_device(jax.tree.leaves((model, state)))
    assert all(peak.most[device] <= 1.1 * size for device, size in share.items())
    # each device has a fraction of the weights
    whole = sum(a.nbytes for a in jax.tree.leaves((MODEL, STATE)))
    assert max(share.values()) < 0.25 * whole
    assert model == MODEL
    assert model.layers["up"].kernel.sharding.spec == P("data", "model")
    assert model.layers["down"].kernel.sharding.spec == P("model", "data")
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(STATE), strict=True):
        assert one.sharding.spec == P()
        np.testing.assert_array_equal(one, other)


def test_loaded_shards_are_those_of_a_trainer(tmp_path):
    fk.save_model(tmp_path / "m.keras", MODEL, STATE)
    on = mesh()
    model, state = fk.load_model(tmp_path / "m.keras", mesh=on, sharding=RULES)
    run = fk.Trainer("sgd", "mse", mesh=on, sharding=RULES).init(model, KEY, state=state)
    for one, other in zip(jax.tree.leaves(run.model), jax.tree.leaves(model), strict=True):
        assert one.sharding == other.sharding
    # a built model keeps its shards, also without mesh and rules
    fk.save_weights(tmp_path / "w.npz", MODEL, STATE)
    again, _ = fk.load_weights(tmp_path / "w.npz", run.model, run.state)
    assert again.layers["up"].kernel.sharding == model.layers["up"].kernel.sharding
    # skipped weights move to the mesh, too
    moved, _ = fk.load_weights(
        tmp_path / "w.npz", MODEL, STATE, skip="up", mesh=on, sharding="fsdp"
    )
    assert moved.layers["up"].kernel.sharding.spec == P(None, "data")
    whole, _ = fk.load_model(tmp_path / "m.keras", mesh=on)
    assert len(whole.layers["up"].kernel.devices()) == 8


@pytest.mark.exhaustive
def test_legacy_files_are_read_into_shards(tmp_path):
    path, rules = tmp_path / "old.h5", {"hidden": "model"}
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns that the format is old
        fk.to_keras(MODEL, STATE).save(path)
    model, state = fk.load_model(path, mesh=mesh(), sharding=rules)
    weights, _ = fk.load_weights(path, network(), mesh=mesh(), sharding=rules)
    for loaded in (model, weights):
        assert loaded.layers["up"].kernel.sharding.spec == P(None, "model")
        np.testing.assert_array_equal(loaded.layers["up"].kernel, MODEL.layers["up"].kernel)
    assert {len(array.devices()) for array in jax.tree.leaves((model, state))} == {8}


@pytest.mark.exhaustive
def test_checkpoints_are_read_into_shards(tmp_path):
    trainer = fk.Trainer("adam", "mse", mesh=mesh(), sharding=RULES)
    run = trainer.init(MODEL, KEY)
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(0, run, {})
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), run)
    share, peak = bytes_by_device(jax.tree.leaves(run)), Peak()
    found = restore(tmp_path, like)
    assert found is not None
    peak.look()
    assert all(peak.most[device] <= 1.1 * size for device, size in share.items())
    for one, other in zip(jax.tree.leaves(found.tree), jax.tree.leaves(run), strict=True):
        assert one.sharding == other.sharding
        np.testing.assert_array_equal(one, other)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sharding": "fsdp"}, ValueError, "load_model: sharding: missing mesh"),
        ({"mesh": "cpu"}, TypeError, "load_model: expected mesh as a jax.sharding.Mesh"),
        ({"sharding": 3}, TypeError, "load_model: expected sharding as a dictionary"),
        ({"sharding": {"hiden": "model"}}, ValueError, "Did you mean 'hidden'"),
        ({"sharding": {"up/kernel": P("rows")}}, ValueError, "unknown mesh axis 'rows'"),
    ],
    ids=str,
)
def test_wrong_rules_of_a_loader_are_reported(options, error, message, tmp_path):
    fk.save_model(tmp_path / "m.keras", MODEL, STATE)
    if "sharding" in options and options["sharding"] != "fsdp":
        options = {"mesh": mesh(), **options}
    with pytest.raises(error, match=message) as caught:
        fk.load_model(tmp_path / "m.keras", **options)
    assert not isinstance(caught.value, FileError)
