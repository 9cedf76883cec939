"""Activations, initializers, regularizers, constraints and random numbers, against Keras and JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from benchmarks.meter import count_compiles
from fkeras.engine import subkey
from fkeras.engine.values import random
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
X = np.random.default_rng(0).normal(size=(6, 8)).astype("float32") * 2

ACTIVATIONS = [
    (name, {})
    for name in fk.activations.__all__
    if name not in ("get", "serialize", "deserialize", "threshold", "glu", "sparsemax")
] + [
    ("relu", {"negative_slope": 0.1, "max_value": 1.5, "threshold": 0.3}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("elu", {"alpha": 0.7}),
    ("celu", {"alpha": 0.7}),
    ("gelu", {"approximate": True}),
    ("softmax", {"axis": 0}),
    ("threshold", {"threshold": 0.4, "default_value": -1.0}),
    ("glu", {"axis": 1}),
]


ROWS = 12  # of a compiled program


@functools.cache
def activation_facts(part):
    """Values and gradients of some rows, ours and Keras's, by one compiled program."""

    def both(function, x, options):
        slope = jax.grad(lambda x: jnp.sum(jnp.sin(function(x, **options))))
        return function(x, **options), slope(x)

    @jax.jit
    def program(x):
        rows = ACTIVATIONS[part * ROWS : (part + 1) * ROWS]
        found = [both(getattr(fk.activations, name), x, options) for name, options in rows]
        with keras_rules():
            expected = [both(getattr(keras.activations, name), x, given) for name, given in rows]
        return list(zip(found, expected, strict=True))

    return program(X)


@pytest.mark.parametrize(("name", "options"), ACTIVATIONS, ids=lambda v: str(v)[:40])
def test_activations_equal_keras(name, options):
    ours, index = getattr(fk.activations, name), ACTIVATIONS.index((name, options))
    (value, gradient), (expected, slope) = activation_facts(index // ROWS)[index % ROWS]
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)
    low = jax.eval_shape(lambda x: ours(x, **options), jax.ShapeDtypeStruct((6, 8), "bfloat16"))
    assert low.dtype == jnp.bfloat16
    config = fk.activations.serialize(ours)
    assert fk.activations.deserialize(config) is ours


def test_sparsemax_is_the_projection_on_the_simplex():
    """Keras's own numbers do not sum to 1; see the docstring."""
    both = jax.jit(lambda x: (fk.activations.sparsemax(x), fk.activations.sparsemax(x.T, axis=0)))
    value, across = map(np.asarray, both(X))
    np.testing.assert_allclose(value.sum(-1), 1.0, rtol=1e-5)
    for row, found in zip(X, value, strict=True):
        low, high = row.min() - 1, row.max()
        for _ in range(100):  # the threshold by bisection
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(row - middle, 0).sum() > 1 else (low, middle)
        np.testing.assert_allclose(found, np.maximum(row - low, 0), atol=1e-5)
    np.testing.assert_allclose(across, value.T, atol=1e-6)


def test_names_of_activations():
    assert fk.activations.get(None) is fk.activations.linear
    assert fk.activations.get("swish") is fk.activations.silu
    assert fk.activations.get(jnp.tanh) is jnp.tanh
    with pytest.raises(ValueError, match="Did you mean 'relu'"):
        fk.activations.get("rleu")
    with pytest.raises(TypeError, match="expected|Expected"):
        fk.activations.get(3)


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


