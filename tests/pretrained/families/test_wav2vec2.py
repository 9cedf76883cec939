"""Wav2Vec2 against transformers, its names of older files, its processor and its texts."""

import json

import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.pretrained.families import wav2vec2
from tests.pretrained.option_checks import computes_the_base, mapping_of, stored, write_folder

ENTRY = stored()["wav2vec2"]
POSITIONS = "wav2vec2.encoder.pos_conv_embed.conv."


def folder_of(folder, **files):
    write_folder(folder, mapping_of("wav2vec2", ENTRY, "", {}), ENTRY["tensors"][0])
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_numbers_equal_those_of_transformers(tmp_path):
    computes_the_base("wav2vec2", tmp_path)


@pytest.mark.exhaustive
def test_both_spellings_of_the_weight_norm_are_read_and_written(tmp_path):
    new = fk.pretrained.load(folder_of(tmp_path))
    file = tmp_path / "model.safetensors"
    arrays = safetensors.numpy.load_file(file)
    for number, name in enumerate(("weight_g", "weight_v")):
        arrays[POSITIONS + name] = arrays.pop(
            f"{POSITIONS}parametrizations.weight.original{number}"
        )
    safetensors.numpy.save_file(arrays, file, {"format": "pt"})
    old = fk.pretrained.load(tmp_path)
    assert old.model == new.model and old.config.parts == ("ctc", "old_names")
    for loaded in (new, old):
        fk.pretrained.save(tmp_path / "again", loaded.model, loaded.state, loaded.config)
        again = fk.pretrained.load(tmp_path / "again")
        assert again.config == loaded.config
        sounds = np.sin(np.arange(200, dtype="float32"))[None]
        outputs = [one.model(sounds)["logits"] for one in (again, loaded)]
        np.testing.assert_allclose(*outputs, atol=1e-5)
    written = safetensors.numpy.load_file(tmp_path / "again/model.safetensors")
    assert written.keys() == arrays.keys() - {"wav2vec2.masked_spec_embed"}
    for name in written.keys() - {POSITIONS + "weight_g", POSITIONS + "weight_v"}:
        np.testing.assert_array_equal(written[name], arrays[name])


def test_a_folder_has_a_processor_and_characters(tmp_path):
    kind = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
    special = {"word_delimiter_token": "_", "tokenizer_class": "Wav2Vec2CTCTokenizer"}
    vocabulary = {"[PAD]": 0, "a": 1, "_": 2, "</s>": 3}
    files = {"preprocessor_config": kind, "vocab": vocabulary, "tokenizer_config": special}
    loaded = fk.pretrained.load(folder_of(tmp_path, **files))
    assert loaded.processor == fk.pretrained.WaveProcessor() and loaded.tokenizer is None
    assert loaded.config.text([2, 1, 1, 0, 1, 3, 2, 2, 1, 2]) == "aa a"
    with pytest.raises(ValueError, match="expected ids of vocab.json, received 7"):
        loaded.config.text([7])
    with pytest.raises(ValueError, match="Download the file"):
        wav2vec2.TINY.text([1])


def test_sounds_are_normalized_before_they_are_padded():
    process = fk.pretrained.WaveProcessor(padding=0.5)
    sound = np.array([1.0, 2.0, 6.0], "float32")
    out = process([sound, sound[:2]], 16000)
    np.testing.assert_allclose(out[0], (sound - 3) / np.sqrt(14 / 3), atol=1e-6)
    np.testing.assert_allclose(out[1], [-1, 1, 0.5], atol=1e-6)
    plain = fk.pretrained.WaveProcessor(normalize=False)(sound, 16000)
    np.testing.assert_array_equal(plain, sound[None])


@pytest.mark.parametrize(
    ("sounds", "rate", "message"),
    [
        ([[0.5]], 8000, "expected 16000 samples per second"),
        ([[1, 2]], 16000, "floats with one channel"),
        ([[]], 16000, "received 0 samples in sound 0"),
        ([[0.5], [float("nan")]], 16000, "received NaN or infinity in sound 1"),
        ([[[0.5, 0.5]]], 16000, "one channel"),
        ([[0.5, 0.5], [0.5]], 16000, "one length, since the model was trained with a mask"),
    ],
)
def test_wrong_sounds_are_rejected(sounds, rate, message):
    with pytest.raises(fk.FKerasError, match=f"WaveProcessor: .*{message}"):
        fk.pretrained.WaveProcessor(masks=True)(sounds, rate)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"feature_extractor_type": "WhisperFeatureExtractor"}, "Wav2Vec2FeatureExtractor with"),
        ({"feature_size": 80}, "feature_size 1"),
        ({"do_normalize": "yes"}, "normalize: expected a value such as True"),
        ({"sampling_rate": 0}, "sampling_rate: expected"),
        ({"sampling_rate": True}, "sampling_rate: expected"),
        ({"padding_value": "?"}, "padding: expected"),
        ({"do_resample": True}, "unknown key 'do_resample'"),
    ],
)
def test_wrong_processors_are_rejected(keys, message):
    with pytest.raises(fk.FKerasError, match=message):
        fk.pretrained.WaveProcessor.read({"sampling_rate": 16000, **keys})
    for content in ([], {}, None):
        with pytest.raises(fk.FKerasError, match="preprocessor_config.json: expected"):
            fk.pretrained.WaveProcessor.read(content)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"conv_stride": [5, 2]}, "conv_stride: expected 7 numbers, one for each of conv_dim"),
        ({"conv_kernel": [0] * 7}, "conv_kernel"),
        ({"feat_extract_norm": "batch"}, "feat_extract_norm"),
        ({"num_conv_pos_embedding_groups": 5}, "expected a divisor of hidden_size=768"),
        ({"add_adapter": True}, "add_adapter: expected False"),
        ({"adapter_attn_dim": 16}, "adapter_attn_dim: expected None"),
        ({"pad_token_id": "0"}, "pad_token_id"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message):
    with pytest.raises(ValueError, match=message):
        wav2vec2.Wav2Vec2Config.read({"model_type": "wav2vec2", **keys})
