"""Forms of Keras's constructors and configurations, over the whole catalogue."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.cases import all_cases
from tests.support.keras_oracle import keras, keras_rules
from tests.support.paths import ROOT

KEY = jax.random.key(0)
KINDS = ("initializers", "regularizers", "constraints", "losses", "metrics", "optimizers")
NAMESPACES = ("layers", "optimizers.schedules", *KINDS)
# arguments at the end of Keras's signatures that fkeras does not have, see explanation/omitted.md
OMITTED = {"lora_rank", "lora_alpha", "quantization_config", "gptq_unpacked_column_size", "weights"}
# Keras has omitted arguments, sparse and ragged, before the last arguments of InputLayer
OMITTED |= {"sparse", "ragged", "batch_shape", "input_tensor", "optional"}
# base classes, whose constructors users call with arguments of their own
BASES = ("Layer", "Loss", "Metric", "Wrapper")
# arguments that other classes need
ARGUMENTS = {
    "MaxNorm": {"max_value": 2.0},
    "Constant": {"value": 2.0},
    "LossFunctionWrapper": {"fn": fk.losses.mean_squared_error},
    "MeanMetricWrapper": {"fn": fk.losses.mean_squared_error},
    "FBetaScore": {"beta": 0.5},
    "MeanIoU": {"num_classes": 2},
    "OneHotMeanIoU": {"num_classes": 2},
    "IoU": {"num_classes": 2, "target_class_ids": [0]},
    "OneHotIoU": {"num_classes": 2, "target_class_ids": [0]},
    "BinaryIoU": {"target_class_ids": [0]},
    "LossScaleOptimizer": {"inner_optimizer": "sgd"},
    **dict.fromkeys(("SensitivityAtSpecificity", "SpecificityAtSensitivity"), 0.5),
    **dict.fromkeys(("PrecisionAtRecall", "RecallAtPrecision"), 0.5),
}
# classes that Keras's own `get` does not find
NOT_IN_KERASS_TABLES = ("CategoricalGeneralizedCrossEntropy", "Lamb", "ScheduleFreeAdamW")
# and a class whose arguments it does not find
NOT_IN_KERASS_TABLES += ("LossScaleOptimizer",)


def _namespace(root, path):
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _classes(path):
    """Keras's class and ours by name."""
    theirs, ours = _namespace(keras, path), _namespace(fk, path)
    for name in sorted(dir(theirs)):
        pair = getattr(theirs, name), getattr(ours, name, None)
        if all(isinstance(cls, type) and cls.__name__ == name for cls in pair):
            yield name, *pair


def _positions(cls):
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", NAMESPACES)
def test_arguments_have_the_positions_of_kerass(path):
    compared = 0
    for name, theirs, ours in _classes(path):
        if name in BASES:
            continue
        expected, received = _positions(theirs), _positions(ours)
        common = min(len(expected), len(received))
        assert received[:common] == expected[:common], name
        assert set(expected[common:]) <= OMITTED | {"name"}, name
        compared += 1
    assert compared > 2


def test_omitted_arguments_are_refused_and_on_the_page_of_omitted_names():
    page = (ROOT / "docs/explanation/omitted.md").read_text()
    for name in (OMITTED | {"lora_alpha"}) - {"batch_shape", "optional"}:
        assert f"`{name}" in page, name
        for make in (lambda **k: layers.Dense(2, **k), lambda **k: layers.InputLayer((2,), **k)):
            with pytest.raises(TypeError, match=f"there is no argument '{name}'"):
                make(**{name: 1})
    for layer in (layers.StringLookup, layers.CategoryEncoding):
        with pytest.raises(ValueError, match="sparse"):
            layer(2, sparse=True)
    with pytest.raises(TypeError, match=r"transforms\.LoRA\(rank=8\)"):
        layers.Dense(2, lora_rank=4)


