"""Small language models: without caches, with caches, and with an encoder."""

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

VOCABULARY = 11


def uncached(seed=0, width=8, vocabulary=VOCABULARY, causal=True, time=None):
    """A model whose attention has no cache."""
    ids = fk.Input((time,), dtype="int32", name="ids")
    x = layers.Embedding(vocabulary, width, name="embedding")(ids)
    y = layers.MultiHeadAttention(2, width // 2, name="attention")(x, x, use_causal_mask=causal)
    x = layers.LayerNormalization(name="norm")(layers.Add()([x, y]))
    return _built(fk.Model(ids, layers.Dense(vocabulary, name="head")(x), name="lm"), seed)


def bigram(seed=0, vocabulary=VOCABULARY, scale=4.0):
    """A model whose scores depend on the last token alone."""
    ids = fk.Input((None,), dtype="int32", name="ids")
    model = fk.Model(ids, layers.Embedding(vocabulary, vocabulary, name="table")(ids))
    return _built(model, seed, scale)


def block(x, positions, i, width, mask, encoded=None, **options):
    """A block with attention, optional cross-attention, and a gated MLP."""
    tensors = [fk.Input((None, width)), fk.Input((None,), dtype="int32", name="positions")]
    if encoded is not None:
        tensors.append(fk.Input((None, width), name="encoded"))
    y = layers.RMSNormalization(name="attention_norm")(tensors[0])
    shape = (None, 2, width // 2)
    query, key, value = (
        layers.EinsumDense("abc,cde->abde", output_shape=shape, name=name)(y)
        for name in ("query", "key", "value")
    )
    query, key = layers.RotaryEmbedding(name="rotary")([query, key], tensors[1])
    y = layers.DotProductAttention(mask=mask, name="attention", **options)(
        query, key, value, tensors[1]
    )
    y = layers.EinsumDense("abcd,cde->abe", output_shape=(None, width), name="output")(y)
    y = layers.Add(name="attention_add")([tensors[0], y])
    if encoded is not None:
        z = layers.RMSNormalization(name="cross_norm")(y)
        query = layers.EinsumDense("abc,cde->abde", output_shape=shape, name="cross_query")(z)
        key, value = (
            layers.EinsumDense("abc,cde->abde", output_shape=shape, name=f"cross_{name}")(
                tensors[2]
            )
            for name in ("key", "value")
        )
        z = layers.DotProductAttention(name="cross_attention")(query, key, value)
        z = layers.EinsumDense("abcd,cde->abe", output_shape=(None, width), name="cross_output")(z)
        y = layers.Add(name="cross_add")([y, z])
    z = layers.RMSNormalization(name="mlp_norm")(y)
    gate = layers.Dense(2 * width, "silu", use_bias=False, name="gate")(z)
    up = layers.Dense(2 * width, use_bias=False, name="up")(z)
    z = layers.Dense(width, use_bias=False, name="down")(layers.Multiply()([gate, up]))
    model = fk.Model(tensors, layers.Add(name="mlp_add")([y, z]), name=f"block_{i}")
    return model([x, positions] if encoded is None else [x, positions, encoded])


def cached(seed=0, width=8, depth=2, vocabulary=VOCABULARY, mask=None, **options):
    """A decoder with caches in all attention layers."""
    ids = fk.Input((None,), dtype="int32", name="ids")
    segments = fk.Input((None,), dtype="int32", name="segments", optional=True)
    positions = layers.Positions(name="positions")(ids, segments)
    x = layers.Embedding(vocabulary, width, name="embedding")(ids)
    for i in range(depth):
        x = block(x, positions, i, width, fk.masks.Causal() if mask is None else mask, **options)
    x = layers.RMSNormalization(name="norm")(x)
    logits = layers.Dense(vocabulary, use_bias=False, name="head")(x)
    return _built(fk.Model([ids, segments], logits, name="decoder"), seed, 3.0)


def encoder_decoder(seed=0, width=8, depth=2, vocabulary=VOCABULARY):
    """An encoder and a decoder with cross-attention, both nested."""
    source = fk.Input((None,), dtype="int32", name="ids")
    positions = layers.Positions(name="positions")(source)
    x = layers.Embedding(vocabulary, width, name="embedding")(source)
    places = layers.Embedding(16, width, name="places")(fk.ops.maximum(positions, 0))
    x = layers.Add()([x, places])
    y = layers.MultiHeadAttention(2, width // 2, name="attention")(x, x)
    encoder = fk.Model(source, layers.Add()([x, y]), name="encoder")
    ids = fk.Input((None,), dtype="int32", name="decoder_ids")
    encoded = fk.Input((None, width), name="encoded")
    positions = layers.Positions(name="positions")(ids)
    x = layers.Embedding(vocabulary, width, name="embedding")(ids)
    for i in range(depth):
        x = block(x, positions, i, width, fk.masks.Causal(), encoded)
    x = layers.RMSNormalization(name="norm")(x)
    logits = layers.Dense(vocabulary, use_bias=False, name="head")(x)
    decoder = fk.Model([ids, encoded], logits, name="decoder")
    first = fk.Input((None,), dtype="int32", name="encoder_ids")
    second = fk.Input((None,), dtype="int32", name="decoder_ids")
    return _built(fk.Model([first, second], decoder([second, encoder(first)])), seed, 3.0)


def _built(model, seed, scale=2.0):
    # larger weights than the initial ones, so that the scores differ
    built = model.build(jax.random.key(seed))
    return jax.tree.map(lambda a: jax.device_put(np.asarray(a) * np.float32(scale)), built)