@pytest.mark.parametrize(("name", "options"), INITIALIZERS, ids=[n for n, _ in INITIALIZERS])
def test_initializers_have_kerass_distribution(name, options):
    ours = getattr(fk.initializers, name)(**options)
    shape = (600, 400)
    value = np.asarray(ours(KEY, shape))
    with keras_rules():
        theirs = np.asarray(getattr(keras.initializers, name)(**options)(shape))
    assert value.dtype == np.float32
    assert value.mean() == pytest.approx(theirs.mean(), abs=3e-3)
    assert value.std() == pytest.approx(theirs.std(), rel=0.01, abs=1e-6)
    assert value.max() == pytest.approx(theirs.max(), rel=0.25, abs=1e-6)
    np.testing.assert_array_equal(value, ours(KEY, shape))
    jitted = np.asarray(jax.jit(lambda key: ours(key, shape))(KEY))
    mapped = np.asarray(jax.vmap(lambda key: ours(key, (4, 3)))(jax.random.split(KEY, 2)))
    if name == "Orthogonal":
        np.testing.assert_allclose(value, jitted, atol=1e-5)
        np.testing.assert_allclose(value.T @ value, 1.5**2 * np.eye(400), atol=1e-4)
    else:
        np.testing.assert_array_equal(value, jitted)
    alone = ours(jax.random.split(KEY, 2)[1], (4, 3))
    np.testing.assert_allclose(mapped[1], alone, atol=1e-6)
    assert ours(KEY, (3, 3), "bfloat16").dtype == jnp.bfloat16
    again = fk.initializers.deserialize(fk.initializers.serialize(ours))
    assert again == ours
    assert hash(again) == hash(ours)


WINDOWS = ("hann", "hamming", "blackman", "boxcar", "nuttall", "blackmanharris", "flattop")


@pytest.mark.parametrize(
    "window", [*WINDOWS, "bartlett", "triang", "cosine", "bohman", None, "own"]
)
def test_kernels_of_the_fourier_transform_equal_keras(window):
    window = np.linspace(0.5, 1.0, 6).astype("float32") if window == "own" else window

    @jax.jit
    def both():
        found = []
        for side, scaling, periodic in (("real", "density", False), ("imag", "spectrum", True)):
            arguments = (side, window, scaling, periodic)
            made = fk.initializers.STFT(*arguments)(KEY, (6, 1, 5))
            with keras_rules():
                expected = keras.initializers.STFT(*arguments)((6, 1, 5), "float32")
            found.append((made, expected))
        return found

    for pair in both():
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)
    low = jax.eval_shape(
        lambda: fk.initializers.STFT("real", window, None)(KEY, (6, 3, 4), "bfloat16")
    )
    assert (low.dtype, low.shape) == ("bfloat16", (6, 3, 4))


def test_aliases_of_initializers_are_the_classes_of_keras():
    for module in ("initializers", "regularizers", "constraints"):
        ours, theirs = getattr(fk, module), getattr(keras, module)
        for name in ours.__all__:
            value = getattr(theirs, name, None)
            if isinstance(value, type):
                assert getattr(ours, name).__name__ == value.__name__, name
                if name not in ("Initializer", "Regularizer", "Constraint"):
                    assert ours.get(name) == getattr(ours, name)()


def test_a_seed_of_its_own_changes_the_draw():
    plain, seeded = fk.initializers.HeNormal(), fk.initializers.HeNormal(seed=1)
    assert not np.array_equal(plain(KEY, (3, 3)), seeded(KEY, (3, 3)))


