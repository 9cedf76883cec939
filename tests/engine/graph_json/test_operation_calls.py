"""Operations in Keras's files: every class of Keras maps to an operation, in both directions."""

import importlib
import inspect
import json
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.symbolic.operation_forms import forms_by_class, operation_form
from tests.support.keras_oracle import keras, keras_rules

# classes of Keras without a form in fkeras, with the reason
EXCEPTIONS = {
    "Operation": "the base class",
    "Function": "the base of models, which no file holds",
    "SegmentReduction": "the base of four others",
    "GetItem": "read and written by the engine: x[...] has its entries in our call",
    "Cond": "its branches are functions without arguments, for which Keras itself has no data",
}
# operations of fkeras without a class in Keras, with the reason
OURS_ALONE = {
    "arrays only": "bartlett blackman hamming hanning kaiser empty eye identity ones tri zeros",
    "a function of others in Keras": "image.extract_patches_3d",
    "not in Keras": "error_if",
}


def keras_operations():
    base = importlib.import_module("keras.src.ops.operation").Operation
    package = importlib.import_module("keras.src.ops")
    for info in pkgutil.walk_packages(package.__path__, "keras.src.ops."):
        if not info.name.endswith("_test"):
            for name, value in vars(importlib.import_module(info.name)).items():
                if inspect.isclass(value) and issubclass(value, base):
                    if value.__module__ == info.name:
                        yield name, value


OPERATIONS = dict(keras_operations())


def parameters(function):
    found = inspect.signature(function).parameters
    return {name: p for name, p in found.items() if p.kind != p.VAR_KEYWORD}


def function_of(package, name):
    for part in name.split("."):
        package = getattr(package, part)
    return package


def test_every_class_is_mapped_or_an_exception():
    mapped = set(forms_by_class())
    assert set(OPERATIONS) - mapped == set(EXCEPTIONS)
    assert mapped <= set(OPERATIONS)


def test_a_form_is_keras_s():
    for name, form in sorted(forms_by_class().items()):
        check_form(name, form, OPERATIONS[name])


# arguments of fkeras that files store next to Keras's configuration
OWN = {"DotProductAttention": ("empty_rows",)}
# arrays that the calls of fkeras alone take
OWN_ARRAYS = {"DotProductAttention": ("sinks",)}


def check_form(name, form, cls):
    own_parameters, own_arrays = OWN.get(name, ()), OWN_ARRAYS.get(name, ())
    assert form.module == cls.__module__, name
    keras_function, function_here = function_of(keras.ops, form.op), function_of(fk.ops, form.op)
    expected = parameters(keras_function)
    assert list(form.parameters) == [*expected, *own_parameters, *own_arrays], name
    assert list(form.parameters) == list(
        parameters(getattr(function_here, "function", function_here))
    ), name
    constructor_parameters = {
        n: p for n, p in parameters(cls.__init__).items() if n not in ("self", "name")
    }
    constructor_parameters.pop("rms_scaling", None)  # RMS normalisation by its old name
    assert set(form.fixed) == {*constructor_parameters, *own_parameters}, name
    call_parameters = [n for n in parameters(cls.call) if n != "self"]
    arrays = [n for n in form.parameters if n not in form.fixed]
    assert arrays == [*call_parameters, *own_arrays], name
    # omitted arguments have the same default in both libraries
    for signature in (
        constructor_parameters,
        parameters(getattr(function_here, "function", function_here)),
    ):
        for parameter, parameter_here in signature.items():
            if parameter in form.fixed and parameter not in own_parameters:
                assert parameter_here.default == expected[parameter].default, (name, parameter)


def test_every_operation_of_ours_has_a_form():
    def operations(namespace, prefix=""):
        values = ((name, getattr(namespace, name)) for name in namespace.__all__)
        return {value.name for _, value in values if isinstance(value, Op)}

    operation_names = operations(fk.ops) | operations(fk.ops.image) | operations(fk.ops.nn)
    without_keras_form = " ".join(OURS_ALONE.values()).split()
    assert {n for n in operation_names if operation_form(op=n) is None} == {
        *without_keras_form,
        "getitem",
    }


IMAGE = np.linspace(-1, 1, 2 * 6 * 6 * 3, dtype="float32").reshape(2, 6, 6, 3)
X = np.linspace(-2, 2, 2 * 4 * 6, dtype="float32").reshape(2, 4, 6)
IDS = np.array([[0, 1, 2, 3], [1, 1, 2, 0]], "int32")
KERNEL = np.linspace(-1, 1, 2 * 2 * 3 * 4, dtype="float32").reshape(2, 2, 3, 4)
SMALL = np.array([[0.0, 0.5, 0.75]], "float32")


