"""Constructors reject wrong arguments: every field of every public class, in code and from JSON.

A sample of each class gives valid arguments. Each field in turn gets values that its declared rule
excludes: another type, NaN, a string in the place of a number, and a number beyond each bound.
"""

import dataclasses
import inspect
import json
import math
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import (
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    quantizers,
    regularizers,
)
from fkeras.engine import Configurable
from fkeras.engine.config.rules import Rule
from fkeras.optimizers import schedules
from fkeras.training.checkpoint import Checkpoint
from tests.cases import all_cases

NAMESPACES = (
    *(layers, losses, metrics, optimizers, schedules, initializers, regularizers, constraints),
    *(quantizers, callbacks),
)
# required arguments of classes
REQUIRED = {
    losses.LossFunctionWrapper: {"fn": losses.mean_squared_error},
    metrics.MeanMetricWrapper: {"fn": losses.mean_squared_error},
    metrics.SensitivityAtSpecificity: {"specificity": 0.5},
    metrics.SpecificityAtSensitivity: {"sensitivity": 0.5},
    metrics.PrecisionAtRecall: {"recall": 0.5},
    metrics.RecallAtPrecision: {"precision": 0.5},
    metrics.IoU: {"num_classes": 2, "target_class_ids": [0]},
    metrics.MeanIoU: {"num_classes": 2},
    metrics.OneHotIoU: {"num_classes": 2, "target_class_ids": [0]},
    metrics.OneHotMeanIoU: {"num_classes": 2},
    optimizers.LossScaleOptimizer: {"inner_optimizer": "sgd"},
    optimizers.Rowwise: {"inner_optimizer": "sgd"},
    optimizers.MultiOptimizer: {"optimizer_map": {"*": "sgd"}},
    optimizers.OptimizerMap: {"default_optimizer": "sgd"},
    schedules.ExponentialDecay: {
        "initial_learning_rate": 0.1,
        "decay_steps": 10,
        "decay_rate": 0.5,
    },
    schedules.InverseTimeDecay: {
        "initial_learning_rate": 0.1,
        "decay_steps": 10,
        "decay_rate": 0.5,
    },
    schedules.PiecewiseConstantDecay: {"boundaries": [1], "values": [0.1, 0.2]},
    schedules.PolynomialDecay: {"initial_learning_rate": 0.1, "decay_steps": 10},
    schedules.CosineDecay: {"initial_learning_rate": 0.1, "decay_steps": 10},
    schedules.CosineDecayRestarts: {"initial_learning_rate": 0.1, "first_decay_steps": 10},
    callbacks.ModelCheckpoint: {"filepath": "a.npz"},
    callbacks.CSVLogger: {"filename": "a.csv"},
    callbacks.LearningRateScheduler: {"schedule": math.sqrt},
    Checkpoint: {"directory": "saves"},
    fk.DTypePolicy: {"name": "float32"},
    layers.InputLayer: {"batch_shape": (None, 3)},
    layers.Bidirectional: {"layer": layers.GRU(2)},
}
# configurations that hold functions, which JSON stores by name; short configurations (an input has no
# `trainable`); and those of quantized layers, which are the configuration of the layer inside
NO_JSON = {
    *(layers.Lambda, layers.JaxLayer, layers.FlaxLayer, layers.InputLayer),
    *(callbacks.LambdaCallback, callbacks.LearningRateScheduler),
    *(losses.LossFunctionWrapper, metrics.MeanMetricWrapper),
    *(layers.QuantizedDense, layers.QuantizedEmbedding, layers.QuantizedMixtureOfExperts),
    layers.Float8Dense,
}
# fields that the constructor checks itself: Bidirectional compares both layers
CHECKED_ELSEWHERE = {("Bidirectional", "backward_layer")}
# fields that accept a dictionary or a word
TAKES_MAPPING = {
    *(("Lambda", "arguments"), ("Trainer", "loss_weights")),
    *(("WandbMetricsLogger", "config"), ("MlflowCallback", "config")),
}


