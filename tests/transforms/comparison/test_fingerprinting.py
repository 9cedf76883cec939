"""Fingerprints: equal in every process and device layout, different for different models."""

import dataclasses
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.transforms.comparison.array_bytes import array_bytes
from fkeras.transforms.comparison.fingerprinting import array_digest

_PROGRAM = """
import jax, fkeras as fk
from fkeras import layers, transforms
x = fk.Input((4,), name="x")
shared = layers.Dense(4, activation="gelu", kernel_regularizer="l2", name="shared")
constant = fk.ops.lift(lambda x: x * 3 if 3 in {1, 3, 5} else x)(shared(shared(x)))
inner = fk.Sequential([layers.Dense(3), layers.Dropout(0.5)], name="inner")
model = fk.Model({"b": x}, {"y": inner(constant), "a": constant + 1}).build(jax.random.key(0))
print(transforms.fingerprint(model), transforms.fingerprint(model, weights=True))
"""


def _run(seed):
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


@pytest.mark.exhaustive
def test_processes_with_other_hash_seeds_get_the_same_fingerprint():
    first, second = _run("1"), _run("2")
    assert first == second
    assert len(set(first.split())) == 2


def _model(**options):
    x = fk.Input((8,), name="x")
    return fk.Model(x, layers.Dense(8, name="d", **options)(layers.Dense(8, name="c")(x)))


CHANGES = (
    _model().replace(name="other"),
    _model(activation="relu"),
    _model(use_bias=False),
    _model(dtype="mixed_bfloat16"),
    _model(kernel_initializer=fk.initializers.Constant(2.0)),
    _model(kernel_regularizer=fk.regularizers.L2(0.1)),
    _model(kernel_regularizer=fk.regularizers.L2(0.2)),
    fk.freeze(_model(), "d"),
    fk.rename(_model(), {"d": "e"}),
    transforms.roll(_model()),
    _model().build(jax.random.key(0)),
    _model().layers["d"],
)


def test_every_change_of_a_model_changes_the_fingerprint():
    prints = [transforms.fingerprint(model) for model in (_model(), *CHANGES)]
    assert len(set(prints)) == len(prints)
    assert transforms.fingerprint(_model()) == transforms.fingerprint(_model())


def test_equal_numbers_of_other_types_count_as_equal():
    # `==` of layers does not see the difference either
    one, two = layers.Rescaling(1), layers.Rescaling(1.0)
    assert one == two
    assert transforms.fingerprint(one) == transforms.fingerprint(two)


def test_weights_count_by_their_bits():
    model = _model().build(jax.random.key(0))
    zeros, nan = jax.tree.map(jnp.zeros_like, model), jax.tree.map(lambda a: a * jnp.nan, model)
    signed = jax.tree.map(lambda a: -a, zeros)
    prints = [transforms.fingerprint(m, weights=True) for m in (model, zeros, signed, nan)]
    assert len(set(prints)) == 4
    assert len({transforms.fingerprint(m) for m in (model, zeros, signed, nan)}) == 1
    assert transforms.fingerprint(nan, weights=True) == prints[3]
    half = jax.tree.map(lambda a: a.astype("bfloat16"), model)
    assert transforms.fingerprint(half) != transforms.fingerprint(model)


@pytest.mark.exhaustive
def test_the_layout_on_devices_does_not_count():
    model = _model().build(jax.random.key(0))
    expected = transforms.fingerprint(model, weights=True)
    mesh = jax.make_mesh((4, 2), ("a", "b"))
    for names in (("a", None), ("a", "b"), ("b", "a"), (None, ("a", "b"))):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))
        split = jax.tree.map(lambda w: jax.device_put(w, sharding) if w.ndim == 2 else w, model)
        assert transforms.fingerprint(split, weights=True) == expected
    host = jax.tree.map(np.asarray, model)
    assert transforms.fingerprint(host, weights=True) == expected


@pytest.mark.one_in(4)
@pytest.mark.parametrize("piece", [1, 12, 100, 10_000])
def test_pieces_of_sharded_arrays_follow_the_order_of_the_array(piece):
    mesh = jax.make_mesh((2, 4), ("a", "b"))
    array = jnp.arange(4 * 6 * 8, dtype="int16").reshape(4, 6, 8)
    spec = jax.sharding.PartitionSpec("a", None, "b")
    split = jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))
    pieces = [bytes(p) for p in array_bytes(split, piece=piece)]
    assert b"".join(pieces) == np.asarray(array).tobytes()
    assert max(map(len, pieces)) <= max(piece, 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "complex64", ">f4"])
def test_all_dtypes_have_digests(dtype):
    array = np.ones((2, 3)).astype(jnp.dtype(dtype) if dtype != ">f4" else dtype)
    assert array_digest(array) == array_digest(array.copy())
    assert array_digest(array) != array_digest(array[:1])
    if dtype == ">f4":
        assert array_digest(array) == array_digest(np.ones((2, 3), "float32"))


def test_functions_count_by_name_or_by_code():
    def lifted(function):
        return fk.Model(x := fk.Input((2,)), fk.ops.lift(function)(x))

    def scaled(factor):
        return lambda x: x * factor

    def recursive(x):
        return x if x.ndim else recursive(x)

    functions = [lambda x: x * 2, lambda x: x * 3, lambda x: x + 2, scaled(2), scaled(3), jnp.tanh]
    functions += [jax.jit(jnp.tanh), functools.partial(jnp.clip, max=2), recursive]
    functions += [
        lambda x, y=1: x * 2,
        lambda x: x[..., 0],
        lambda x: x if x.ndim in {1, 2} else -x,
    ]
    prints = [transforms.fingerprint(lifted(f)) for f in functions]
    assert len(set(prints)) == len(prints)
    assert transforms.fingerprint(lifted(scaled(2))) == prints[3]


@dataclasses.dataclass(frozen=True)
class _Scale:
    factor: float

    def __call__(self, x):
        return x * self.factor


class _Opaque:
    def __call__(self, x):
        return x


def test_objects_in_configurations():
    one, two = (layers.Lambda(_Scale(f)) for f in (1.0, 2.0))
    assert transforms.fingerprint(one) != transforms.fingerprint(two)
    with pytest.raises(
        TypeError, match="_Opaque, which has no form that is equal in every process"
    ):
        transforms.fingerprint(layers.Lambda(_Opaque()))


def test_values_that_have_no_fingerprint():
    with pytest.raises(TypeError, match="expected a layer or model, received int"):
        transforms.fingerprint(3)
    with pytest.raises(ValueError, match="expected a built model for weights=True"):
        transforms.fingerprint(_model(), weights=True)
    model = _model().build(jax.random.key(0))

    def inside(model):
        return transforms.fingerprint(model, weights=True)

    with pytest.raises(ValueError, match=r"expected arrays with values.*outside of jit"):
        jax.jit(inside)(model)
    assert transforms.fingerprint(jax.eval_shape(lambda m: m, model)) == transforms.fingerprint(
        model
    )
    donated = jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m), donate_argnums=0)
    donated(model)
    with pytest.raises(RuntimeError, match="donated"):
        transforms.fingerprint(model, weights=True)