def calls(k, x, ids, image):
    """Calls that cover every kind of signature."""
    o = k.ops
    bound = np.arange(6, dtype="float32")
    # the operators
    yield from (x[:, 2:], x[:, None, ..., 0], x[0], x[..., ::-2], 1 / x, x + bound, -x)
    yield from (2 * x - abs(x), x**2 // 3 % 2, x @ o.transpose(x, (0, 2, 1)))
    yield from (o.cast(o.logical_and(x > 0, x <= 1), "float32"), o.cast(~(x < 0), "int32"))
    # constructor and call, by position and by name
    yield from (o.sum(x, (1, 2)), o.mean(x, axis=1, keepdims=True), o.reshape(x, (2, -1)))
    yield from (o.einsum("bij,bkj->bik", x, x), o.meshgrid(x[0, 0], x[0, 1], indexing="ij")[1])
    yield from (*o.split(x, 2, axis=1), o.where(x > 0, x, 0.0), o.clip(x, -1.0, 0.5))
    yield from (o.pad(x, [[0, 0], [1, 1], [0, 2]], constant_values=3.0), o.cast(x, "bfloat16"))
    yield from (o.one_hot(ids, 5), o.image.resize(image, (4, 4)), o.multi_hot(ids, 5))
    yield o.image.crop_images(image, 1, 1, target_height=4, target_width=4)
    yield o.batch_normalization(x, x[0, 0], x[0, 1] ** 2 + 1, axis=-1, scale=x[0, 2])
    yield from (o.layer_normalization(x, axis=-1), o.rms_normalization(x, x[0, 0], epsilon=0.1))
    yield from (o.conv(image, KERNEL, strides=2), o.average_pool(image, 2, 2, "same"))
    yield from (o.softmax(x, axis=1), o.gelu(x, approximate=False), o.nn.relu6(x), o.silu(x))
    yield from (o.full((2, 3), x[0, 0, 0]), o.full_like(x, 3.0), o.zeros_like(x, dtype="int32"))
    yield from (o.concatenate([x, x], axis=1), o.stack([x, x]), o.moveaxis(x, 0, -1))
    yield from (o.linalg.norm(x), o.svd(x, compute_uv=False), *o.top_k(x, 2))
    yield from (o.take(x, [0, 2], axis=1), o.take_along_axis(x, o.argsort(x, axis=1), axis=1))
    yield o.rearrange(x, "b (h w) c -> b h w c", h=2)
    yield o.dot_product_attention(*[o.reshape(x, (2, 4, 2, 3))] * 3, is_causal=True)
    yield from (o.segment_sum(x[0], ids[0], num_segments=4), o.slice(x, [0, 0, 0], [2, 2, 2]))
    yield from (o.scatter_update(x[0], [[0, 0]], x[0, 0, :1]), o.select([x > 0], [x], -1.0))
    yield from (o.tensordot(x, x, axes=[[2], [2]]), o.unstack(x, axis=1)[1], o.fft2((x, x))[0])
    yield from (
        o.expand_dims(x, (1, 3)),
        o.average(x, axis=1, weights=x + 3),
        o.erf(x),
        o.swapaxes(x, 1, 2),
    )
    yield from (
        o.digitize(x, bound),
        o.var(x),
        o.isclose(x, x + 0.1, 0.2),
        o.logsumexp(x, axis=(0, 1)),
    )
    yield from (o.append(x, x, 1), o.cumsum(x, axis=2), o.vstack([x, x]), o.absolute(x))  # fmt: skip


def model_of(k):
    x = k.Input((4, 6), batch_size=2, name="x")
    ids = k.Input((4,), batch_size=2, name="ids", dtype="int32")
    image = k.Input((6, 6, 3), batch_size=2, name="image")
    return k.Model([x, ids, image], list(calls(k, x, ids, image)))


def through_json(config):
    return json.loads(json.dumps(config))


@pytest.fixture(scope="module")
def theirs():
    with keras_rules():
        return model_of(keras)


def numbers(model):
    return [np.asarray(value, "complex64") for value in jax.tree.leaves(model([X, IDS, IMAGE]))]


def keras_numbers(model):
    """Returns the outputs of a model of Keras, whose `rearrange` takes no arrays of `jax.jit`."""
    eager = [type(o._keras_history.operation).__name__ == "Rearrange" for o in model.outputs]
    split = {
        flag: [o for o, e in zip(model.outputs, eager, strict=True) if e is flag] for flag in eager
    }
    parts = {flag: keras.Model(model.inputs, outputs) for flag, outputs in split.items()}
    found = {True: iter(numbers(parts[True])), False: iter(numbers(jax.jit(parts[False])))}
    return [next(found[flag]) for flag in eager]


def close(actual, expected):
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == b.shape, index
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5, err_msg=str(index))