def public_classes():
    classes = [fk.Trainer, fk.DTypePolicy, fk.InputSpec, Checkpoint]
    for space in NAMESPACES:
        values = (getattr(space, name) for name in space.__all__)
        classes += [v for v in values if inspect.isclass(v) and dataclasses.is_dataclass(v)]
    kinds = (fk.Layer, Configurable)
    return [cls for cls in dict.fromkeys(classes) if issubclass(cls, kinds) and not exempt(cls)]


def exempt(cls):
    """Networks, whose constructors take graphs, and classes without a configuration."""
    return issubclass(cls, fk.engine.Network) or cls is fk.Layer


def samples():
    """Valid constructor arguments by class."""
    layers_by_class = {type(case.layer): case.layer for case in reversed(all_cases())}
    for cls in public_classes():
        if cls in layers_by_class and cls not in REQUIRED:
            fields = [f.name for f in dataclasses.fields(cls) if f.init]
            yield cls, {name: getattr(layers_by_class[cls], name) for name in fields}
        else:
            yield cls, REQUIRED.get(cls, {})


SAMPLES = dict(samples())


def wrong_values(convert):
    """Values that a field with this converter must reject, chosen by its rule if it has a rule."""
    always = [object(), math.nan, np.float32(math.nan)]
    if not isinstance(convert, Rule):
        return [
            *always,
            1j,
            [object()],
            fk.Trainer,
            fk.InputSpec(ndim=2),
        ]
    none = [] if convert.optional else [None]
    by_kind = {
        "boolean": ["False", "True", 0, 1, 2.5, "", [], *none],
        "integer": ["3", 2.5, True, math.inf, [[1]], 1j, *none],
        "real": ["0.5", "", True, [[1.0]], 1j, *none],
        "choice": ["no such word", 3, True, *none],
        "text": [3, True, 0.5, *none],
        "integers": ["3", 2.5, True, [], ["a"], [True], *none],
        "several": ["", 1j, [object()], *none],
        "range": ["0.5", True, [], ["a", "b"], [math.nan, 1.0], (1, 2, 3), *none],
        "numeric": ["0.5", True, ["a"], [math.nan], *none],
        "function": ["a name", 3, fk.Layer, *none],
        "either": [*none],
    }
    values = always + by_kind[convert.kind]
    if convert.kind == "real" or convert.kind == "integer":
        minimum, maximum, above, below = convert.limits
        step = 1 if convert.kind == "integer" else 0.5
        values += [] if minimum is None else [minimum - step]
        values += [] if maximum is None else [maximum + 100 * step]
        values += [end for end in (above, below) if end is not None]
    return values


def fields_of(cls):
    return [f for f in dataclasses.fields(cls) if f.init]


def converter(field):
    return field.metadata.get("fkeras.convert")


def test_every_field_declares_a_converter():
    unconverted = {
        (cls.__name__, field.name)
        for cls in SAMPLES
        for field in fields_of(cls)
        if converter(field) is None
    }
    assert unconverted <= CHECKED_ELSEWHERE, f"fields without a converter: {sorted(unconverted)}"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("cls", list(SAMPLES), ids=lambda c: c.__name__)
def test_wrong_arguments_are_rejected(cls):
    cls(**SAMPLES[cls])
    accepted, unnamed = [], []
    for field in fields_of(cls):
        convert = converter(field)
        values = wrong_values(convert)
        if (cls.__name__, field.name) not in TAKES_MAPPING:
            values.append({"a": 1})
        for value in values:
            try:
                cls(**{**SAMPLES[cls], field.name: value})
            except (ValueError, TypeError) as error:
                if not str(error).startswith(f"{cls.__name__}: {field.name}:"):
                    unnamed.append(f"{field.name}={value!r}: {error}")
            except Exception as error:
                unnamed.append(f"{field.name}={value!r}: {type(error).__name__}: {error}")
            else:
                accepted.append(f"{field.name}={value!r}")
    assert not accepted, f"{cls.__name__} accepts {', '.join(accepted)}"
    assert not unnamed, f"{cls.__name__}, messages without the argument: " + "\n".join(unnamed)


