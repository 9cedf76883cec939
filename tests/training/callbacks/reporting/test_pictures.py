"""Images of weights, and files of the projector."""

import io

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.callbacks import TensorBoard
from fkeras.training.callbacks.base.snapshot import weights_of
from fkeras.training.callbacks.reporting import events, pictures
from tests.support.callback_runs import RUN, drive, fit
from tests.training.callbacks.reporting.test_tensorboard import read_events, tags

WORDS = fk.Trainer("sgd", "mse").init(
    fk.Sequential(
        [
            fk.Input((3,), dtype="int32"),
            layers.Embedding(5, 2, name="words"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    ),
    jax.random.key(0),
)


SHAPES = (
    ((), (1, 1)),
    ((4,), (1, 4)),
    ((2, 5), (2, 5)),
    ((5, 2), (2, 5)),
    ((3, 2, 4), (3, 15)),
    ((3, 3, 2, 4), (7, 15)),
    ((2, 2, 2, 2, 2), None),
    ((0, 3), None),
    ((3000, 3000), None),
)


@pytest.mark.parametrize(("shape", "expected"), SHAPES)
def test_shapes_of_pictures(shape, expected):
    image = pictures.picture(np.zeros(shape))
    assert (None if image is None else image.shape) == expected


def test_a_cell_of_a_picture_is_the_kernel_of_a_channel_and_a_filter():
    kernel = np.random.default_rng(0).normal(size=(3, 2, 4, 5))
    image = pictures.picture(kernel)
    np.testing.assert_array_equal(image[4 * 2 : 4 * 2 + 3, 3 * 3 : 3 * 3 + 2], kernel[:, :, 2, 3])
    assert np.isnan(image[3]).all() and np.isnan(image[:, 2]).all()


def test_gray_levels():
    assert events.gray(np.full((1, 2), np.nan)).tolist() == [[0, 0]]
    assert events.gray(np.full((1, 2), 3.0)).tolist() == [[0, 0]]
    assert events.gray(np.asarray([[1.0, 3.0, np.inf]])).tolist() == [[0, 255, 0]]


@pytest.mark.exhaustive
def test_images_in_the_event_file_are_the_weights(tmp_path):
    pytest.importorskip("tensorboardX")
    image = pytest.importorskip("PIL.Image")
    board = TensorBoard(tmp_path, 2, write_graph=False, write_images=True)
    run, _ = drive(board, [{"loss": 1.0}] * 3)
    found = read_events(tmp_path / "train")
    assert [step for tag, step in tags(found) if tag == "body/kernel/image"] == [0, 2]
    value = [v for e in found for v in e.summary.value if v.tag == "body/kernel/image"][-1].image
    assert (value.height, value.width) == (2, 3)
    pixels = np.asarray(image.open(io.BytesIO(value.encoded_image_string)))
    kernel = np.asarray(weights_of(run)["body/kernel"], "float64").T
    np.testing.assert_array_equal(pixels, events.gray(kernel))


def test_the_projector_reads_the_vectors_of_embeddings(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, embeddings_freq=2, embeddings_metadata="words.tsv")
    run, _ = drive(board, [{"loss": 1.0}] * 3, run=WORDS)
    vectors = np.loadtxt(tmp_path / "projector" / "words.tsv", delimiter="\t")
    np.testing.assert_allclose(vectors, weights_of(run)["words/embeddings"], rtol=1e-5)
    assert (tmp_path / "projector_config.pbtxt").read_text() == (
        'embeddings {\n  tensor_name: "words/embeddings"\n'
        '  tensor_path: "projector/words.tsv"\n  metadata_path: "words.tsv"\n}\n'
    )


def test_metadata_by_layer():
    check = pictures.check_projector
    assert check("T", WORDS.model, {"words": "a.tsv"}) == {"words": "a.tsv"}
    assert check("T", WORDS.model, None) == {}
    with pytest.raises(ValueError, match="received 'word'.*Did you mean 'words'"):
        check("T", WORDS.model, {"word": "a.tsv"})


def test_a_model_without_embeddings_is_an_error_before_the_first_step(tmp_path):
    pytest.importorskip("tensorboardX")
    with pytest.raises(ValueError, match="TensorBoard: expected a model with layers Embedding"):
        fit(TensorBoard(tmp_path, embeddings_freq=1), run=RUN, epochs=1)
