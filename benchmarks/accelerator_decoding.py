"""A Llama that generates, by hand in `jax.numpy`: float weights, and weights of 8 and 4 bits.

Rows have lengths of their own, and end at an end token. Weights have the names and the codes of fkeras.
"""

import jax
import jax.numpy as jnp

import fkeras as fk
from fkeras.authoring.engine import weights_by_path

END = 1
_EPSILON = 1e-7


def llama(small):
    """A Llama in bfloat16; in float32 for the check, in which rounding must not change a token."""
    sizes = (64, 16, 24, 2, 2, 1) if small else (4096, 512, 1408, 2, 8, 4)
    config = fk.pretrained.LlamaConfig(*sizes)
    model = fk.pretrained.build(config)
    return config, model if small else _in_bfloat16(model)


def _in_bfloat16(model):
    def change(layer):
        layer = layer.replace(dtype="bfloat16")
        return _in_bfloat16(layer) if isinstance(layer, fk.Model) else layer

    return fk.transforms.replace(model, {"*": change})


def arrays_of(model):
    return {name: leaf for name, leaf in weights_by_path(model).items() if leaf is not None}


def generate(config, w, ids, lengths, new):
    """Returns the tokens (b, new), and the scores and caches after the last token."""
    rows, width = ids.shape
    heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    w = _unpacked(w)
    blank = jnp.zeros((rows, width + new, heads, size), w["norm/scale"].dtype)
    caches = [(blank, blank)] * config.num_hidden_layers
    steps = jnp.arange(width)[None]
    positions = jnp.where(steps < lengths[:, None], steps, -1)
    scores, caches = _step(config, w, ids, positions, lengths - 1, caches)

    def goes_on(carry):
        count, active = carry[0], carry[-1]
        return (count < new) & jnp.any(active)

    def body(carry):
        count, scores, caches, tokens, lengths, active = carry
        token = jnp.where(active, jnp.argmax(scores, axis=-1), 0).astype("int32")
        tokens = tokens.at[:, count].set(token)
        place = jnp.where(active, lengths, -1)[:, None]
        scores, caches = _step(config, w, token[:, None], place, lengths * 0, caches)
        return count + 1, scores, caches, tokens, lengths + active, active & (token != END)

    tokens, active = jnp.zeros((rows, new), "int32"), jnp.ones(rows, bool)
    carry = jnp.int32(0), scores, caches, tokens, lengths, active
    _, scores, caches, tokens, *_ = jax.lax.while_loop(goes_on, body, carry)
    return tokens, (scores, caches)


def _step(config, w, ids, positions, last, caches):
    """The scores behind the ids at `last` (b,), and the caches with the ids at `positions` (b, t)."""
    size = config.hidden_size // config.num_attention_heads
    rows = jnp.arange(len(ids))[:, None]
    x = _vectors(w, ids)
    angles = positions[..., None] / config.rope_theta ** (jnp.arange(0, size, 2) / size)
    cos, sin = (f(angles)[:, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))

    def norm(x, scale):
        wide = x.astype("float32")
        root = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + config.rms_norm_eps)
        return (wide * root).astype(x.dtype) * scale

    def rotate(x):
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    new = []
    for i, (keys, values) in enumerate(caches):
        y, block = norm(x, w[f"block_{i}/attention_norm/scale"]), f"block_{i}"
        query, key, value = (
            dense(w, f"{block}/{n}", y, "abc,cde->abde", (-1, size))
            for n in ("query", "key", "value")
        )
        # a position of -1 is not stored
        place = jnp.where(positions < 0, keys.shape[1], positions)
        keys = keys.at[rows, place].set(rotate(key), mode="drop")
        values = values.at[rows, place].set(value, mode="drop")
        new.append((keys, values))
        seen = jnp.arange(keys.shape[1]) <= positions[..., None]
        y = jax.nn.dot_product_attention(rotate(query), keys, values, mask=seen[:, None])
        x = x + dense(w, f"{block}/output", y, "abcd,cde->abe", (-1,))
        y = norm(x, w[f"{block}/mlp_norm/scale"])
        gate, up = (dense(w, f"{block}/{n}", y, "abc,cd->abd", (-1,)) for n in ("gate", "up"))
        x = x + dense(w, f"{block}/down", jax.nn.silu(gate) * up, "abc,cd->abd", (-1,))
    x = jnp.take_along_axis(x, last[:, None, None], axis=1)
    x = norm(x, w["norm/scale"])
    return dense(w, "embedding", x, "abc,cd->abd", (-1,), "reverse_embeddings")[:, 0], new


