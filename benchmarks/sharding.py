"""A sharded training step of a transformer against the same step in JAX, laid out by hand.

    python benchmarks/sharding.py [rounds]

Goal: the same collective operations in the compiled programs, the same bytes of weights on each
device, and at most 1.1 times the CPU time, on eight simulated devices (2 for rows, 4 for weights). The
hand-written side splits its weights after Shoeybi et al., Megatron-LM (2019), and constrains the
activations after each block; fkeras has one dictionary of roles. Both sides start from the same
weights; the losses after all steps must agree.
"""

import collections
import re
import sys

import jax
import jax.numpy as jnp
import meter
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.training.step import step

jax.config.update("jax_num_cpu_devices", 8)
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
STEPS, LAYERS = 3, 2
VOCAB, WIDTH, HEADS, TIME, ROWS = 512, 128, 8, 64, 16
optimizer = optax.sgd(1e-2, momentum=0.9)
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
ROLES = {"batch": "data", "heads": "model", "hidden": "model", "vocab": "model"}


def transformer():
    ids = fk.Input((TIME,), dtype="int32")
    x = layers.Embedding(VOCAB, WIDTH, name="words")(ids)
    for i in range(LAYERS):
        h = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention{i}")
        x = x + attention(h, h, use_causal_mask=True)
        h = layers.LayerNormalization(epsilon=1e-5, name=f"second_norm{i}")(x)
        h = layers.Dense(4 * WIDTH, "relu", name=f"up{i}")(h)
        x = x + layers.Dense(WIDTH, name=f"down{i}")(h)
    return fk.Model(ids, layers.Dense(VOCAB, name="logits")(x))


def specs_by_hand(name):
    """Returns the layout of a weight of the hand-written side."""
    rows_and_columns = {
        r"words|output_dense/kernel|down\d/kernel": P("model"),
        r"(query|key|value)_dense/kernel|up\d/kernel|logits/kernel": P(None, "model"),
        r"(query|key|value)_dense/bias|up\d/bias|logits/bias": P("model"),
    }
    return next((spec for text, spec in rows_and_columns.items() if re.search(text, name)), P())


def normalize(params, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params[f"{name}/gamma"] + params[
        f"{name}/beta"
    ]


def lay_out(x, *entries):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", *entries)))


def forward(params, ids):
    x = lay_out(params["words/embeddings"][ids])
    for i in range(LAYERS):
        h = normalize(params, f"norm{i}", x)
        q, k, v = (
            jnp.einsum("btd,dhk->bthk", h, params[f"attention{i}/{n}_dense/kernel"])
            + params[f"attention{i}/{n}_dense/bias"]
            for n in ("query", "key", "value")
        )
        scores = jnp.einsum("bthk,bshk->bhts", q, k) / np.sqrt(WIDTH // HEADS).astype("float32")
        scores = jnp.where(np.tril(np.ones((TIME, TIME), bool)), scores, -1e30)
        h = jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores), v)
        h = jnp.einsum("bthk,hkd->btd", h, params[f"attention{i}/output_dense/kernel"])
        x = x + lay_out(h + params[f"attention{i}/output_dense/bias"])
        h = normalize(params, f"second_norm{i}", x)
        h = jax.nn.relu(h @ params[f"up{i}/kernel"] + params[f"up{i}/bias"])
        h = lay_out(h, None, "model")
        x = x + lay_out(h @ params[f"down{i}/kernel"] + params[f"down{i}/bias"])
    return lay_out(x @ params["logits/kernel"] + params["logits/bias"], None, "model")


@jax.jit
def raw_step(params, moments, ids, targets):
    def loss(params):
        logits = jax.nn.log_softmax(forward(params, ids))
        return -jnp.take_along_axis(logits, targets[..., None], axis=-1).mean()

    value, grads = jax.value_and_grad(loss)(params)
    deltas, moments = optimizer.update(grads, moments, params)
    return optax.apply_updates(params, deltas), moments, value


def collectives(compiled):
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    return collections.Counter(re.findall(rf"= .*? ({kinds})(?:-start)?\(", compiled.as_text()))


def bytes_on_a_device(tree):
    return sum(array.addressable_shards[0].data.nbytes for array in jax.tree.leaves(tree))


rng = np.random.default_rng(0)
x = rng.integers(0, VOCAB, (ROWS, TIME)).astype("int32")
y = rng.integers(0, VOCAB, (ROWS, TIME)).astype("int32")
model = transformer().build(jax.random.key(0))
loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer(optimizer, loss, mesh=mesh, sharding=ROLES)
run = trainer.init(model, jax.random.key(1))
batch = step.as_arrays(trainer, (x, y))
ours = step.compiled_step.by_default.lower(trainer, run, batch).compile()

flat, _ = jax.tree.flatten_with_path(model)
params = {
    path[-1].key: jax.device_put(a, NamedSharding(mesh, specs_by_hand(path[-1].key)))
    for path, a in flat
}
moments = optimizer.init(params)
rows = jax.device_put((x, y), NamedSharding(mesh, P("data")))
by_hand = raw_step.lower(params, moments, *rows).compile()

print("collectives by hand ", dict(collectives(by_hand)))
print("collectives by roles", dict(collectives(ours)))
whole = sum(a.nbytes for a in jax.tree.leaves(model))
print(f"weights {whole:,} bytes; on a device by hand {bytes_on_a_device(params):,}", end="")
print(f", by roles {bytes_on_a_device(run.model):,}")
losses = {}


def train_by_hand():
    p, m = params, moments
    for _ in range(STEPS):
        p, m, losses["by hand"] = raw_step(p, m, *rows)
    jax.block_until_ready(p)


def train_by_roles():
    r = run
    for _ in range(STEPS):
        r, logs = trainer.step(r, (x, y))
        losses["by roles"] = logs["loss"]
    jax.block_until_ready(r)


train_by_hand()
train_by_roles()
times = meter.compare({"by hand": train_by_hand, "by roles": train_by_roles}, ROUNDS)
meter.report(f"{STEPS} steps", times, limit=("by roles", 1.1))
print({name: float(value) for name, value in losses.items()})
assert np.isclose(float(losses["by hand"]), float(losses["by roles"]), rtol=1e-5)
