"""T5 and its version 1.1 against transformers, and their configuration."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import transforms
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import t5
from fkeras.pretrained.families.t5 import T5Config
from tests.pretrained import checks

FOLDERS = ("t5", "t5_gated")


def _inputs(name):
    arrays = checks.expected(name)
    mask = np.arange(arrays["ids"].shape[1])[None] < arrays["lengths"][:, None]
    return arrays, jnp.asarray(arrays["ids"], "int32"), jnp.asarray(mask)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_numbers_equal_those_of_transformers(name):
    model = fk.pretrained.load(checks.DATA / name, dtype="float32").model
    arrays, ids, mask = _inputs(name)
    parts = ("encoder", "decoder")
    probed = transforms.probe(model, [f"{part}/{n}" for part in parts for n in ("block_*", "norm")])
    decoder_ids = jnp.asarray(arrays["decoder_ids"], "int32")
    logits, values = jax.jit(
        lambda m, ids, mask: m.apply([ids, decoder_ids], mask=[mask, None]).value
    )(probed, ids, mask)
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)
    for part, blocks in (("encoder", 3), ("decoder", 2)):
        places = [f"{part}_ib-0/block_{i}_ib-0" for i in range(blocks - 1)]
        places.append(f"{part}_ib-0/norm_ib-0")
        for number, place in enumerate(places, 1):
            number = blocks if place.endswith("norm_ib-0") else number
            ours, theirs = values[place], arrays[f"{part}_{number}"]
            # queries of padding are never read
            keep = mask if part == "encoder" else np.ones(theirs.shape[:2], bool)
            np.testing.assert_allclose(
                np.where(keep[..., None], ours, 0),
                np.where(keep[..., None], theirs, 0),
                atol=1e-4,
                err_msg=place,
            )


@pytest.mark.exhaustive
def test_greedy_tokens_equal_those_of_transformers():
    model = fk.pretrained.load(checks.DATA / "t5", dtype="float32").model
    arrays, ids, mask = _inputs("t5")
    start = np.zeros((2, 1), "int32")
    generated = fk.generate(
        model, None, start, max_new_tokens=9, inputs=ids, inputs_mask=mask, cache=True
    )
    np.testing.assert_array_equal(generated.tokens, arrays["greedy"])


@pytest.mark.exhaustive
def test_a_cut_decoder_with_a_cache_computes_the_same_logits():
    model = fk.pretrained.load(checks.DATA / "t5_gated", dtype="float32").model
    arrays, ids, mask = _inputs("t5_gated")
    encoded = transforms.cut(model, inputs="ids", outputs="encoder").apply(ids, mask=mask).value
    decoder = transforms.cut(model, inputs=["encoder", "decoder_ids"])

    @jax.jit
    def step(decoder, state, token):
        out = decoder.apply([encoded, token], state=state, mask=[mask, None])
        return state | out.updates, out.value

    state, tokens = decoder.init_cache(2, 16), jnp.asarray(arrays["decoder_ids"], "int32")
    for n in range(tokens.shape[1]):
        state, logits = step(decoder, state, tokens[:, n : n + 1])
        np.testing.assert_allclose(logits[:, 0], arrays["logits"][:, n], atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    checks.is_written_back(name, tmp_path)


def test_copies_of_the_activation_are_written_only_while_they_hold():
    copies = {"is_gated_act": True, "dense_act_fn": "gelu_new"}
    mapping = {"model_type": "t5", "feed_forward_proj": "gated-gelu", **copies}
    config = T5Config.read(mapping)
    assert config.write() == mapping
    changed = dataclasses.replace(config, feed_forward_proj="relu")
    assert changed.write() == {"model_type": "t5", "feed_forward_proj": "relu"}


def test_the_head_follows_the_versions_of_the_keys():
    old = T5Config.read({"model_type": "t5", "tie_word_embeddings": False})
    assert (old.tie_word_embeddings, old.scales_outputs) == (False, False)
    # transformers 5 says that the embeddings are tied; the file then has a head or not
    mapping = {"model_type": "t5", "tie_word_embeddings": True, "scale_decoder_outputs": False}
    new = T5Config.read(mapping)
    assert (new.tie_word_embeddings, new.scales_outputs) == (False, False)
    assert new.write() == mapping
    assert t5.adapted(new, ["lm_head.weight"]) == new
    tied = t5.adapted(new, ["shared.weight"])
    assert (tied.tie_word_embeddings, tied.scales_outputs) == (True, False)
    with pytest.raises(ValueError, match="no head"):
        t5.adapted(old, ["shared.weight"])
    plain = T5Config.read({"model_type": "t5"})
    assert (plain.tie_word_embeddings, plain.scales_outputs) == (True, True)
    assert t5.adapted(plain, ["shared.weight", "lm_head.weight"]) == plain


def test_the_activation_of_gated_gelu_is_the_tanh_form():
    def activation(text):
        config = T5Config.read({"model_type": "t5", "feed_forward_proj": text})
        return config.gated, config.activation

    assert activation("relu") == (False, "relu")
    assert activation("gated-gelu") == (True, "gelu_new")
    assert activation("gated-silu") == (True, "silu")


def test_files_with_copies_of_the_embedding(tmp_path):
    def load(change):
        return fk.pretrained.load(checks.rewritten("t5", tmp_path, change)).model

    def copies(arrays):
        for name in (
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
            "lm_head.weight",
        ):
            arrays[name] = arrays["shared.weight"]

    assert load(copies) == fk.pretrained.load(checks.DATA / "t5").model
    with pytest.raises(FileError, match=r"encoder\.embed_tokens\.weight"):
        load(lambda a: a.update({"encoder.embed_tokens.weight": a["shared.weight"] + 1}))
    # transformers read the head in its place
    with pytest.raises(FileError, match=r"missing in the file: shared\.weight"):
        load(lambda a: a.update({"lm_head.weight": a.pop("shared.weight")}))


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(tmp_path):
    checks.is_kept_by_a_model_file("t5_gated", tmp_path)


@pytest.mark.exhaustive
def test_the_tiny_configuration_builds():
    model = fk.pretrained.build(t5.TINY).build(jax.random.key(0))
    assert model([np.ones((1, 3), "int32"), np.zeros((1, 2), "int32")]).shape == (1, 2, 67)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"feed_forward_proj": "gated-swiglu"}, "feed_forward_proj.*'gated-swiglu'"),
        ({"feed_forward_proj": "wide-relu"}, "feed_forward_proj"),
        ({"feed_forward_proj": 3}, "feed_forward_proj"),
        ({"relative_attention_num_buckets": 7}, "relative_attention_num_buckets"),
        ({"relative_attention_max_distance": 16}, "relative_attention_max_distance=16"),
        ({"relative_attention_max_distance": 10**12}, "1 to 1048576"),
        ({"scale_decoder_outputs": 0.5}, "scale_decoder_outputs"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
        ({"is_decoder": True}, "unknown key 'is_decoder'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder: expected True"),
        ({"is_gated_act": True}, "is_gated_act: expected False .*'relu', received 'True'"),
        ({"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu"}, "dense_act_fn: .*gelu_new"),
    ],
)
def test_a_wrong_configuration_is_rejected(mapping, message):
    with pytest.raises((ValueError, TypeError), match=message):
        T5Config.read({"model_type": "t5", **mapping})
