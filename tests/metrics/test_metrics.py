"""Metrics: Keras's numbers batch by batch, merging, transforms, masks, names."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import losses, metrics
from fkeras.engine.values.spec import Spec
from tests.support import keras_numpy
from tests.support.keras_oracle import keras, keras_rules

BINARY, ONE_HOT, LABELS = "binary", "one_hot", "labels"
NUMBERS, CLASSES, SCORES = "numbers", "classes", "scores"

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
    (metrics.TruePositives(), BINARY),
    (metrics.TrueNegatives([0.2, 0.7]), BINARY),
    (metrics.FalsePositives(0.4), BINARY),
    (metrics.FalseNegatives([0.0, 0.5, 1.0]), BINARY),
    (metrics.SensitivityAtSpecificity(0.5), BINARY),
    (metrics.SpecificityAtSensitivity(0.5, num_thresholds=1), BINARY),
    (metrics.PrecisionAtRecall(0.6, num_thresholds=2, class_id=1), ONE_HOT),
    (metrics.RecallAtPrecision(0.55, num_thresholds=9), BINARY),
    (metrics.IoU(4, [0, 2]), CLASSES),
    (metrics.IoU(4, [1, 3], ignore_class=1, sparse_y_true=False, sparse_y_pred=False), ONE_HOT),
    (metrics.BinaryIoU([1], threshold=0.4), SCORES),
    (metrics.MeanIoU(5), CLASSES),
    (metrics.MeanIoU(4, ignore_class=0, dtype="float32"), CLASSES),
    (metrics.OneHotIoU(4, [0, 1]), ONE_HOT),
    (metrics.OneHotMeanIoU(4, ignore_class=2), ONE_HOT),
    (metrics.PearsonCorrelation(), NUMBERS),
    (metrics.ConcordanceCorrelation(), NUMBERS),
    (metrics.R2Score(), NUMBERS),
    (metrics.R2Score(None), NUMBERS),
    (metrics.R2Score("variance_weighted_average", num_regressors=3), NUMBERS),
)  # fmt: skip
IDS = [repr(metric) for metric, _ in CASES]
FIRST = {type(metric): index for index, (metric, _) in reversed([*enumerate(CASES)])}
# by default the first row of each class is compared with Keras
ONE_A_CLASS = [
    pytest.param(*case, marks=() if FIRST[type(case[0])] == i else pytest.mark.exhaustive)
    for i, case in enumerate(CASES)
]


def batches(kind, seed=0, sizes=(4, 4), whole=False):
    """Targets, predictions and weights, which are whole for metrics that count."""
    rng = np.random.default_rng(seed)
    for size in sizes:
        y_pred = rng.random((size, 4)).astype("float32")
        labels = rng.integers(0, 4, size)
        if kind == "equal":
            y_true, y_pred = rng.integers(0, 2, (2, size, 4))
        elif kind == CLASSES:
            y_true, y_pred = rng.integers(0, 4, (2, size))
        elif kind == SCORES:
            y_true, y_pred = rng.integers(0, 2, size), rng.random(size).astype("float32")
        elif kind == BINARY:
            y_true = rng.integers(0, 2, (size, 4))
        elif kind == ONE_HOT:
            y_true = np.eye(4, dtype="float32")[labels]
        elif kind == LABELS:
            y_true = labels.astype("int32")
        else:
            y_true = rng.random((size, 4)).astype("float32") + 0.1
        weight = rng.random(size).astype("float32")
        yield y_true, y_pred, np.round(3 * weight).astype("int32") if whole else weight


@functools.cache
def facts(metric, kind):
    """The states of a metric after all ways to update it, by one compiled program."""
    data = list(batches(kind, whole=metric.dtype == "int32"))
    empty = metric.init(jax.ShapeDtypeStruct((4, 4), "float32"))
    stacked = tuple(np.stack(arrays) for arrays in zip(*data, strict=True))
    unknown = [np.full_like(y, np.nan) if y.dtype == "float32" else y for y in data[0][:2]]

    @jax.jit
    def program(stacked, unknown):
        def scan(*arrays):
            def step(state, batch):
                return (metric.update(state, *batch),) * 2

            return jax.lax.scan(step, empty, arrays)[1]

        # two runs side by side: of all batches, where a last one weighs 0, and of the second alone
        last = (*unknown, jnp.zeros_like(stacked[2][0]))
        runs = (jnp.stack([a[0], a[1], b, a[1], b, b]) for a, b in zip(stacked, last, strict=True))
        after = jax.vmap(scan)(*(a.reshape(2, 3, *a.shape[1:]) for a in runs))
        first, full_state, weightless, second = (
            jax.tree.map(lambda leaf, at=at: leaf[at], after)
            for at in ((0, 0), (0, 1), (0, 2), (1, 0))
        )
        merge = jax.vmap(metric.merge)
        pair = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second)
        merged = merge(pair, jax.tree.map(lambda leaf: leaf[::-1], pair))
        together = (a.reshape(-1, *a.shape[2:]) for a in stacked)
        return {
            "empty": metric.result(empty),
            "whole": full_state,
            "merged": jax.tree.map(lambda leaf: leaf[0], merged),
            "merged the other way": jax.tree.map(lambda leaf: leaf[1], merged),
            "concatenated": metric.update(empty, *together),
            "masked": metric.update(full_state, *unknown, mask=jnp.zeros(4, bool)),
            "weightless": weightless,
        }

    return program(stacked, unknown)


def keras_result(metric, stacked):
    keras_metric = getattr(keras_numpy.keras.metrics, type(metric).__name__).from_config(
        metric.get_config()
    )
    for batch in zip(*stacked, strict=True):
        keras_numpy.quietly(keras_metric.update_state, *batch)
    return keras_numpy.quietly(keras_metric.result)


def type_of(metric):
    return getattr(keras.metrics, type(metric).__name__)


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("metric", "kind"), ONE_A_CLASS, ids=IDS)
def test_results_equal_keras(metric, kind, weighted):
    data = list(batches(kind, whole=metric.dtype == "int32"))
    stacked = tuple(np.stack(arrays) for arrays in zip(*data, strict=True))[: 2 + weighted]

    @jax.jit
    def ours(arrays):
        state = metric.init(jax.ShapeDtypeStruct((4, 4), "float32"))
        for batch in zip(*arrays, strict=True):
            state = metric.update(state, *batch)
        return metric.result(state)

    result, expected = ours(stacked), keras_result(metric, stacked)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(22)
@pytest.mark.parametrize(("metric", "kind"), CASES, ids=IDS)
def test_merging_masks_and_transforms(metric, kind):
    """Parts merge to the whole; rows of nan that are masked, or weigh nothing, change nothing."""
    results = facts(metric, kind)
    for name in ("merged", "merged the other way", "concatenated", "masked", "weightless"):
        close(results[name], results["whole"], metric.dtype)
    np.testing.assert_allclose(results["empty"], 0.0, atol=1e-6)


def test_batches_of_different_sizes():
    metric, data = metrics.MeanSquaredError(), list(batches(NUMBERS, sizes=(5, 3)))

    @jax.jit
    def ours(stacked):
        state = metric.init()
        for batch in zip(*stacked, strict=True):
            state = metric.update(state, *batch)
        return metric.result(state)

    stacked = list(zip(*data, strict=True))
    np.testing.assert_allclose(ours(stacked), keras_result(metric, stacked), rtol=1e-5)


def sums(state):
    """The sums of a state: what two numbers hold together."""
    sums_by_name = {}
    for name in [name for name in state if not name.endswith("__rest")]:
        value, rest = (np.asarray(state.get(n, 0), "float64") for n in (name, f"{name}__rest"))
        full = 2.0**30 if np.asarray(state.get(f"{name}__rest", 0.0)).dtype == "int32" else 1.0
        sums_by_name[name] = value + rest * full
    return sums_by_name


def close(a, b, dtype="float32"):
    assert sorted(a) == sorted(b)
    for name in b:
        assert a[name].dtype == b[name].dtype
        assert a[name].dtype == dtype or name == "count"
        assert not a[name].weak_type
    for name, expected in sums(b).items():
        np.testing.assert_allclose(sums(a)[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("metric", "kind"), CASES, ids=IDS)
def test_values_and_configuration(metric, kind):
    config = metrics.serialize(metric)
    assert metrics.deserialize(config) == metrics.get(config) == metric
    assert hash(metrics.get(config)) == hash(metric)
    assert pickle.loads(pickle.dumps(metric)) == metric
    assert metric.name == metrics.get(config).name


@pytest.mark.one_in(2)
@pytest.mark.parametrize("metric", [metrics.Mean(), metrics.Sum()], ids=repr)
def test_mean_and_sum_equal_keras(metric):
    rng = np.random.default_rng(0)
    shapes = ((4,), None), ((4,), (4,)), ((4, 3), (4,)), ((4, 3), (4, 3)), ((), None)
    data = [
        [None if shape is None else rng.random(shape).astype("float32") for shape in pair]
        for pair in shapes
    ]

    def pair(values, weight):
        results = metric.result(metric.update(metric.init(), values, weight))
        with keras_rules():
            keras_metric = type_of(metric)()
            keras_metric.update_state(values, weight)
            return results, keras_metric.result()

    for results, expected in jax.jit(lambda data: [pair(*given) for given in data])(data):
        np.testing.assert_allclose(results, expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_function_of_the_whole_batch_counts_once_per_batch():
    model = fk.Sequential([fk.Input((1,)), fk.layers.Identity()])
    trainer = fk.Trainer("sgd", "mse", [lambda y_true, y_pred: jnp.mean(jnp.abs(y_true - y_pred))])
    run = trainer.init(model, jax.random.key(0))
    x = np.array([[0], [4], [8], [12], [16]], "float32")
    logs = trainer.evaluate(run, x, np.zeros_like(x), batch_size=2, verbose=0)
    # Keras's number: the means of the batches are 2, 10 and 16
    assert list(logs.values())[1] == pytest.approx(28 / 3)


def test_names_of_keras():
    """All but its bases; IoU is "io_u" there."""
    missing = set(keras.src.metrics.ALL_OBJECTS_DICT) - set(metrics.naming.NAMES)
    assert {name.lower().replace("_", "") for name in missing} <= {"metric", "meanmetricwrapper"}
    for name in ("huber", "log_cosh", "mean_squared_error", "kl_divergence", "hinge"):
        assert getattr(metrics, name) is getattr(losses, name)


@pytest.mark.exhaustive
def test_tables_of_images_take_weights_of_samples():
    y_true, y_pred = np.array([[[0, 1], [1, 1]], [[0, 0], [1, 0]]]), np.ones((2, 2, 2), int)
    metric = metrics.MeanIoU(2, dtype="float32")

    @jax.jit
    def run(y_true, y_pred, sample_weight=None, mask=None):
        state = metric.update(metric.init(), y_true, y_pred, sample_weight, mask)
        return metric.result(state), state["total_confusion_matrix"]

    first, _ = run(y_true[:1], y_pred[:1])
    for options in ({"sample_weight": np.array([1.0, 0.0])}, {"mask": np.array([True, False])}):
        results, table = run(y_true, y_pred, **options)
        np.testing.assert_array_equal(table, [[0, 1], [0, 3]])
        np.testing.assert_allclose(results, first)


@pytest.mark.exhaustive
def test_scores_of_zero_exceed_the_first_threshold():
    for metric in (metrics.SensitivityAtSpecificity(0.0), metrics.RecallAtPrecision(0.5, 3)):
        results = jax.jit(metric.update)(metric.init(), [0, 1], [0.0, 0.0])
        assert float(jax.jit(metric.result)(results)) == 1.0


def test_sequences_with_masks():
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 4, (3, 5)), rng.random((3, 5, 4)).astype("float32")
    mask = rng.random((3, 5)) < 0.5
    for metric in (metrics.SparseCategoricalAccuracy(), metrics.SparseCategoricalCrossentropy()):

        @jax.jit
        def both(*valid, metric=metric):
            states = (
                metric.update(metric.init(), y_true, y_pred, mask=mask),
                metric.update(metric.init(), *valid),
            )
            return [metric.result(state) for state in states]

        np.testing.assert_allclose(*both(y_true[mask], y_pred[mask]), rtol=1e-5)


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

        @jax.jit
        def both(mask, one=one):
            state = one.update(one.init(), y_true, y_pred, mask=mask)
            return one.result(state), loss(y_true, y_pred, mask=mask)

        for m in (None, mask):
            np.testing.assert_allclose(*both(m), rtol=1e-5)


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


@pytest.mark.one_in(6)
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


# metric, shape of predictions that lack what the metric counts, words of the error
TOO_FEW_OR_MANY_CLASSES = [
    (metrics.Precision(class_id=7), (4, 3), "class_id from 0 to 2 .* received 7"),
    (metrics.Recall(class_id=3), (4, 3), "class_id from 0 to 2"),
    (metrics.Precision(class_id=1), (4,), r"\(b, classes\) for class_id=1, received \(.*,\)"),
    (metrics.Recall(class_id=0), (4,), r"\(b, classes\) for class_id=0"),
    (metrics.Precision(top_k=9), (4, 3), "top_k from 1 to 3 .* received 9"),
    (metrics.Recall(top_k=4), (4, 3), "top_k from 1 to 3"),
    (metrics.PrecisionAtRecall(0.5, class_id=7), (4, 3), "class_id from 0 to 2"),
    (metrics.RecallAtPrecision(0.5, class_id=7), (4, 3), "class_id from 0 to 2"),
    (metrics.SensitivityAtSpecificity(0.5, class_id=7), (4, 3), "class_id from 0 to 2"),
    (metrics.SpecificityAtSensitivity(0.5, class_id=7), (4, 3), "class_id from 0 to 2"),
    (metrics.IoU(2, [0], sparse_y_pred=False), (4, 3), "at most 2 classes .* num_classes=3"),
    (metrics.MeanIoU(2, sparse_y_pred=False), (4, 3), "at most 2 classes"),
    (metrics.MeanIoU(2, sparse_y_pred=False, axis=1), (4, 3, 2), "at most 2 classes along axis 1"),
    (metrics.OneHotIoU(2, [0]), (4, 3), "at most 2 classes"),
    (metrics.OneHotMeanIoU(2), (4, 3), "at most 2 classes"),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("metric", "shape", "words"), TOO_FEW_OR_MANY_CLASSES)
def test_predictions_without_the_counted_classes_are_rejected(metric, shape, words):
    with pytest.raises(ValueError, match=words):  # what a trainer calls when it starts
        metric.init(Spec((None, *shape[1:])))
    with pytest.raises(ValueError, match=words):
        metric.update(metric.init(), np.zeros(shape[:1] + shape[2:]), np.zeros(shape))
    metric.init(Spec((None,) * 2))  # an unknown size is no mistake


def test_a_trainer_rejects_metrics_of_classes_that_the_model_lacks():
    model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, "softmax")])
    trainer = fk.Trainer("sgd", "categorical_crossentropy", metrics=[metrics.Recall(class_id=3)])
    with pytest.raises(ValueError, match="recall: expected class_id from 0 to 2"):
        trainer.init(model, jax.random.key(0))


@pytest.mark.parametrize(("true", "pred"), [([0, 2], [0, 1]), ([0, 1], [0, 2]), ([-1, 0], [0, 0])])
def test_class_numbers_out_of_range_are_rejected_unless_they_do_not_count(true, pred):
    metric = metrics.MeanIoU(2)
    with pytest.raises(ValueError, match="mean_io_u: expected (targets|predictions) from 0 to 1"):
        metric.update(metric.init(), true, pred)
    outside = [not (0 <= t < 2 and 0 <= p < 2) for t, p in zip(true, pred, strict=True)]
    state = metric.update(metric.init(), true, pred, mask=~np.array(outside))
    assert float(np.sum(state["total_confusion_matrix"])) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.get("acuracy"), "Did you mean 'accuracy'"),
        (lambda: metrics.resolve(None, spec(1), spec(1)), "received None"),
        (lambda: metrics.Precision(thresholds=2.0), r"Precision: thresholds: expected a number from 0 to 1.*received 2.0"),
        (lambda: metrics.AUC(curve="RC"), "Did you mean 'ROC'"),
        (lambda: metrics.AUC(num_labels=3), "multi_label=True"),
        (lambda: metrics.AUC(num_thresholds=1), "num_thresholds"),
        (lambda: metrics.AUC(multi_label=True).init(), "Pass num_labels"),
        (lambda: metrics.F1Score().init(), "average='micro'"),
        (lambda: metrics.F1Score("mean"), "average: expected"),
        (lambda: metrics.F1Score(threshold=0.0), "threshold: expected"),
        (lambda: metrics.FBetaScore(beta=0.0), "beta: expected"),
        (lambda: metrics.IoU(2, [2]), "target_class_ids: expected numbers of the 2 classes"),
        (lambda: metrics.IoU(0, [0]), "IoU: num_classes: expected an integer from 1"),
        (lambda: metrics.MeanIoU(2.5), "num_classes"),
        (lambda: metrics.OneHotIoU(2, []), "target_class_ids: expected class numbers"),
        (lambda: metrics.BinaryIoU([2]), "target_class_ids: expected 0, 1 or both"),
        (lambda: metrics.MeanIoU(2).update(metrics.MeanIoU(2).init(), [0], [1], [0.5]), "dtype='float32'"),
        (lambda: metrics.R2Score("mean"), "class_aggregation: expected"),
        (lambda: metrics.R2Score(num_regressors=-1), "num_regressors: expected"),
        (lambda: metrics.R2Score().init(), "received none"),
        (lambda: metrics.R2Score().init(spec(3)), r"received shape \(3,\)"),
        (lambda: metrics.R2Score().update(metrics.R2Score().init(spec(3, 2)), np.ones((3, 1)), np.ones((3, 1))), "to two axes"),
        (lambda: metrics.PrecisionAtRecall(1.5), "recall: expected a number from 0 to 1"),
        (lambda: metrics.RecallAtPrecision(0.5, 0), "num_thresholds: expected"),
        (lambda: metrics.Precision(thresholds=[]), r"thresholds: expected .*list of numbers from 0 to 1.*received \[\]"),
        (lambda: metrics.TruePositives([]), "thresholds: expected"),
        (lambda: metrics.AUC(thresholds=0.5), "AUC: thresholds: expected a list of numbers from 0 to 1.*received 0.5"),
        (lambda: metrics.TruePositives([2.0]), "thresholds: expected a number from 0 to 1"),
        (lambda: metrics.Metric().init(), "missing method init"),
        (lambda: metrics.MeanMetric().update({}, [1.0], [1.0]), "missing method values"),
    ],
)  # fmt: skip
def test_messages(call, words):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=words):
        call()


@pytest.mark.exhaustive
def test_a_correlation_with_constants_is_0():
    values = np.arange(4, dtype="float32")[None]
    for pair in ((np.ones((1, 4)), values), (values, np.ones((1, 4)))):
        assert float(fk.metrics.pearson_correlation(*pair)[0]) == 0.0
        theirs = keras.metrics.PearsonCorrelation()
        theirs.update_state(*pair)
        assert np.isnan(float(theirs.result()))


@pytest.mark.exhaustive
def test_an_iou_of_scores_names_the_argument():
    labels, scores = np.array([0, 1, 2]), np.eye(3, dtype="float32")
    metric = metrics.MeanIoU(num_classes=3)
    with pytest.raises(
        ValueError, match=r"received targets \(3,\) .*\(3, 3\).*sparse_y_pred=False"
    ):
        metric.update(metric.init(), labels, scores)
    metric = metrics.MeanIoU(num_classes=3, sparse_y_pred=False)
    assert float(metric.result(metric.update(metric.init(), labels, scores))) > 0.99
