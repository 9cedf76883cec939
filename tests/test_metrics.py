"""Metrics: Keras's numbers batch by batch, merging, transforms, masks, names."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keras_oracle import keras, keras_rules

from fkeras import losses, metrics

BINARY, ONE_HOT, LABELS, NUMBERS = "binary", "one_hot", "labels", "numbers"

CASES = (
    (metrics.Accuracy(), "equal"),
    (metrics.BinaryAccuracy(), BINARY),
    (metrics.BinaryAccuracy(threshold=0.7), BINARY),
    (metrics.CategoricalAccuracy(), ONE_HOT),
    (metrics.SparseCategoricalAccuracy(), LABELS),
    (metrics.TopKCategoricalAccuracy(2), ONE_HOT),
    (metrics.SparseTopKCategoricalAccuracy(2), LABELS),
    (metrics.MeanSquaredError(), NUMBERS),
    (metrics.MeanAbsoluteError(), NUMBERS),
    (metrics.MeanAbsolutePercentageError(), NUMBERS),
    (metrics.MeanSquaredLogarithmicError(), NUMBERS),
    (metrics.RootMeanSquaredError(), NUMBERS),
    (metrics.LogCoshError(), NUMBERS),
    (metrics.CosineSimilarity(), NUMBERS),
    (metrics.BinaryCrossentropy(), BINARY),
    (metrics.BinaryCrossentropy(from_logits=True, label_smoothing=0.1), BINARY),
    (metrics.CategoricalCrossentropy(), ONE_HOT),
    (metrics.SparseCategoricalCrossentropy(), LABELS),
    (metrics.KLDivergence(), NUMBERS),
    (metrics.Poisson(), NUMBERS),
    (metrics.Hinge(), BINARY),
    (metrics.SquaredHinge(), BINARY),
    (metrics.CategoricalHinge(), ONE_HOT),
    (metrics.Precision(), BINARY),
    (metrics.Precision(thresholds=[0.2, 0.6]), BINARY),
    (metrics.Precision(top_k=2), ONE_HOT),
    (metrics.Precision(class_id=1), ONE_HOT),
    (metrics.Recall(), BINARY),
    (metrics.Recall(thresholds=[0.0, 0.5, 1.0]), BINARY),
    (metrics.Recall(top_k=2, class_id=0), ONE_HOT),
    (metrics.AUC(), BINARY),
    (metrics.AUC(num_thresholds=7, summation_method="majoring"), BINARY),
    (metrics.AUC(curve="PR"), BINARY),
    (metrics.AUC(curve="PR", summation_method="minoring"), BINARY),
    (metrics.AUC(curve="PRGAIN"), BINARY),
    (metrics.AUC(thresholds=[0.2, 0.3, 0.9]), BINARY),
    (metrics.AUC(multi_label=True), BINARY),
    (metrics.AUC(multi_label=True, num_labels=4, label_weights=[0.1, 0.2, 0.3, 0.4], curve="PR"), BINARY),
    (metrics.AUC(label_weights=[0.1, 0.2, 0.3, 0.4]), BINARY),
    (metrics.AUC(from_logits=True), BINARY),
    (metrics.F1Score(), ONE_HOT),
    (metrics.F1Score("micro", threshold=0.4), ONE_HOT),
    (metrics.F1Score("macro"), ONE_HOT),
    (metrics.FBetaScore("weighted", beta=2.0), ONE_HOT),
)  # fmt: skip
IDS = [repr(metric) for metric, _ in CASES]


def batches(kind, seed=0, sizes=(5, 3)):
    rng = np.random.default_rng(seed)
    for size in sizes:
        y_pred = rng.random((size, 4)).astype("float32")
        labels = rng.integers(0, 4, size)
        if kind == "equal":
            y_true, y_pred = rng.integers(0, 2, (2, size, 4))
        elif kind == BINARY:
            y_true = rng.integers(0, 2, (size, 4))
        elif kind == ONE_HOT:
            y_true = np.eye(4, dtype="float32")[labels]
        elif kind == LABELS:
            y_true = labels.astype("int32")
        else:
            y_true = rng.random((size, 4)).astype("float32") + 0.1
        yield y_true, y_pred, rng.random(size).astype("float32")


def ours(metric, data, weighted=False):
    data = list(data)
    state = metric.init(jax.ShapeDtypeStruct(data[0][1].shape, "float32"))
    for y_true, y_pred, weight in data:
        state = metric.update(state, y_true, y_pred, weight if weighted else None)
    return state


def keras_result(metric, data, weighted):
    with keras_rules():
        made = type_of(metric).from_config(metric.get_config())
        for y_true, y_pred, weight in data:
            made.update_state(y_true, y_pred, weight if weighted else None)
        return np.asarray(made.result())


def type_of(metric):
    return getattr(keras.metrics, type(metric).__name__)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("metric", "kind"), CASES, ids=IDS)
def test_results_equal_keras(metric, kind, weighted):
    mine = metric.result(ours(metric, batches(kind), weighted))
    expected = keras_result(metric, batches(kind), weighted)
    assert mine.shape == expected.shape
    np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("metric", "kind"), CASES, ids=IDS)
def test_merging_masks_and_transforms(metric, kind):
    data = list(batches(kind, sizes=(4, 4)))
    empty = metric.init(jax.ShapeDtypeStruct((4, 4), "float32"))
    whole = ours(metric, data, weighted=True)

    parts = [ours(metric, [batch], weighted=True) for batch in data]
    close(metric.merge(*parts), whole)
    together = [np.concatenate(arrays) for arrays in zip(*data, strict=True)]
    close(metric.update(empty, *together), whole)
    np.testing.assert_allclose(metric.result(empty), 0.0, atol=1e-6)

    # rows of nan that are masked, or weigh nothing, change nothing
    y_true, y_pred, weight = data[0]
    blank = np.full_like(y_pred, np.nan) if y_pred.dtype == "float32" else y_pred
    close(metric.update(whole, y_true, blank, mask=np.zeros(4, bool)), whole)
    close(metric.update(whole, y_true, blank, np.zeros(4, "float32")), whole)

    # a scan's carry, and members side by side
    stacked = tuple(np.stack(arrays) for arrays in zip(*data, strict=True))
    scan = jax.jit(lambda s, x: jax.lax.scan(lambda c, b: (metric.update(c, *b), None), s, x)[0])
    close(scan(empty, stacked), whole)
    members = jax.vmap(lambda t, p, w: metric.result(metric.update(empty, t, p, w)))(*stacked)
    np.testing.assert_allclose(members[1], metric.result(parts[1]), rtol=1e-5, atol=1e-6)


def close(a, b):
    for name in b:
        assert a[name].dtype == "float32"
        assert not a[name].weak_type
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("metric", "kind"), CASES, ids=IDS)
def test_values_and_configuration(metric, kind):
    config = metrics.serialize(metric)
    assert metrics.deserialize(config) == metrics.get(config) == metric
    assert hash(metrics.get(config)) == hash(metric)
    assert pickle.loads(pickle.dumps(metric)) == metric
    assert metric.name == metrics.get(config).name
    if metric.name != type(metric)().name or metrics.AUC is type(metric):
        return
    with keras_rules():
        theirs = type_of(metric)(name=metric.name).get_config()
    assert type(metric).from_config(theirs) == type(metric)()


@pytest.mark.parametrize("metric", [metrics.Mean(), metrics.Sum()], ids=repr)
def test_mean_and_sum_equal_keras(metric):
    rng = np.random.default_rng(0)
    for shape, weight_shape in (
        ((4,), None),
        ((4,), (4,)),
        ((4, 3), (4,)),
        ((4, 3), (4, 3)),
        ((), None),
    ):
        values = rng.random(shape).astype("float32")
        weight = None if weight_shape is None else rng.random(weight_shape).astype("float32")
        state = metric.update(metric.init(), values, weight)
        with keras_rules():
            made = type_of(metric)()
            made.update_state(values, weight)
            np.testing.assert_allclose(metric.result(state), made.result(), rtol=1e-5)


def test_sequences_with_masks():
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 4, (3, 5)), rng.random((3, 5, 4)).astype("float32")
    mask = rng.random((3, 5)) < 0.5
    for metric in (metrics.SparseCategoricalAccuracy(), metrics.SparseCategoricalCrossentropy()):
        state = metric.update(metric.init(), y_true, y_pred, mask=mask)
        valid = metric.update(metric.init(), y_true[mask], y_pred[mask])
        np.testing.assert_allclose(metric.result(state), metric.result(valid), rtol=1e-5)


def test_ignored_classes_do_not_count():
    y_true, y_pred = (
        np.array([0, 2, 2, 1]),
        np.random.default_rng(0).random((4, 3)).astype("float32"),
    )
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=2)
    loss = losses.SparseCategoricalCrossentropy(ignore_class=2)
    wrapped = metrics.get(loss)
    for one in (metric, wrapped):
        mask = np.array([True, True, True, False])
        for m in (None, mask):
            state = one.update(one.init(), y_true, y_pred, mask=m)
            np.testing.assert_allclose(one.result(state), loss(y_true, y_pred, mask=m), rtol=1e-5)


def test_names():
    assert metrics.get("mse") == metrics.get("MSE") == metrics.MeanSquaredError()
    assert metrics.get("AUC") == metrics.get("auc") == metrics.AUC()
    assert metrics.get(None) is None
    assert metrics.get(metrics.Recall) == metrics.Recall()
    assert metrics.get(losses.Huber()) == metrics.MeanMetricWrapper(
        losses.Huber(), name="huber_loss"
    )

    def own(y_true, y_pred):
        return jnp.abs(y_true - y_pred)

    metric = metrics.get(own)
    assert (metric.name, metric) == ("own", metrics.get(own))
    assert float(metric.result(metric.update(metric.init(), np.ones(2), np.zeros((2, 1))))) == 1.0


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


@pytest.mark.parametrize(
    ("true", "pred", "kind"),
    [
        ((8, 1), (8, 1), "Binary"),
        ((8,), (8, 1), "Binary"),
        ((8,), (8, 3), "SparseCategorical"),
        ((8, 1), (8, 3), "SparseCategorical"),
        ((8, 5), (8, 5, 3), "SparseCategorical"),
        ((8, 3), (8, 3), "Categorical"),
    ],
)
def test_accuracy_and_crossentropy_are_resolved_from_shapes(true, pred, kind):
    for word in ("accuracy", "acc"):
        metric = metrics.resolve(word, spec(*true), spec(*pred))
        assert metric == getattr(metrics, f"{kind}Accuracy")(name=word)
        with keras_rules():
            theirs = keras.src.trainers.compile_utils.get_metric(word, spec(*true), spec(*pred))
        assert (type(theirs).__name__, theirs.name) == (type(metric).__name__, word)
    loss = losses.BinaryCrossentropy(from_logits=True)
    metric = metrics.resolve("crossentropy", spec(*true), spec(*pred), loss)
    assert metric == getattr(metrics, f"{kind}Crossentropy")(name="crossentropy", from_logits=True)


def test_resolving_keeps_the_given_name():
    assert metrics.resolve("mse", spec(8, 1), spec(8, 1)).name == "mse"
    assert metrics.resolve(metrics.AUC(name="area"), spec(8, 1), spec(8, 1)).name == "area"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.get("acuracy"), "Did you mean 'accuracy'"),
        (lambda: metrics.resolve(None, spec(1), spec(1)), "received None"),
        (lambda: metrics.Precision(thresholds=2.0), r"thresholds: expected numbers from 0 to 1, received \[2.0\]"),
        (lambda: metrics.AUC(curve="RC"), "Did you mean 'ROC'"),
        (lambda: metrics.AUC(num_labels=3), "multi_label=True"),
        (lambda: metrics.AUC(num_thresholds=1), "num_thresholds"),
        (lambda: metrics.AUC(multi_label=True).init(), "Give num_labels"),
        (lambda: metrics.F1Score().init(), "average='micro'"),
        (lambda: metrics.F1Score("mean"), "average: expected"),
        (lambda: metrics.F1Score(threshold=0.0), "threshold: expected"),
        (lambda: metrics.FBetaScore(beta=0.0), "beta: expected"),
        (lambda: metrics.Metric().init(), "needs its own init"),
        (lambda: metrics.MeanMetric().update({}, [1.0], [1.0]), "needs its own values"),
    ],
)  # fmt: skip
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
        call()