@pytest.mark.one_in(16)
@pytest.mark.parametrize("cls", list(SAMPLES), ids=lambda c: c.__name__)
def test_wrong_json_is_rejected(cls):
    """`from_config` runs the same checks as the constructor."""
    sample = cls(**SAMPLES[cls])
    if not hasattr(cls, "from_config") or cls in NO_JSON:
        return
    config = json.loads(json.dumps(sample.get_config()))
    cls.from_config(config)
    for field in fields_of(cls):
        convert = converter(field)
        if field.name not in config or not isinstance(convert, Rule):
            continue
        # Keras writes null for some arguments that were left out
        for value in (v for v in wrong_values(convert) if v is not None):
            try:
                value = json.loads(json.dumps(value))
            except TypeError:
                continue
            with pytest.raises((ValueError, TypeError), match=rf"{cls.__name__}: {field.name}:"):
                cls.from_config({**config, field.name: value})
                pytest.fail(f"accepted {field.name}={value!r}")


def test_functions_of_losses_are_read_by_their_names():
    for value in (
        losses.LossFunctionWrapper(losses.mean_squared_error),
        metrics.MeanMetricWrapper(losses.mean_squared_error),
    ):
        assert type(value).from_config(value.get_config()) == value


MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="d"), layers.LayerNormalization()])
TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(MODEL, jax.random.key(0))
X, Y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
NOT_COUNTS = ("3", 2.5, True, 0, -1, math.nan, object(), [1])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, (*NOT_COUNTS, None)) for name in ("epochs", "validation_freq")),
        *((name, NOT_COUNTS) for name in ("batch_size", "steps_per_epoch", "validation_steps")),
        *((name, NOT_COUNTS) for name in ("validation_batch_size", "steps_per_execution")),
        ("initial_epoch", ("1", 0.5, True, -1, math.nan, None)),
        ("shuffle", ("yes", "False", 1, None, math.nan)),
        ("verbose", ("loud", 3, -1, 0.5, None, math.nan)),
        ("validation_split", ("0.1", 1.0, -0.1, math.nan, True, None, 2)),
        ("callbacks", (3, "name", [3], [fk.callbacks.EarlyStopping])),
        ("class_weight", (3, [1.0], {0: "1"}, {0: -1.0}, {0: math.nan}, {"0": 1.0}, {True: 1.0})),
        ("checkpoint", (3, math.nan, "")),
    ],
)
def test_fit_rejects_wrong_arguments(name, values):
    for value in values:
        with pytest.raises(
            (ValueError, TypeError), match=name if name != "checkpoint" else "direc"
        ):
            _ = TRAINER.fit(RUN, X, Y, **{"verbose": 0, name: value})


