"""Keras's JSON of every public value, in both directions.

Each row is one expression that both packages evaluate, since names and arguments are the same. A public
class without a row fails a test.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine.config.configurable import Configurable, option
from tests.support.keras_oracle import keras, keras_rules

LOSSES = (
    lambda k: k.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1, axis=1),
    lambda k: k.losses.BinaryFocalCrossentropy(True, 0.3, 1.5, reduction="sum"),
    lambda k: k.losses.CategoricalCrossentropy(label_smoothing=0.2, name="mine"),
    lambda k: k.losses.CategoricalFocalCrossentropy([0.25, 0.5], from_logits=True),
    lambda k: k.losses.CategoricalGeneralizedCrossEntropy(q=0.7),
    lambda k: k.losses.CategoricalHinge(reduction=None),
    lambda k: k.losses.Circle(64.0, margin=0.3, remove_diagonal=False),
    lambda k: k.losses.CosineSimilarity(axis=1),
    lambda k: k.losses.CTC(reduction="mean"),
    lambda k: k.losses.Dice(axis=(1, 2)),
    lambda k: k.losses.Dice(),
    lambda k: k.losses.Hinge(reduction="mean_with_sample_weight"),
    lambda k: k.losses.Huber(0.3),
    lambda k: k.losses.KLDivergence(),
    lambda k: k.losses.LogCosh(name="mine"),
    lambda k: k.losses.MeanAbsoluteError(reduction="none"),
    lambda k: k.losses.MeanAbsolutePercentageError(),
    lambda k: k.losses.MeanSquaredError(reduction="sum", name="mine"),
    lambda k: k.losses.MeanSquaredLogarithmicError(),
    lambda k: k.losses.Poisson(),
    lambda k: k.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
    lambda k: k.losses.SquaredHinge(),
    lambda k: k.losses.Tversky(0.3, 0.7, axis=1),
)
METRICS = (
    lambda k: k.metrics.Accuracy(),
    lambda k: k.metrics.AUC(num_thresholds=7, curve="PR", summation_method="majoring"),
    lambda k: k.metrics.AUC(multi_label=True, num_labels=3, label_weights=[0.1, 0.2, 0.3]),
    lambda k: k.metrics.AUC(thresholds=[0.2, 0.5], from_logits=True, name="area"),
    lambda k: k.metrics.BinaryAccuracy(threshold=0.7),
    lambda k: k.metrics.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
    lambda k: k.metrics.BinaryIoU([1], threshold=0.3),
    lambda k: k.metrics.CategoricalAccuracy(name="mine"),
    lambda k: k.metrics.CategoricalCrossentropy(label_smoothing=0.1, axis=1),
    lambda k: k.metrics.CategoricalHinge(dtype="bfloat16"),
    lambda k: k.metrics.ConcordanceCorrelation(axis=1),
    lambda k: k.metrics.CosineSimilarity(axis=1),
    lambda k: k.metrics.F1Score("macro", threshold=0.4),
    lambda k: k.metrics.FBetaScore("weighted", beta=2.0),
    lambda k: k.metrics.FalseNegatives(thresholds=[0.2, 0.7]),
    lambda k: k.metrics.FalsePositives(thresholds=0.3),
    lambda k: k.metrics.Hinge(),
    lambda k: k.metrics.IoU(3, [0, 2], ignore_class=1, sparse_y_pred=False),
    lambda k: k.metrics.KLDivergence(),
    lambda k: k.metrics.LogCoshError(),
    lambda k: k.metrics.Mean(name="mine", dtype="float16"),
    lambda k: k.metrics.MeanAbsoluteError(),
    lambda k: k.metrics.MeanAbsolutePercentageError(),
    lambda k: k.metrics.MeanIoU(4, sparse_y_true=False, axis=1, dtype="float32"),
    lambda k: k.metrics.MeanSquaredError(),
    lambda k: k.metrics.MeanSquaredLogarithmicError(),
    lambda k: k.metrics.OneHotIoU(3, [1], sparse_y_pred=True),
    lambda k: k.metrics.OneHotMeanIoU(3, ignore_class=0),
    lambda k: k.metrics.PearsonCorrelation(axis=1),
    lambda k: k.metrics.Poisson(),
    lambda k: k.metrics.Precision(thresholds=[0.2, 0.6]),
    lambda k: k.metrics.Precision(top_k=2, class_id=1),
    lambda k: k.metrics.PrecisionAtRecall(0.6, num_thresholds=9, class_id=1),
    lambda k: k.metrics.R2Score(None, num_regressors=2),
    lambda k: k.metrics.Recall(thresholds=0.3),
    lambda k: k.metrics.RecallAtPrecision(0.6),
    lambda k: k.metrics.RootMeanSquaredError(),
    lambda k: k.metrics.SensitivityAtSpecificity(0.5, num_thresholds=1),
    lambda k: k.metrics.SparseCategoricalAccuracy(),
    lambda k: k.metrics.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0),
    lambda k: k.metrics.SparseTopKCategoricalAccuracy(3),
    lambda k: k.metrics.SpecificityAtSensitivity(0.5),
    lambda k: k.metrics.SquaredHinge(),
    lambda k: k.metrics.Sum(),
    lambda k: k.metrics.TopKCategoricalAccuracy(k=3),
    lambda k: k.metrics.TrueNegatives(thresholds=0.3),
    lambda k: k.metrics.TruePositives(),
)
SCHEDULES = (
    lambda k: k.optimizers.schedules.CosineDecay(0.1, 10, alpha=0.1, warmup_target=0.3, warmup_steps=2),
    lambda k: k.optimizers.schedules.CosineDecayRestarts(0.1, 10, t_mul=1.5, m_mul=0.5, alpha=0.1),
    lambda k: k.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5, staircase=True),
    lambda k: k.optimizers.schedules.InverseTimeDecay(0.1, 10, 0.5, name="mine"),
    lambda k: k.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1]),
    lambda k: k.optimizers.schedules.PolynomialDecay(0.1, 10, 0.01, power=2.0, cycle=True),
)  # fmt: skip
OPTIMIZERS = (
    lambda k: k.optimizers.Adadelta(1.0, rho=0.8, clipnorm=1.0),
    lambda k: k.optimizers.Adafactor(0.01, relative_step=False, clip_threshold=2.0),
    lambda k: k.optimizers.Adagrad(0.01, initial_accumulator_value=0.2, clipvalue=0.5),
    lambda k: k.optimizers.Adam(SCHEDULES[0](k), amsgrad=True, global_clipnorm=1.0),
    lambda k: k.optimizers.AdamW(1e-4, weight_decay=0.1, beta_1=0.8),
    lambda k: k.optimizers.Adamax(0.01, epsilon=1e-5),
    lambda k: k.optimizers.Ftrl(0.1, l1_regularization_strength=0.1, beta=0.2),
    lambda k: k.optimizers.Lamb(0.01, beta_2=0.9),
    lambda k: k.optimizers.Lion(0.01, weight_decay=0.1),
    lambda k: k.optimizers.LossScaleOptimizer(k.optimizers.SGD(0.1), 1024.0, dynamic_growth_steps=7),
    lambda k: k.optimizers.Muon(0.01, exclude_layers=["head"], ns_steps=3, nesterov=False),
    lambda k: k.optimizers.Nadam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5),
    lambda k: k.optimizers.OptimizerMap(k.optimizers.Adam(1e-4), {"head/.*": k.optimizers.SGD(0.2)}),
    lambda k: k.optimizers.RMSprop(0.01, rho=0.8, momentum=0.5, centered=True),
    lambda k: k.optimizers.SGD(0.01, momentum=0.9, nesterov=True, gradient_accumulation_steps=3),
    lambda k: k.optimizers.SGD(SCHEDULES[4](k), loss_scale_factor=8.0, name="mine"),
    lambda k: k.optimizers.ScheduleFreeAdamW(0.01, warmup_steps=5, weight_decay=0.1),
)  # fmt: skip
INITIALIZERS = (
    lambda k: k.initializers.Constant(0.3),
    lambda k: k.initializers.Constant(np.arange(3.0, dtype="float32")),
    lambda k: k.initializers.GlorotNormal(seed=3),
    lambda k: k.initializers.GlorotUniform(),
    lambda k: k.initializers.HeNormal(seed=0),
    lambda k: k.initializers.HeUniform(),
    lambda k: k.initializers.Identity(gain=2.0),
    lambda k: k.initializers.LecunNormal(),
    lambda k: k.initializers.LecunUniform(seed=1),
    lambda k: k.initializers.Ones(),
    lambda k: k.initializers.Orthogonal(gain=0.5, seed=2),
    lambda k: k.initializers.RandomNormal(0.1, 0.2, seed=5),
    lambda k: k.initializers.RandomUniform(-1.0, 0.5),
    lambda k: k.initializers.STFT("imag", "hamming", "spectrum", periodic=True),
    lambda k: k.initializers.STFT("real", None, None),
    lambda k: k.initializers.TruncatedNormal(stddev=0.3),
    lambda k: k.initializers.VarianceScaling(2.0, "fan_out", "uniform", seed=4),
    lambda k: k.initializers.Zeros(),
)
REGULARIZERS = (
    lambda k: k.regularizers.L1(0.25),
    lambda k: k.regularizers.L2(0.5),
    lambda k: k.regularizers.L1L2(l1=0.25, l2=0.5),
    lambda k: k.regularizers.OrthogonalRegularizer(0.5, "columns"),
)
CONSTRAINTS = (
    lambda k: k.constraints.MaxNorm(3, axis=[0, 1]),
    lambda k: k.constraints.MinMaxNorm(0.25, 2.0, rate=0.5, axis=1),
    lambda k: k.constraints.NonNeg(),
    lambda k: k.constraints.UnitNorm(axis=1),
)
TABLES = (
    ("losses", LOSSES),
    ("metrics", METRICS),
    ("optimizers.schedules", SCHEDULES),
    ("optimizers", OPTIMIZERS),
    ("initializers", INITIALIZERS),
    ("regularizers", REGULARIZERS),
    ("constraints", CONSTRAINTS),
)
ROWS = [(kind, row) for kind, table in TABLES for row in table]
IDS = [f"{kind}-{row(fk)!r}"[:60] for kind, row in ROWS]
# classes without a row: base classes; wrappers of functions, tested as custom objects below;
# and MultiOptimizer, whose form in Keras's files differs and which has a separate test
OTHERS = (
    *("BaseOptimizer", "Constraint", "Initializer", "LearningRateSchedule", "Loss", "MeanMetric"),
    *("Metric", "Optimizer", "Regularizer"),
    *("LossFunctionWrapper", "MeanMetricWrapper", "MultiOptimizer", "Rowwise"),
    # fkeras's own
    *("CRPS", "DiceCrossentropy", "GaussianNLL", "IgnoreMissing", "InfoNCE", "Quantile"),
    *("CalibrationError", "NDCG", "RecallAtK", "StudentTNLL", "TokenErrorRate"),
)


# keys that get_config of Keras 3.15 omits, so that its files hold the default
KERAS_FORGETS = (
    ("losses", "Huber", "delta"),
    ("losses", "CosineSimilarity", "axis"),
    ("metrics", "CosineSimilarity", "axis"),
    ("initializers", "Identity", "gain"),
)
# classes of Keras 3.15 that its own deserialize does not find
KERAS_DOES_NOT_KNOW = ("Lamb", "CategoricalGeneralizedCrossEntropy")


def namespace(package, kind):
    for name in kind.split("."):
        package = getattr(package, name)
    return package


def through_json(value):
    return json.loads(json.dumps(value))


def plain(config):
    """A configuration in JSON form without the names, which Keras numbers globally."""
    if isinstance(config, dict):
        return {key: plain(value) for key, value in config.items() if key != "name"}
    return [plain(v) for v in config] if isinstance(config, list | tuple) else config


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("kind", "row"), ROWS, ids=IDS)
def test_keras_reads_our_json(kind, row):
    value, keras_kind = row(fk), namespace(keras, kind)
    config = through_json(namespace(fk, kind).serialize(value))
    assert config["module"] == f"keras.{kind}"
    name = type(value).__name__
    custom_objects = {name: getattr(keras_kind, name)} if name in KERAS_DOES_NOT_KNOW else None
    with keras_rules():
        reference = row(keras)
        restored = keras_kind.deserialize(config, custom_objects=custom_objects)
        assert type(restored) is type(reference)
        restored_config, expected = plain(restored.get_config()), plain(reference.get_config())
        if getattr(value, "name", None) == "mine":
            assert restored.name == "mine"
    assert through_json(serialized(restored_config)) == through_json(serialized(expected))


def serialized(config):
    """Converts objects and arrays in configurations of Keras to JSON data."""
    with keras_rules():
        return plain(keras.saving.serialize_keras_object(config))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("kind", "row"), ROWS, ids=IDS)
def test_we_read_the_json_of_keras(kind, row):
    value, fk_kind = row(fk), namespace(fk, kind)
    with keras_rules():
        config = through_json(namespace(keras, kind).serialize(row(keras)))
    loaded = fk_kind.deserialize(config)
    assert type(loaded) is type(value)
    loaded_config, expected = plain(fk_kind.serialize(loaded)), plain(fk_kind.serialize(value))
    for forgetful, name, key in KERAS_FORGETS:
        if (forgetful, name) == (kind, type(value).__name__):
            assert key not in config["config"]
            del loaded_config["config"][key], expected["config"][key]
    assert loaded_config == expected
    if getattr(value, "name", None) == "mine":
        assert loaded == value
    restored = fk_kind.deserialize(through_json(fk_kind.serialize(value)))
    assert restored == value
    assert hash(restored) == hash(value)


@pytest.mark.parametrize("kind", [kind for kind, _ in TABLES])
def test_every_public_class_has_a_row(kind):
    row_classes = {type(row(fk)) for row_kind, row in ROWS if row_kind == kind}
    module = namespace(fk, kind)
    public = {getattr(module, name) for name in module.__all__}
    classes = {c for c in public if isinstance(c, type) and issubclass(c, Configurable)}
    assert {c.__name__ for c in classes - row_classes} <= set(OTHERS)


@pytest.mark.parametrize("kind", [kind for kind, _ in TABLES] + ["activations"])
def test_all_names_of_keras_exist(kind):
    keras_names = {name for name in dir(namespace(keras, kind)) if not name.startswith("_")}
    # the optimizers of an older Keras, which raise
    assert {name for name in keras_names if not hasattr(namespace(fk, kind), name)} <= {"legacy"}


@pytest.mark.parametrize(
    "name", [n for n in fk.activations.__all__ if n not in ("get", "serialize", "deserialize")]
)
def test_activations(name):
    function, reference = getattr(fk.activations, name), getattr(keras.activations, name)
    assert (
        keras.activations.deserialize(through_json(fk.activations.serialize(function))) is reference
    )
    assert (
        fk.activations.deserialize(through_json(keras.activations.serialize(reference))) is function
    )


@pytest.mark.parametrize(
    "row",
    [
        lambda k: k.layers.Dense(2, activation=k.ops.gelu),
        lambda k: k.layers.Activation(k.ops.square),
        lambda k: k.layers.Lambda(k.ops.image.rgb_to_grayscale),
        lambda k: k.layers.Lambda(k.ops.nn.relu),
    ],
)
def test_functions_of_ops_are_named_by_their_module(row):
    layer = row(fk)
    config = through_json(fk.layers.serialize(layer))
    assert fk.layers.deserialize(config) == layer
    x = np.linspace(-2, 2, 12, dtype="float32").reshape(1, 2, 2, 3)
    with keras_rules():
        restored = keras.layers.deserialize(config)
        restored.build(x.shape)
        expected = jax.jit(restored)(x)
    weights = [np.asarray(v.value) for v in restored.weights]
    ours, _ = layer.build(jax.random.key(0), x.shape).set_weights(weights)
    np.testing.assert_allclose(ours(x), expected, rtol=1e-6, atol=1e-6)


def test_a_lifted_function_has_the_name_of_the_function():
    layer = fk.layers.Lambda(fk.ops.lift(jnp.exp, name="growth"))
    config = through_json(fk.layers.serialize(layer))
    assert config["config"]["function"]["config"] == "exp"
    assert fk.layers.deserialize(config, {"exp": jnp.exp}).function is jnp.exp
    with pytest.raises(ValueError, match="custom_objects"):
        fk.layers.deserialize(config)


def test_multi_optimizer():
    def row(k):
        o = k.optimizers
        return o.MultiOptimizer(o.OptimizerMap(o.Adam(1e-4), {"head/.*": o.SGD(0.2)}), 8.0)

    optimizer = row(fk)
    with keras_rules():
        config = through_json(keras.optimizers.serialize(row(keras)))
        restored = keras.optimizers.deserialize(through_json(fk.optimizers.serialize(optimizer)))
        class_names = [
            type(restored._optimizer_map[path]).__name__ for path in ("head/a", "body/a")
        ]
    assert class_names == ["SGD", "Adam"]
    loaded = fk.optimizers.deserialize(config)
    assert plain(loaded.get_config()) == plain(optimizer.get_config())


def absolute(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


class Cubic(fk.losses.Loss):
    power: int = option(default=3)


class Largest(fk.metrics.Metric):
    floor: float = option(default=0.0)


class Halving(fk.optimizers.schedules.LearningRateSchedule):
    every: int = option(default=2)


class Sign(fk.optimizers.Optimizer):
    scale: float = option(default=1.0)


class Ramp(fk.initializers.Initializer):
    last: float = option(default=1.0)


class Spread(fk.regularizers.Regularizer):
    factor: float = option(default=1.0)


class Box(fk.constraints.Constraint):
    limit: float = option(default=1.0)


@pytest.mark.parametrize(
    ("kind", "value", "custom_objects"),
    [
        ("losses", Cubic(4), {"Cubic": Cubic}),
        ("losses", fk.losses.LossFunctionWrapper(absolute), {"absolute": absolute}),
        ("metrics", Largest(floor=0.5), {"Largest": Largest}),
        ("metrics", fk.metrics.MeanMetricWrapper(absolute), {"absolute": absolute}),
        ("optimizers.schedules", Halving(3), {"Halving": Halving}),
        ("optimizers", Sign(0.1, scale=2.0), {"Sign": Sign}),
        ("optimizers", fk.optimizers.SGD(Halving(3)), {"Halving": Halving}),
        ("initializers", Ramp(2.0), {"Ramp": Ramp}),
        ("regularizers", Spread(2.0), {"Spread": Spread}),
        ("constraints", Box(2.0), {"Box": Box}),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_custom_objects_are_resolved_by_an_explicit_mapping(kind, value, custom_objects):
    module = namespace(fk, kind)
    config = through_json(module.serialize(value))
    assert module.deserialize(config, custom_objects) == value
    with pytest.raises(ValueError, match="custom_objects"):
        module.deserialize(config)


@pytest.mark.parametrize(
    ("base", "value"),
    [
        (fk.losses.Loss, fk.losses.CTC()),
        (fk.metrics.Metric, fk.metrics.MeanIoU(2)),
        (fk.optimizers.Optimizer, fk.optimizers.Adam()),
        (fk.optimizers.schedules.LearningRateSchedule, SCHEDULES[0](fk)),
        (fk.initializers.Initializer, fk.initializers.STFT()),
        (fk.regularizers.Regularizer, fk.regularizers.L2()),
        (fk.constraints.Constraint, fk.constraints.NonNeg()),
    ],
    ids=lambda v: repr(v)[:30],
)
def test_instances_have_the_base_classes_of_keras(base, value):
    assert isinstance(value, base)


@pytest.mark.parametrize("base", [Ramp, Spread, Box])
def test_base_classes_name_the_method_to_write(base):
    arguments = (None, (2,)) if base is Ramp else (jnp.ones(2),)
    with pytest.raises(NotImplementedError, match=f"{base.__name__}: .*needs its own __call__"):
        base()(*arguments)


def test_a_seed_generator_of_keras_is_its_seed():
    with keras_rules():
        initializer = keras.initializers.HeNormal(seed=keras.random.SeedGenerator(7))
        config = through_json(keras.initializers.serialize(initializer))
    assert fk.initializers.deserialize(config) == fk.initializers.HeNormal(seed=7)
