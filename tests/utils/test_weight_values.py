"""Values of weights as text."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers


def _model():
    return fk.Sequential(
        [fk.Input((2,)), layers.Dense(300, name="wide"), layers.Dense(1, name="out")]
    )


def test_values_are_printed_below_path_and_shape(capsys):
    model = _model().build(jax.random.key(0))
    assert fk.utils.print_weights(model, "out/*") is None
    text = capsys.readouterr().out
    assert fk.utils.print_weights(model, "out", show=False) == text.rstrip("\n")
    assert text.startswith("out/kernel: f32[300,1]\n[[") and text.endswith(
        "out/bias: f32[1]\n[0.]\n"
    )
    assert str(np.asarray(model.layers["out"].kernel)) in text


def test_long_arrays_and_numpy_options():
    model = _model().build(jax.random.key(0))
    with np.printoptions(threshold=10, edgeitems=1):
        text = fk.utils.print_weights(model, show=False)
    assert "..." in text and len(text) < 400
    assert [line for line in text.splitlines() if ": f32" in line] == [
        "wide/kernel: f32[2,300]",
        "wide/bias: f32[300]",
        "out/kernel: f32[300,1]",
        "out/bias: f32[1]",
    ]


def test_a_layer_and_missing_weights():
    layer = layers.Dense(2, use_bias=False).build(jax.random.key(0), (None, 3))
    assert fk.utils.print_weights(layer, show=False).startswith("kernel: f32[3,2]\n[[")
    with pytest.raises(
        ValueError, match="no weight and no layer has the path 'wide/kernle'. Did you mean"
    ):
        fk.utils.print_weights(_model().build(jax.random.key(0)), "wide/kernle")
    with pytest.raises(ValueError, match="has 0 weights; a model needs"):
        fk.utils.print_weights(_model())
    with pytest.raises(TypeError, match=r"expected a layer or model, received int"):
        fk.utils.print_weights(3)
    gone = layer.replace()
    jax.jit(lambda layer: jax.tree.map(lambda w: w + 1, layer), donate_argnums=0)(gone)
    with pytest.raises(RuntimeError, match="print_weights: the array 'kernel' is gone"):
        fk.utils.print_weights(gone)