def test_arguments_at_the_positions_of_keras_have_their_values():
    loss = fk.losses.SparseCategoricalCrossentropy(True, None, "sum", -2, "s", "float16")
    expected = {"from_logits": True, "reduction": "sum", "axis": -2, "name": "s"}
    assert loss.get_config().items() >= {**expected, "dtype": "float16"}.items()
    assert fk.losses.MeanSquaredError("sum", "m") == fk.losses.MeanSquaredError(
        reduction="sum", name="m"
    )
    recurrent = [1, "tanh", "sigmoid", True, *["ones"] * 3, True, None, None, None, "l2", "non_neg"]
    with keras_rules():
        config = keras.layers.LSTM(*recurrent, None, None, 0.25, 0.5, 3, True).get_config()
    layer = layers.LSTM(*recurrent, None, None, 0.25, 0.5, 3, True)
    for key in ("dropout", "recurrent_dropout", "seed", "return_sequences", "return_state"):
        assert getattr(layer, key) == config[key], key
    assert type(layer.activity_regularizer).__name__ == "L2"
    assert type(layer.kernel_constraint).__name__ == "NonNeg"
    layer = layers.Conv3DTranspose(2, 3, 2, "valid", "channels_first", 1)
    assert (layer.data_format, layer.output_padding) == ("channels_first", (1, 1, 1))
    assert eval(repr(layer), vars(layers)) == layer
    with pytest.raises(TypeError, match="'reduction' is given twice"):
        fk.losses.Poisson("sum", reduction="sum")
    with pytest.raises(TypeError, match="at most 3 arguments by position, received 4"):
        fk.losses.Poisson("sum", "p", "float32", 1)

    class Scaled(fk.losses.Loss):
        factor: float = fk.option(default=1.0)
        power: int = fk.option(default=2)

    assert Scaled(3.0, 4, "sum") == Scaled(factor=3.0, power=4, reduction="sum")


