"""KerasHub's transformer layers: numbers and files of KerasHub, masks, bad inputs."""

import io
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.paths import ROOT

DATA = ROOT / "tests/data/keras_hub"
EXPECTED = np.load(DATA / "expected.npz")
KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
SOURCE = np.random.default_rng(1).normal(size=(2, 4, 6)).astype("float32")


def outputs(name):
    model, state = fk.load_model(DATA / f"{name}.keras")
    inputs = [EXPECTED[input_name] for input_name in model.input_names]
    return model, model(inputs, state=state)


@pytest.mark.exhaustive
def test_a_file_of_kerashub_with_masks_of_an_embedding():
    model, (encoded, decoded) = outputs("masks")
    assert type(model.layers["encoder"]) is layers.TransformerEncoder
    # masked steps: KerasHub's encoder attends to nothing there
    kept = EXPECTED["ids"] != 0
    np.testing.assert_allclose(encoded[kept], EXPECTED["masks_0"][kept], atol=1e-5)
    np.testing.assert_allclose(decoded[kept], EXPECTED["masks_1"][kept], atol=3e-5)


@pytest.mark.exhaustive
def test_a_file_of_kerashub_with_options_of_calls():
    _, values = outputs("options")
    for number, value in enumerate(values):
        np.testing.assert_allclose(value, EXPECTED[f"options_{number}"], atol=3e-5)


@pytest.mark.exhaustive
def test_a_file_of_kerashub_with_embeddings_of_tokens_and_positions():
    model, (tied, separate) = outputs("embeddings")
    np.testing.assert_allclose(tied, EXPECTED["embeddings_0"], atol=1e-6)
    np.testing.assert_allclose(separate, EXPECTED["embeddings_1"], atol=1e-6)
    mask = model.layers["tied"].apply(EXPECTED["ids"]).mask
    np.testing.assert_array_equal(mask, EXPECTED["ids"] != 0)
    # also in reverse
    logits = model.layers["separate"].token_embedding(separate, reverse=True)
    assert logits.shape == (2, 5, 11)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["masks", "embeddings"])
def test_files_are_written_with_the_names_of_kerashub(tmp_path, name):
    model, _ = outputs(name)
    fk.save_model(tmp_path / "m.keras", model)
    again, _ = fk.load_model(tmp_path / "m.keras")
    assert again == model
    with (
        zipfile.ZipFile(tmp_path / "m.keras") as ours,
        zipfile.ZipFile(DATA / f"{name}.keras") as hub,
    ):
        config, theirs = (json.loads(file.read("config.json")) for file in (ours, hub))
        names = [_weight_names(file.read("model.weights.h5")) for file in (ours, hub)]
    assert names[0] == names[1]
    for layer, their_layer in zip(
        config["config"]["layers"], theirs["config"]["layers"], strict=True
    ):
        assert layer["module"] == their_layer["module"]
        assert layer["class_name"] == their_layer["class_name"]


def _weight_names(data):
    h5py = pytest.importorskip("h5py")
    names = []
    with h5py.File(io.BytesIO(data)) as file:
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return sorted(names)


def test_an_unknown_layer_of_kerashub_is_an_error():
    config = {
        "module": "keras_hub.src.layers.modeling.f_net_encoder",
        "class_name": "FNetEncoder",
        "config": {},
        "registered_name": "keras_hub>FNetEncoder",
    }
    with pytest.raises(ValueError, match="FNetEncoder"):
        layers.deserialize(config)


@pytest.mark.exhaustive
def test_padding_does_not_change_other_steps():
    layer = layers.TransformerEncoder(7, 2).build(KEY, X)
    mask = np.array([[1, 1, 1, 0, 0]] * 2, bool)
    changed = X.copy()
    changed[:, 3:] = 9
    pairs = np.broadcast_to(mask[:, None], (2, 5, 5))
    for options in ({"padding_mask": mask}, {"mask": mask}, {"attention_mask": pairs}):
        y, z = layer(X, **options), layer(changed, **options)
        np.testing.assert_array_equal(y[:, :3], z[:, :3])
        np.testing.assert_allclose(y[:, :3], layer(X[:, :3]), atol=1e-5)


@pytest.mark.exhaustive
def test_an_explicit_mask_replaces_the_mask_of_the_input():
    layer = layers.TransformerEncoder(7, 2).build(KEY, X)
    mask = np.array([[1, 1, 1, 0, 0]] * 2, bool)
    out = layer.apply(X, mask=~mask, padding_mask=mask)
    np.testing.assert_array_equal(out.value, layer(X, padding_mask=mask))
    np.testing.assert_array_equal(out.mask, ~mask)


