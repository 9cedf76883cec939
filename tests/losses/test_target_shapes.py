"""Shapes of targets in calls of losses and metrics: accepted where Keras accepts them."""

import inspect

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras import losses, metrics
from tests.support.keras_oracle import keras_rules

# shapes of targets and predictions
PAIRS = (
    *(((6, 4), (6, 4)), ((6,), (6,)), ((6,), (6, 1)), ((6, 1), (6,)), ((6, 4, 1), (6, 4))),
    *(((6,), (6, 4)), ((6, 1), (6, 4)), ((4,), (4, 4)), ((4, 1), (4, 4)), ((2, 3), (2, 3, 4))),
    *(((1, 4), (6, 4)), ((1,), (6, 4)), ((6, 3), (6, 4)), ((5, 4), (6, 4)), ((5,), (6,))),
    *(((6, 4), (6, 1)), ((6, 4), (6,)), ((2, 3, 1), (2, 3, 4)), ((2, 1, 4), (2, 3, 4))),
)
# losses that Keras also computes with class numbers for one-hot targets, or with predictions that have
# no classes
STRICTER = {
    "CategoricalFocalCrossentropy",
    "CategoricalGeneralizedCrossEntropy",
    "CategoricalHinge",
    "SparseCategoricalCrossentropy",
    "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy",
    "categorical_hinge",
}
CROSSENTROPIES = (
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
)


def classes(module, base):
    names = (name for name, cls in vars(module).items() if inspect.isclass(cls))
    return sorted(
        name for name in names if issubclass(getattr(module, name), base) and name[0] != "_"
    )


LOSSES = [
    name
    for name in classes(keras.losses, keras.losses.Loss)
    if name not in ("Loss", "Circle", "CTC")
]
FUNCTIONS = sorted(
    name
    for name, function in vars(keras.losses).items()
    if inspect.isfunction(function) and name == name.lower() and hasattr(losses, name)
)
FUNCTIONS = [
    name for name in FUNCTIONS if name not in ("circle", "ctc", "get", "serialize", "deserialize")
]


def shape_or_error(function, true, pred, dtype="float32"):
    """The shape of a result, or None for an error."""
    arrays = jax.ShapeDtypeStruct(true, dtype), jax.ShapeDtypeStruct(pred, "float32")
    try:
        return jax.eval_shape(function, *arrays).shape
    except (ValueError, TypeError):
        return None


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", [*LOSSES, *FUNCTIONS])
def test_losses_accept_the_shapes_of_keras(name):
    def of(module):
        loss = getattr(module, name)
        return loss(reduction=None) if inspect.isclass(loss) else loss

    for true, pred in PAIRS:
        with keras_rules():
            ours, theirs = (shape_or_error(of(m), true, pred) for m in (losses, keras.losses))
        if name in STRICTER and ours != theirs:
            continue
        if ours is None:
            assert theirs is None, (true, pred)
        elif theirs is None:  # functions align a last axis of size 1, too, where Keras's classes do
            assert 1 in (*true[-1:], *pred[-1:]) and len(true) != len(pred), (true, pred)
        else:
            assert ours == theirs, (true, pred)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CROSSENTROPIES)
def test_crossentropies_reject_targets_of_another_shape(name):
    loss = losses.get(name)
    metric = metrics.MeanMetricWrapper(loss)
    calls = [
        getattr(losses, name),
        loss,
        lambda true, pred: metric.update(metric.init(), true, pred)["total"],
    ]
    for call in calls:
        for true, pred in PAIRS:
            accepted = true == pred or (true, pred) in (((6,), (6, 1)), ((6, 1), (6,)))
            accepted = accepted or (true, pred) == ((6, 4, 1), (6, 4))
            if accepted:
                jax.eval_shape(call, jnp.zeros(true), jnp.zeros(pred))
                continue
            with pytest.raises(ValueError, match="expected (one-hot )?targets of"):
                jax.eval_shape(call, jnp.zeros(true), jnp.zeros(pred))


@pytest.mark.parametrize("name", ["categorical_crossentropy", "categorical_hinge"])
def test_class_numbers_for_one_hot_targets_name_the_loss_to_use(name):
    for labels in (jnp.array([0, 3, 1]), jnp.array([[0], [3], [1]])):
        with pytest.raises(ValueError, match="use 'sparse_categorical_crossentropy'"):
            getattr(losses, name)(labels, jnp.ones((3, 4)))
        with pytest.raises(ValueError, match="use 'sparse_categorical_crossentropy'"):
            losses.get(name)(labels, jnp.ones((3, 4)))


def metric(module, name):
    options = {}
    if "IoU" in name and name != "BinaryIoU":
        options["num_classes"] = 4
    if name in ("IoU", "OneHotIoU"):
        options["target_class_ids"] = [0]
    if "At" in name:
        options[name.split("At")[1].lower()] = 0.5
    return getattr(module.metrics, name)(**options)


def keras_update(name):
    keras_metric = metric(keras, name)
    if not keras_metric.variables:
        keras_metric.update_state(np.zeros((6, 4), "float32"), np.zeros((6, 4), "float32"))
    state = [variable.value for variable in keras_metric.variables]

    def compute(true, pred):
        return keras_metric.stateless_result(keras_metric.stateless_update_state(state, true, pred))

    return compute


# metrics of class numbers or one-hot targets that Keras computes with targets of another shape
STRICTER_METRICS = {
    *(
        "F1Score",
        "FBetaScore",
        "CategoricalAccuracy",
        "TopKCategoricalAccuracy",
        "CategoricalHinge",
        "R2Score",
    ),
    *("SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy", "OneHotIoU", "OneHotMeanIoU"),
}
# as in the functions of the losses, also with a last axis of size 1 that Keras's functions reject
ALIGNING = {
    *("BinaryCrossentropy", "CategoricalCrossentropy", "CategoricalHinge", "Hinge", "KLDivergence"),
    *("Poisson", "R2Score", "SquaredHinge"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in classes(keras.metrics, keras.metrics.Metric)
        if name not in ("Metric", "Mean", "Sum", "MeanMetricWrapper")
    ],
)
def test_metrics_accept_the_shapes_of_keras(name):
    ours = metric(fk, name)

    def compute(true, pred):
        return ours.result(ours.update(ours.init(pred), true, pred))

    with keras_rules():
        keras_compute = keras_update(name)
        for true, pred in PAIRS:
            accepted = shape_or_error(compute, true, pred) is not None
            keras_accepted = shape_or_error(keras_compute, true, pred) is not None
            if accepted and not keras_accepted:
                assert name in ALIGNING and 1 in (*true[-1:], *pred[-1:]), (true, pred)
            elif keras_accepted and not accepted:
                # one target for all predictions
                assert name in STRICTER_METRICS or true == (1,), (true, pred)


@pytest.mark.parametrize("name", ["categorical_accuracy", "top_k_categorical_accuracy"])
def test_class_numbers_for_one_hot_targets_name_the_metric_to_use(name):
    for labels in (jnp.array([0, 3, 1]), jnp.array([[0], [3], [1]])):
        with pytest.raises(ValueError, match=f"use 'sparse_{name}'"):
            getattr(metrics, name)(labels, jnp.ones((3, 4)))
