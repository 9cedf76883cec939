"""Models as ONNX files, computed by ONNX Runtime."""

import jax
import numpy as np
import onnx
import onnxruntime

import fkeras as fk


def session(path):
    """A session on one thread, without warnings."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    # products with dequantized kernels in float32; ONNX Runtime's default rounds the inputs to int8
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(opened, inputs):
    """The outputs of a session, with the inputs in the order of the model."""
    names = [node.name for node in opened.get_inputs()]
    return opened.run(None, dict(zip(names, inputs, strict=True)))


def operators(path):
    """The operators of a file, in order, without those in loops."""
    return [node.op_type for node in onnx.load(str(path)).graph.node]


def check(path, model, state, inputs, sizes=(), tolerance=1e-4, **options):
    """Exports a model and compares ONNX Runtime with the model.

    Args:
        inputs: a list of arrays, in the order of the model's inputs.
        sizes: numbers of first rows that are computed alone, and must equal those of all rows.
    """
    fk.export(model, state, path, **options)
    opened = session(path)
    together = inputs[0] if len(inputs) == 1 else inputs
    expected = jax.tree.leaves(model.apply(together, state=state).value)
    for size in (None, *sizes):
        outputs = run(opened, [x[:size] for x in inputs])
        for output, value in zip(outputs, expected, strict=True):
            value = np.asarray(value, "float64")[:size]
            assert output.shape == value.shape
            output = output.astype("float64")
            np.testing.assert_allclose(output, value, rtol=tolerance, atol=tolerance)
    return opened
