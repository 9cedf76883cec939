"""Deliberate differences from Keras of single layers and operations, beside Keras."""

import collections

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops
from fkeras.layers.image.common.base import ImageShape
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)


@pytest.mark.exhaustive
def test_a_mel_spectrogram_of_a_row_does_not_depend_on_other_rows():
    signals = RNG.normal(size=(2, 256)).astype("float32") * np.array([[1e-3], [1e2]], "float32")
    options = {"fft_length": 64, "sequence_stride": 32, "num_mel_bins": 4, "sampling_rate": 8000}

    def difference(library):
        layer = library.MelSpectrogram(min_freq=20, **options)
        both, alone = (np.asarray(layer(x))[0] for x in (signals, signals[:1]))
        return np.abs(both - alone).max()

    assert difference(layers) < 1e-3
    with keras_rules():
        assert difference(keras.layers) > 1


@pytest.mark.exhaustive
def test_istft_without_a_window_is_the_inverse_of_stft():
    x = RNG.normal(size=(1, 64)).astype("float32")

    def error(library):
        parts = library.stft(x, 16, 8, 16, window=None)
        return np.abs(np.asarray(library.istft(parts, 16, 8, 16, length=64, window=None)) - x).max()

    assert error(ops) < 1e-5
    with keras_rules():
        assert error(keras.ops) > 0.1


def test_argmax_of_zeros_of_both_signs_is_the_first():
    zeros = np.array([-0.0, 0.0], "float32")
    assert int(jax.jit(ops.argmax)(zeros)) == 0
    with keras_rules():
        assert int(jax.jit(keras.ops.argmax)(zeros)) == 1


@pytest.mark.exhaustive
def test_unit_normalization_in_float16_does_not_overflow():
    x = np.full((1, 4), 300, "float16")
    assert layers.UnitNormalization(dtype="float16")(x).tolist() == [[0.5] * 4]
    with keras_rules():
        assert np.asarray(keras.layers.UnitNormalization(dtype="float16")(x)).tolist() == [[0] * 4]


@pytest.mark.exhaustive
def test_saturated_colors_stay_in_their_range():
    images = RNG.uniform(size=(1, 4, 4, 3)).astype("float32")
    layer = layers.RandomSaturation((0.8, 0.8))
    y = layer.apply(images, training=True, key=KEY).value
    assert y.min() >= 0
    with keras_rules():
        reference = keras.layers.RandomSaturation((0.8, 0.8))
        assert np.asarray(reference(images, training=True)).min() < 0


@pytest.mark.exhaustive
def test_boxes_of_a_cropping_resizing_move_with_the_image():
    # the crop of 8 x 8 begins at row 1: a box from row 1 to row 3 covers rows 0 to 5 of the result
    boxes = {"boxes": np.array([[2.0, 1, 4, 3]], "float32"), "labels": np.array([1])}
    data = {"images": np.ones((10, 8, 3), "float32"), "bounding_boxes": boxes}
    options = {"crop_to_aspect_ratio": True, "bounding_box_format": "xyxy"}

    def moved(library):
        y = library.Resizing(20, 20, **options)(data)
        return np.asarray(y["bounding_boxes"]["boxes"]).tolist()

    assert moved(layers) == [[5, 0, 10, 5]]
    with keras_rules():
        assert moved(keras.layers) == [[5, 0.5, 10, 5.5]]


@pytest.mark.exhaustive
def test_sheared_boxes_move_with_the_image():
    # Keras shears fractions of the image: by 10 / 8 more than the pixels of a 10 x 8 image
    boxes = {"boxes": np.array([[[2.0, 1, 4, 3]]], "float32"), "labels": np.array([[1]])}
    change = {"shear_factor": np.array([[1.0, 0.0]], "float32")}
    options = {"bounding_box_format": "xyxy", "data_format": "channels_last"}
    moved = layers.RandomShear(0.5, **options).transform_bounding_boxes(
        boxes, change, ImageShape(1, 10, 8, 3)
    )
    assert np.asarray(moved["boxes"]).tolist() == [[[0, 1, 3, 3]]]
    with keras_rules():
        moved = keras.layers.RandomShear(0.5, **options).transform_bounding_boxes(
            boxes, {**change, "input_shape": (10, 8, 3)}, training=True
        )
    np.testing.assert_allclose(moved["boxes"], [[[0, 1, 3.2, 3]]], rtol=1e-6)


