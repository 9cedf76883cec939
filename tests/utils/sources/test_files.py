"""Datasets of folders: Keras's batches in Keras's order, and errors for unreadable files."""

import wave

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

pytest.importorskip("grain")
pytest.importorskip("PIL")
RNG = np.random.default_rng(0)
IMAGES = fk.utils.image_dataset_from_directory
TEXTS = fk.utils.text_dataset_from_directory
SOUNDS = fk.utils.audio_dataset_from_directory


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(9):
        name = ("ant", "bee", "cow/deep")[number % 3]
        shape = (7 + number % 3, 12 - number % 2, 3)
        picture = RNG.integers(0, 256, shape)
        fk.utils.save_img(folder / name / f"{number}.png", picture, scale=False)
    (folder / "ant" / "notes.txt").write_text("no image")
    (folder / ".hidden").mkdir()
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number in range(7):
        subfolder = folder / ("good", "bad")[number % 2]
        subfolder.mkdir(exist_ok=True)
        (subfolder / f"{number}.txt").write_text(f"text {number} äöü", encoding="utf-8")
    return folder


def _arrays(batches):
    return [
        tuple(map(np.asarray, batch)) if isinstance(batch, tuple | list) else (np.asarray(batch),)
        for batch in batches
    ]


def _assert_same_batches(ours, theirs, rtol=1e-5):
    ours = _arrays(ours)
    with keras_rules():
        theirs = _arrays(theirs)
    assert len(ours) == len(theirs)
    for batch, expected in zip(ours, theirs, strict=True):
        assert len(batch) == len(expected)
        for array, keras_array in zip(batch, expected, strict=True):
            if array.dtype != object:
                assert array.dtype == keras_array.dtype
                np.testing.assert_allclose(array, keras_array, rtol=rtol, atol=2e-3)
            else:
                np.testing.assert_array_equal(array.astype(str), keras_array)


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    "options",
    [
        {"seed": 4},
        {"shuffle": False, "label_mode": "categorical", "batch_size": 2},
        {"shuffle": False, "labels": None, "batch_size": None},
        {"shuffle": False, "label_mode": None},
        {"shuffle": False, "labels": [0, 1, 2, 1, 0, 2, 1, 0, 2], "batch_size": 5},
        {"shuffle": False, "class_names": ["cow", "ant"], "label_mode": "binary"},
        {"seed": 7, "validation_split": 0.3, "subset": "training"},
        {"seed": 7, "validation_split": 0.3, "subset": "validation"},
        {"shuffle": False, "color_mode": "grayscale", "interpolation": "bicubic"},
        {"shuffle": False, "color_mode": "rgba", "data_format": "channels_first"},
        {"shuffle": False, "crop_to_aspect_ratio": True, "interpolation": "lanczos3"},
        {"shuffle": False, "pad_to_aspect_ratio": True, "interpolation": "nearest"},
        {"shuffle": False, "image_size": (15, 3), "interpolation": "lanczos5"},
    ],
    ids=str,
)
def test_images_equal_keras(images, options):
    options = {"image_size": (6, 8), "verbose": False, **options}
    ours = IMAGES(images, **options)
    with keras_rules():
        theirs = keras.utils.image_dataset_from_directory(images, format="grain", **options)
        _assert_same_batches(ours, theirs)
        keras_names = theirs.class_names
    assert ours.class_names == (None if keras_names is None else tuple(keras_names))
    assert list(ours.file_paths) == list(theirs.file_paths)
    assert len(ours) == len(list(ours))


def test_subsets_without_a_seed_have_no_common_files(images):
    options = {"image_size": (4, 4), "validation_split": 0.4, "verbose": False}
    both = fk.utils.image_dataset_from_directory(images, subset="both", **options)
    parts = [
        fk.utils.image_dataset_from_directory(images, subset=subset, **options)
        for subset in ("training", "validation")
    ]
    assert [p.file_paths for p in parts] == [p.file_paths for p in both]
    assert not {*parts[0].file_paths} & {*parts[1].file_paths}


