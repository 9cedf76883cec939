"""One weight by path: `model.at[path]`; layers of a model by name, and with others in their places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.migration_hints.dropped import DroppedResultWarning


def network(**options):
    x = fk.Input((4,))
    h = layers.Dense(3, name="a")(x)
    return fk.Model(x, layers.Dense(2, use_bias=False, name="b")(h), **options)


MODEL = network().build(jax.random.key(0))


def test_one_weight_is_read_and_exchanged():
    kernel = np.arange(12, dtype="float64").reshape(4, 3)
    changed = MODEL.at["a/kernel"].set(kernel)
    assert changed["a"].kernel.dtype == "float32" and (changed["a"].kernel == kernel).all()
    assert changed["a"].bias is MODEL["a"].bias and changed["b"] == MODEL["b"]
    assert MODEL.at["a/kernel"].get() is MODEL["a"].kernel
    filled = changed.at["a/bias"].set(2)
    np.testing.assert_array_equal(filled["a"].bias, [2, 2, 2])
    np.testing.assert_array_equal(filled.at["a/bias"].apply(jnp.square)["a"].bias, [4, 4, 4])
    half = fk.cast(MODEL, "bfloat16").at["a/kernel"].set(kernel)
    assert half["a"].kernel.dtype == "bfloat16"
    slope = jax.grad(lambda w: MODEL.at["b/kernel"].set(w)(np.ones((1, 4), "float32")).sum())
    assert slope(jnp.ones((3, 2))).shape == (3, 2)
    shapes = jax.eval_shape(lambda: MODEL).at["a/bias"].set(0)
    assert isinstance(shapes["a"].bias, jax.ShapeDtypeStruct)
    layer = layers.Dense(2).build(jax.random.key(0), (None, 3))
    assert layer.at["bias"].set([1, 2]).bias.tolist() == [1, 2]
    nested = fk.Sequential([fk.Input((4,)), MODEL]).build(jax.random.key(0))
    assert (nested.at["functional/a/bias"].set(1)["functional"]["a"].bias == 1).all()
    with pytest.warns(DroppedResultWarning, match=r'model = model.at\["a/bias"\].set\(w\)'):
        MODEL.at["a/bias"].set(0)


@pytest.mark.exhaustive
def test_a_weight_keeps_its_devices():
    mesh = jax.make_mesh((2,), ("data",))
    layout = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    kernel = jax.device_put(MODEL["a"].kernel, layout)
    model = MODEL.at["a/kernel"].apply(lambda w: kernel)
    spread = MODEL.replace(layers=MODEL.layers | {"a": MODEL["a"].replace(kernel=kernel)})
    spread = spread.at["a/kernel"].set(np.zeros((4, 3)))
    assert spread["a"].kernel.sharding == layout and len(model["a"].kernel.devices()) == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: network().at["a/kernel"].set(0), ValueError, "no array here. Build it first"),
        (lambda: MODEL.at["b/bias"].get(), ValueError, "built without this weight"),
        (lambda: MODEL.at["a/kernel"].set(np.ones((3, 4))), ValueError, r"shape \(4, 3\), received \(3, 4\)"),
        (lambda: MODEL.at["a"], ValueError, "'a' is a layer.*such as 'a/kernel'"),
        (lambda: MODEL.at["a/kernl"], ValueError, "Did you mean 'a/kernel'"),
        (lambda: MODEL.at[0], ValueError, "there is no weight 0"),
        (lambda: MODEL.at["a/bias"].set("x"), TypeError, "array of numbers, received 'x'"),
        (lambda: MODEL.at["a/bias"].set([[1], [1, 2]]), TypeError, "array of numbers"),
        (lambda: MODEL["c"], KeyError, "there is no layer 'c'"),
        (lambda: MODEL[0], TypeError, r"model.layers\[0\]"),
        (lambda: MODEL.replace(layers=MODEL.layers | {"c": layers.Dense(2)}), ValueError, "there is no layer 'c'"),
        (lambda: MODEL.layers | {"a": jnp.tanh}, TypeError, "expected a layer for 'a'"),
        (lambda: MODEL.layers | [1], TypeError, "unsupported operand"),
        (lambda: MODEL.replace(layers=MODEL.layers | {"a": layers.Dense(5)}), ValueError, r"returns \(b, 3\) .*fk.transforms.replace"),
        (lambda: MODEL.replace(layers=MODEL.layers | {"a": layers.Dense(3, dtype="bfloat16")}), ValueError, "bfloat16"),
    ],
)  # fmt: skip
def test_messages(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_layers_by_name_and_in_other_places():
    sequential = fk.Sequential([fk.Input((4,)), layers.Dense(3), MODEL["b"]])
    assert sequential["b"] is sequential.layers["b"] and sequential[1] is sequential["b"]
    other = layers.Dense(3, "relu", name="elsewhere").build(jax.random.key(1), (None, 4))
    for model, name in ((MODEL, "a"), (sequential, "dense")):
        changed = model.replace(layers=model.layers | {name: other})
        assert changed[name] == other.replace(name=name)
        assert list(changed.layers) == list(model.layers)
        assert changed.layers[:] == list(changed.layers.values())[-len(changed.layers[:]) :]
        assert changed.graph == fk.transforms.replace(model, {name: other.replace(name=name)}).graph
    x = np.ones((1, 4), "float32")
    changed = MODEL.replace(layers=MODEL.layers | {"a": other})
    np.testing.assert_array_equal(changed(x), MODEL["b"](other(x)))
    assert MODEL.replace(layers=MODEL.layers | {"a": MODEL["a"]}) == MODEL


def test_a_field_with_the_name_of_an_attribute_of_layers_is_rejected():
    with pytest.raises(TypeError, match="Shifted: the field 'at' has the name of an attribute"):

        class Shifted(fk.Layer):
            at: int

    class Valid(fk.Layer):
        at: int = fk.option(default=2)

    assert Valid(3).at == 3