@pytest.mark.exhaustive
def test_the_state_of_a_cell_in_a_stack_is_a_list():
    def states(library, array, build):
        class Sum(library.Layer):
            state_size = 3

            def call(self, x, states):
                return x + states[0], [x + states[0]]

        stack = library.layers.RNN([Sum(), Sum()], return_state=True)
        _, *found = (build(stack) if build else stack)(array)
        return [isinstance(state, list) for state in found]

    x = np.ones((1, 2, 3), "float32")
    assert states(fk, x, lambda stack: stack.build(KEY, x)) == [True, True]
    with keras_rules():
        assert states(keras, x, None) == [False, False]


def test_the_configuration_of_a_vocabulary_from_a_file_has_its_words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("a\nb\n")
    layer = layers.StringLookup(vocabulary=str(path))
    config = layer.get_config()
    path.unlink()
    assert layers.StringLookup.from_config(config).get_vocabulary() == layer.get_vocabulary()
    assert layer.get_vocabulary() == ["[UNK]", "a", "b"]


def test_a_sequential_passes_single_tensors():
    def result(library):
        class Halves(library.Layer):
            def call(self, x):
                return {"first": x, "second": x + 1}

        return library.Sequential([library.Input((2,)), Halves()])

    with pytest.raises(ValueError, match=r"returns dict, and a Sequential .* fk\.Model"):
        result(fk)
    with keras_rules():
        x = np.ones((1, 2), "float32")
        assert set(jax.eval_shape(result(keras), x)) == {"first", "second"}


def test_rand_augment_needs_an_operation():
    with pytest.raises(ValueError, match="num_ops: expected a positive integer, received 0"):
        layers.RandAugment(num_ops=0)


@pytest.mark.exhaustive
def test_labels_out_of_range_of_mean_iou_are_an_error_outside_of_jit():
    metric, labels = fk.metrics.MeanIoU(3), (np.array([0, 5]), np.array([0, 1]))
    with pytest.raises(ValueError, match="expected targets from 0 to 2, received 5"):
        metric.update(metric.init(), *labels)
    inside = jax.jit(lambda *y: metric.result(metric.update(metric.init(), *y)))(*labels)
    np.testing.assert_allclose(inside, 1, rtol=1e-5)  # as Keras


@pytest.mark.parametrize(("expected", "received"), [((4,), (2, 4, 1)), ((4, 1), (2, 4))])
def test_models_neither_add_nor_drop_an_axis_of_size_1(expected, received):
    x = np.ones(received, "float32")
    with pytest.raises(fk.FKerasError, match="expected shape"):
        fk.Sequential([fk.Input(expected), layers.Flatten()])(x)
    with keras_rules():
        model = keras.Sequential([keras.Input(expected), keras.layers.Flatten()])
        assert jax.eval_shape(model, x).shape == (2, 4)


def test_a_list_is_no_input_of_a_model_of_a_dictionary():
    a, b = fk.Input((2,), name="a"), fk.Input((2,), name="b")
    model = fk.Model({"a": a, "b": b}, layers.Subtract()([a, b]))
    with pytest.raises(
        fk.FKerasError, match="expected 2 inputs as {'a': a, 'b': b}, received a list"
    ):
        model([np.ones((1, 2), "float32"), np.zeros((1, 2), "float32")])


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "call",
    [
        lambda o, k: o.psnr(k.Input((3,)), k.Input((4,)), 1.0),
        lambda o, k: o.dot_product_attention(*(k.Input((n, 2, 4)) for n in (3, 5, 6))),
        lambda o, k: o.layer_normalization(k.Input((4,)), np.ones(3, "float32")),
        lambda o, k: o.rms_normalization(k.Input((4,)), np.ones(3, "float32")),
    ],
    ids=["psnr", "dot_product_attention", "layer_normalization", "rms_normalization"],
)
def test_shapes_that_fit_nothing_are_an_error_when_recorded(call):
    with pytest.raises((TypeError, ValueError)):
        call(ops, fk)
    with keras_rules():
        call(keras.ops, keras)


def test_unknown_sizes_that_keras_refuses_are_inferred():
    def shapes(library):
        matrix, image = library.Input(batch_shape=(None, 3)), library.Input((None, None, 3))
        q, r = library.ops.qr(matrix)
        return q.shape, r.shape, library.ops.image.crop_images(image, 1, 1, 1, 1).shape

    assert shapes(fk) == ((None, None), (None, 3), (None, None, None, 3))
    with keras_rules(), pytest.raises(ValueError, match="fully-defined"):
        shapes(keras)