@pytest.mark.exhaustive
def test_subset_both_returns_and_prints_two_parts(images, capsys):
    options = {"image_size": (4, 4), "validation_split": 0.4, "subset": "both", "seed": 1}
    training, validation = IMAGES(images, **options)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "Found 9 files belonging to 3 classes.",
        "Using 6 files for training.",
        "Using 3 files for validation.",
    ]
    with keras_rules():
        theirs = keras.utils.image_dataset_from_directory(images, format="grain", **options)
    _assert_same_batches(training, theirs[0])
    _assert_same_batches(validation, theirs[1])
    assert not set(training.file_paths) & set(validation.file_paths)
    assert training.shuffle and not validation.shuffle


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"seed": 4},
        {"shuffle": False, "max_length": 6, "label_mode": "binary"},
        {"shuffle": False, "labels": None, "batch_size": 3},
        {"seed": 1, "validation_split": 0.5, "subset": "validation", "label_mode": "categorical"},
    ],
    ids=str,
)
def test_texts_equal_keras(texts, options):
    ours = TEXTS(texts, verbose=False, **options)
    with keras_rules():
        theirs = keras.utils.text_dataset_from_directory(
            texts, verbose=False, format="grain", **options
        )
        # without labels, Keras's batches are tuples of texts
        batches = [(np.asarray(b),) if "labels" in options else b for b in theirs]
    _assert_same_batches(ours, batches)


def test_map_vectorizes_texts(texts):
    data = TEXTS(texts, verbose=False, seed=1)
    vectorize = layers.TextVectorization(output_sequence_length=4).adapt(
        data.map(lambda texts, labels: texts)
    )
    batches = list(data.map(lambda texts, labels: (vectorize(texts), labels)))
    assert batches[0][0].shape == (7, 4) and batches[0][0].dtype.kind == "i"
    assert "text" in vectorize.get_vocabulary()


def _wav(path, samples, rate=8000, width=2):
    path.parent.mkdir(exist_ok=True, parents=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[1], width, rate, 0, "NONE", ""))
        file.writeframes(samples.astype(f"<i{width}").tobytes())


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    for number, length in enumerate((5, 8, 3)):
        samples = np.arange(2 * length).reshape(length, 2) * 1000
        _wav(folder / "ab"[number % 2] / f"{number}.wav", samples)
    return folder