def _without_modules(value):
    """A configuration as users write it: class names and arguments alone."""
    if isinstance(value, dict):
        if "class_name" in value:
            return {k: _without_modules(value[k]) for k in ("class_name", "config")}
        return {k: _without_modules(v) for k, v in value.items()}
    return [_without_modules(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.one_in(2)
@pytest.mark.parametrize("path", KINDS)
def test_every_kind_is_made_from_class_name_and_config(path):
    library, theirs, compared = getattr(fk, path), getattr(keras, path), 0
    for name, _, cls in _classes(path):
        if name in (
            *BASES,
            "MultiOptimizer",
            "OptimizerMap",
            "Optimizer",
            "Initializer",
            "Regularizer",
            "Constraint",
        ):
            continue
        options = ARGUMENTS.get(name, {})
        value = cls(**options) if isinstance(options, dict) else cls(options)
        config = _without_modules(library.serialize(value))
        for function in ("get", "deserialize"):
            assert getattr(library, function)(config) == value, (name, function)
        with keras_rules():
            if "Wrapper" not in name and name not in NOT_IN_KERASS_TABLES:
                assert type(theirs.get(config)).__name__ == name
        compared += 1
    assert compared > 2


def test_layers_are_made_from_class_name_and_config():
    exempt = ("Lambda", "JaxLayer", "FlaxLayer")
    cases = {type(c.layer).__name__: c.layer for c in all_cases()}
    for name, layer in cases.items():
        data = layers.serialize(layer)
        # classes of other packages than Keras name their modules
        if name in exempt or not str(data["module"]).startswith("keras.layers"):
            continue
        if "adapters" in data["module"] or "rotary" in data["module"]:
            continue
        assert layers.deserialize(_without_modules(data)) == layer, name


def _config(name, /, **config):
    return {"class_name": name, "config": config}


ARGUMENT_FORMS = [
    ("kernel_initializer", _config("HeNormal", seed=1), fk.initializers.HeNormal(1)),
    # the name of a layer and of an initializer
    ("kernel_initializer", _config("Identity", gain=2.0), fk.initializers.Identity(2.0)),
    ("kernel_initializer", _config("he_normal"), fk.initializers.HeNormal()),
    ("kernel_regularizer", _config("L2", l2=0.5), fk.regularizers.L2(0.5)),
    ("activity_regularizer", _config("L1", l1=0.5), fk.regularizers.L1(0.5)),
    ("bias_constraint", _config("MaxNorm", max_value=3.0), fk.constraints.MaxNorm(3.0)),
    ("activation", _config("LeakyReLU", negative_slope=0.5), layers.LeakyReLU(0.5)),
    ("activation", {"class_name": "function", "config": "gelu"}, fk.activations.gelu),
    ("dtype", _config("DTypePolicy", name="mixed_float16"), fk.DTypePolicy("mixed_float16")),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "data", "expected"), ARGUMENT_FORMS)
def test_arguments_of_layers_take_class_name_and_config(name, data, expected):
    made = layers.Dense(2, **{name: data}), layers.Dense.from_config({"units": 2, name: data})
    for layer in made:
        assert getattr(layer, name) == expected
    schedule = _config("CosineDecay", initial_learning_rate=0.1, decay_steps=3)
    expected = fk.optimizers.SGD(fk.optimizers.schedules.CosineDecay(0.1, 3))
    assert fk.optimizers.SGD(schedule) == expected
    assert fk.optimizers.get(_config("sgd", learning_rate=schedule)) == expected


@pytest.mark.exhaustive
def test_compile_arguments_take_class_name_and_config():
    trainer = fk.Trainer(
        _config("Adam"), _config("Huber", delta=2.0), [_config("MeanSquaredError")]
    )
    assert trainer.optimizer == fk.optimizers.Adam()
    assert trainer.loss == fk.losses.Huber(2.0)
    # also the name of a loss
    assert trainer.metrics == (fk.metrics.MeanSquaredError(),)
    assert fk.Trainer("adam", "mse").loss == fk.losses.MeanSquaredError()


def test_names_without_a_module_stay_safe():
    class HeNormal(fk.initializers.Zeros):
        pass

    own = {"HeNormal": HeNormal}
    assert type(fk.initializers.get(_config("HeNormal"), own)) is HeNormal
    data = {"units": 2, "kernel_initializer": _config("HeNormal")}
    assert type(layers.Dense.from_config(data, own).kernel_initializer) is HeNormal
    for name in ("load_model", "os", "get", "Trainer", "HeNormall"):
        with pytest.raises(ValueError, match=f"there is no '{name}'"):
            layers.deserialize(_config(name))
    registered = {**_config("HeNormal"), "registered_name": "mine>HeNormal"}
    with pytest.raises(ValueError, match="class 'mine>HeNormal' of another package"):
        layers.deserialize(registered)
    with pytest.raises(
        TypeError, match="Expected a name, a configuration or a callable for the init"
    ):
        fk.initializers.get(_config("Dense", units=2))


@pytest.mark.exhaustive
def test_an_array_is_an_initializer_of_its_shape():
    array = np.arange(6.0, dtype="float32").reshape(2, 3)
    with keras_rules():
        expected = np.asarray(keras.initializers.get(array)((2, 3)))
        with pytest.raises(ValueError, match="shape"):
            keras.initializers.get(array[0])((2, 3))
    for value in (array, jnp.asarray(array)):
        initializer = fk.initializers.get(value)
        np.testing.assert_array_equal(initializer(KEY, (2, 3)), expected)
    with pytest.raises(ValueError, match=r"shape \(2, 3\), received one of shape \(3,\)"):
        fk.initializers.get(array[0])(KEY, (2, 3))
    layer = layers.Dense(3, kernel_initializer=array).build(KEY, (None, 2))
    np.testing.assert_array_equal(layer.kernel, array)
    again = layers.deserialize(layers.serialize(layer)).build(KEY, (None, 2))
    np.testing.assert_array_equal(again.kernel, array)
    assert hash(layer.kernel_initializer) == hash(fk.initializers.get(array))


def test_input_layers_take_kerass_arguments():
    with keras_rules():
        for options in ({"shape": (3,)}, {"shape": (3,), "batch_size": 2}, {"batch_shape": (2, 3)}):
            theirs = keras.layers.InputLayer(**options, dtype="int32", name="x")
            ours = layers.InputLayer(**options, dtype="int32", name="x")
            assert list(theirs.batch_shape) == list(ours.get_config()["batch_shape"])
            config = keras.layers.serialize(theirs)
            assert layers.deserialize(config) == ours
    assert layers.InputLayer((3,), 2, "int32", name="x").spec.shape == (2, 3)
    model = fk.Sequential([layers.InputLayer(shape=(3,)), layers.Dense(1)])
    assert model.graph.specs[0].shape == (None, 3)
    for options in ({}, {"shape": (1,), "batch_shape": (1, 1)}, {"shape": 3}):
        with pytest.raises(ValueError, match="InputLayer: "):
            layers.InputLayer(**options)


@pytest.mark.exhaustive
def test_inputs_may_be_complex(tmp_path):
    with keras_rules():
        z = keras.Input((2,), dtype="complex64")
        theirs = keras.Model(z, keras.ops.real(keras.ops.multiply(z, z)))
        x = np.array([[1 + 2j, 3j]], "complex64")
        expected = np.asarray(theirs(x))
    z = fk.Input((2,), dtype="complex64", name="z")
    model = fk.Model(z, fk.ops.real(z * z)).build(KEY)
    np.testing.assert_array_equal(model(x), expected)
    fk.save_model(tmp_path / "m.keras", model)
    again, _ = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(again(x), expected)
    with pytest.raises(ValueError, match="Layers have no complex64 dtype"):
        layers.Dense(2, dtype="complex64")


@pytest.mark.exhaustive
def test_auc_takes_thresholds_alone():
    thresholds = [0.25, 0.5, 0.75]
    y, p = np.array([0, 0, 1, 1], "float32"), np.array([0.1, 0.6, 0.5, 0.9], "float32")
    with keras_rules():
        theirs = keras.metrics.AUC(num_thresholds=None, thresholds=thresholds)
        expected = float(theirs(y, p))
    metric = fk.metrics.AUC(num_thresholds=None, thresholds=thresholds)
    assert metric == fk.metrics.AUC(thresholds=thresholds)
    assert float(metric.result(metric.update(metric.init(), y, p))) == pytest.approx(expected)
    with pytest.raises(ValueError, match="expected num_thresholds or thresholds"):
        fk.metrics.AUC(None)


def halved(shape):
    return (shape[0], shape[1] // 2)


def test_lambda_takes_a_function_of_shapes():
    x = np.ones((3, 4), "float32")
    with keras_rules():
        expected = np.asarray(keras.layers.Lambda(lambda x: x[:, ::2], output_shape=halved)(x))
    layer = layers.Lambda(lambda x: x[:, ::2], output_shape=halved)
    np.testing.assert_array_equal(layer(x), expected)
    assert layer(fk.Input((4,))).shape == (None, 2)
    with pytest.raises(ValueError, match=r"expected a result of shape \(3, 2\), as output_shape"):
        layers.Lambda(lambda x: x, output_shape=halved)(x)
    named = layers.Lambda(jnp.square, output_shape=halved, name="l")
    data, own = layers.serialize(named), {"l": jnp.square, "halved": halved}
    assert layers.deserialize(data, own).output_shape is halved


@pytest.mark.exhaustive
def test_jax_layer_finds_its_arguments_by_name():
    def init(rng, inputs):
        return {"scale": jnp.full(inputs.shape[-1:], 3.0)}

    def call(params, inputs):
        return params["scale"].reshape(1, -1) * inputs

    def dropped(inputs, training, params):
        return params["scale"].reshape(1, -1) * inputs * (2.0 if training else 1.0)

    def foreign(params, state, key, x, flag):
        return x, state

    x = np.ones((2, 3), "float32")
    for function in (call, dropped):
        with keras_rules():
            # Keras's class needs TensorFlow, except for this function
            names = keras.layers.JaxLayer._validate_signature(
                None, function, "call_fn", {"params", "inputs", "training"}, {"inputs"}
            )
        layer = layers.JaxLayer(function, init).build(KEY, (None, 3))
        assert list(layer.call_arguments) == names
        np.testing.assert_array_equal(layer(x), 3 * x)
        assert "call_arguments" not in layer.get_config()
    assert layer.apply(x, training=True, key=KEY).value[0, 0] == 6
    # the names of other functions say nothing: all five arguments, in order
    assert layers.JaxLayer(foreign, lambda rng, inputs: ({}, {})).call_arguments[2] == "rng"
    own = layers.JaxLayer(foreign, init, call_arguments=("params", "inputs"))
    assert own.get_config()["call_arguments"] == ["params", "inputs"]
