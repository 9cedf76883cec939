"""BERT, RoBERTa, DistilBERT and folders of sentence-transformers against transformers."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.blocks.sentences import POOLING
from fkeras.pretrained.families import bert
from tests.pretrained import encoder_checks
from tests.pretrained.checks import DATA, expected

FOLDERS = (
    "bert",
    "bert_masked",
    "bert_classifier",
    "bert_sentence",
    "roberta",
    "distilbert",
    "distilbert_classifier",
)


def inputs_of(arrays):
    ids = arrays["ids"].astype("int32")
    return [ids, arrays["types"].astype("int32")] if "types" in arrays else ids


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "name", encoder_checks.rows(FOLDERS, ("bert", "bert_sentence", "roberta", "distilbert"))
)
def test_numbers_equal_those_of_transformers(name):
    loaded, arrays = encoder_checks.arrays_of(name)
    encoder_checks.computes_the_numbers_of_transformers(
        loaded, arrays, inputs_of(arrays), "embedding_norm", arrays["mask"].astype(bool)
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", encoder_checks.rows(FOLDERS, ("bert_masked", "bert_sentence", "distilbert_classifier"))
)
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    encoder_checks.is_written_back(name, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", encoder_checks.rows(FOLDERS, ("bert", "roberta", "distilbert_classifier"))
)
def test_padding_changes_no_token(name):
    loaded, arrays = encoder_checks.arrays_of(name)
    ids = arrays["ids"][2:, :8].astype("int32")
    # on the left, on both sides
    encoder_checks.padding_changes_no_token(loaded.model, ids, 6)
    encoder_checks.padding_changes_no_token(loaded.model, ids, 2, 4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["cls", "max", "mean"])
def test_sentences_are_those_of_the_tokens_without_padding(mode):
    beside = {POOLING: {f"pooling_mode_{mode}_tokens": False, "pooling_mode": mode}}
    config = dataclasses.replace(bert.BERT.tiny, num_hidden_layers=1, beside=beside)
    model = fk.pretrained.build(config).build(jax.random.key(0))
    encoder_checks.padding_changes_no_token(model, np.array([[5, 9, 3, 8]], "int32"), 2, 1)


@pytest.mark.exhaustive
def test_types_left_out_are_zero():
    model = fk.pretrained.load(DATA / "bert").model
    ids = np.arange(5, dtype="int32")[None]
    np.testing.assert_array_equal(model(ids)["hidden"], model([ids, np.zeros_like(ids)])["hidden"])


@pytest.mark.exhaustive
def test_more_tokens_than_positions_give_no_number():
    model = fk.pretrained.load(DATA / "bert").model
    assert np.isnan(model(np.ones((1, 30), "int32"))["hidden"]).any()


MODES = [("cls",), ("max",), ("cls", "mean"), ("mean", "max")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("modes", encoder_checks.rows(MODES, [("mean", "max")]))
def test_modes_of_pooling(modes, tmp_path):
    folder = shutil.copytree(DATA / "bert_sentence", tmp_path / "model")
    names = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
    keys: dict = {f"pooling_mode_{name}": short in modes for short, name in names.items()}
    if modes == ("max",):  # as version 5 of sentence-transformers writes
        keys = {"pooling_mode": "max"}
    elif modes == ("mean", "max"):
        keys = {"pooling_mode": ["mean", "max"]}
    (folder / "1_Pooling/config.json").write_text(json.dumps(keys))
    (folder / "modules.json").write_text("[]")
    arrays = expected("bert_sentence")
    mask = arrays["mask"].astype(bool)
    vectors = fk.pretrained.load(folder).model(arrays["ids"].astype("int32"), mask=mask)["sentence"]
    rows = [(h, m) for h, m in zip(arrays["last_hidden_state"], mask, strict=True)]
    parts = {
        "cls": [h[0] for h, m in rows],
        "max": [h[m].max(0) for h, m in rows],
        "mean": [h[m].mean(0) for h, m in rows],
    }
    # a list of names gives the order
    order = modes if "pooling_mode" in keys else ("cls", "max", "mean")
    right = np.concatenate([parts[m] for m in order if m in modes], axis=-1)
    np.testing.assert_allclose(vectors, right, atol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode_first_tokens": True}, "received first_tokens"),
        ("1_Pooling/config.json", {"word_embedding_dimension": 24}, "received none"),
        ("1_Pooling/config.json", {"pooling_mode": "attention"}, "received attention"),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "mean", "include_prompt": False},
            "expected include_prompt true, received False",
        ),
        ("1_Pooling/config.json", [1], "bert_sentence|model"),
        ("modules.json", {"type": 3}, "model"),
        ("modules.json", [{"type": "sentence_transformers.models.LSTM"}], "received LSTM"),
        ("modules.json", [{"type": "models.Dense", "path": "../other"}], "the name of a folder"),
        ("modules.json", [{"type": "models.Dense", "path": "2_Dense"}], "2_Dense/config.json"),
    ],
)
def test_other_modules_of_sentence_transformers_are_rejected(file, content, message, tmp_path):
    folder = shutil.copytree(DATA / "bert_sentence", tmp_path / "model")
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


@pytest.mark.exhaustive
def test_a_file_without_the_first_segment_of_names(tmp_path):
    folder = encoder_checks.renamed(
        "bert_masked", tmp_path, lambda name: name.removeprefix("bert.")
    )
    arrays = expected("bert_masked")
    mask = arrays["mask"].astype(bool)
    logits = fk.pretrained.load(folder).model(inputs_of(arrays), mask=mask)["logits"]
    np.testing.assert_allclose(np.asarray(logits)[mask], arrays["logits"][mask], atol=1e-4)


@pytest.mark.exhaustive
def test_names_of_old_files(tmp_path):
    def old(name):
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    folder = encoder_checks.renamed("bert", tmp_path, old)
    loaded = fk.pretrained.load(folder)
    assert loaded.config.parts == ("pooler", "gamma")
    arrays = expected("bert")
    mask = arrays["mask"].astype(bool)
    pooled = loaded.model(inputs_of(arrays), mask=mask)["pooled"]
    np.testing.assert_allclose(pooled, arrays["pooler_output"], atol=1e-4)
    fk.pretrained.save(tmp_path / "new", loaded.model, loaded.state, loaded.config)
    written = (tmp_path / "new/model.safetensors").read_bytes()
    assert written == (folder / "model.safetensors").read_bytes()


@pytest.mark.exhaustive
def test_the_graph_has_the_heads_that_the_file_holds(tmp_path):
    without = encoder_checks.renamed(
        "bert", tmp_path, lambda name: "" if name.startswith("pooler") else name
    )
    assert [*fk.pretrained.load(without).model(np.ones((1, 3), "int32"))] == ["hidden"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "unknown key 'is_decoder'"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_act": "mish"}, "hidden_act"),
        ({"num_attention_heads": 5}, "num_attention_heads: expected a divisor of hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"hidden_size": 23}, "num_attention_heads: expected a divisor of hidden_size"),
        ({"num_hidden_layers": 2}, "not in the model"),
        ({"num_hidden_layers": 4}, "missing in the file"),
        ({"vocab_size": 66}, "of another shape"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps"),
        ({"architectures": ["BertForMultipleChoice"]}, "another head"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message, tmp_path):
    folder = encoder_checks.renamed("bert", tmp_path, lambda name: name, keys)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


CONFIGS = [
    bert.BERT.tiny,
    dataclasses.replace(bert.BERT.tiny, parts=("pooler", "masked", "next_sentence")),
    dataclasses.replace(bert.BERT.tiny, parts=("masked",), tie_word_embeddings=False),
    dataclasses.replace(bert.ROBERTA.tiny, parts=("classifier",)),
    bert.DISTILBERT.tiny,
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("config", encoder_checks.rows(CONFIGS, CONFIGS[1:2]))
def test_a_new_model_is_written_and_opened(config, tmp_path):
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    loaded = fk.pretrained.load(tmp_path)
    assert loaded.config.parts == config.parts
    ids = np.arange(1, 6, dtype="int32")[None]
    jax.tree.map(np.testing.assert_array_equal, loaded.model(ids), model(ids))


@pytest.mark.exhaustive
def test_untied_logits_have_the_second_of_two_biases(tmp_path):
    config = CONFIGS[2]
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    file = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    first, second = "cls.predictions.bias", "cls.predictions.decoder.bias"
    assert second in tensors and first not in tensors
    tensors[first] = tensors[second] + 1
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    with pytest.raises(FileError, match=rf"expected a copy of .*ignore=\['{first}'\]"):
        fk.pretrained.load(tmp_path)
    loaded = fk.pretrained.load(tmp_path, ignore=first).model
    np.testing.assert_array_equal(loaded.layers["head_bias"].bias, tensors.pop(second))
    # written by transformers 4
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})
    loaded = fk.pretrained.load(tmp_path)
    np.testing.assert_array_equal(loaded.model.layers["head_bias"].bias, tensors[first])
    fk.pretrained.save(tmp_path / "new", loaded.model, {}, loaded.config)
    assert (tmp_path / "new/model.safetensors").read_bytes() == file.read_bytes()
