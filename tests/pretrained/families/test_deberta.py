"""DeBERTa v2; `test_options.py` compares its numbers with transformers."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.families import deberta
from tests.pretrained import encoder_checks
from tests.pretrained.option_checks import computes_the_base

TINY = deberta.DEBERTA_V2.tiny


@pytest.mark.exhaustive
def test_numbers_equal_those_of_transformers(tmp_path):
    computes_the_base("deberta-v2", tmp_path)


@pytest.fixture(scope="module")
def model():
    return fk.pretrained.build(dataclasses.replace(TINY, num_hidden_layers=1)).build(
        jax.random.key(0)
    )


@pytest.mark.exhaustive
def test_padding_changes_no_token(model):
    encoder_checks.padding_changes_no_token(model, np.array([[5, 9, 3, 8, 60, 2]], "int32"), 2, 3)


@pytest.mark.exhaustive
def test_a_model_file_keeps_the_graph(model, tmp_path):
    fk.save_model(tmp_path / "model.keras", model)
    assert fk.load_model(tmp_path / "model.keras").model == model


def test_distances_share_buckets_up_to_the_largest():
    buckets = deberta._buckets(128, 512)
    assert buckets[[0, 1, 64, 65, 128, 511]].tolist() == [0, 1, 64, 65, 86, 127]


def test_defaults_of_transformers_are_those_of_missing_keys():
    mapping = TINY.write()
    read = deberta.DebertaV2Config.read(mapping)
    assert dataclasses.replace(read, parts=TINY.parts) == TINY
    text = {**mapping, "pos_att_type": "c2p| P2C"}
    config = deberta.DebertaV2Config.read(text)
    assert (config.pos_att_type, config.write()) == (("c2p", "p2c"), text)
    for key in ("relative_attention", "share_att_key", "norm_rel_ebd", "pos_att_type"):
        with pytest.raises(ValueError, match=f"DebertaV2Config: {key}: expected"):
            deberta.DebertaV2Config.read({k: v for k, v in mapping.items() if k != key})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"conv_kernel_size": 3}, "unknown key 'conv_kernel_size'"),
        ({"position_biased_input": True}, "position_biased_input: expected False"),
        ({"pos_att_type": 3}, "pos_att_type"),
        ({"position_buckets": 64}, "max_relative_positions: expected .* more than half"),
        ({"position_buckets": 1 << 20}, "position_buckets"),
        ({"position_buckets": 1}, "position_buckets: expected at least 2"),
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"attention_head_size": 64}, "unknown key 'attention_head_size'"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message):
    with pytest.raises(ValueError, match=message):
        deberta.DebertaV2Config.read({**TINY.write(), **keys})
