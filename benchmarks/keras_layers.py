"""Computes layers of Keras for `benchmarks/layers.py`, in a process with another backend.

    KERAS_BACKEND=tensorflow python benchmarks/keras_layers.py

Reads one request per line: `load PATH` makes the layer of an .npz file (configuration, inputs, mask and
weights), `values PATH` writes output and gradients, `time COUNT` answers the CPU seconds of COUNT
computations. The process needs Keras and TensorFlow, not fkeras.
"""

import json
import os
import sys
import time

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # each layer traces anew, which TensorFlow warns of


def computation(path):
    """A function that computes value, weight gradients and input gradients of the layer of a file."""
    with np.load(path) as file:
        arrays = dict(file)
    config = json.loads(str(arrays["config"]))
    inputs = tf.nest.map_structure(lambda i: tf.constant(arrays[f"input{i}"]), config["inputs"])
    layer = keras.layers.deserialize(config["layer"])
    layer(*inputs, **config["options"])
    layer.set_weights([arrays[f"weight{i}"] for i in config["weights"]])
    options = config["options"]
    options |= {"mask": tf.constant(arrays["mask"])} if "mask" in arrays else {}
    options |= {"training": True} if layer._call_has_training_arg else {}
    weights = [v.value for v in layer.trainable_variables]

    factors = [tf.constant(arrays[f"factor{i}"]) for i in config["factors"]]

    @tf.function(autograph=False)
    def compute(inputs, factors):
        floats = [x for x in tf.nest.flatten(inputs) if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            values = tf.nest.flatten(layer(*inputs, **options))
            pairs = zip(values, factors, strict=True)
            value = tf.add_n([tf.reduce_sum(x * factor) for x, factor in pairs])
        gradients = tape.gradient(value, [*weights, *floats])
        return value, gradients[: len(weights)], gradients[len(weights) :], values

    return lambda: compute(inputs, factors)


def main():
    function = None
    print("ready", flush=True)
    for line in sys.stdin:
        request, argument = line.split()
        if request == "load":
            function = computation(argument)
            print("loaded", flush=True)
        elif request == "values":
            value, weights, inputs, _ = function()
            arrays = {"value": value.numpy()}
            arrays |= {f"weight{i}": tf.convert_to_tensor(g).numpy() for i, g in enumerate(weights)}
            arrays |= {f"input{i}": tf.convert_to_tensor(g).numpy() for i, g in enumerate(inputs)}
            np.savez(argument, **arrays)
            print("written", flush=True)
        else:
            start = time.process_time()
            for _ in range(int(argument)):
                result = function()
            result[0].numpy()
            print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
