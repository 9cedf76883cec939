"""Initializers draw from Keras's distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules
from tests.support.value_data import KEY

INITIALIZERS = [
    ("Zeros", {}),
    ("Ones", {}),
    ("Constant", {"value": 3.0}),
    ("Identity", {"gain": 2.0}),
    ("RandomUniform", {"minval": -0.1, "maxval": 0.3}),
    ("RandomNormal", {"mean": 0.5, "stddev": 0.2}),
    ("TruncatedNormal", {"stddev": 0.3}),
    ("VarianceScaling", {"scale": 2.0, "mode": "fan_out", "distribution": "untruncated_normal"}),
    ("GlorotUniform", {}),
    ("GlorotNormal", {}),
    ("LecunUniform", {}),
    ("LecunNormal", {}),
    ("HeUniform", {}),
    ("HeNormal", {}),
    ("Orthogonal", {"gain": 1.5}),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "options"), INITIALIZERS, ids=[n for n, _ in INITIALIZERS])
def test_initializers_have_kerass_distribution(name, options):
    initializer = getattr(fk.initializers, name)(**options)
    shape = (600, 400)
    value = np.asarray(initializer(KEY, shape))
    with keras_rules():
        reference = np.asarray(getattr(keras.initializers, name)(**options)(shape))
    assert value.dtype == np.float32
    assert value.mean() == pytest.approx(reference.mean(), abs=3e-3)
    assert value.std() == pytest.approx(reference.std(), rel=0.01, abs=1e-6)
    assert value.max() == pytest.approx(reference.max(), rel=0.25, abs=1e-6)
    np.testing.assert_array_equal(value, initializer(KEY, shape))
    jitted = np.asarray(jax.jit(lambda key: initializer(key, shape))(KEY))
    mapped = np.asarray(jax.vmap(lambda key: initializer(key, (4, 3)))(jax.random.split(KEY, 2)))
    if name == "Orthogonal":
        np.testing.assert_allclose(value, jitted, atol=1e-5)
        np.testing.assert_allclose(value.T @ value, 1.5**2 * np.eye(400), atol=1e-4)
    else:
        np.testing.assert_array_equal(value, jitted)
    single = initializer(jax.random.split(KEY, 2)[1], (4, 3))
    np.testing.assert_allclose(mapped[1], single, atol=1e-6)
    assert initializer(KEY, (3, 3), "bfloat16").dtype == jnp.bfloat16
    restored = fk.initializers.deserialize(fk.initializers.serialize(initializer))
    assert restored == initializer
    assert hash(restored) == hash(initializer)


def test_aliases_of_initializers_are_the_classes_of_keras():
    for module in ("initializers", "regularizers", "constraints"):
        own_module, keras_module = getattr(fk, module), getattr(keras, module)
        for name in own_module.__all__:
            value = getattr(keras_module, name, None)
            if isinstance(value, type):
                assert getattr(own_module, name).__name__ == value.__name__, name
                if name not in ("Initializer", "Regularizer", "Constraint"):
                    assert own_module.get(name) == getattr(own_module, name)()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name", [name for name, _ in INITIALIZERS if hasattr(getattr(fk.initializers, name), "law")]
)
def test_fans_of_given_axes_are_kerass(name):
    axes, shape = {"input_axes": [1], "output_axes": [0, 2]}, (10, 900, 20)
    with keras_rules():
        reference = getattr(keras.initializers, name)(seed=1, **axes)
        expected = np.asarray(reference(shape)).std()
        config = keras.initializers.serialize(reference)
    initializer = fk.initializers.deserialize(config)
    assert (initializer.input_axes, initializer.output_axes) == ((1,), (0, 2))
    assert np.asarray(initializer(KEY, shape)).std() == pytest.approx(expected, rel=0.01)
    assert np.asarray(type(initializer)()(KEY, shape)).std() != pytest.approx(expected, rel=0.1)
    assert fk.initializers.deserialize(fk.initializers.serialize(initializer)) == initializer
    # Keras before the two arguments opens files of initializers without them
    assert "input_axes" not in type(initializer)().get_config()


@pytest.mark.exhaustive
def test_given_axes_stay_in_einsum_dense():
    for axes in (
        {},
        {"input_axes": [2], "output_axes": [0, 1]},
        {"input_axes": [], "output_axes": [2]},
    ):
        initializer = fk.initializers.HeNormal(**axes)
        layer = fk.layers.EinsumDense("abc,bcd->ad", 300, kernel_initializer=initializer)
        with keras_rules():
            initializer = keras.initializers.HeNormal(seed=1, **axes)
            options = {"kernel_initializer": initializer}
            reference = keras.layers.EinsumDense("abc,bcd->ad", 300, **options)
            reference.build((None, 10, 20))
            expected = np.asarray(reference.kernel).std()
        kernel = layer.build(KEY, (None, 10, 20)).kernel
        assert np.asarray(kernel).std() == pytest.approx(expected, rel=0.02), axes


def test_an_explicit_seed_changes_the_draw():
    plain, seeded = fk.initializers.HeNormal(), fk.initializers.HeNormal(seed=1)
    assert not np.array_equal(plain(KEY, (3, 3)), seeded(KEY, (3, 3)))


def test_invalid_initializers_are_rejected():
    for call, message in (
        (lambda: fk.initializers.get("glorot_unifrm"), "glorot_uniform"),
        (lambda: fk.initializers.VarianceScaling(mode="fan"), "fan_in"),
        (lambda: fk.initializers.VarianceScaling(scale=0), "above 0"),
        (lambda: fk.initializers.VarianceScaling(distribution="flat"), "uniform"),
        (lambda: fk.initializers.HeNormal(input_axes=[0]), "both input_axes and output_axes"),
        (lambda: fk.initializers.HeNormal(None, [0], [2])(KEY, (3, 3)), "shape .3, 3., received 2"),
        (lambda: fk.initializers.HeNormal(None, "0", [1]), "input_axes: expected a list of axes"),
        (lambda: fk.initializers.Orthogonal()(KEY, (3,)), "two axes"),
        (lambda: fk.initializers.Identity()(KEY, (3,)), "matrix"),
        (lambda: fk.initializers.STFT("both"), "side: expected 'real' or 'imag'"),
        (lambda: fk.initializers.STFT(scaling="unit"), "scaling: expected"),
        (lambda: fk.initializers.STFT(window="hammin"), "the name of a window of scipy"),
        (lambda: fk.initializers.STFT()(KEY, (3, 4)), "expected a kernel"),
        (lambda: fk.initializers.STFT(window=[1.0, 2.0])(KEY, (3, 1, 4)), "a window of 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
