"""Equal trainers over equal models share compiled programs across processes."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, optimizers
from tests.support.compile_counts import count_compiles

TRAINING = """
import jax, numpy as np
import jax.monitoring
import fkeras as fk
from fkeras import layers

jax.numpy.zeros(3) + 1  # the line also works after a compilation
fk.utils.cache_programs()
counts = {"compile_duration": 0, "cache_hits": 0, "cache_misses": 0}

def listen(event, *_, **__):
    for kind in counts:
        counts[kind] += event.endswith(kind)

jax.monitoring.register_event_listener(listen)
jax.monitoring.register_event_duration_secs_listener(listen)
x = fk.Input((8,))
h = layers.BatchNormalization()(layers.Dropout(0.1)(layers.Dense(16, "relu")(x)))
trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
run = trainer.init(fk.Model(x, layers.Dense(2, "softmax")(h)), jax.random.key(0))
images, labels = np.ones((64, 8), "float32"), np.zeros(64, "int32")
run, _ = trainer.fit(run, images, labels, epochs=2, verbose=0, validation_split=0.25)
trainer.predict(run, images)
print(*counts.values(), fk.transforms.fingerprint(run.model), hash("a word"))
"""
SMALL = """
import jax, fkeras as fk

print(fk.utils.cache_programs())
jax.numpy.zeros(3) + 1
"""


def _output(program, **variables):
    unset = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={k: v for k, v in os.environ.items() if k not in unset} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.exhaustive
def test_a_second_process_compiles_nothing(tmp_path):
    def run(seed):
        output = _output(TRAINING, XDG_CACHE_HOME=str(tmp_path), PYTHONHASHSEED=seed)
        return tuple(map(int, output[:3])), output[3], output[4]

    # JAX's event of a compilation also counts programs that are read
    (programs, hits, misses), fingerprint, salted = run("1")
    assert programs > 5 and (hits, misses) == (0, programs)
    # another order of sets and other hashes give the same programs, and the same fingerprint
    counts, again, other = run("2")
    assert counts == (programs, programs, 0) and again == fingerprint and salted != other
    assert any((tmp_path / "fkeras" / "programs").iterdir())


@pytest.mark.exhaustive
def test_variables_of_jax_go_before_the_settings(tmp_path):
    folder = tmp_path / "own"
    variables = {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "600",
    }
    assert _output(SMALL, **variables) == [str(folder)]
    assert not folder.exists() or not list(folder.iterdir())
    variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    _output(SMALL, **variables)
    assert list(folder.iterdir())


X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(2), layers.Dense(1)]).build(jax.random.key(0))


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


def test_a_folder_is_a_path():
    with pytest.raises(
        TypeError, match=r"cache_programs: folder: expected a path, received 3 \(int\)"
    ):
        fk.utils.cache_programs(3)