@pytest.mark.exhaustive
def test_sounds_are_padded_to_the_longest_or_to_a_length(sounds):
    # Keras reads sounds with TensorFlow only: int16 / 32768, zeros behind
    ((batch, labels),) = SOUNDS(sounds, shuffle=False, verbose=False)
    assert batch.shape == (3, 8, 2) and labels.tolist() == [0, 0, 1]
    expected = np.zeros((5, 2))
    expected[:3] = np.arange(6).reshape(3, 2) * 1000 / 32768
    np.testing.assert_allclose(batch[1, :5], expected, rtol=1e-6)
    options = {"output_sequence_length": 4, "batch_size": 2, "label_mode": None}
    batches = list(SOUNDS(sounds, shuffle=False, verbose=False, **options))
    assert [b.shape for b in batches] == [(2, 4, 2), (1, 4, 2)]
    halved = list(SOUNDS(sounds, shuffle=False, verbose=False, sampling_rate=4000))
    assert halved[0][0].shape == (3, 4, 2)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("call", [IMAGES, TEXTS, SOUNDS], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": [0, 1]}, ValueError, r"labels: expected \d class numbers, one for each file"),
        ({"labels": "infer"}, ValueError, "labels: expected a list of class numbers"),
        ({"labels": [-1, 0]}, ValueError, "labels: expected a list of class numbers"),
        ({"label_mode": "one_hot"}, ValueError, "label_mode: expected 'int'"),
        ({"class_names": ["cat"]}, ValueError, "class_names: expected different names"),
        ({"class_names": [".."]}, ValueError, "class_names: expected different names"),
        ({"class_names": ["a"], "labels": None}, ValueError, "unless labels='inferred'"),
        ({"batch_size": 0}, ValueError, "batch_size: expected a positive integer"),
        ({"shuffle": "yes"}, ValueError, "shuffle: expected True or False"),
        ({"seed": -1}, ValueError, "seed: expected an integer"),
        ({"validation_split": 20}, ValueError, "Write 0.2 for one fifth"),
        ({"validation_split": 0.2}, ValueError, "validation_split and subset together"),
        ({"subset": "both"}, ValueError, "validation_split and subset together"),
        ({"subset": "test", "validation_split": 0.5}, ValueError, "subset: expected 'training'"),
        (
            {"subset": "both", "validation_split": 0.01},
            ValueError,
            "leaves files for training and for validation",
        ),
        ({"directory": "missing"}, NotADirectoryError, "'missing', which is missing"),
        ({"directory": __file__}, NotADirectoryError, "which is a file"),
        ({"directory": 3}, TypeError, "expected a path"),
        ({"shard": (2, 2)}, ValueError, "shard: expected"),
        ({"follow_links": None}, ValueError, "follow_links: expected"),
    ],
    ids=str,
)
def test_invalid_arguments_are_reported(call, options, error, message, images, texts, sounds):
    folder = {IMAGES: images, TEXTS: texts, SOUNDS: sounds}[call]
    with pytest.raises(error, match=message):
        call(**{"directory": folder, "verbose": False, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "tf"}, "TensorFlow's datasets"),
        ({"color_mode": "cmyk"}, "color_mode: expected 'grayscale'"),
        ({"image_size": (1, 2, 3)}, "image_size: expected"),
        ({"image_size": 0}, "image_size: expected"),
        ({"interpolation": "area"}, "interpolation: expected 'bilinear'"),
        ({"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True}, "at most one of"),
        ({"data_format": "first"}, "channels_last"),
        ({"label_mode": "binary"}, "expected two classes"),
        ({"labels": [0, 5, 0, 5, 0, 5, 0, 5, 0], "label_mode": "categorical"}, "without gaps"),
    ],
    ids=str,
)
def test_invalid_arguments_of_images_are_reported(options, message, images):
    with pytest.raises(ValueError, match=message):
        IMAGES(images, verbose=False, **options)


def test_invalid_arguments_of_texts_and_sounds_are_reported(texts, sounds):
    with pytest.raises(ValueError, match="max_length: expected"):
        TEXTS(texts, max_length=0)
    with pytest.raises(ValueError, match="ragged: expected False"):
        SOUNDS(sounds, ragged=True)
    with pytest.raises(ValueError, match="sampling_rate: expected"):
        SOUNDS(sounds, sampling_rate=8000.5)


def test_a_folder_without_files_is_reported(tmp_path):
    with pytest.raises(ValueError, match="put the files of each class into a subfolder"):
        IMAGES(tmp_path, verbose=False)


def test_unreadable_files_are_named(tmp_path):
    for name, content in (("a.png", b"<html>"), ("a.txt", b"\xff\xfe"), ("a.wav", b"RIFFxxxxWAVE")):
        (tmp_path / name).write_bytes(content)
    options = {"labels": None, "verbose": False}
    for call, match in (
        (IMAGES, "a.png: expected an image"),
        (TEXTS, "a.txt': expected a text in UTF-8"),
        (SOUNDS, "a.wav': expected a WAV file .* received a file without samples"),
    ):
        with pytest.raises(ValueError, match=match):
            next(iter(call(tmp_path, **options)))
    _wav(tmp_path / "a.wav", np.zeros((4, 1)))
    _wav(tmp_path / "b.wav", np.zeros((4, 2)))
    with pytest.raises(ValueError, match="b.wav': expected 1 channels as in .*a.wav"):
        next(iter(SOUNDS(tmp_path, shuffle=False, **options)))
