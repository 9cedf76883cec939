"""Sharded training: orbax saves a training on a mesh of 8 devices, which continues on a mesh of 4."""

import os
import pathlib
import tempfile

# on a CPU: eight devices of the same machine
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
import jax
import numpy as np
import orbax.checkpoint as ocp

import fkeras as fk
from fkeras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 16)).astype("float32")
y = np.sin(x.sum(1, keepdims=True))
inputs = fk.Input((16,))
model = fk.Model(inputs, layers.Dense(1)(layers.Dense(32, activation="tanh")(inputs)))


def trainer_on(data, fsdp):
    mesh = jax.make_mesh((data, fsdp), ("data", "model"), devices=jax.devices()[: data * fsdp])
    return fk.Trainer("adam", "mse", mesh=mesh, sharding={"hidden": "model"})


def train(trainer, run, epochs):
    run, _ = trainer.fit(run, x, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return run


eight, four, one = trainer_on(4, 2), trainer_on(1, 4), fk.Trainer("adam", "mse")
run = train(eight, eight.init(model, jax.random.key(0)), 3)
with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
    path = pathlib.Path(folder, "run")
    checkpointer.save(path, run)
    checkpointer.wait_until_finished()
    run = checkpointer.restore(path, four.init(model, jax.random.key(0)))
run = train(four, run, 3)
kernel = run.model.layers["dense"].kernel
assert [shard.data.shape for shard in kernel.addressable_shards] == [(16, 8)] * 4

# the same 6 epochs on one device
alone = train(one, one.init(model, jax.random.key(0)), 6)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), run.model, alone.model)