@pytest.mark.parametrize("name", ["cholesky", "det", "inv", "fft", "squeeze", "concatenate"])
def test_an_unknown_axis_may_be_the_axis_that_keras_refuses(name):
    def shape(library):
        x, y = (library.Input(batch_shape=(None, n)) for n in (20, 1))
        if name == "concatenate":
            return library.ops.concatenate([x, y], axis=None).shape
        if name == "fft":
            return library.ops.fft((library.Input((None,)),) * 2)[0].shape
        return (
            library.ops.squeeze(y, axis=0) if name == "squeeze" else getattr(library.ops, name)(x)
        ).shape

    expected = {"det": (), "fft": (None, None), "squeeze": (1,), "concatenate": (None,)}
    assert shape(fk) == expected.get(name, (20, 20))
    with keras_rules(), pytest.raises(ValueError):
        shape(keras)


SIZES = {
    "nonzero": lambda library, x, n: library.ops.nonzero(x)[0],
    "unique": lambda library, x, n: library.ops.unique(x),
    "where": lambda library, x, n: library.ops.where(x),
    "reshape": lambda library, x, n: library.ops.reshape(x, n),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_depend_on_numbers_are_an_error_when_recorded(name):
    def shape(library):
        x = library.Input(batch_shape=(2, 3))
        result = SIZES[name](library, x, library.Input(batch_shape=(2,), dtype="int32"))
        return (result[0] if isinstance(result, tuple | list) else result).shape

    with pytest.raises(fk.FKerasError, match="depends on the numbers in the inputs"):
        shape(fk)
    with keras_rules():
        assert shape(keras)  # recorded, for `where` with a shape that no result has


def test_a_reshape_of_the_batch_to_fixed_sizes_is_an_error():
    def reshaped(library, *shape, **options):
        return library.ops.reshape(library.Input(shape, **options), (6, 2)).shape

    # older releases of JAX refuse the shapes
    newer = r"\(b, 4\) to \(6, 2\), which fits one size of the batch"
    older = r"expected 12 elements, for the shape \(6, 2\), received \(b, 4\)"
    with pytest.raises((fk.FKerasError, ValueError), match=f"{newer}|{older}"):
        reshaped(fk, 4)
    try:
        assert reshaped(fk, None, batch_size=3) == (6, 2)
    except ValueError as error:  # of older releases, too
        assert "received (3, d1) with 3*d1" in str(error)
    with keras_rules():
        assert reshaped(keras, 4) == reshaped(keras, None, batch_size=3) == (6, 2)


def test_segments_have_a_known_number_when_recorded():
    def shape(library):
        ids = library.Input(batch_shape=(4,), dtype="int32")
        return library.ops.segment_sum(library.Input(batch_shape=(4, 2)), ids).shape

    with pytest.raises(ValueError, match="segment_sum: expected num_segments, received None"):
        shape(fk)
    with keras_rules():
        assert shape(keras) == (None, 2)


def test_a_lambda_has_the_shape_of_its_result():
    def shape(library):
        return library.layers.Lambda(lambda x: x * 2, output_shape=(7,))(library.Input((4,))).shape

    with pytest.raises(ValueError, match=r"expected a result of shape \(None, 7\)"):
        shape(fk)
    with keras_rules():
        assert shape(keras) == (None, 7)


def test_discretization_without_boundaries_cannot_be_recorded():
    def shape(library):
        return library.layers.Discretization(num_bins=3)(library.Input((4,))).shape

    with pytest.raises(ValueError, match="has no boundaries yet"):
        shape(fk)
    with keras_rules():
        assert shape(keras) == (None, 4)


def test_optimizers_have_no_automatic_name():
    assert fk.optimizers.Adam().name is None and fk.optimizers.Adam(name="a").name == "a"
    with keras_rules():
        assert keras.optimizers.Adam().name.startswith("adam")


def test_the_configuration_of_a_loss_has_its_dtype():
    ours = fk.losses.MeanSquaredError().get_config()
    with keras_rules():
        expected = keras.losses.MeanSquaredError().get_config()
    assert ours == {**expected, "dtype": "float32"} and "dtype" not in expected


def test_a_constraint_needs_its_own_call():
    with pytest.raises(NotImplementedError, match="needs its own __call__"):
        fk.constraints.Constraint()(np.ones(2))
    with keras_rules():
        assert np.asarray(keras.constraints.Constraint()(np.ones(2))).tolist() == [1, 1]


def test_given_thresholds_of_auc_have_no_end_points():
    assert list(fk.metrics.AUC(thresholds=[0.3, 0.6]).thresholds) == [0.3, 0.6]
    with keras_rules():
        assert len(keras.metrics.AUC(thresholds=[0.3, 0.6]).thresholds) == 4


def test_integers_are_numbers_of_f_scores():
    assert (
        fk.metrics.FBetaScore(beta=1).beta == 1 and fk.metrics.F1Score(threshold=1).threshold == 1
    )
    with keras_rules(), pytest.raises(ValueError, match="should be a Python float"):
        keras.metrics.FBetaScore(beta=1)


@pytest.mark.exhaustive
def test_a_softmax_over_one_class_is_reported_once():
    ops.softmax(np.ones((2, 1), "float32"))  # a warning would be an error here
    model = fk.Sequential([fk.Input((3,)), layers.Dense(1, activation="softmax")])
    trainer = fk.Trainer(loss="categorical_crossentropy")
    with pytest.warns(UserWarning, match="expected 2 or more classes"):
        _ = trainer.init(model, KEY)
    with keras_rules(), pytest.warns(UserWarning, match="softmax over axis"):
        keras.ops.softmax(np.ones((2, 1), "float32"))


def test_a_trainer_needs_a_model_with_inputs():
    with pytest.raises(TypeError, match=r"expected a model with known inputs.*fk.Input"):
        fk.Trainer("sgd", "mse").init(fk.Sequential([layers.Dense(2)]), KEY)


def test_a_named_tuple_is_no_output_of_a_model():
    outputs = collections.namedtuple("Pair", ["a", "b"])(fk.Input((2,)), fk.Input((2,)))
    with pytest.raises(TypeError, match="expected symbolic tensors as outputs, received Pair"):
        fk.Model([*outputs], outputs)


def test_an_output_without_a_loss_has_the_target_none():
    x = fk.Input((2,))
    y = layers.Dense(1, kernel_initializer="ones")(x)
    trainer = fk.Trainer("sgd", ["mse", None])
    run = trainer.init(fk.Model(x, [y, y]), KEY)
    inputs, target = np.ones((3, 2), "float32"), np.zeros((3, 1), "float32")
    assert trainer.evaluate(run, inputs, [target, None], verbose=0) == {"loss": 4.0}
    with pytest.raises(fk.FKerasError, match="expected 2 arrays .*received one"):
        trainer.evaluate(run, inputs, target, verbose=0)


def test_an_output_has_one_loss():
    x = fk.Input((2,))
    model = fk.Model(x, [layers.Identity()(x), layers.Identity()(x)])
    inputs, targets = np.ones((3, 2), "float32"), [np.zeros((3, 2), "float32")] * 2
    trainer = fk.Trainer("sgd", ["mse", ["mae"]])
    assert trainer.evaluate(trainer.init(model, KEY), inputs, targets, verbose=0)["loss"] == 2.0
    with pytest.raises(TypeError, match="for the loss, received .MeanSquaredError.*MeanAbsolute"):
        fk.Trainer("sgd", ["mse", ["mse", "mae"]]).init(model, KEY)


def test_weights_of_another_half_precision_are_not_cast(tmp_path):
    models = [
        fk.Sequential([fk.Input((2,)), layers.Dense(1, dtype=dtype)]).build(KEY)
        for dtype in ("bfloat16", "float16", "float32")
    ]
    fk.save_weights(tmp_path / "m.weights.h5", models[0], {})
    with pytest.raises(fk.FileError, match=r"dense/kernel float16 \(file: bfloat16\)"):
        fk.load_weights(tmp_path / "m.weights.h5", models[1], {})
    model, _ = fk.load_weights(tmp_path / "m.weights.h5", models[2], {})
    np.testing.assert_array_equal(model.get_weights()[0], models[0].get_weights()[0])


def test_files_of_h5_and_sharded_weights_are_not_written(tmp_path):
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)]).build(KEY)
    with pytest.raises(ValueError, match=r"ends in .keras, received"):
        fk.save_model(tmp_path / "m.h5", model)
    with pytest.raises(ValueError, match=r"expected a file .weights.h5, .safetensors or .npz"):
        fk.save_weights(tmp_path / "m.weights.json", model)