@pytest.fixture
def broadcasting():
    with keras_rules():  # allow arrays of different ranks to broadcast, as in Keras
        yield


def test_calls_convert_to_and_from_keras_with_equal_values(theirs, broadcasting):
    # seconds: about 90 operations in Keras, read from its file, recorded, and written
    data = through_json(theirs.get_config())
    expected = keras_numbers(theirs)
    read = fk.Model.from_config(data)
    close(numbers(jax.jit(read)), expected)
    model_here = model_of(fk)
    written_config = through_json(model_here.get_config())
    assert fk.Model.from_config(written_config) == model_here
    restored = keras.Model.from_config(through_json(written_config))
    close(keras_numbers(restored), expected)
    # Keras's model from our JSON equals Keras's own model
    keras_config = through_json(restored.get_config())
    assert [i["class_name"] for i in keras_config["layers"]] == [
        i["class_name"] for i in data["layers"]
    ]
    written_config = through_json(read.get_config())
    assert fk.Model.from_config(written_config) == read


def double(x):
    return 2 * x


def test_custom_functions_are_saved_by_name():
    x = fk.Input((3,), name="x")
    y = fk.ops.lift(double, elementwise=True)(x)
    y = fk.ops.lift(jnp.cumsum, name="running")(y, axis=1)
    model = fk.Model(x, fk.ops.map(double, y))
    config = through_json(model.get_config())
    assert config["layers"][1]["config"]["op"]["config"] == "double"
    custom_objects = {"double": double, "cumsum": jnp.cumsum}
    restored = fk.Model.from_config(config, custom_objects)
    assert restored == model
    np.testing.assert_array_equal(restored(SMALL), model(SMALL))
    with pytest.raises(fk.FKerasError, match=r"'double'.*custom_objects"):
        fk.Model.from_config(config)


def test_calls_without_a_keras_form_keep_their_own_form():
    x = fk.Input((3,), name="x")
    shared = fk.ops.Operation(fk.ops.sum, name="total")
    by_array = fk.ops.clip(x, np.zeros((1, 3), "float32"), 0.5)  # an array in a constructor
    model = fk.Model(x, [by_array, shared(x, axis=1), shared(x, axis=0)])
    config = through_json(model.get_config())
    assert {item["class_name"] for item in config["layers"][1:]} == {"Operation"}
    assert fk.Model.from_config(config) == model


def test_calls_keep_arguments_by_position_and_by_name():
    x = fk.Input((4, 6), batch_size=2, name="x")
    o = fk.ops
    calls = (
        *(o.sum(x, 1), o.sum(x, axis=1), o.sum(x=x, keepdims=True, axis=1), o.mean(x, (1,))),
        *(o.mean(x, [1, 2]), o.reshape(newshape=(2, -1), x=x), o.full((2,), fill_value=x[0, 0, 0])),
        *(o.rms_normalization(x, scale=None), o.layer_normalization(x), o.isfinite(x)),
        *(o.pad(x, constant_values=1.0, pad_width=1), o.cast(x, "float16"), o.size(x[:, None])),
    )
    model = fk.Model(x, list(calls))
    config = through_json(model.get_config())
    assert fk.Model.from_config(config) == model
    with keras_rules():
        keras.Model.from_config(config)


def test_a_dtype_is_saved_by_name():
    x = fk.Input((3,), name="x")
    config = fk.Model(x, fk.ops.cast(x, jnp.float16)).get_config()
    assert config["layers"][1]["config"]["dtype"] == "float16"


def test_an_activation_that_is_an_operation_in_keras():
    with keras_rules():
        x = keras.Input((3,), name="x")
        mish = importlib.import_module("keras.src.activations.activations").Mish()
        y = mish(keras.activations.relu(x, max_value=0.6, negative_slope=0.1))
        model = keras.Model(x, y)
        data, expected = through_json(model.get_config()), np.asarray(model(SMALL))
    np.testing.assert_allclose(fk.Model.from_config(data)(SMALL), expected, rtol=1e-6)


def test_a_frozen_operation_stays_frozen():
    x = fk.Input((3,), name="x")
    model = fk.Model(x, fk.ops.tanh(x), trainable=False)
    restored = fk.Model.from_config(through_json(model.get_config()))
    assert restored == model
    assert not restored.layers["tanh"].trainable
