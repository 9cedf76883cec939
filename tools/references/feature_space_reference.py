"""Writes tests/data/feature_space.json: what Keras's FeatureSpace computes.

Run it where TensorFlow is installed, without which the class does not run:
`KERAS_BACKEND=tensorflow python tools/references/feature_space_reference.py FILE`.
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

SIZES = [float(n) for n in np.random.default_rng(0).normal(3, 2, 50).round(3)]
TRAIN = {
    "size": SIZES,
    "age": [7 * n % 23 for n in range(50)],
    "color": [("red", "blue", "green", "red")[n % 4] + "ish" * (n % 3 == 1) for n in range(50)],
}
TEST = {"size": [0.5, 3.25, 9.0], "age": [7, 22, 99], "color": ["red", "greenish", "pink"]}

# name -> arguments of the constructor; a list is a method of the class and its arguments
CASES = {
    "floats": {"features": {"size": "float", "age": "float_rescaled"}},
    "rescaled": {"features": {"size": ["float_rescaled", {"scale": 0.5, "offset": 1.0}]}},
    "normalized": {"features": {"size": "float_normalized", "age": "float_normalized"}},
    "discretized": {"features": {"size": "float_discretized"}, "num_discretization_bins": 4},
    "bins": {"features": {"size": ["float_discretized", {"num_bins": 5, "output_mode": "int"}]}},
    "categories": {"features": {"age": "integer_categorical", "color": "string_categorical"}},
    "few": {
        "features": {
            "color": ["string_categorical", {"max_tokens": 3, "num_oov_indices": 2}],
            "age": ["integer_categorical", {"max_tokens": 4, "output_mode": "int"}],
        },
    },
    "hashed": {"features": {"age": "integer_hashed", "color": "string_hashed"}, "hashing_dim": 7},
    "crossed": {
        "features": {"age": "integer_categorical", "color": "string_categorical", "size": "float"},
        "crosses": [["age", "color"]],
        "crossing_dim": 6,
    },
    "hashed crosses": {
        "features": {
            "age": ["integer_hashed", {"num_bins": 5, "output_mode": "int"}],
            "color": ["string_hashed", {"num_bins": 4, "output_mode": "int"}],
        },
        "crosses": [{"feature_names": ["color", "age"], "crossing_dim": 9, "output_mode": "int"}],
    },
}


def space(arguments, mode):
    new = keras.utils.FeatureSpace
    features = {
        name: value if isinstance(value, str) else getattr(new, value[0])(**value[1])
        for name, value in arguments["features"].items()
    }
    crosses = [
        new.cross(**cross) if isinstance(cross, dict) else tuple(cross)
        for cross in arguments.get("crosses", [])
    ]
    others = {k: v for k, v in arguments.items() if k not in ("features", "crosses")}
    return new(features, crosses=crosses, output_mode=mode, **others)


def computed(arguments, mode):
    made = space(arguments, mode)
    names = list(arguments["features"])
    columns = {name: np.asarray(TRAIN[name]) for name in names}
    made.adapt({n: c.astype("float32") if c.dtype == float else c for n, c in columns.items()})
    test = {name: np.asarray(TEST[name]) for name in names}
    test = {n: c.astype("float32") if n == "size" else c for n, c in test.items()}
    result = made(test)
    if mode == "dict":
        return {name: np.asarray(value).tolist() for name, value in result.items()}
    return np.asarray(result).tolist()


def main(path):
    cases = {}
    for name, arguments in CASES.items():
        rows = {"arguments": arguments}
        for mode in ("concat", "dict"):
            try:
                rows[mode] = computed(arguments, mode)
            except ValueError as error:
                rows[mode] = None
                print(name, mode, str(error)[:90])
        cases[name] = rows
    about = {"keras": keras.__version__, "train": TRAIN, "test": TEST, "cases": cases}
    with open(path, "w") as file:
        json.dump(about, file, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1])
