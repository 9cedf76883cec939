"""`fit` beside Keras's `fit` on JAX, and a plan for a TPU: the numbers of the pictures on the site's first page.

    pip install "jax[tpu]"
    python benchmarks/first_page.py [rounds]

Both sides have the same network, weights, data and order of rows, and must end with the same loss. The
result goes to `docs/extensions/pictures.json`, from which `docs/extensions/pictures.py` draws.
"""

import json
import pathlib
import statistics
import sys

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import keras
import networks

import fkeras as fk
from fkeras import layers

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
RESULT = pathlib.Path(__file__).parents[1] / "docs/extensions/pictures.json"
TITLES = {
    "mlp": "4 dense layers",
    "convnet": "convolutions",
    "lstm": "LSTM, masked",
    "transformer": "6 transformer blocks",
}


def transformer():
    """The transformer of `networks`, with a layer of attention that Keras has."""
    ids = fk.Input((32,), dtype="int32")
    h = layers.Embedding(200, 64)(ids)
    for _ in range(6):
        y = layers.LayerNormalization(epsilon=1e-5)(h)
        h += layers.MultiHeadAttention(4, 16)(y, y)
        y = layers.LayerNormalization(epsilon=1e-5)(h)
        h += layers.Dense(64)(layers.Dense(256, activation="relu")(y))
    return fk.Model(ids, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))


def measure_fit(name):
    """Quartiles of the ratio of fkeras's CPU time to Keras's, and the milliseconds of a step of both."""
    network = networks.TABLE[name]
    x, y, size = network.data()
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer(fk.optimizers.Adam(1e-3, epsilon=1e-8), loss)
    make = transformer if name == "transformer" else network.model
    run = trainer.init(make(), jax.random.key(0))
    model = fk.to_keras(run.model, run.state)
    model.compile(
        keras.optimizers.Adam(1e-3, epsilon=1e-8),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    weights = model.get_weights()

    def by_keras():
        model.set_weights(weights)
        for variable in model.optimizer.variables:
            if "learning_rate" not in variable.path:
                variable.assign(variable * 0)
        return model.fit(x, y, size, 2, verbose=0, shuffle=False).history["loss"][-1]

    def by_fit():
        return trainer.fit(run, x, y, size, 2, verbose=0, shuffle=False).history["loss"][-1]

    losses = by_keras(), by_fit()
    assert abs(losses[0] - losses[1]) < 2e-2 * max(losses[0], 0.1), (name, losses)
    times = meter.compare({"keras": by_keras, "fkeras": by_fit}, ROUNDS)
    meter.report(name, times)
    ratios = [a / b for a, b in zip(times["fkeras"], times["keras"], strict=True)]
    steps = 2 * -(-len(x) // size)
    return {
        "title": TITLES[name],
        "ratio": [round(q, 3) for q in statistics.quantiles(ratios, n=4)],
        "step_ms": {n: round(statistics.median(t) / steps * 1e3, 2) for n, t in times.items()},
    }


def plan_of_a_transformer():
    """The table of a plan for eight chips, which this machine does not have."""
    x = h = fk.Input((512, 512), name="text")
    for number in range(4):
        h = layers.TransformerEncoder(2048, 8, name=f"block{number}")(h)
    model = fk.Model(x, layers.Dense(1000, name="words")(h))
    trainer = fk.Trainer("adam", fk.losses.SparseCategoricalCrossentropy(from_logits=True))
    shapes = (
        jax.ShapeDtypeStruct((256, 512, 512), "float32"),
        jax.ShapeDtypeStruct((256, 512), "int32"),
    )
    plan = fk.plan(model, shapes, trainer, device="v5e:2x4")
    return str(plan)


def main():
    result = {"fit": {name: measure_fit(name) for name in TITLES}, "plan": plan_of_a_transformer()}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(result["plan"])


if __name__ == "__main__":
    main()
