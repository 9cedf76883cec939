"""Whisper against transformers: features, hidden states, generation."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers, transforms
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.families import whisper
from fkeras.pretrained.families.whisper import WhisperConfig
from tests.pretrained import encoder_checks
from tests.pretrained.checks import DATA, expected


@pytest.fixture(scope="module")
def loaded():
    return fk.pretrained.load(DATA / "whisper")


@pytest.mark.exhaustive
def test_numbers_equal_those_of_transformers(loaded):
    arrays = expected("whisper")
    features = loaded.processor(arrays["sounds"], 16000)
    np.testing.assert_allclose(features, arrays["features"], atol=1e-4)
    layers = loaded.model.layers
    encoder = transforms.probe(layers["encoder"], ["position_add", "block_*"])
    encoded, values = encoder(arrays["features"])
    np.testing.assert_allclose(encoded, arrays["encoded"], atol=1e-4)
    for n, place in enumerate(["position_add", "block_0"]):
        right = arrays[f"encoder_block_{n}"]
        np.testing.assert_allclose(values[f"{place}_ib-0"], right, atol=1e-4, err_msg=place)
    places = ["embedding_add", "block_0", "block_1", "norm"]
    decoder = transforms.probe(layers["decoder"], places)
    logits, values = decoder([arrays["ids"].astype("int32"), encoded])
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)
    # the last hidden state of transformers is that after the final norm
    for n, place in enumerate(places):
        right = arrays[f"decoder_block_{n}"]
        np.testing.assert_allclose(values[f"{place}_ib-0"], right, atol=1e-4, err_msg=place)


def suppressing(config):
    first = samplers.SuppressedIds(config.never_first, first_only=True)
    return samplers.Chain(samplers.SuppressedIds(config.never), first, samplers.Greedy())


@pytest.mark.exhaustive
def test_transcription_of_sounds(loaded):
    arrays = expected("whisper")
    prompt, tokens = arrays["tokens"][:, :2].astype("int32"), arrays["tokens"][:, 2:]
    generated = fk.generate(
        loaded.model,
        loaded.state,
        prompt,
        max_new_tokens=tokens.shape[1],
        sampler=suppressing(loaded.config),
        inputs=loaded.processor(arrays["sounds"], 16000),
        cache=True,
    )
    assert generated.tokens.tolist() == tokens.tolist()
    # without the suppressed ids the texts would begin with other tokens
    assert (arrays["logits"][:, 1].argmax(-1) != tokens[:, 0]).all()


@pytest.mark.exhaustive
def test_decoding_with_a_cache_equals_the_whole_text(loaded):
    arrays = expected("whisper")
    ids = jnp.asarray(arrays["ids"], "int32")
    decoder = loaded.model.layers["decoder"]
    state = decoder.init_cache(2, 8)
    pieces = []
    for part in (ids[:, :4], ids[:, 4:5], ids[:, 5:]):
        out = decoder.apply([part, arrays["encoded"]], state=state)
        state = out.updates
        pieces.append(out.value)
    np.testing.assert_allclose(jnp.concatenate(pieces, 1), arrays["logits"], atol=1e-4)


@pytest.mark.exhaustive
def test_a_folder_is_written_back_byte_by_byte(tmp_path):
    encoder_checks.is_written_back("whisper", tmp_path)


@pytest.mark.exhaustive
def test_a_file_without_the_first_segment_of_names(tmp_path):
    folder = encoder_checks.renamed("whisper", tmp_path, lambda name: name.removeprefix("model."))
    arrays = expected("whisper")
    logits = fk.pretrained.load(folder).model([arrays["features"], arrays["ids"].astype("int32")])
    np.testing.assert_allclose(logits, arrays["logits"], atol=1e-4)


def test_ids_of_the_generation_precede_those_of_the_configuration():
    mapping = {"model_type": "whisper", "suppress_tokens": [1], "begin_suppress_tokens": [2]}
    config = WhisperConfig.read(mapping, {"generation_config.json": {"suppress_tokens": [3, 4]}})
    assert (config.never, config.never_first) == ((3, 4), (2,))
    assert config.write() == mapping
    assert WhisperConfig().never == ()


LANGUAGES = {
    "decoder_start_token_id": 1,
    "lang_to_id": {"<|en|>": 2, "<|de|>": 3},
    "task_to_id": {"transcribe": 4, "translate": 5},
    "no_timestamps_token_id": 6,
    "eos_token_id": [7, 8],
}


@pytest.mark.exhaustive
def test_prompts_of_models_of_one_and_of_several_languages(loaded):
    assert (loaded.config.prompt(), loaded.config.end_ids) == ((5, 6), (4,))
    config = WhisperConfig(beside={"generation_config.json": LANGUAGES})
    assert config.prompt("de") == (1, 3, 4, 6)
    assert config.prompt(language="en", task="translate") == (1, 2, 5, 6)
    assert config.end_ids == (7, 8)


@pytest.mark.parametrize(
    ("beside", "arguments", "message"),
    [
        (LANGUAGES, {}, "expected one of de, en, received None"),
        (LANGUAGES, {"language": "fr"}, "received 'fr'"),
        (LANGUAGES, {"language": "en", "task": "sing"}, "transcribe, translate, received 'sing'"),
        ({"decoder_start_token_id": 1}, {}, "no_timestamps_token_id"),
        ({}, {"language": "en"}, "English only"),
        ([], {}, "object of JSON"),
    ],
)
def test_wrong_prompts_are_rejected(beside, arguments, message):
    with pytest.raises(ValueError, match=message):
        WhisperConfig(beside={"generation_config.json": beside}).prompt(**arguments)
    with pytest.raises(ValueError, match="eos_token_id in config.json, received none"):
        WhisperConfig().end_ids  # noqa: B018  (the ids are read when needed)


@pytest.mark.exhaustive
def test_features_of_another_length_are_rejected(loaded):
    with pytest.raises(fk.FKerasError, match="features"):
        loaded.model([np.zeros((1, 99, 12), "float32"), np.ones((1, 2), "int32")])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_mel_bins": 13}, "of another shape"),
        ({"encoder_layers": 3}, "missing in the file"),
        ({"decoder_attention_heads": 3}, "decoder_attention_heads: expected a divisor of d_model"),
        ({"activation_function": "step"}, "activation_function"),
        ({"suppress_tokens": [-1]}, "suppress_tokens"),
        ({"tie_word_embeddings": False}, "missing in the file: proj_out.weight"),
    ],
)
def test_a_wrong_configuration_is_rejected(keys, message, tmp_path):
    folder = encoder_checks.renamed("whisper", tmp_path, lambda name: name, keys)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load(folder)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("file", ["preprocessor_config.json", "generation_config.json"])
def test_a_wrong_file_beside_is_rejected(file, tmp_path):
    folder = encoder_checks.renamed("whisper", tmp_path, lambda name: name)
    (folder / file).write_text(json.dumps({"suppress_tokens": "all"}))
    with pytest.raises((FileError, ValueError), match="suppress_tokens|feature_extractor_type"):
        fk.pretrained.load(folder).config.never  # noqa: B018  (the ids are read when needed)


@pytest.mark.exhaustive
def test_a_new_model_is_written_and_opened(tmp_path):
    config = whisper.WHISPER.tiny
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    arrays = expected("whisper")
    inputs = [arrays["features"], arrays["ids"].astype("int32")]
    np.testing.assert_array_equal(fk.pretrained.load(tmp_path).model(inputs), model(inputs))
