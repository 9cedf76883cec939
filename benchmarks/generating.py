"""`fk.generate` against the same decoder written by hand in JAX, with the same weights.

    python benchmarks/generating.py [rounds] [SmolLM2]

Goal: at most 1 / 0.95 = 1.053 times the time, and equal tokens. The decoder by hand serves prompts of one
length: one position for all rows, a prefill and a `lax.while_loop` over donated caches. "Loaded" has the weights of
equal blocks side by side in memory, as `fk.pretrained.load` places them. The argument SmolLM2 stands for the sizes of
SmolLM2-135M.
"""

import sys

import meter  # before jax

# isort: split
import functools

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers
from fkeras.authoring.engine import weights_by_path
from fkeras.pretrained.rooms import Rooms

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
SIZES = {"small": (4096, 256, 4, 4, 2, 704), "SmolLM2": (49_152, 576, 30, 9, 3, 1536)}
VOCABULARY, WIDTH, DEPTH, HEADS, KEY_HEADS, HIDDEN = SIZES["".join(sys.argv[2:3]) or "small"]
SIZE = WIDTH // HEADS
PROMPT, NEW = 64, 64


def block(x, positions, i):
    a, p = fk.Input((None, WIDTH)), fk.Input((None,), dtype="int32")
    y = layers.RMSNormalization(name="attention_norm")(a)

    def heads(name, count):
        return layers.EinsumDense("abc,cde->abde", (None, count, SIZE), name=name)(y)

    query, key, value = heads("query", HEADS), heads("key", KEY_HEADS), heads("value", KEY_HEADS)
    query, key = layers.RotaryEmbedding(name="rotary")([query, key], p)
    y = layers.DotProductAttention(mask=fk.masks.Causal(), name="attention")(query, key, value, p)
    y = layers.EinsumDense("abcd,cde->abe", (None, WIDTH), name="output")(y)
    y = layers.Add(name="attention_add")([a, y])
    z = layers.RMSNormalization(name="mlp_norm")(y)
    gate = layers.Dense(HIDDEN, "silu", use_bias=False, name="gate")(z)
    up = layers.Dense(HIDDEN, use_bias=False, name="up")(z)
    z = layers.Dense(WIDTH, use_bias=False, name="down")(layers.Multiply()([gate, up]))
    out = layers.Add(name="mlp_add")([y, z])
    return fk.Model([a, p], out, name=f"block_{i}")([x, positions])


def decoder():
    ids = fk.Input((None,), dtype="int32", name="ids")
    positions = layers.Positions(name="positions")(ids)
    x = layers.Embedding(VOCABULARY, WIDTH, name="embedding")(ids)
    for i in range(DEPTH):
        x = block(x, positions, i)
    x = layers.RMSNormalization(name="norm")(x)
    return fk.Model(ids, layers.Dense(VOCABULARY, use_bias=False, name="head")(x))


def as_dict(model):
    """The weights by layer, and those of the blocks as a list."""
    weights = {"blocks": [{} for _ in range(DEPTH)]}
    for path, leaf in weights_by_path(model).items():
        names = path.split("/")
        home = weights
        if names[0].startswith("block_"):
            home, names = weights["blocks"][int(names[0][6:])], names[1:]
        home["/".join(names)] = leaf
    return weights


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def rotate(x, positions):
    angles = positions[:, None] / 10000.0 ** (jnp.arange(0, SIZE, 2) / SIZE)
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def forward(weights, ids, caches, start):
    """The scores behind the last id, and the caches."""
    x = weights["embedding/embeddings"][ids]
    positions = start + jnp.arange(ids.shape[1])
    new = []
    for w, (keys, values) in zip(weights["blocks"], caches, strict=True):
        y = norm(x, w["attention_norm/scale"])
        query, key, value = (
            jnp.einsum("abc,cde->abde", y, w[f"{n}/kernel"]) for n in ("query", "key", "value")
        )
        query, key = rotate(query, positions), rotate(key, positions)
        keys = jax.lax.dynamic_update_slice(keys, key, (0, start, 0, 0))
        values = jax.lax.dynamic_update_slice(values, value, (0, start, 0, 0))
        new.append((keys, values))
        mask = jnp.arange(keys.shape[1])[None] <= positions[:, None]
        y = jax.nn.dot_product_attention(query, keys, values, mask=mask[None, None])
        x = x + jnp.einsum("abcd,cde->abe", y, w["output/kernel"])
        y = norm(x, w["mlp_norm/scale"])
        x = x + (jax.nn.silu(y @ w["gate/kernel"]) * (y @ w["up/kernel"])) @ w["down/kernel"]
    return norm(x[:, -1], weights["norm/scale"]) @ weights["head/kernel"], new


@jax.jit
def prefill(weights, ids):
    shape = (ids.shape[0], PROMPT + NEW, KEY_HEADS, SIZE)
    caches = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(DEPTH)]
    return forward(weights, ids, caches, 0)


@functools.partial(jax.jit, donate_argnums=2)
def decode(weights, scores, caches):
    def step(loop):
        count, scores, caches, tokens = loop
        token = jnp.argmax(scores, axis=-1).astype(jnp.int32)
        tokens = tokens.at[:, count].set(token)
        scores, caches = forward(weights, token[:, None], caches, PROMPT + count)
        return count + 1, scores, caches, tokens

    start = (jnp.int32(0), scores, caches, jnp.zeros((scores.shape[0], NEW), jnp.int32))
    return jax.lax.while_loop(lambda loop: loop[0] < NEW, step, start)[2:]


def by_hand(weights, ids):
    return decode(weights, *prefill(weights, ids))[1]


model = decoder().build(jax.random.key(0))
# larger weights than the initial ones, so that the most likely tokens differ
model = jax.tree.map(lambda a: a * 1.5, model)
weights = as_dict(model)
by_path = {path: leaf for path, leaf in weights_by_path(model).items() if leaf is not None}
rooms = Rooms({p: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for p, leaf in by_path.items()})
placed = {path: rooms.placed(path, np.asarray(leaf)) for path, leaf in by_path.items()}
loaded = fk.engine.replace_weights(
    model, {p: leaf if placed[p] is None else placed[p] for p, leaf in by_path.items()}
)
for batch in (1, 4):
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (batch, PROMPT)).astype("int32")
    contenders = {
        "by hand": lambda: jax.block_until_ready(by_hand(weights, ids)),
        "fk.generate": lambda: jax.block_until_ready(
            fk.generate(model, None, ids, max_new_tokens=NEW).tokens
        ),
        "loaded": lambda: jax.block_until_ready(
            fk.generate(loaded, None, ids, max_new_tokens=NEW).tokens
        ),
    }
    tokens = [np.asarray(run()) for run in contenders.values()]
    assert all((tokens[0] == other).all() for other in tokens[1:]), "the tokens differ"
    assert len(np.unique(tokens[0])) > NEW // 2, "the tokens repeat"
    times = meter.compare(contenders, ROUNDS)
    meter.report(
        f"{batch} x {NEW} tokens behind {PROMPT}", times, limit=("fk.generate", round(1 / 0.95, 3))
    )
    median = sorted(times["fk.generate"])[ROUNDS // 2]
    print(f"  {batch * NEW / median:.0f} tokens per second of CPU time, prompt included")
