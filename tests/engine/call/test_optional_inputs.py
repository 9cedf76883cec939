"""Calls that leave out optional inputs."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

X = np.arange(6, dtype="float32").reshape(2, 3)


class Sum(fk.Layer):
    """Adds its inputs; an optional input may be None."""

    supports_masking = True

    def call(self, x, *more):
        return sum((y for y in more if y is not None), x)


def _model(structure, optional=("b", "c")):
    a, b, c = (fk.Input((3,), name=n, optional=n in optional) for n in "abc")
    inputs = {"list": [a, b, c], "tuple": (a, b, c), "dict": {"x": a, "y": b, "z": c}}[structure]
    return fk.Model(inputs, Sum(name="sum")(a, b, c))


@pytest.mark.exhaustive
@pytest.mark.parametrize("structure", ["list", "tuple"])
def test_the_last_inputs_may_be_left_out(structure):
    model = _model(structure)
    for arguments, count in (
        ((X,), 1),
        (([X],), 1),
        ((X, X), 2),
        (([X, X],), 2),
        (([X, None, X],), 2),
        (({"a": X},), 1),
        (({"a": X, "c": X},), 2),
        (([X, X, X],), 3),
    ):
        np.testing.assert_allclose(model(*arguments), count * X)
        np.testing.assert_allclose(jax.jit(lambda *a: model(*a))(*arguments), count * X)


def test_dictionaries_leave_out_keys():
    model = _model("dict")
    np.testing.assert_allclose(model({"x": X}), X)
    np.testing.assert_allclose(model({"z": X, "x": X}), 2 * X)
    with pytest.raises(fk.FKerasError, match=r"missing: x, z; unknown: none"):
        model({"y": X})
    with pytest.raises(fk.FKerasError, match=r"unknown: w"):
        model({"x": X, "w": X})


def test_required_inputs_are_required():
    model = _model("list", optional=("b",))
    with pytest.raises(fk.FKerasError, match=r"expected 3 inputs as \[a, b, c\], received 1"):
        model(X)
    np.testing.assert_allclose(model({"a": X, "c": X}), 2 * X)
    with pytest.raises(fk.FKerasError, match="missing"):
        model({"a": X})
    with pytest.raises(fk.FKerasError, match="expected 3 inputs"):
        model(X, X, X, X)


@pytest.mark.exhaustive
def test_in_graphs_and_trainings():
    model = _model("list")
    x = fk.Input((3,))
    outer = fk.Model(x, model(x))
    np.testing.assert_allclose(outer(X), X)
    np.testing.assert_allclose(fk.inline(outer, outer.layers[1].name)(X), X)
    np.testing.assert_allclose(fk.Model(x, model([x, None, x]))(X), 2 * X)
    np.testing.assert_allclose(fk.Model(x, _model("dict")({"x": x, "z": None, "y": x}))(X), 2 * X)
    trainer = fk.Trainer("sgd", "mse")
    dense = fk.Model(model.inputs, layers.Dense(1)(model.outputs))
    run = trainer.init(dense, jax.random.key(0))
    y = X[:, :1]
    results = []
    for data in (X, [X], {"a": X}, [X, 0 * X], [X, 0 * X, 0 * X]):
        fitted, history = trainer.fit(run, data, y, epochs=1, batch_size=2, verbose=0)
        results.append(history.history["loss"])
        assert trainer.predict(fitted, data, verbose=0).shape == (2, 1)
    np.testing.assert_allclose(results, [results[0]] * 5, rtol=1e-6)


def test_one_mask_belongs_to_the_required_input():
    model = _model("list")
    mask = np.array([True, False])
    np.testing.assert_array_equal(model.apply(X, mask=mask).mask, mask)
    with pytest.raises(fk.FKerasError, match="a mask .* for each of 3 inputs"):
        _model("list", optional=()).apply([X, X, X], mask=mask)
    single = fk.Input((3,), optional=True)
    np.testing.assert_array_equal(
        fk.Model(single, layers.ReLU()(single)).apply(X, mask=mask).mask, mask
    )
