"""BART, mBART, Pegasus, Marian, M2M100 and mT5: texts from texts; `test_options.py` compares more numbers."""

import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.families import bart, t5
from fkeras.pretrained.families.table import family_of
from tests.pretrained.option_checks import (
    computes_the_base,
    generates_the_tokens,
    loaded_of,
    mapping_of,
    stored,
)

TYPES = ("bart", "mbart", "pegasus", "marian", "m2m_100", "mt5")


@pytest.mark.one_in(6)
@pytest.mark.parametrize("model_type", TYPES)
def test_numbers_equal_those_of_transformers(model_type, tmp_path):
    computes_the_base(model_type, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_type", TYPES)
def test_generated_tokens_equal_those_of_transformers(model_type, tmp_path):
    generates_the_tokens(model_type, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_type", ["bart", "m2m_100"])
def test_padding_on_the_left_changes_no_logits(model_type, tmp_path):
    entry = stored()[model_type]
    model = loaded_of(tmp_path, mapping_of(model_type, entry, "", {}), entry["tensors"][0]).model
    ids, start = np.arange(5, 15, dtype="int32")[None], np.array([[3, 9]], "int32")
    mask = np.pad(np.ones((1, 10), bool), ((0, 0), (4, 0)))
    padded = model([np.pad(ids, ((0, 0), (4, 0))), start], mask=[mask, None])
    np.testing.assert_allclose(padded, model([ids, start]), atol=1e-5)


@pytest.mark.exhaustive
def test_tables_of_sines_in_old_files_are_not_read(tmp_path):
    entry = stored()["marian"]
    mapping, tensors = mapping_of("marian", entry, "", {}), entry["tensors"][0]
    tables = dict.fromkeys([f"model.{p}.embed_positions.weight" for p in ("encoder", "decoder")])
    old = loaded_of(tmp_path, mapping, {**tensors, **{name: (40, 16) for name in tables}}).model
    assert old == loaded_of(tmp_path, mapping, tensors).model


def test_the_head_of_mt5_is_that_of_the_file():
    mapping = {"model_type": "mt5", "tie_word_embeddings": False}
    config = t5.MT5Config.read(mapping)
    assert t5.MT5.adapted(config, ["shared.weight"]).tie_word_embeddings
    apart = t5.MT5.adapted(config, ["shared.weight", "lm_head.weight"])
    assert not apart.tie_word_embeddings and not apart.scales_outputs
    assert apart.write() == config.write() == mapping
    assert config.feed_forward_proj == "gated-gelu"


def test_general_names_of_sizes_are_read():
    config = bart.BartConfig.read({"model_type": "bart", "num_hidden_layers": 3, "hidden_size": 32})
    assert (config.encoder_layers, config.decoder_layers, config.d_model) == (3, 12, 32)
    assert "num_hidden_layers" in config.write()


@pytest.mark.parametrize(
    ("model_type", "keys", "message"),
    [
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings: expected True"),
        ("bart", {"decoder_attention_heads": 5}, "expected a divisor of d_model=1024"),
        ("bart", {"decoder_vocab_size": 50}, "unknown key 'decoder_vocab_size'"),
        ("bart", {"activation_function": "mish"}, "activation_function"),
        ("m2m_100", {"share_encoder_decoder_embeddings": False}, "transformers ignores"),
        ("m2m_100", {"pad_token_id": -1}, "pad_token_id"),
        ("bart", {"eos_token_id": "2"}, "eos_token_id"),
        ("bart", {"decoder_start_token_id": -1}, "decoder_start_token_id"),
        ("marian", {"d_model": 15, "encoder_attention_heads": 5}, "decoder_attention_heads"),
        (
            "marian",
            {"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 3},
            "expected an even number",
        ),
        ("mt5", {"scale_decoder_outputs": True}, "scale_decoder_outputs"),
        ("mt5", {"feed_forward_proj": "gated"}, "MT5Config: feed_forward_proj"),
    ],
)
def test_a_wrong_configuration_is_rejected(model_type, keys, message):
    mapping = {"model_type": model_type, **keys}
    with pytest.raises(ValueError, match=message):
        family_of(mapping).config.read(mapping)


def test_a_classifier_needs_its_tokens():
    heads = {"eos_token_id": ("classifier",), "decoder_start_token_id": ("answers",)}
    for key, parts in heads.items():
        for value in (None, [2, 3]):
            with pytest.raises(ValueError, match=f"BartConfig: {key}: expected"):
                bart.BartConfig(**{key: value}, parts=parts)
    assert bart.BartConfig(eos_token_id=(2, 3), parts=("answers",)).reads_once
    # mBART starts with the last token
    assert bart.BartConfig(model_type="mbart", parts=("classifier",)).reads_once


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(tmp_path):
    entry = stored()["marian"]
    model = loaded_of(tmp_path, mapping_of("marian", entry, "", {}), entry["tensors"][0]).model
    fk.save_model(tmp_path / "model.keras", model)
    assert fk.load_model(tmp_path / "model.keras").model == model
