"""`fk.random`: Keras's numbers for integer seeds, the right distributions for keys."""

import inspect

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import fkeras as fk

LOGITS = np.log(np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], "float32"))
X = np.arange(12, dtype="float32").reshape(4, 3)
ROWS = (
    ("normal", ((3, 2),), {"mean": 1.0, "stddev": 2.0}),
    ("normal", ((3,),), {"dtype": "float16"}),
    ("truncated_normal", ((3, 2),), {"mean": 1.0, "stddev": 0.5}),
    ("uniform", ((3, 2), -1.0, 2.0), {}),
    ("randint", ((3, 2), 2, 9), {}),
    ("categorical", (LOGITS, 4), {}),
    ("dropout", (X, 0.4), {}),
    ("dropout", (X, 0.4), {"noise_shape": (None, 1)}),
    ("dropout", (X, 1.0), {}),
    ("shuffle", (X,), {"axis": 1}),
    # of one shape in this file: these take seconds to compile
    ("gamma", ((4000,), 1.5), {}),
    ("beta", ((4000,), 1.5, 0.7), {}),
    ("binomial", ((4000,), 9, 0.4), {}),
)
NAMES = sorted({name for name, _, _ in ROWS})


def test_every_function_of_keras_has_a_row():
    theirs = {n for n in dir(keras.random) if not n.startswith("_")}
    assert theirs - set(NAMES) == {"SeedGenerator"}
    assert set(fk.random.__all__) >= set(NAMES)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "args", "options"), ROWS)
def test_an_integer_gives_the_numbers_of_keras(name, args, options):
    for seed in (0, 7, 2**31 + 1):
        ours = getattr(fk.random, name)(*args, **options, seed=seed)
        # under our rules of promotion, which it follows here: so both share JAX's programs
        theirs = getattr(keras.random, name)(*args, **options, seed=np.uint32(seed).item())
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_those_of_keras(name):
    def read(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    assert read(getattr(fk.random, name)) == read(getattr(keras.random, name))


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("name", "args", "options"), ROWS)
def test_a_key_gives_its_own_numbers(name, args, options):
    def draw(number):
        return np.asarray(getattr(fk.random, name)(*args, **options, seed=jax.random.key(number)))

    assert (draw(0) == draw(0)).all()
    if args[1:] != (1.0,):
        assert (draw(0) != draw(1)).any()


def test_a_missing_key_names_jax_random_key():
    with pytest.raises(TypeError, match=r"fk.random.normal: seed: .* received None.*key\(0\)"):
        fk.random.normal((2,))
    with pytest.raises(TypeError, match="received -1"):
        fk.random.normal((2,), seed=-1)


def test_numbers_of_another_kind_are_refused():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="randint"):
        fk.random.uniform((2,), dtype="int32", seed=key)
    with pytest.raises(ValueError, match="uniform"):
        fk.random.randint((2,), 0, 2, "float32", seed=key)
    with pytest.raises(ValueError, match="logits"):
        fk.random.categorical(jnp.zeros(3), 2, seed=key)


@pytest.mark.parametrize(
    ("name", "args", "mean", "deviation"),
    [
        ("normal", (2.0, 0.5), 2.0, 0.5),
        ("uniform", (-1.0, 1.0), 0.0, 3**-0.5),
        ("truncated_normal", (), 0.0, 0.8796),
        ("gamma", (4.0,), 4.0, 2.0),
        ("binomial", (10, 0.5), 5.0, 2.5**0.5),
        # seconds to compile
        pytest.param("beta", (2.0, 2.0), 0.5, 20**-0.5, marks=pytest.mark.exhaustive),
    ],
)
def test_distributions(name, args, mean, deviation):
    drawn = np.asarray(getattr(fk.random, name)((4000,), *args, seed=jax.random.key(3)))
    assert abs(float(drawn.mean()) - mean) < 0.08 * deviation
    assert abs(float(drawn.std()) / deviation - 1) < 0.08
