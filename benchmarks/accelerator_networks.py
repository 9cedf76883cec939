"""Networks of `accelerators.py`: as fkeras models, and forward by hand.

A maker returns `(model, forward, data, small, tolerance)`; `forward` takes the library, the weights by path,
the state and the input, and returns the logits and the new state.
"""

import functools

import jax
import jax.numpy as jnp
import networks
from accelerator_sides import attend, conv, dense, integers, normal

import fkeras as fk
from fkeras import layers


def mlp_of(small):
    width, rows = (16, 8) if small else (1024, 1024)
    x = h = fk.Input((width,))
    for i in range(5):
        h = layers.Dense(width, "relu" if i < 4 else None, name=f"dense{i}")(h)

    def forward(library, w, state, x):
        for i in range(4):
            x = jax.nn.relu(dense(w, f"dense{i}", x))
        return dense(w, "dense4", x), {}

    def data():
        return (normal((rows, width)), integers((rows,), width))

    return fk.Model(x, h), forward, data, small


def convnet_of(small, policy="float32"):
    rows, size, width = (4, 8, 8) if small else (64, 32, 64)
    options = {"padding": "same", "use_bias": False, "dtype": policy}
    inputs = fk.Input((size, size, 3))

    def normalized(h, filters, strides, name, kernel=3):
        h = layers.Conv2D(filters, kernel, strides, name=f"conv_{name}", **options)(h)
        return layers.BatchNormalization(dtype=policy, name=f"norm_{name}")(h)

    plan = (("a", width, 1), ("b", 2 * width, 2), ("c", 2 * width, 1))
    relu = functools.partial(layers.Activation, "relu", dtype=policy)
    h = relu()(normalized(inputs, width, 1, "stem"))
    for name, filters, strides in plan:
        y = relu()(normalized(h, filters, strides, f"{name}1"))
        y = normalized(y, filters, 1, f"{name}2")
        short = h if strides == 1 else normalized(h, filters, strides, f"{name}0", 1)
        h = relu()(layers.Add(dtype=policy)([y, short]))
    h = layers.GlobalAveragePooling2D(dtype=policy)(h)
    model = fk.Model(inputs, layers.Dense(10, dtype=policy, name="head")(h))

    def forward(library, w, state, x):
        new = {}

        def normalized(x, name, strides=1):
            y, updates = library.batch(
                w, f"norm_{name}", conv(w, f"conv_{name}", x, strides), state
            )
            new.update(updates)
            return y

        x = x.astype("float32" if policy == "float32" else "bfloat16")
        x = jax.nn.relu(normalized(x, "stem"))
        for name, _, strides in plan:
            y = jax.nn.relu(normalized(x, f"{name}1", strides))
            y = normalized(y, f"{name}2")
            x = jax.nn.relu(y + (x if strides == 1 else normalized(x, f"{name}0", strides)))
        return dense(w, "head", x.mean((1, 2))), new

    def data():
        return (normal((rows, size, size, 3)), integers((rows,), 10))

    return model, forward, data, small, 1e-4 if policy == "float32" else 5e-2


def transformer_of(small, policy="float32", rows=4):
    rows, time, width, heads = (2, 8, 16, 2) if small else (rows, 512, 512, 8)
    words = 64 if small else 1024
    ids = fk.Input((time,), dtype="int32")
    x = layers.Embedding(words, width, dtype=policy, name="words")(ids)
    for i in range(2):
        h = layers.LayerNormalization(dtype=policy, name=f"first{i}")(x)
        attention = layers.MultiHeadAttention(
            heads, width // heads, dtype=policy, name=f"attention{i}"
        )
        x = layers.Add(dtype=policy)([x, attention(h, h)])
        h = layers.LayerNormalization(dtype=policy, name=f"second{i}")(x)
        h = layers.Dense(4 * width, "relu", dtype=policy, name=f"up{i}")(h)
        x = layers.Add(dtype=policy)([x, layers.Dense(width, dtype=policy, name=f"down{i}")(h)])
    model = fk.Model(ids, layers.Dense(words, dtype=policy, name="logits")(x))
    dtype = "float32" if policy == "float32" else "bfloat16"

    def forward(library, w, state, ids):
        x = w["words/embeddings"][ids].astype(dtype)
        for i in range(2):
            x = x + attend(library, w, f"attention{i}", library.layer(w, f"first{i}", x))
            h = jax.nn.relu(dense(w, f"up{i}", library.layer(w, f"second{i}", x)))
            x = x + dense(w, f"down{i}", h)
        return dense(w, "logits", x), {}

    def data():
        return (integers((rows, time), words), integers((rows, time), words, 4))

    return model, forward, data, small, 1e-4 if dtype == "float32" else 5e-2


