"""Writes tests/data/keras_hub: models of KerasHub's transformer layers, and what they compute.

Run with keras-hub 0.32.0: `KERAS_BACKEND=jax python tools/references/keras_hub_reference.py`.
"""

import pathlib

import keras
import keras_hub
import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / "tests/data/keras_hub"
LAYERS = keras_hub.layers


def models():
    """Returns the models by name."""
    ids = keras.Input((5,), dtype="int32", name="ids")
    source = keras.Input((4, 6), name="source")
    mask = keras.Input((5,), dtype="bool", name="mask")
    pairs = keras.Input((5, 5), dtype="bool", name="pairs")
    embedding = keras.layers.Embedding(11, 8, mask_zero=True, name="embedding")
    plain = keras.layers.Embedding(11, 8, name="plain")
    x = embedding(ids)
    encoder = LAYERS.TransformerEncoder(12, 2, name="encoder", layer_norm_epsilon=1e-3)
    y = encoder(x)
    decoder = LAYERS.TransformerDecoder(
        12, 3, activation="gelu", normalize_first=True, name="decoder"
    )
    z = decoder(y, source)
    masked = LAYERS.TransformerEncoder(9, 4, normalize_first=True, dropout=0.5, name="masked")
    m = masked(plain(ids), padding_mask=mask, attention_mask=pairs)
    alone = LAYERS.TransformerDecoder(9, 2, name="alone")
    a = alone(plain(ids), decoder_padding_mask=mask, use_causal_mask=False)
    b = alone(plain(ids))
    yield "masks", keras.Model([ids, source], [y, z])
    yield "options", keras.Model([ids, mask, pairs], [m, a, b])
    t = LAYERS.TokenAndPositionEmbedding(11, 7, 8, mask_zero=True, name="tied")(ids)
    separate = LAYERS.TokenAndPositionEmbedding(11, 6, 4, tie_weights=False, name="separate")
    yield "embeddings", keras.Model(ids, [t, separate(ids, start_index=1)])


def main():
    """Draws the weights, and writes files and numbers."""
    rng = np.random.default_rng(0)
    inputs = {
        "ids": np.array([[1, 2, 0, 4, 0], [10, 3, 3, 1, 7]], "int32"),
        "source": rng.normal(size=(2, 4, 6)).astype("float32"),
        "mask": np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], bool),
        "pairs": np.tril(np.ones((2, 5, 5), bool)) | (rng.random((2, 5, 5)) < 0.3),
    }
    arrays = dict(inputs)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, model in models():
        model.set_weights([rng.normal(size=w.shape).astype("float32") for w in model.get_weights()])
        model.save(FOLDER / f"{name}.keras")
        outputs = model([inputs[x.name] for x in model.inputs])
        arrays |= {f"{name}_{i}": np.asarray(y) for i, y in enumerate(outputs)}
    np.savez_compressed(FOLDER / "expected.npz", **arrays)


if __name__ == "__main__":
    main()
