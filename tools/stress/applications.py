"""Opens Keras's files of all 40 models of `keras.applications`, and opens ours in Keras.

    python tools/stress/applications.py [--part I/N] [--composed] [--files] [names...]

Each model has random weights and statistics and the smallest images that it accepts. `fk.load_model`
opens Keras's file; outputs and moving statistics are compared in inference and in training, with all
dropout rates 0, since the two packages draw differently. `fk.save_model` then saves the model, Keras
opens the file, and its outputs are compared too.

Prints a line for each model: the largest difference, relative to the largest number, of the outputs
in inference, of Keras's outputs from our file, of the outputs in training and of the statistics; then
the CPU seconds. Exits with 1 if a difference exceeds 1e-4. All models take long: CI runs parts,
`--part 1/8` to `--part 8/8`.

With `--composed` it compares `fk.applications` instead: the function of the same name reads Keras's
weights (`.weights.h5`), its outputs in inference are compared, and the limit is 1e-5. With `--files`
as well the function reads `.weights.h5`, `.h5` and `.keras` files and the model in memory
(`fk.from_keras`), a column for each.
"""

import argparse
import functools
import os
import pathlib
import sys
import tempfile
import time
import unittest.mock
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.support.quick_flags import QUICK

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", QUICK)

import jax
import keras
import numpy as np

import fkeras as fk
from fkeras.engine.values.frozen import FrozenDict

_DRAWS = "keras.src.initializers.random_initializers.random"
LIMIT = 1e-4
COMPOSED_LIMIT = 1e-5
BATCH = 8
SUFFIXES = (".weights.h5", ".h5", ".keras")
# the smallest width and height, where it is not 32
SIZES = {"Xception": 71, "InceptionV3": 75, "InceptionResNetV2": 75}
NAMES = (
    *("MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large"),
    *("VGG16", "VGG19", "ResNet50", "ResNet101", "ResNet152"),
    *("ResNet50V2", "ResNet101V2", "ResNet152V2", "Xception", "InceptionV3"),
    *("InceptionResNetV2", "DenseNet121", "DenseNet169", "DenseNet201"),
    *("NASNetMobile", "NASNetLarge"),
    *(f"EfficientNetB{number}" for number in range(8)),
    *(f"EfficientNetV2{kind}" for kind in ("B0", "B1", "B2", "B3", "S", "M", "L")),
    *(f"ConvNeXt{kind}" for kind in ("Tiny", "Small", "Base", "Large", "XLarge")),
)


def host_draws():
    """What Keras's initializers draw, from NumPy, which compiles nothing."""
    rng = np.random.default_rng(0)

    def uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None):
        drawn = rng.random(shape, np.float32)
        return jax.numpy.asarray(minval + (maxval - minval) * drawn, dtype)

    def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
        drawn = np.clip(rng.standard_normal(shape, np.float32), -2, 2)
        return jax.numpy.asarray(mean + stddev * drawn, dtype)

    draws = {"uniform": uniform, "truncated_normal": truncated_normal}
    return unittest.mock.patch.multiple(_DRAWS, **draws)


def drawn_model(name, **options):
    """Keras's model with statistics, factors and offsets that matter."""
    size = SIZES.get(name, 32)
    options = {"weights": None, "classes": 10, "input_shape": (size, size, 3), **options}
    options["classifier_activation"] = None  # probabilities of 0 and 1 would hide differences
    with host_draws():
        model = getattr(keras.applications, name)(**options)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        shape, kind = variable.shape, variable.path.rpartition("/")[2]
        if kind == "variance":  # roots by which dividing and multiplying are the same, exactly
            variable.assign(4.0 ** rng.integers(-1, 2, shape).astype("float32"))
        elif kind == "moving_variance":
            variable.assign(rng.uniform(0.5, 1.5, shape).astype("float32"))
        elif kind == "gamma":  # factors up to 1.5 make deep networks amplify rounding without limit
            variable.assign(rng.uniform(0.5, 1.0, shape).astype("float32"))
        elif kind in ("beta", "bias", "moving_mean", "mean"):
            variable.assign(rng.normal(0.0, 0.1, shape).astype("float32"))
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    return model


def undropped(model):
    """Our model with every rate of dropout at 0."""
    layers = {}
    for name, layer in model.layers.items():
        for field in ("rate", "drop_path_rate"):
            if getattr(layer, field, 0.0):
                layer = layer.replace(**{field: 0.0})
        layers[name] = undropped(layer) if isinstance(layer, fk.engine.Network) else layer
    return model.replace(layers=FrozenDict(layers))


def undrop(model):
    """Sets every rate of dropout of Keras's model to 0."""
    for layer in model._flatten_layers():
        for field in ("rate", "drop_path_rate"):
            if getattr(layer, field, 0.0):
                setattr(layer, field, 0.0)


def keras_program(model, training, x):
    """`(lowered, arguments)` of Keras's model: arguments to outputs and statistics."""

    def compute(trainable, others, x):
        return model.stateless_call(trainable, others, x, training=training)

    arguments = (
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
        x,
    )
    return jax.jit(compute).lower(*arguments), arguments


def weights_after(model, others):
    """The values of `model.weights` with the non-trainable ones of a call."""
    found = {id(v): v.value for v in model.trainable_variables}
    pairs = zip(model.non_trainable_variables, others, strict=True)
    found.update({id(v): value for v, value in pairs})
    return [np.asarray(found[id(v)]) for v in model.weights]


def our_outputs(model, state, training, x):
    def compute(model, state, x):
        key = jax.random.key(0) if training else None
        out = model.apply(x, state=state, training=training, key=key)
        return out.value, state | out.updates

    return jax.jit(compute)(model, state, x)