def unet_of(small):
    """The U-Net of `networks.py`: 64 x 64, 16 to 128 channels."""
    rows = 1 if small else 8
    model = networks.unet()
    names = [layer.name for layer in model.layers]

    def of(kind):
        return iter(n for n in names if n.split("_")[0] == kind and "transpose" not in n)

    def forward(library, w, state, x):
        convs, norms, new = of("conv2d"), of("batch"), {}
        ups = iter(n for n in names if "transpose" in n)

        def block(x):
            for _ in range(2):
                y, updates = library.batch(w, next(norms), conv(w, next(convs), x), state)
                new.update(updates)
                x = jax.nn.relu(y)
            return x

        skips = []
        for _ in range(3):
            x = block(x)
            skips.append(x)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = block(x)
        for skip in reversed(skips):
            name = next(ups)
            x = jax.lax.conv_transpose(
                x, w[f"{name}/kernel"], (2, 2), "VALID", transpose_kernel=True
            )
            x = block(jnp.concatenate([skip, x + w[f"{name}/bias"]], axis=-1))
        return conv(w, next(convs), x), new

    def data():
        return (normal((rows, 64, 64, 3)), integers((rows, 64, 64), 4))

    return model, forward, data, small


def words_of(small):
    rows, time, words, width = (4, 8, 50, 8) if small else (64, 128, 100_000, 128)
    ids = fk.Input((time,), dtype="int32")
    h = layers.GlobalAveragePooling1D()(layers.Embedding(words, width, name="words")(ids))

    def forward(library, w, state, ids):
        return dense(w, "head", w["words/embeddings"][ids].mean(1)), {}

    def data():
        return (integers((rows, time), words), integers((rows,), 10))

    return fk.Model(ids, layers.Dense(10, name="head")(h)), forward, data, small


def llama(small):
    """A Llama in bfloat16; in float32 for the check, in which rounding must not change a token."""
    sizes = (64, 16, 24, 2, 2, 1) if small else (4096, 512, 1408, 2, 8, 4)
    config = fk.pretrained.LlamaConfig(*sizes)
    model = fk.pretrained.build(config)
    return config, model if small else in_bfloat16(model)


def in_bfloat16(model):
    def change(layer):
        layer = layer.replace(dtype="bfloat16")
        return in_bfloat16(layer) if isinstance(layer, fk.Model) else layer

    return fk.transforms.replace(model, {"*": change})


def llama_step(config, w, ids, caches, start):
    """The scores behind the last ids, and the caches, of a Llama by hand."""
    size = config.hidden_size // config.num_attention_heads
    x = w["embedding/embeddings"][ids]
    positions = start + jnp.arange(ids.shape[1])
    angles = positions[:, None] / config.rope_theta ** (jnp.arange(0, size, 2) / size)
    cos, sin = (f(angles)[None, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))

    def norm(x, scale):
        wide = x.astype("float32")
        root = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + config.rms_norm_eps)
        return (wide * root).astype(x.dtype) * scale

    def rotate(x):
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    new = []
    for i, (keys, values) in enumerate(caches):

        def of(name, i=i):
            return w[f"block_{i}/{name}"]

        y = norm(x, of("attention_norm/scale"))
        query, key, value = (
            jnp.einsum("abc,cde->abde", y, of(f"{n}/kernel")) for n in ("query", "key", "value")
        )
        keys = jax.lax.dynamic_update_slice(keys, rotate(key), (0, start, 0, 0))
        values = jax.lax.dynamic_update_slice(values, value, (0, start, 0, 0))
        new.append((keys, values))
        seen = jnp.arange(keys.shape[1])[None] <= positions[:, None]
        y = jax.nn.dot_product_attention(rotate(query), keys, values, mask=seen[None, None])
        x = x + jnp.einsum("abcd,cde->abe", y, of("output/kernel"))
        y = norm(x, of("mlp_norm/scale"))
        y = jax.nn.silu(y @ of("gate/kernel")) * (y @ of("up/kernel"))
        x = x + y @ of("down/kernel")
    return norm(x[:, -1], w["norm/scale"]) @ w["embedding/reverse_embeddings"], new
