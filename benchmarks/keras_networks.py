"""Trains and applies networks of Keras for `benchmarks/convolutional.py`.

    python benchmarks/keras_networks.py

The program computes on TensorFlow and reads one request per line: `open FOLDER` opens `model.keras` and
`data.npz` (x, y and the batch size) of a folder, `start PATH` writes the results of `started`, `fit` and
`predict` answer the CPU seconds of a pass over the data. It needs Keras and TensorFlow, not fkeras.
"""

import os
import pathlib
import sys
import time

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np


class Network:
    """A compiled model of Keras and its data."""

    def __init__(self, folder):
        self.model = keras.saving.load_model(pathlib.Path(folder, "model.keras"))
        with np.load(pathlib.Path(folder, "data.npz")) as file:
            self.x, self.y, self.batch = file["x"], file["y"], int(file["batch"])

    def predict(self):
        return self.model.predict(self.x, self.batch, verbose=0)

    def fit(self, count=None, epochs=1):
        x, y = self.x[:count], self.y[:count]
        history = self.model.fit(x, y, self.batch, epochs, shuffle=False, verbose=0)
        return history.history["loss"]


def started(network):
    """The predictions, the losses of two steps with one batch, and the predictions after them."""
    before = network.predict()
    losses = network.fit(network.batch, epochs=2)
    return {"before": before, "losses": np.asarray(losses), "after": network.predict()}


def main():
    network = None
    print("ready", flush=True)
    for line in sys.stdin:
        request, *argument = line.split()
        if request == "open":
            network = Network(*argument)
            print("opened", flush=True)
        elif request == "start":
            np.savez(*argument, **started(network))
            print("written", flush=True)
        else:
            start = time.process_time()
            getattr(network, request)()
            print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