def apart(found, wanted):
    """The greatest difference, relative to the greatest number."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def check(name, folder, training=True, **options):
    """The differences of a model: inference, back, and with `training` training and statistics."""
    model = drawn_model(name, **options)
    path = pathlib.Path(folder, f"{name}.keras")
    model.save(path)
    ours, state = fk.load_model(path)
    path.unlink()
    pairs = zip(ours.get_weights(state), model.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "other weights than Keras has"
    fk.save_model(path, ours, state)
    x = images(model, BATCH)
    lowered, arguments = keras_program(model, False, x)
    text, program = lowered.as_text(), lowered.compile()
    wanted = program(*arguments)[0]
    # Keras opens what we wrote; the same program with its weights, where it traces to the same
    with host_draws():
        again = keras.models.load_model(path)
    path.unlink()
    lowered, arguments = keras_program(again, False, x)
    if lowered.as_text() != text:
        print(f"{name}: Keras computes what we wrote in another way", flush=True)
        program = lowered.compile()
    back = apart(program(*arguments)[0], wanted)
    pairs = zip(again.get_weights(), model.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "other weights than Keras had"
    del again, arguments, lowered, program
    infer = apart(our_outputs(ours, state, False, x)[0], wanted)
    if not training:
        return infer, back
    undrop(model)
    lowered, arguments = keras_program(model, True, x)
    wanted, others = lowered.compile()(*arguments)
    found, after = our_outputs(undropped(ours), state, True, x)
    train = apart(found, wanted)
    wanted, found = weights_after(model, others), ours.get_weights(after)
    moved = max(apart(a, b) for a, b in zip(found, wanted, strict=True))
    return infer, back, train, moved


def images(model, count):
    """Random images, scaled as the model expects."""
    x = np.random.default_rng(1).uniform(0, 255, (count, *model.input_shape[1:]))
    return (x if _scales(model) else x / 127.5 - 1).astype("float32")


def check_composed(name, folder, suffixes=SUFFIXES[:1], **options):
    """The differences of the outputs of `fk.applications` with Keras's weights, in inference.

    There is one difference for each kind of file; for several kinds of files, the last difference is
    that of `fk.from_keras`.
    """
    model = drawn_model(name, **options)
    x = images(model, 2)
    lowered, arguments = keras_program(model, False, x)
    program = lowered.compile()
    wanted = np.asarray(program(*arguments)[0])
    # equal constants would hide a wrong graph; chaotic outputs would show rounding only
    assert wanted.std() > 1e-3 * np.abs(wanted).max(), "the outputs of Keras are constant"
    moved = program(*arguments[:-1], x * np.float32(1 + 1e-6))[0]
    assert apart(moved, wanted) < COMPOSED_LIMIT, "the outputs of Keras amplify rounding"
    arguments = {"classes": 10, "input_shape": model.input_shape[1:], **options}
    differences = []
    for suffix in suffixes:
        path = pathlib.Path(folder, f"{name}{suffix}")
        with warnings.catch_warnings():
            # absl logs that .h5 is legacy; Keras warns that a model in memory is not compiled
            warnings.simplefilter("ignore")
            model.save_weights(path) if suffix == SUFFIXES[0] else model.save(path)
        ours, state = getattr(fk.applications, name)(
            weights=path, classifier_activation=None, **arguments
        )
        path.unlink()
        differences.append(_composed_difference(model, ours, state, x, wanted))
    if len(suffixes) > 1:
        differences.append(_composed_difference(model, *fk.from_keras(model), x, wanted))
    return tuple(differences)


def _composed_difference(theirs, ours, state, x, wanted):
    pairs = zip(ours.get_weights(state), theirs.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "other weights than Keras has"
    return apart(our_outputs(ours, state, False, x)[0], wanted)


def _scales(model):
    kinds = (keras.layers.Rescaling, keras.layers.Normalization)
    return any(isinstance(layer, kinds) for layer in model._flatten_layers())


def main():
    parser = argparse.ArgumentParser(description="Models of keras.applications, there and back.")
    parser.add_argument("--part", default="1/1", help="which part of how many, such as 2/8")
    parser.add_argument("--composed", action="store_true", help="compare fk.applications")
    parser.add_argument("--files", action="store_true", help="with --composed: all kinds of files")
    parser.add_argument("names", nargs="*", help="models; all without any")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    names = (given.names or NAMES)[part - 1 :: parts]
    failed = []
    if given.files and not given.composed:
        parser.error("--files needs --composed")
    columns, compare, limit = ("inference", "back", "training", "statistics"), check, LIMIT
    if given.composed:
        suffixes = SUFFIXES if given.files else SUFFIXES[:1]
        columns = (*suffixes, "from_keras") if given.files else ("inference",)
        compare, limit = functools.partial(check_composed, suffixes=suffixes), COMPOSED_LIMIT
    print(f"{'':18s} {' '.join(f'{column:>11s}' for column in columns)}")
    for name in names:
        start = time.process_time()
        try:
            with tempfile.TemporaryDirectory() as folder:
                errors = compare(name, folder)
        except Exception as error:
            failed.append(name)
            print(f"{name:18s} {type(error).__name__}: {error}", flush=True)
            continue
        finally:
            keras.backend.clear_session()
            jax.clear_caches()
        if not max(errors) <= limit:
            failed.append(name)
        shown = " ".join(f"{error:11.1e}" for error in errors)
        spent = time.process_time() - start
        print(f"{name:18s} {shown} {spent:8.1f} s CPU{'  FAILS' * (name in failed)}", flush=True)
    print(f"{len(names) - len(failed)} of {len(names)} hold")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
