"""Equal trainers over equal models share compiled programs across processes."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import fkeras as fk
from benchmarks.meter import count_compiles
from fkeras import layers, optimizers

PROGRAM = """
import jax, numpy as np
import jax.monitoring
import fkeras as fk
from fkeras import layers

seen = {"hits": 0, "misses": 0}

def listen(event, **_):
    for kind in seen:
        seen[kind] += event.endswith(f"compilation_cache/cache_{kind}")

jax.monitoring.register_event_listener(listen)
x = fk.Input((8,))
h = layers.BatchNormalization()(layers.Dropout(0.1)(layers.Dense(16, "relu")(x)))
trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
run = trainer.init(fk.Model(x, layers.Dense(2, "softmax")(h)), jax.random.key(0))
images, labels = np.ones((64, 8), "float32"), np.zeros(64, "int32")
run, _ = trainer.fit(run, images, labels, epochs=2, verbose=0, validation_split=0.25)
trainer.predict(run, images)
print(seen["hits"], seen["misses"])
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

    def run():
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return tuple(map(int, done.stdout.split()))

    hits, misses = run()
    assert (hits, misses > 5) == (0, True)
    assert run() == (misses, 0)


X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2), layers.Dense(1)]).build(jax.random.key(0))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda rate: optimizers.AdamW(rate, weight_decay=rate / 10),
        lambda rate: optimizers.LossScaleOptimizer(optimizers.SGD(rate), initial_scale=rate * 100),
        lambda rate: optimizers.MultiOptimizer({"*bias": optimizers.SGD(rate), "*": "adam"}),
        lambda rate: optimizers.SGD(rate, name=f"sgd_{rate}"),
    ],
)
def test_a_sweep_over_learning_rates_compiles_once(optimizer):
    def train(rate):
        trainer = fk.Trainer(optimizer(rate), "mse")
        run = trainer.init(MODEL, jax.random.key(0))
        stepped, _ = trainer.step(run, (X, X[:, :1]))
        fitted, history = trainer.fit(run, X, X[:, :1], batch_size=8, verbose=0)
        trainer.evaluate(run, X, X[:, :1], verbose=0)
        return stepped, fitted, history

    one = train(0.1)
    with count_compiles() as compiles:
        two = train(0.2)
    assert not compiles
    for a, b in zip(one[:2], two[:2], strict=True):
        assert not np.allclose(a.model.layers["dense"].bias, b.model.layers["dense"].bias)


def test_a_rule_of_a_user_may_read_the_learning_rate():
    class Signs(optimizers.Optimizer):
        def step(self, gradient, weight, slots, rate, count):
            return -self.learning_rate * jax.numpy.sign(gradient), slots

    for rate in (0.5, 0.25):
        trainer = fk.Trainer(Signs(rate), "mse")
        run = trainer.init(MODEL, jax.random.key(0))
        new, _ = trainer.step(run, (X, X[:, :1]))
        moved = np.abs(new.model.layers["dense"].kernel - run.model.layers["dense"].kernel)
        np.testing.assert_allclose(moved, rate, rtol=1e-5)
