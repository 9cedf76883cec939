"""ELECTRA, ALBERT and MPNet: variants of the graph of BERT; `test_options.py` compares their numbers."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.families import electra, mpnet
from tests.pretrained import encoder_checks
from tests.pretrained.option_checks import computes_the_base

FAMILIES = {"electra": electra.ELECTRA, "albert": electra.ALBERT, "mpnet": mpnet.MPNET}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_equal_those_of_transformers(name, tmp_path):
    computes_the_base(name, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
def test_padding_changes_no_token(name):
    config = dataclasses.replace(FAMILIES[name].tiny, parts=("classifier",))
    model = fk.pretrained.build(config).build(jax.random.key(0))
    ids = np.array([[5, 9, 3, 8, 60, 2]], "int32")
    encoder_checks.padding_changes_no_token(model, ids, 6)
    encoder_checks.padding_changes_no_token(model, ids, 2, 4)


def test_blocks_of_albert_share_weights():
    config = electra.ALBERT.tiny
    assert config.block_order == (0, 1, 0, 1, 2, 3)
    rows = [match for row in electra.ALBERT.names(config) for match in row.matches()]
    assert {w.partition("/")[0] for m in rows for w in m.weights if w.startswith("block")} == {
        f"block_{i}" for i in range(4)
    }


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        (
            "albert",
            {"num_hidden_groups": 4},
            "num_hidden_groups: expected at most num_hidden_layers=3",
        ),
        ("albert", {"inner_group_num": 0}, "inner_group_num"),
        ("electra", {"embedding_size": 0}, "embedding_size"),
        ("electra", {"is_decoder": True}, "unknown key 'is_decoder'"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets"),
        ("mpnet", {"type_vocab_size": 2}, "type_vocab_size"),
        ("mpnet", {"num_attention_heads": 5}, "expected a divisor of hidden_size"),
    ],
)
def test_a_wrong_configuration_is_rejected(name, keys, message):
    family = FAMILIES[name]
    with pytest.raises(ValueError, match=message):
        family.config.read({**family.tiny.write(), **keys})