@pytest.mark.exhaustive
def test_sparse_classes_may_be_on_the_first_axis():
    y_true, y_pred = np.array([[0, 1]]), np.array([[[0.25, 0.5]], [[0.75, 0.5]]], "float32")
    loss = fk.losses.SparseCategoricalCrossentropy(axis=0)(y_true, y_pred)
    np.testing.assert_allclose(loss, -np.log([0.25, 0.5]).mean(), rtol=1e-6)
    with keras_rules(), pytest.raises(ValueError, match="must have the same shape"):
        keras.losses.SparseCategoricalCrossentropy(axis=0)(y_true, y_pred)


def test_hashing_takes_a_list_of_one_number_and_a_floating_dtype():
    ids = np.array([[1], [2]])
    layer = layers.Hashing(3, salt=[1], dtype="float32")
    np.testing.assert_array_equal(layer(ids), layers.Hashing(3, salt=1)(ids))
    assert layer(ids).dtype == "int32"


def test_fractional_weights_of_integer_counts_are_an_error():
    metric, y = fk.metrics.MeanIoU(2), np.array([0, 1], "int32")
    weights = np.array([0.2, 0.3], "float32")
    with pytest.raises(ValueError, match="expected integer sample weights.*dtype='float32'"):
        metric.update(metric.init(), y, y, sample_weight=weights)