@pytest.mark.parametrize("call", ["evaluate", "predict", "run"])
def test_other_calls_reject_wrong_arguments(call):
    def call_trainer(**options):
        if call == "run":
            return TRAINER.run(RUN, (X, Y), **{"epochs": 1, **options})
        return getattr(TRAINER, call)(RUN, *((X, Y) if call == "evaluate" else (X,)), **options)

    wrong_values_by_name = {
        "batch_size": NOT_COUNTS,
        **({"epochs": NOT_COUNTS, "shuffle": ("yes", 1)} if call == "run" else {}),
        **({} if call == "run" else {"steps": NOT_COUNTS, "verbose": ("loud", 3, math.nan)}),
    }
    for name, values in wrong_values_by_name.items():
        for value in values:
            with pytest.raises(ValueError, match=f"Trainer.{call}: {name}: expected"):
                call_trainer(**{name: value})


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("layer", "key", "value"),
    [
        ("d", "use_bias", "False"),
        ("d", "trainable", "yes"),
        ("d", "units", "2"),
        ("d", "activation", 3),
        ("d", "kernel_initializer", {"module": "keras.optimizers", "class_name": "Adam"}),
        ("layer_normalization", "epsilon", -1.0),
        ("layer_normalization", "epsilon", math.nan),
        ("layer_normalization", "axis", "last"),
    ],
)
def test_files_with_wrong_values_are_rejected(tmp_path, layer, key, value):
    """The error names file, layer and key."""
    if isinstance(value, dict):
        value = {**value, "config": {}, "registered_name": None}
    valid_path, wrong_path = tmp_path / "whole.keras", tmp_path / "wrong.keras"
    fk.save_model(valid_path, RUN.model, RUN.state)
    with zipfile.ZipFile(valid_path) as source, zipfile.ZipFile(wrong_path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "config.json":
                config = json.loads(content)
                items = [item["config"] for item in config["config"]["layers"]]
                next(item for item in items if item["name"] == layer)[key] = value
                content = json.dumps(config).encode()
            target.writestr(name, content)
    with pytest.raises(fk.FileError, match=rf"wrong.keras.*'{layer}'.*: {key}: ") as caught:
        fk.load_model(wrong_path)
    assert caught.value.layer == layer


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: layers.Dense(np.int64(3)).units, 3),
        (lambda: layers.Dense(3, use_bias=np.False_).use_bias, False),
        (lambda: layers.Dropout(np.float32(0.5)).rate, 0.5),
        (lambda: layers.Dropout(1).rate, 1.0),
        (lambda: optimizers.SGD(np.float64(0.5)).learning_rate, 0.5),
        (lambda: optimizers.SGD(jnp.float32(0.5)).learning_rate, 0.5),
        (lambda: layers.Conv2D(2, np.array([3, 5])).kernel_size, (3, 5)),
        (lambda: layers.Conv2D(2, [3, 5], padding="SAME").padding, "same"),
        (lambda: layers.ReLU(max_value=math.inf).max_value, math.inf),
        (lambda: schedules.PiecewiseConstantDecay([2**24 + 1], [1, 0]).boundaries, (2**24 + 1,)),
    ],
)
def test_numpy_scalars_become_python_values(make, expected):
    value = make()
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    "dtype",
    [np.float32, jnp.float32, np.dtype("float32"), "float32"],
    ids=["np", "jnp", "dtype", "text"],
)
def test_a_dtype_is_a_class_an_instance_or_a_name(dtype):
    assert layers.Dense(2, dtype=dtype).dtype == layers.Dense(2, dtype="float32").dtype
    assert fk.Input((3,), dtype=dtype).dtype == "float32"


def test_traced_configuration_values_are_rejected():
    with pytest.raises(TypeError, match=r"Dropout: rate: .*traced"):
        jax.jit(lambda rate: layers.Dropout(rate)(X))(0.5)


def test_replace_checks_fields():
    with pytest.raises(ValueError, match="Dense: use_bias: expected True or False"):
        layers.Dense(2).replace(use_bias="no")
    with pytest.raises(ValueError, match="Dense: trainable: expected True or False"):
        layers.Dense(2).replace(trainable="yes")
    assert layers.Dense(2).replace(use_bias=np.False_).use_bias is False


@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    "options",
    [
        *({"shape": v} for v in ("3", {"a": 1}, object(), (2.5,), (math.nan,), (True,), (-1,))),
        *({"shape": (3,), "batch_size": v} for v in ("3", 2.5, True, -1, math.nan)),
        *({"shape": (3,), "dtype": v} for v in (5, math.nan, {"a": 1}, "float31")),
        *({"shape": (3,), "optional": v} for v in ("yes", 1)),
        *({"shape": (3,), "name": v} for v in (5, "a/b", "")),
    ],
)
def test_inputs_reject_wrong_arguments(options):
    with pytest.raises((ValueError, TypeError), match=r"^Input(Layer)?: "):
        fk.Input(**options)


@pytest.mark.parametrize("value", [5, "ab", None, {"a": 1}, [5], [layers.Dense], math.nan])
def test_sequential_takes_a_list_of_layers(value):
    with pytest.raises(TypeError, match="Sequential: expected"):
        fk.Sequential(value)
