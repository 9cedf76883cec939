"""Preprocessing of images and class names equal Keras's."""

import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules

utils = fk.applications.imagenet_utils
MODULES = sorted(set(fk.applications.__all__) & set(dir(keras.applications)) - {"imagenet_utils"})
MODULES = [name for name in MODULES if name.islower()]


def _pixels(dtype, shape=(2, 4, 3, 3)):
    return np.random.default_rng(0).integers(0, 256, shape).astype(dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
@pytest.mark.parametrize("data_format", [None, "channels_last", "channels_first"])
def test_preprocessing_equals_keras(mode, data_format):
    first = data_format == "channels_first"
    for shape in ((2, 3, 4, 5) if first else (2, 4, 5, 3), (3, 4, 5) if first else (4, 5, 3)):
        for dtype in ("uint8", "int64", "float32", "float64", "float16"):
            x = _pixels(dtype, shape)
            with keras_rules():
                theirs = keras.applications.imagenet_utils.preprocess_input(
                    x.copy(), data_format, mode
                )
            before = x.copy()
            ours = utils.preprocess_input(x, data_format, mode)
            np.testing.assert_array_equal(x, before)
            assert ours.dtype == theirs.dtype and isinstance(ours, np.ndarray)
            tolerance = 1e-2 if dtype == "float16" else 1e-6
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=100 * tolerance)
        x = _pixels("float32", shape)
        with keras_rules():
            theirs = keras.applications.imagenet_utils.preprocess_input(
                jnp.asarray(x), data_format, mode
            )
        for ours in (
            utils.preprocess_input(jnp.asarray(x), data_format, mode),
            jax.jit(lambda x: utils.preprocess_input(x, data_format, mode))(x),
        ):
            assert isinstance(ours, jax.Array)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
def test_preprocessing_of_symbolic_images(mode):
    x = _pixels("float32")
    for dtype in ("float32", "uint8"):
        inputs = fk.Input((4, 3, 3), dtype=dtype)
        model = fk.Model(inputs, utils.preprocess_input(inputs, mode=mode))
        outputs = model(x.astype(dtype))
        np.testing.assert_allclose(
            outputs, utils.preprocess_input(x, mode=mode), rtol=1e-5, atol=1e-4
        )


@pytest.mark.one_in(16)
@pytest.mark.parametrize("module", MODULES)
def test_the_mode_of_each_module_equals_keras(module):
    ours = importlib.import_module(f"fkeras.applications.{module}")
    theirs = importlib.import_module(f"keras.applications.{module}")
    x = _pixels("float32")
    with keras_rules():
        expected = theirs.preprocess_input(x.copy())
    np.testing.assert_allclose(ours.preprocess_input(x), expected, rtol=1e-5, atol=1e-4)
    assert ours.decode_predictions is utils.decode_predictions


def test_decoded_predictions_equal_keras(tmp_path, monkeypatch):
    index = {str(n): [f"n{n:08d}", f"class {n}"] for n in range(1000)}
    path = tmp_path / "index.json"
    path.write_text(json.dumps(index))
    scores = np.random.default_rng(0).random((3, 1000), "float32")
    scores[1, 10:20] = 2.0  # equal scores
    theirs = importlib.import_module("keras.src.applications.imagenet_utils")
    monkeypatch.setattr(theirs, "CLASS_INDEX", index)
    for top in (1, 5, 1000):
        ours = utils.decode_predictions(jnp.asarray(scores), top, class_index=path)
        for row, expected in zip(ours, theirs.decode_predictions(scores, top), strict=True):
            # the order of equal scores is not defined in Keras
            assert [score for _, _, score in row] == [score for _, _, score in expected]
            assert all(name == f"class {int(key[1:])}" for key, name, _ in row)
            assert len({key for key, _, _ in row}) == top
    few = tmp_path / "few.json"
    few.write_text(json.dumps({"0": ["a", "cat"], "1": ["b", "dog"]}))
    assert utils.decode_predictions([[1, 0]], class_index=few) == [
        [("a", "cat", 1), ("b", "dog", 0)]
    ]


def _decode(path, text='{"0": ["a", "cat"], "1": ["b", "dog"]}', preds=((1.0, 0.0),), **options):
    path.write_text(text)
    return utils.decode_predictions(np.asarray(preds), class_index=path, **options)


ERRORS = (
    (
        lambda path: utils.decode_predictions(np.ones((1, 2))),
        ValueError,
        "imagenet_class_index.json",
    ),
    (
        lambda path: utils.decode_predictions(np.ones((1, 2)), class_index=path / "x"),
        FileNotFoundError,
        "which is missing",
    ),
    (lambda path: _decode(path / "i", preds=(1.0, 0.0)), ValueError, r"preds\[None\]"),
    (
        lambda path: _decode(path / "i", preds=((1.0,),)),
        ValueError,
        r"expected scores \(samples, 2",
    ),
    (lambda path: _decode(path / "i", top=0), ValueError, "top: expected a positive integer"),
    (lambda path: _decode(path / "i", "{"), ValueError, "expected a JSON file"),
    (lambda path: _decode(path / "i", "[" * 100000), ValueError, "expected a JSON file"),
    (lambda path: _decode(path / "i", "[]"), ValueError, "received None for class 0"),
    (
        lambda path: _decode(path / "i", '{"1": ["a", "b"]}'),
        ValueError,
        "received None for class 0",
    ),
    (
        lambda path: _decode(path / "i", '{"0": ["a", 1]}'),
        ValueError,
        r"received \['a', 1\].* for class 0",
    ),
    (lambda path: utils.preprocess_input(np.ones((2, 2, 3)), mode="tff"), ValueError, "'tf'"),
    (
        lambda path: utils.preprocess_input(np.ones((2, 2, 3)), "last"),
        ValueError,
        "data_format: expected None",
    ),
    (lambda path: utils.preprocess_input(np.ones((2, 2, 1))), ValueError, "3 channels on axis -1"),
    (lambda path: utils.preprocess_input(np.ones(3)), ValueError, "3 channels"),
    (lambda path: utils.preprocess_input("cat.png"), TypeError, "expected an array of images"),
)


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_argument_and_a_remedy(call, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        call(tmp_path)
