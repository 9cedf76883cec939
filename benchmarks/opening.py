"""Opening `.keras` files and the first prediction, against Keras 3.

    python benchmarks/opening.py [rounds]

Two models that Keras saved: 20 million parameters in 14 layers, and ResNet50. Each side opens them
in separate processes, in turn, twice in a row: the first time is the cost in a program that has
imported its packages, the second the cost with cached compiled programs. Goals: the first at most
0.1 of Keras's CPU time, no program compiled by opening and one by the first prediction, and the
growth of the peak memory close to the size of the file.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import meter

WIDTHS = (64, 128, 256, 256, 512, 512, 512, 512, 512, 512, 512)
UNITS = (2048, 1024, 512)


def save_models(folder):
    """Writes the two models with Keras."""
    import keras
    from keras import layers

    x = h = keras.Input((64, 64, 3))
    for width in WIDTHS:
        h = layers.Conv2D(width, 3, padding="same", activation="relu")(h)
    h = layers.GlobalAveragePooling2D()(h)
    for units in UNITS:
        h = layers.Dense(units, activation="relu")(h)
    plain = keras.Model(x, layers.Dense(10)(h))
    for name, model in (("plain", plain), ("ResNet50", keras.applications.ResNet50(weights=None))):
        path = pathlib.Path(folder, f"{name}.keras")
        model.save(path)
        size = path.stat().st_size / 2**20
        print(f"{name}: {model.count_params():,} parameters, {size:.0f} MiB")


def measured(load, predict, shape):
    """Opens twice, predicts once, and prints what that cost."""
    import resource

    import numpy as np

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    with meter.count_compiles() as compiles:
        for _ in range(2):
            start = time.process_time()
            model = load()
            times.append(time.process_time() - start)
            if len(times) == 1:
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
                opening = len(compiles)
        before = len(compiles)
        image = np.linspace(0, 1, int(np.prod(shape)), dtype="float32").reshape(1, *shape)
        start = time.process_time()
        outputs = np.asarray(predict(model, image))
        first = time.process_time() - start
    print(
        json.dumps(
            {
                "times": times,
                "first": first,
                "programs": [opening, len(compiles) - before],
                "grown": grown / 2**10,
                "outputs": outputs.ravel()[:10].tolist(),
            }
        )
    )


def fkeras_side(path, shape):
    import h5py  # noqa: F401
    import jax

    import fkeras as fk

    jax.random.key(0)

    def load():
        return jax.block_until_ready(fk.load_model(path))

    measured(load, lambda found, x: found[0](x, state=found[1]), shape)


def keras_side(path, shape):
    import h5py  # noqa: F401
    import jax
    import keras

    jax.random.key(0)

    def load():
        model = keras.models.load_model(path)
        jax.block_until_ready([v.value for v in model.variables])
        return model

    measured(load, lambda model, x: model.predict(x, verbose=0), shape)


def fresh(side, path, shape):
    command = [sys.executable, __file__, side, str(path), json.dumps(shape)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def compare(name, path, shape, rounds):
    sides = [("Keras 3", "keras"), ("fkeras", "fkeras")]
    found = {title: [] for title, _ in sides}
    for number in range(rounds):
        for title, side in sides if number % 2 == 0 else reversed(sides):
            found[title].append(fresh(side, path, shape))
    for kind, place in (("in a fresh process", 0), ("a second time", 1)):
        times = {title: [run["times"][place] for run in runs] for title, runs in found.items()}
        limit = ("fkeras", 0.1) if place == 0 else None
        meter.report(f"opening {name} {kind}", times, limit)
    times = {title: [run["first"] for run in runs] for title, runs in found.items()}
    meter.report(f"the first prediction of {name}", times)
    size = path.stat().st_size / 2**20
    for title, runs in found.items():
        opening, predicting = runs[0]["programs"]
        grown = max(run["grown"] for run in runs)
        print(
            f"  {title}: {opening} programs to open, {predicting} to predict; the peak memory grew "
            f"by {grown:.0f} MiB, {grown / size:.2f} of the file"
        )
    theirs, ours = (runs[0]["outputs"] for runs in found.values())
    apart = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
    assert apart <= 1e-4 * max(map(abs, theirs)), "the two sides computed something else"


def main(rounds):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "save", folder], check=True)
        for name, shape in (("plain", (64, 64, 3)), ("ResNet50", (224, 224, 3))):
            compare(name, pathlib.Path(folder, f"{name}.keras"), shape, rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["save"]:
        save_models(sys.argv[2])
    elif sys.argv[1:2] in (["fkeras"], ["keras"]):
        side = fkeras_side if sys.argv[1] == "fkeras" else keras_side
        side(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
