"""Plans for meshes: bytes of one device, and the communication of XLA's partitioned program."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import fkeras as fk
from fkeras import layers
from fkeras.planning import compiling

LOGITS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
RESULT = re.compile(r"= ([^=]*?) (?:all-reduce|all-gather|reduce-scatter|all-to-all)(?:-start)?\(")
ARRAY = re.compile(r"(f32|s32|u32|pred)\[([\d,]*)\]")


def received(program):
    """Bytes that the collective operations of a compiled program return."""
    text = re.sub(r"/\*.*?\*/", "", program)
    shapes = [shape for result in RESULT.findall(text) for shape in ARRAY.findall(result)]
    return sum(
        np.prod([int(size) for size in sizes.split(",") if size], dtype=int)
        * (1 if dtype == "pred" else 4)
        for dtype, sizes in shapes
    )


def dense():
    hidden = [layers.Dense(128, activation="relu") for _ in range(3)]
    model = fk.Sequential([fk.Input((64,)), *hidden, layers.Dense(16)])
    return model, (np.zeros((1024, 64), "float32"), np.zeros(1024, "int32"))


def images():
    x = fk.Input((16, 16, 3))
    h = layers.MaxPooling2D()(layers.Conv2D(16, 3, padding="same", activation="relu")(x))
    h = layers.Dropout(0.5)(layers.Flatten()(layers.Conv2D(8, 3, padding="same")(h)))
    return fk.Model(x, layers.Dense(8)(h)), (
        np.zeros((32, 16, 16, 3), "float32"),
        np.zeros(32, "int32"),
    )


def attention():
    x = fk.Input((16,), dtype="int32")
    h = layers.Embedding(64, 32)(x)
    h = layers.Add()([h, layers.MultiHeadAttention(4, 8)(h, h)])
    h = layers.Dense(32)(layers.Dense(128, activation="gelu")(layers.LayerNormalization()(h)))
    return fk.Model(x, layers.Dense(64)(h)), (
        np.zeros((32, 16), "int32"),
        np.zeros((32, 16), "int32"),
    )


COLUMNS = {
    "dense_1/kernel": PartitionSpec(None, "model"),
    "dense_1/bias": PartitionSpec("model"),
    "dense_2/kernel": PartitionSpec("model"),
}
ROLES = {"batch": "data", "heads": "model", "hidden": "model"}
CASES = (
    pytest.param(dense, {"data": 8}, None, id="dense, rows"),
    pytest.param(dense, {"data": 8}, "fsdp", id="dense, fsdp"),
    pytest.param(dense, {"data": 2, "model": 4}, COLUMNS, id="dense, columns"),
    pytest.param(images, {"data": 8}, None, id="images, rows"),
    pytest.param(attention, {"data": 8}, "fsdp", id="attention, fsdp"),
    pytest.param(attention, {"data": 2, "model": 4}, ROLES, id="attention, heads"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("case", "axes", "sharding"), CASES)
def test_the_plan_of_a_mesh_is_that_of_xla(case, axes, sharding):
    model, batch = case()
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes))
    trainer = fk.Trainer("adam", LOGITS, mesh=mesh, sharding=sharding)
    plan = fk.plan(model, batch, trainer, donate=False)
    run = trainer.init(model, jax.random.key(0))
    compiled = jax.jit(trainer.step).lower(run, batch).compile()
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert plan.devices == 8
    weights = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(run.model))
    assert plan.weights == weights
    slots = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(run.opt_state))
    assert plan.optimizer == slots
    assert plan.peak == pytest.approx(peak, rel=0.01)
    assert plan.communication == pytest.approx(received(compiled.as_text()), rel=0.01)
    assert sum(call.communication for call in plan.calls) == plan.communication


@pytest.mark.exhaustive
def test_the_table_of_a_mesh():
    model, batch = dense()
    trainer = fk.Trainer("adam", LOGITS, mesh=jax.make_mesh((8,), ("data",)), sharding="fsdp")
    plan = fk.plan(model, batch, trainer)
    text = str(plan)
    assert "one of 8 devices" in text and "Communication" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    rows = [candidate.rows for candidate in plan.fit_into("4MB").candidates]
    assert all(each % 8 == 0 for each in rows) and max(rows) >= 1024
    with pytest.raises(ValueError, match="divisible by the 8 devices"):
        fk.plan(model, (batch[0][:30], batch[1][:30]), trainer)


@pytest.mark.exhaustive
def test_devices_that_the_machine_lacks_are_simulated():
    model, batch = dense()
    plan = fk.plan(model, batch, fk.Trainer("adam", LOGITS))
    devices = compiling._simulated_devices()
    assert len(devices) == compiling.MOST_DEVICES and devices[0] not in jax.devices()
    mesh = Mesh(np.array(devices[:8]), ("data",))
    simulated = fk.plan(model, batch, fk.Trainer("adam", LOGITS, mesh=mesh, sharding="fsdp"))
    present = jax.make_mesh((8,), ("data",))
    expected = fk.plan(model, batch, fk.Trainer("adam", LOGITS, mesh=present, sharding="fsdp"))
    assert simulated == expected and simulated.backend == "cpu"
    assert compiling.mesh_of({"data": 2 * jax.device_count()}).size == 2 * jax.device_count()
    assert plan.weights > 7 * simulated.weights


@pytest.mark.exhaustive
def test_a_mesh_may_be_described_by_its_sizes():
    model, batch = attention()
    trainer = fk.Trainer("adam", LOGITS, sharding=ROLES)
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    expected = fk.plan(model, batch, dataclasses.replace(trainer, mesh=mesh))
    assert fk.plan(model, batch, trainer, mesh={"data": 2, "model": 4}) == expected
    # more devices than the machine has, in place of the trainer's mesh
    other = dataclasses.replace(trainer, mesh=mesh)
    plan = fk.plan(model, batch, other, mesh={"data": 8, "model": 4})
    assert (plan.devices, plan.backend, plan.weights) == (32, "cpu", expected.weights)
    assert plan.activations < expected.activations
    with pytest.raises(ValueError, match="divisible by the 64 devices"):
        fk.plan(model, batch, trainer, mesh={"data": 64, "model": 1})
    with pytest.raises(ValueError, match="cannot be split into 3 parts"):
        fk.plan(model, batch, trainer, mesh={"data": 1, "model": 3})


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mesh", "error", "message"),
    [
        ((2, 4), TypeError, r"such as .*, received \(2, 4\)"),
        ({"data": 2.0}, TypeError, "expected mesh as sizes by axis name"),
        ({"data": True}, TypeError, "expected mesh as sizes by axis name"),
        ({0: 2}, TypeError, "expected mesh as sizes by axis name"),
        ({}, ValueError, "at least 1 device"),
        ({"data": 2, "model": 0}, ValueError, "received {'data': 2, 'model': 0}"),
        ({"data": 16, "model": 8}, ValueError, "with 128 devices. At most 64 devices"),
    ],
)
def test_bad_descriptions_of_a_mesh(mesh, error, message):
    with pytest.raises(error, match=message):
        fk.plan(*dense(), fk.Trainer("adam", LOGITS), mesh=mesh)


def test_a_mesh_of_devices_belongs_into_the_trainer():
    mesh = jax.make_mesh((8,), ("data",))
    with pytest.raises(TypeError, match=r"belongs into Trainer\(mesh=...\)"):
        fk.plan(*dense(), fk.Trainer("adam", LOGITS), mesh=mesh)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="expected a Trainer as the third argument"):
        fk.plan(*dense(), "adam", mesh={"data": 2})


@pytest.mark.exhaustive
def test_rows_on_two_devices_need_half_of_the_operations():
    model, batch = images()
    alone = fk.plan(model, batch, fk.Trainer("sgd", LOGITS))
    mesh = jax.make_mesh((2,), ("data",))
    shared = fk.plan(model, batch, fk.Trainer("sgd", LOGITS, mesh=mesh))
    # each device updates all weights
    assert shared.flops == pytest.approx(alone.flops / 2, rel=0.06)
    assert shared.weights == alone.weights
    assert shared.communication == pytest.approx(alone.gradients, rel=0.1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("axes", [{"data": 1}, {"data": 1, "model": 1}, {"data": 2, "model": 1}])
def test_axes_of_one_device_need_no_communication(axes):
    model, batch = dense()
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes))
    columns = {"dense_1/kernel": PartitionSpec(None, "model")} if "model" in axes else None
    plan = fk.plan(model, batch, fk.Trainer("sgd", LOGITS, mesh=mesh, sharding=columns))
    rows = {"data": axes["data"]}
    other = jax.make_mesh(tuple(rows.values()), tuple(rows))
    expected = fk.plan(model, batch, fk.Trainer("sgd", LOGITS, mesh=other))
    assert plan.communication == expected.communication
    assert bool(plan.communication) == (plan.devices > 1)
    assert plan.peak == expected.peak
