"""ModernBERT against transformers, and its configuration."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import modernbert
from fkeras.pretrained.families.modernbert import ModernBertConfig
from tests.pretrained import encoder_checks
from tests.pretrained.checks import DATA, expected

FOLDERS = ("modernbert", "modernbert_plain")


@pytest.mark.parametrize("name", encoder_checks.rows(FOLDERS, []))
def test_numbers_equal_those_of_transformers(name):
    # seconds: compiles the whole model
    loaded, arrays = encoder_checks.arrays_of(name)
    encoder_checks.computes_the_numbers_of_transformers(
        loaded,
        arrays,
        arrays["ids"].astype("int32"),
        "embedding_norm",
        arrays["mask"].astype(bool),
        last="norm",
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", encoder_checks.rows(FOLDERS, ["modernbert"]))
def test_a_folder_is_written_back_byte_by_byte(name, tmp_path):
    encoder_checks.is_written_back(name, tmp_path)


@pytest.mark.exhaustive
def test_padding_changes_no_token():
    model = fk.pretrained.load(DATA / "modernbert_plain").model
    ids = expected("modernbert")["ids"][2:, :8].astype("int32")
    encoder_checks.padding_changes_no_token(model, ids, 0, 6)
    encoder_checks.padding_changes_no_token(model, ids, 5, 1)


@pytest.mark.exhaustive
def test_a_token_beyond_all_windows_is_seen_by_full_attention_only():
    config = ModernBertConfig(
        67, 8, 8, 2, 2, local_attention=4, layer_types=("sliding_attention",) * 2
    )
    model = fk.pretrained.build(config).build(jax.random.key(0))
    ids = np.ones((1, 9), "int32")
    other = ids.copy()
    other[0, -1] = 2
    hidden, changed = (np.asarray(model(x)["hidden"])[0] for x in (ids, other))
    # two blocks with windows of two tokens on both sides
    np.testing.assert_array_equal(hidden[:4], changed[:4])
    assert (hidden[4:] != changed[4:]).any(-1).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("mapping", "field", "value"),
    [
        ({"global_rope_theta": 5.0}, "global_rope_theta", 5.0),
        ({"local_rope_theta": None}, "local_rope_theta", None),
        (
            {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 7}}},
            "local_rope_theta",
            7.0,
        ),
        ({"layer_types": None, "global_attn_every_n_layers": 2}, "layer_types", None),
        (
            {"layer_types": ["full_attention"], "num_hidden_layers": 1},
            "layer_types",
            ("full_attention",),
        ),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "num_labels", 3),
    ],
)
def test_keys_of_both_versions(mapping, field, value):
    mapping = {"model_type": "modernbert", **mapping}
    config = ModernBertConfig.read(mapping)
    assert getattr(config, field) == value
    assert config.write() == mapping


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layer_types": ["full_attention"]}, "each of 5 blocks"),
        ({"layer_types": ["odd"] * 5}, "layer_types"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"classifier_pooling": "max"}, "classifier_pooling"),
        ({"norm_bias": False}, "not in the model"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message, tmp_path):
    folder = encoder_checks.renamed("modernbert", tmp_path, lambda name: name, keys)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


@pytest.mark.exhaustive
def test_a_new_model_is_written_and_opened(tmp_path):
    config = modernbert.MODERNBERT.tiny
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    ids = np.arange(1, 6, dtype="int32")[None]
    again = fk.pretrained.load(tmp_path).model(ids)
    jax.tree.map(np.testing.assert_array_equal, again, model(ids))
