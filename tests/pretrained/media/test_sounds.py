"""`SoundProcessor`: features, keys of preprocessor_config.json, errors."""

import numpy as np
import pytest

import fkeras as fk
from fkeras.pretrained.media.sounds import SoundProcessor, mel_filters

WHISPER = {"feature_extractor_type": "WhisperFeatureExtractor"}
PROCESS = SoundProcessor(bands=3, seconds=1, sampling_rate=800, window=40, step=80)


@pytest.mark.exhaustive
def test_sounds_are_padded_to_one_length():
    short = np.linspace(-0.5, 0.5, 300)
    padded = np.pad(short, (0, 500))
    features = PROCESS([short, padded], 800)
    assert features.shape == (2, 10, 3)
    np.testing.assert_array_equal(features[0], features[1])
    np.testing.assert_array_equal(PROCESS(short, 800), features[:1])


@pytest.mark.exhaustive
def test_features_of_a_sound_do_not_depend_on_others():
    rng = np.random.default_rng(0)
    quiet, loud = 0.01 * rng.normal(size=800), rng.normal(size=800)
    together = PROCESS(np.stack([quiet, loud]), 800)
    np.testing.assert_allclose(together[:1], PROCESS(quiet, 800), atol=1e-5)


def test_features_lie_two_below_the_maximum_at_most():
    features = PROCESS(np.sin(np.arange(400.0)), 800)
    assert features.max() - features.min() <= 2.0 + 1e-6


@pytest.mark.exhaustive
def test_filters_have_the_area_one():
    filters = mel_filters(5, 4001, 16000)
    np.testing.assert_allclose(filters.sum(0) * 2.0, 1.0, atol=1e-2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("mapping", "field", "value"),
    [
        ({"feature_size": 128}, "bands", 128),
        ({"chunk_length": 5}, "seconds", 5),
        ({"mel_filters": [[1.0]], "n_samples": 480000}, "window", 400),
        ({"dither": 0.0}, "padding", 0.0),
    ],
)
def test_keys_of_the_file(mapping, field, value):
    assert getattr(SoundProcessor.read({**WHISPER, **mapping}), field) == value


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "expected the feature_extractor_type"),
        ([], "expected an object of JSON"),
        ({"feature_extractor_type": "ClapFeatureExtractor"}, "ClapFeatureExtractor"),
        ({**WHISPER, "dither": 0.1}, "unknown key 'dither'"),
        ({**WHISPER, "feature_size": 0}, "bands"),
        ({**WHISPER, "hop_length": 1.5}, "step"),
        ({**WHISPER, "chunk_length": True}, "seconds"),
        ({**WHISPER, "padding_value": None}, "padding"),
        ({**WHISPER, "chunk_length": 10**9}, "at most"),
    ],
)
def test_a_wrong_file_is_rejected(mapping, message):
    with pytest.raises(fk.FKerasError, match=message):
        SoundProcessor.read(mapping)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("sounds", "rate", "message"),
    [
        (np.zeros(10), 16000, "800 samples per second"),
        (np.zeros(801), 800, "Split a longer sound"),
        (np.zeros(0), 800, "received 0 samples"),
        ([], 800, "received 0 samples"),
        (np.zeros((1, 10, 2)), 800, "one channel"),
        (np.zeros(10, "int16"), 800, "32768"),
        (np.full(10, np.nan), 800, "finite"),
        ([[0.5, 0.1], ["a"]], 800, "floats"),
    ],
)
def test_wrong_sounds_are_rejected(sounds, rate, message):
    with pytest.raises(fk.FKerasError, match=message):
        PROCESS(sounds, rate)