def test_class_numbers_of_another_layout_are_an_error():
    metric, y_pred = fk.metrics.SparseCategoricalAccuracy(), np.full((1, 2, 3), 1 / 3, "float32")
    with pytest.raises(ValueError, match=r"class numbers of shape \(1, 2\), received \(2, 1\)"):
        metric.update(metric.init(), np.array([[0], [0]]), y_pred)


def test_boxes_of_a_batch_have_a_batch_axis():
    data = {
        "images": np.ones((1, 4, 4, 3), "float32"),
        "bounding_boxes": {"boxes": np.ones((1, 4), "float32"), "labels": np.ones(1, "int32")},
    }
    with pytest.raises(ValueError, match=r"without b for one image, received boxes of shape"):
        layers.RandomBrightness(0.1)(data)


def test_callbacks_belong_to_fit():
    trainer, x = fk.Trainer("sgd", "mse"), np.ones((2, 1), "float32")
    run = trainer.init(fk.Sequential([fk.Input((1,)), layers.Identity()]), KEY)
    for call in (
        lambda: trainer.evaluate(run, x, x, callbacks=[]),
        lambda: trainer.predict(run, x, callbacks=[]),
    ):
        with pytest.raises(TypeError, match="only `trainer.fit` calls callbacks"):
            call()


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors_may_have_a_batch_axis(count, upper):
    random = RNG.normal(size=(count, 3, 3)).astype("float32")
    matrices = random @ np.swapaxes(random, 1, 2) + np.eye(3, dtype="float32")
    factors = np.linalg.cholesky(matrices)
    factors = np.swapaxes(factors, 1, 2) if upper else factors
    inverses = jax.jit(lambda f: ops.cholesky_inverse(f, upper=upper))(factors)
    np.testing.assert_allclose(inverses, np.linalg.inv(matrices), rtol=1e-3, atol=1e-5)
    assert ops.cholesky_inverse(fk.Input((3, 3))).shape == (None, 3, 3)


DTYPES = {
    "bitwise_and": lambda library, x: library.ops.bitwise_and(x, x),
    "gcd": lambda library, x: library.ops.gcd(x, x),
    "take": lambda library, x: library.ops.take(x, x),
    "scatter": lambda library, x: library.ops.scatter(x, x, (4, 4)),
    "in_top_k": lambda library, x: library.ops.in_top_k(library.Input(batch_shape=(3,)), x, 1),
    "einsum": lambda library, x: library.ops.einsum(
        "ij,ik->jk", x, library.Input(batch_shape=(2, 3))
    ),
}


@pytest.mark.parametrize("name", DTYPES)
def test_calls_that_always_fail_are_an_error_when_recorded(name):
    with pytest.raises((TypeError, ValueError)):
        DTYPES[name](fk, fk.Input(batch_shape=(3, 2)))
    with keras_rules():
        DTYPES[name](keras, keras.Input(batch_shape=(3, 2)))


def test_the_dtype_int_has_the_warning_of_jax():
    with pytest.warns(UserWarning, match="Explicitly requested dtype"):
        assert ops.arange(3, dtype="int").dtype == "int32"
    with keras_rules():
        assert keras.ops.arange(3, dtype="int").dtype == "int32"


def test_a_function_as_learning_rate_takes_the_step():
    def changes(rate):
        transformation = fk.optimizers.SGD(rate).transformation()
        return jax.jit(lambda w: transformation.update(w, transformation.init(w), w)[0])(weights)

    weights = {"w": np.ones(1, "float32")}
    assert changes(lambda step: 0.5)["w"].tolist() == [-0.5]
    with pytest.raises(TypeError, match="argument"):
        changes(lambda: 0.5)
