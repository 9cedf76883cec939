"""Ids and labels out of range: an error that names the row, and NaN in compiled programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.network.id_tables import id_tables
from fkeras.nn.numerics.indices import equals, unsigned_indices, valid_indices
from fkeras.training.data import host_arrays
from fkeras.training.inputs import checks
from fkeras.training.inputs.ids import check_ids

KEY = jax.random.key(0)
# invalid indices for a table of 3 rows, in dtypes that can represent them
WRONG = (
    ("float32", (-1.0, 3.0, 1.7, 1e30, np.nan, np.inf, -np.inf)),
    ("bfloat16", (-1.0, 3.0, 1.5, np.nan)),
    ("int8", (-1, 3, 127, -128)),
    ("uint8", (3, 255)),
    ("int32", (-1, 3, 2**31 - 1, -(2**31))),
    ("uint32", (3, 2**31, 2**32 - 1)),
)
WIDE = (
    ("int64", (-1, 3, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63))),
    ("uint64", (3, 2**32, 2**32 + 1, 2**64 - 1)),
    (">i8", (-1, 2**32 + 1)),
    ("float64", (-1.0, 1.7, 1e300, np.nan)),
)


def embedding(class_name="Embedding"):
    layer = getattr(layers, class_name)(3, 2).build(KEY, (None,))
    return layer.replace(embeddings=jnp.arange(6.0).reshape(3, 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "values"), WRONG, ids=[d for d, _ in WRONG])
def test_invalid_indices_give_nan_and_no_gradient(dtype, values):
    valid = jnp.asarray(np.array([0, 1, 2, 2]), dtype)
    index = jnp.concatenate([valid, jnp.asarray(np.array(values), dtype)])
    layer = embedding()

    @jax.jit
    def rows(layer, index):
        return layer(index)

    vectors = rows(layer, index)
    np.testing.assert_array_equal(vectors[:4], [[0, 1], [2, 3], [4, 5], [4, 5]])
    assert np.isnan(vectors[4:]).all()
    grads = jax.grad(lambda layer: jnp.sum(rows(layer, index)))(layer).embeddings
    np.testing.assert_array_equal(grads, [[1, 1], [1, 1], [2, 2]])

    scores = jnp.tile(jnp.array([[0.1, 0.2, 0.7]]), (len(index), 1))
    for function, expected in (
        (fk.losses.sparse_categorical_crossentropy, -np.log([0.1, 0.2, 0.7, 0.7])),
        (fk.metrics.sparse_categorical_accuracy, [0, 0, 1, 1]),
        (fk.metrics.sparse_top_k_categorical_accuracy, [1, 1, 1, 1]),
    ):
        values = jax.jit(function)(index, scores)
        np.testing.assert_allclose(values[:4], expected, rtol=1e-6)
        assert np.isnan(values[4:]).all(), function
    values = fk.losses.CategoricalGeneralizedCrossEntropy(reduction="none")(index, scores)
    assert np.isnan(values).tolist() == [False] * 4 + [True] * (len(index) - 4)


@pytest.mark.exhaustive
def test_invalid_labels_do_not_change_gradients_of_valid_labels():
    scores = jnp.array([[0.3, -1.0, 2.0], [0.1, 0.2, 0.3]])

    def loss(scores, labels):
        losses = fk.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
        return losses[0]

    beside_invalid, alone = (jax.grad(loss)(scores, jnp.array([1, label])) for label in (7, 0))
    np.testing.assert_array_equal(beside_invalid, alone)


@pytest.mark.exhaustive
def test_ignored_classes_are_not_invalid_labels():
    scores = jnp.full((3, 2), 0.5)
    for ignore, labels in ((-1, [0, -1, 5]), (255, np.array([0, 255, 5], "uint8"))):
        losses = fk.losses.sparse_categorical_crossentropy(labels, scores, ignore_class=ignore)
        np.testing.assert_allclose(losses, [np.log(2), 0, np.nan], rtol=1e-6)
    loss = fk.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    np.testing.assert_allclose(loss(np.array([0, 1, 1], "uint8"), scores), np.log(2), rtol=1e-6)
    assert equals(jnp.array([True, False]), 1).tolist() == [True, False]


@pytest.mark.exhaustive
def test_ctc_of_labels_out_of_range():
    scores = jax.random.normal(KEY, (3, 5, 4))
    losses = fk.losses.ctc(jnp.array([[1, 3, 0], [1, 4, 0], [-1, 2, 0]]), scores)
    assert np.isnan(losses).tolist() == [False, True, True]


@pytest.mark.exhaustive
def test_indices_of_large_tables_and_wide_dtypes():
    assert valid_indices(jnp.array([1], "int32"), 2**40)[1].tolist() == [True]
    assert valid_indices(jnp.array([60000], "float16"), 2**20)[0].tolist() == [60000 // 32 * 32]
    with jax.experimental.enable_x64() if not hasattr(jax, "enable_x64") else jax.enable_x64(True):
        wide = jnp.array([2**32 + 1, 1, -1], "int64")
        assert valid_indices(wide, 3)[1].tolist() == [False, True, False]
        assert unsigned_indices(wide, 3).tolist() == [3, 1, 3]
        assert unsigned_indices(jnp.array([2**64 - 1], "uint64"), 3).tolist() == [3]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["Embedding", "ReversibleEmbedding"])
def test_concrete_fractions_are_rejected(kind):
    for layer in (embedding(kind), fk.quantize(embedding(kind), "int8")):
        for index in (np.array([0.0, 1.7]), jnp.array([0.0, 1.7])):
            with pytest.raises(ValueError, match=r"expected integer ids, received 1\.7.* at \[1\]"):
                layer(index)
        with pytest.raises(TypeError, match="expected integer ids, received an array of complex64"):
            layer(np.array([1j], "complex64"))
        assert np.isnan(layer(np.array([-1, 5]))).all()
        assert np.isnan(jax.jit(layer)(jnp.array([1.5]))).all()
        assert np.isfinite(layer(np.array([2.0, 1.0]))).all()


def nested(dtype):
    inner = fk.Sequential([fk.Input((2,), dtype=dtype), layers.Embedding(3, 2, name="table")])
    inputs, other = fk.Input((2,), dtype=dtype, name="ids"), fk.Input((1,), name="other")
    y = layers.GlobalAveragePooling1D()(fk.Sequential([inner], name="twice")(inputs))
    return fk.Model({"ids": inputs, "other": other}, layers.Dense(3)(y) + other)


LOSS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
TRAINER = fk.Trainer("sgd", LOSS)
COUNT = 6
Y = np.arange(COUNT) % 3


@functools.cache
def run_of(dtype):
    return TRAINER.init(nested(dtype), KEY)


def calls(dtype, x, y=Y):
    run = run_of(dtype)
    x = {"ids": x, "other": np.ones((COUNT, 1), "float32")}
    yield lambda: TRAINER.fit(run, x, y, verbose=0)
    yield lambda: TRAINER.fit(run, [(x, y)], verbose=0)
    yield lambda: TRAINER.evaluate(run, x, y, verbose=0)
    yield lambda: TRAINER.predict(run, x)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("dtype", "values"), [*WRONG, *WIDE], ids=[d for d, _ in (*WRONG, *WIDE)])
def test_loops_name_the_row_of_an_id_and_of_a_label(dtype, values):
    for value in values:
        index = np.zeros((COUNT, 2), jnp.dtype(dtype))
        index[4, 1] = value
        input_dtype = "float32" if index.dtype.kind in "fV" else "int32"
        for call in calls(input_dtype, index):
            with pytest.raises(ValueError, match=r"x(\['ids'\])?, row 4: .* at \[4, 1\]"):
                call()
        labels = np.zeros(COUNT, jnp.dtype(dtype))
        labels[3] = value
        for call in list(calls("int32", np.zeros((COUNT, 2), "int32"), labels))[:3]:
            with pytest.raises(ValueError, match=r"row 3: .*(label|received|expected)"):
                call()


def test_tables_are_found_inside_networks_and_wrappers():
    assert id_tables(run_of("int32").model) == ((0, "twice/sequential/table", 3),)
    inputs = fk.Input((4, 2), dtype="int32")
    reverse = layers.ReversibleEmbedding(5, 2, name="both")
    y = layers.TimeDistributed(layers.Embedding(7, 2), name="steps")(inputs)
    scores = reverse(fk.Input((2,), name="vectors"), reverse=True)
    assert id_tables(fk.Model([inputs], y)) == ((0, "steps", 7),)
    encoded = layers.CategoryEncoding(4, name="encoded")(inputs)
    vectors = fk.Input((2,), name="vectors")
    model = fk.Model([inputs, vectors], [encoded, reverse(vectors, reverse=True)])
    assert id_tables(model) == ((0, "encoded", 4),)
    assert scores.shape == (None, 5)


def test_integers_out_of_range_of_an_integer_input_are_rejected(monkeypatch):
    x = fk.Input((2,), dtype="uint8")
    model = fk.Model(x, layers.Rescaling(1 / 255)(x))
    run = fk.Trainer("sgd", "mse").init(model, KEY)
    too_large = np.array([[1, 2], [3, 300]])
    message = r"row 1: input 'input_layer' expected uint8.* received 300 at \[1, 1\]"
    for array in (too_large, jnp.asarray(too_large), too_large.astype(">u2")):
        for call in (lambda a=array: model(a), lambda a=array: TRAINER.predict(run, a)):
            with pytest.raises(ValueError, match=message):
                call()
    np.testing.assert_allclose(model(too_large % 256), (too_large % 256) / 255, rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"row 0: .* expected uint8.* received -9223372036854775808"
    ):
        model(np.full((1, 2), -(2**63)))
    with pytest.raises(
        ValueError, match=r"row 0: expected integers .* received -9223372036854775808"
    ):
        fk.Sequential([fk.Input((2,))])(np.full((1, 2), -(2**63)))


def test_blocks_of_mapped_files_are_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(host_arrays, "_BLOCK", 64)
    values = np.zeros((50, 2), ">f8")
    values[37, 1] = 1e300  # infinite in JAX's default dtype
    values.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", values.dtype, "r+", shape=values.shape)
    with pytest.raises(ValueError, match=r"x, row 37: .*1e\+300 at \[37, 1\]; 1 of 50 rows"):
        checks.check_finite(mapped, "x")
    mapped[37, 1], mapped[20, 0] = 0, 7
    model = fk.Sequential([fk.Input((2,)), layers.Embedding(3, 2, name="table")])
    with pytest.raises(
        ValueError, match=r"x, row 20: 'table' expected .* received 7.0 at \[20, 0\]"
    ):
        check_ids(model, mapped)


def test_class_weights_need_classes():
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
    for labels, row in (([1, 0, -1], 2), ([0, 0.5, 1], 1), ([0, np.nan, 0], 1), ([2, 0, 0], 0)):
        with pytest.raises(ValueError, match=rf"row {row}: expected a class from 0 to 1, received"):
            checks.class_weights({1: 2.0}, np.array(labels), model)
    counted = np.array([1.0, 0.0, 1.0])
    weights = checks.class_weights({1: 2.0}, np.array([1, np.nan, 0]), model, counted)
    assert weights.tolist() == [2, 1, 1]
    weights = checks.class_weights({1: 2.0}, np.array([1, -1, 0]), model, ignore=-1)
    assert weights.tolist() == [2, 1, 1]


SCORES = np.array([[0.2, 0.8], [np.nan, 0.4], [0.3, 0.7]], "float32")
ONE_HOT = np.array([[0, 1], [1, 0], [0, 1]], "float32")
NAN_METRICS = (
    ("Accuracy", ONE_HOT, SCORES),
    ("BinaryAccuracy", ONE_HOT, SCORES),
    ("CategoricalAccuracy", ONE_HOT, SCORES),
    ("SparseCategoricalAccuracy", [1, 0, 1], SCORES),
    ("TopKCategoricalAccuracy", ONE_HOT, SCORES),
    ("SparseTopKCategoricalAccuracy", [1, 0, 1], SCORES),
    ("AUC", ONE_HOT, SCORES),
    ("AUC:PR", ONE_HOT, SCORES),
    ("AUC:PRGAIN", ONE_HOT, SCORES),
    ("Precision", ONE_HOT, SCORES),
    ("Recall", ONE_HOT, SCORES),
    ("TruePositives", ONE_HOT, SCORES),
    ("FalseNegatives", ONE_HOT, SCORES),
    ("TrueNegatives", ONE_HOT, SCORES),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "y_true", "y_pred"), NAN_METRICS, ids=[n for n, *_ in NAN_METRICS]
)
def test_metrics_of_nan_are_nan(name, y_true, y_pred):
    class_name, _, curve = name.partition(":")
    metric = getattr(fk.metrics, class_name)(**({"curve": curve} if curve else {}))
    state = metric.update(metric.init(), y_true, y_pred)
    assert np.isnan(metric.result(state)).all()
    # a weight of 0 excludes the row
    weights = np.array([1.0, 0.0, 1.0], "float32")
    state = metric.update(metric.init(), y_true, y_pred, sample_weight=weights)
    assert np.isfinite(metric.result(state)).all()