def _unpacked(w):
    """The weights with 4-bit codes as arrays of int4, once before the loop."""
    if "embedding/g_idx" not in w:
        return w

    def unpack(name, codes):
        if codes.dtype != "int8" or name.endswith("zero"):
            return codes
        axis = 0 if name == "embedding/reverse_embeddings" else 1
        return _codes_of(codes, axis).astype("int4")

    return {name: unpack(name, leaf) for name, leaf in w.items()}


def _codes_of(packed, axis):
    """The codes of bytes that hold two codes each along an axis."""
    low, high = (packed << jnp.int8(4)) >> jnp.int8(4), packed >> jnp.int8(4)
    shape = [2 * n if i == axis else n for i, n in enumerate(packed.shape)]
    return jnp.stack([low, high], axis=axis + 1).reshape(shape)


def _vectors(w, ids):
    table, scale = w["embedding/embeddings"], w.get("embedding/embeddings_scale")
    codes = table[ids]
    if scale is None:
        return codes
    dtype = scale.dtype
    if table.dtype == "int8":
        return codes.astype(dtype) / scale[ids][..., None]
    zero = w["embedding/embeddings_zero"][ids].astype(dtype)
    codes = codes.astype(dtype).reshape(*ids.shape, zero.shape[-1], -1)
    return ((codes - zero[..., None]) * scale[ids][..., None]).reshape(*ids.shape, -1)


def _integers(x, codes, scale, equation):
    axes = tuple(range(2, x.ndim))
    # in the order of fkeras, so that both sides round the same numbers
    largest = jnp.max(jnp.abs(x), axis=axes, keepdims=True) + jnp.asarray(_EPSILON, x.dtype)
    x_scale = (127 / largest).astype(x.dtype)
    x_codes = jnp.clip(jnp.round(x * x_scale), -127, 127).astype("int8")
    y = jnp.einsum(equation, x_codes, codes, preferred_element_type="int32").astype(x.dtype)
    return y / (x_scale.reshape(*x.shape[:2], *[1] * (y.ndim - 2)) * scale)


@jax.custom_vjp
def integer_product(x, codes, scale):
    """The product of x (b, t, i) with 8-bit codes (i, o); the gradient ignores the rounding."""
    return _integers(x, codes, scale, "abc,cd->abd")


def _backward(kept, g):
    codes, scale = kept
    return (g / scale) @ codes.T.astype(g.dtype), None, None


integer_product.defvjp(
    lambda x, codes, scale: (integer_product(x, codes, scale), (codes, scale)), _backward
)


def floats(codes, scale, zero):
    """The kernel (i, o) of packed 4-bit codes (i, o / 2)."""
    codes = _codes_of(codes, 1).reshape(len(scale), -1, scale.shape[1]).astype(scale.dtype)
    return ((codes - zero[:, None].astype(scale.dtype)) * scale[:, None]).reshape(
        -1, scale.shape[1]
    )


def dense(w, name, x, equation, shape, kernel="kernel"):
    """The product with the kernel of a name, in the precision of its codes."""
    codes, scale = w[f"{name}/{kernel}"], w.get(f"{name}/{kernel}_scale")
    if scale is None:
        return jnp.einsum(equation, x, codes)
    if codes.dtype == "int8":
        return _integers(x, codes, scale, equation)
    zero = w[f"{name}/{kernel}_zero"].astype("float32")
    groups = len(scale)
    parts = x.reshape(*x.shape[:2], groups, -1)
    codes = codes.reshape(groups, -1, codes.shape[-1]).astype(x.dtype)
    y = jnp.einsum("abgi,gio->abgo", parts, codes, preferred_element_type="float32")
    y = y - parts.astype("float32").sum(-1, keepdims=True) * zero
    y = (y * scale.astype("float32")).sum(-2).astype(x.dtype)
    return y.reshape(*y.shape[:2], *shape)