def test_bad_initializers():
    for call, message in (
        (lambda: fk.initializers.get("glorot_unifrm"), "glorot_uniform"),
        (lambda: fk.initializers.VarianceScaling(mode="fan"), "fan_in"),
        (lambda: fk.initializers.VarianceScaling(scale=0), "above 0"),
        (lambda: fk.initializers.VarianceScaling(distribution="flat"), "uniform"),
        (lambda: fk.initializers.Orthogonal()(KEY, (3,)), "two axes"),
        (lambda: fk.initializers.Identity()(KEY, (3,)), "matrix"),
        (lambda: fk.initializers.STFT("both"), "side: expected 'real' or 'imag'"),
        (lambda: fk.initializers.STFT(scaling="unit"), "scaling: expected"),
        (lambda: fk.initializers.STFT(window="ham"), "Did you mean 'hamming'"),
        (lambda: fk.initializers.STFT()(KEY, (3, 4)), "expected a kernel"),
        (lambda: fk.initializers.STFT(window=[1.0, 2.0])(KEY, (3, 1, 4)), "a window of 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


REGULARIZERS = [
    ("L1", {"l1": 0.3}),
    ("L2", {"l2": 0.3}),
    ("L1L2", {"l1": 0.1, "l2": 0.2}),
    ("OrthogonalRegularizer", {"factor": 0.5}),
]


def ours_and_theirs(mine, theirs):
    """Both numbers at X, by one compiled program."""

    def both(x):
        found = mine(x)
        with keras_rules():
            return found, theirs(x)

    return jax.jit(both)(X)


@pytest.mark.parametrize(("name", "options"), REGULARIZERS, ids=lambda v: str(v))
def test_regularizers_equal_keras(name, options):
    ours = getattr(fk.regularizers, name)(**options)
    np.testing.assert_allclose(
        *ours_and_theirs(ours, getattr(keras.regularizers, name)(**options)), rtol=1e-5
    )
    assert fk.regularizers.deserialize(fk.regularizers.serialize(ours)) == ours
    with pytest.raises(ValueError, match=r"number of 0 or more"):
        getattr(fk.regularizers, name)(**{k: -1.0 for k in options})


def test_orthogonal_columns_are_the_rows_of_the_transpose():
    """Keras's mode "columns" fails on matrices that are not square; see the docstring."""
    rows = fk.regularizers.OrthogonalRegularizer(0.5, "rows")
    columns = fk.regularizers.OrthogonalRegularizer(0.5, "columns")
    both = jax.jit(lambda x, eye: (columns(x), rows(x.T), columns(eye)))
    *found, nothing = both(X, np.eye(4, dtype="float32"))
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert float(nothing) == 0.0


CONSTRAINTS = [
    ("MaxNorm", {"max_value": 1.0}),
    ("NonNeg", {}),
    ("UnitNorm", {"axis": 1}),
    ("MinMaxNorm", {"min_value": 0.5, "max_value": 1.5, "rate": 0.7}),
]


@pytest.mark.parametrize(("name", "options"), CONSTRAINTS, ids=[n for n, _ in CONSTRAINTS])
def test_constraints_equal_keras(name, options):
    ours = getattr(fk.constraints, name)(**options)
    pair = ours_and_theirs(ours, getattr(keras.constraints, name)(**options))
    np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)
    assert fk.constraints.deserialize(fk.constraints.serialize(ours)) == ours
    assert np.isfinite(np.asarray(jax.jit(ours)(0 * X))).all()


def test_keys_are_derived_as_jax_derives_them():
    for data in (0, 7, 2**31):
        assert random.fold_in(KEY, data) == jax.random.fold_in(KEY, np.uint32(data))
    one, two = subkey(KEY, "dense"), subkey(KEY, "dense_1")
    assert one != two
    assert jax.jit(lambda k: subkey(k, "dense"))(KEY) == one
    for bad in (jax.random.PRNGKey(0), 3, None):
        with pytest.raises(TypeError, match=r"jax\.random\.key"):
            random.fold_in(bad, 1)


def test_uniform_weights_are_the_bits_of_jax_and_compile_nothing():
    key = jax.random.key(11)
    with count_compiles() as made:
        weights = random.uniform(key, (70_000,), 0.5)
        random.uniform(subkey(key, "a"), (3, 5, 7), 0.1)
        fk.initializers.Zeros()(key, (11,))
    assert len(made) == 0
    bits = np.asarray(jax.random.bits(key, (70_000,), "uint32"))
    expected = ((bits >> 9).astype("int32") * 2 + 1 - 2**23).astype("float32")
    np.testing.assert_array_equal(weights, expected * np.float32(0.5 * 2.0**-23))
    assert abs(weights).max() < 0.5


def test_another_layer_changes_no_other_layers_weights():
    def build(*units):
        x = h = fk.Input((4,))
        for number, n in enumerate(units):
            h = fk.layers.Dense(n, name=f"layer{number}")(h)
        return fk.Model(x, h).build(KEY)

    short, long = build(3, 5), build(3, 5, 6)
    assert short.layers["layer0"] == long.layers["layer0"]
    assert short.layers["layer1"] == long.layers["layer1"]