@pytest.mark.exhaustive
def test_the_decoder_is_causal():
    layer = layers.TransformerDecoder(7, 2).build(KEY, X, SOURCE)
    changed = X.copy()
    changed[:, 3:] = 9
    y, z = layer(X, SOURCE), layer(changed, SOURCE)
    np.testing.assert_array_equal(y[:, :3], z[:, :3])
    both = layer(X, SOURCE, use_causal_mask=False), layer(changed, SOURCE, use_causal_mask=False)
    assert not np.allclose(both[0][:, :3], both[1][:, :3])


@pytest.mark.exhaustive
def test_masks_of_the_encoder():
    layer = layers.TransformerDecoder(7, 2).build(KEY, X, SOURCE)
    mask = np.array([[1, 1, 0, 0]] * 2, bool)
    short = layer(X, SOURCE[:, :2])
    np.testing.assert_allclose(layer(X, SOURCE, encoder_padding_mask=mask), short, atol=1e-5)
    np.testing.assert_allclose(layer(X, SOURCE, mask=[None, mask]), short, atol=1e-5)
    pairs = np.broadcast_to(mask[:, None], (2, 5, 4))
    np.testing.assert_allclose(layer(X, SOURCE, encoder_attention_mask=pairs), short, atol=1e-5)


@pytest.mark.exhaustive
def test_scores_of_the_encoder():
    layer = layers.TransformerEncoder(7, 2).build(KEY, X)
    y, scores = layer(X, return_attention_scores=True)
    assert scores.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(scores.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(y, layer(X), atol=1e-5)


@pytest.mark.exhaustive
def test_dropout_draws_in_training_only():
    layer = layers.TransformerEncoder(7, 2, dropout=0.5).build(KEY, X)
    np.testing.assert_array_equal(layer(X), layer.replace(dropout=0.0)(X))
    y, z = (layer.apply(X, training=True, key=jax.random.key(i)).value for i in range(2))
    assert not np.allclose(y, z)
    with pytest.raises(ValueError, match="needs a key"):
        layer.apply(X, training=True)


@pytest.mark.exhaustive
def test_gradients_are_finite_where_all_steps_are_masked():
    layer = layers.TransformerEncoder(7, 2).build(KEY, X)
    mask = np.zeros((2, 5), bool)
    gradient = jax.grad(lambda layer: jnp.sum(layer(X, padding_mask=mask) ** 2))(layer)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: layers.TokenAndPositionEmbedding(0, 2, 3), "vocabulary_size"),
        (lambda: layers.TokenAndPositionEmbedding(2, 0, 3), "sequence_length"),
        (lambda: layers.TokenAndPositionEmbedding(2, 2, 0), "embedding_dim"),
        (
            lambda: layers.TokenAndPositionEmbedding(2, 2, 3).build(KEY, (None, None))(
                np.zeros((1, 3), "int32")
            ),
            "positions from 0 to 1",
        ),
        (
            lambda: layers.TokenAndPositionEmbedding(2, 2, 3).build(KEY, (None, None))(X[0]),
            "expected integer",
        ),
        (lambda: layers.TransformerEncoder(0, 2), "intermediate_dim"),
        (lambda: layers.TransformerEncoder(4, 0), "num_heads"),
        (lambda: layers.TransformerEncoder(4, 2, dropout=2), "dropout"),
        (lambda: layers.TransformerEncoder(4, 2, activation="rellu"), "relu"),
        (lambda: layers.TransformerEncoder(4, 2, layer_norm_epsilon=-1), "layer_norm_epsilon"),
        (lambda: layers.TransformerEncoder(4, 9).build(KEY, X), "num_heads=9"),
        (lambda: layers.TransformerEncoder(4, 2).build(KEY, X[0]), r"shape \(b, t, d\)"),
        (
            lambda: layers.TransformerEncoder(4, 2).build(KEY, X)(X, padding_mask=X > 0),
            "padding_mask of shape",
        ),
        (
            lambda: layers.TransformerDecoder(4, 2).build(KEY, X)(
                X, decoder_attention_mask=np.ones((5, 5), bool)
            ),
            "decoder_attention_mask of shape",
        ),
        (lambda: layers.TransformerDecoder(4, 2).build(KEY, X)(X, SOURCE), "expected one input"),
        (
            lambda: layers.TransformerDecoder(4, 2).build(KEY, X, SOURCE)(X),
            "expected two inputs",
        ),
    ],
)
def test_bad_inputs(use, message):
    with pytest.raises(ValueError, match=message):
        use()
