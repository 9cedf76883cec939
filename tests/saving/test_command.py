"""The command line `python -m fkeras convert`."""

import subprocess
import sys

import jax
import jax.export
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.saving import command
from tests.support.onnx_runtime import run, session


@pytest.fixture
def source(tmp_path):
    x = fk.Input((4,))
    y = layers.BatchNormalization()(layers.Dense(3)(x))
    model = fk.Model(x, y).build(jax.random.key(0))
    fk.save_model(tmp_path / "m.keras", model, model.init_state())
    return tmp_path / "m.keras"


@pytest.mark.exhaustive
def test_every_format(source):
    model, state = fk.load_model(source)
    x = np.ones((2, 4), "float32")
    expected = model(x, state=state)
    for suffix in (".onnx", ".jax", ".safetensors", ".npz", ".h5", ".hdf5"):
        assert command.main(["convert", str(source), str(source.with_suffix(suffix))]) == 0
    assert command.main(["convert", str(source), str(source.parent / "again.keras")]) == 0
    (output,) = run(session(source.with_suffix(".onnx")), [x])
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    program = jax.export.deserialize(source.with_suffix(".jax").read_bytes())
    np.testing.assert_allclose(program.call(x), expected, rtol=1e-5, atol=1e-6)
    for suffix in (".safetensors", ".npz", ".h5", ".hdf5"):
        loaded, _ = fk.load_weights(source.with_suffix(suffix), fk.engine.unbuilt(model), state)
        assert loaded == model
    assert fk.load_model(source.parent / "again.keras")[0] == model


@pytest.mark.exhaustive
def test_in_a_process(source):
    target = source.with_suffix(".onnx")
    command_line = [sys.executable, "-m", "fkeras", "convert", str(source), str(target)]
    done = subprocess.run(
        [*command_line, "--opset", "18"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert session(target).get_inputs()[0].shape == ["batch", 4]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{source}", "m.onx"], "Did you mean '.onnx'"),
        (["{source}", "m"], "expected a target that ends in"),
        (["absent.keras", "m.onnx"], "absent.keras"),
        (["{source}", "{source}.onnx", "--opset", "3"], "expected an opset from 17"),
        (["{text}", "m.onnx"], "expected a model"),
    ],
)
def test_errors_are_one_message_and_status_1(source, arguments, message, capsys):
    text = source.with_suffix(".txt")
    text.write_text("no model")
    filled = [argument.format(source=source, text=text) for argument in arguments]
    assert command.main(["convert", *filled]) == 1
    assert message in capsys.readouterr().err
