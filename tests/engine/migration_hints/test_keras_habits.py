"""Keras code that does not carry over; models in threads and in other processes."""

import dataclasses
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
X = np.ones((2, 3), "float32")


def test_keras_habits_get_migration_hints():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(x))
    for name, hint in (
        ("compile", "Trainer"),
        ("fit", r"trainer\.fit"),
        ("weights", r"jax\.tree\.leaves"),
        ("trainable_variables", "partition"),
        ("add_loss", r"fk\.Output"),
        ("save", "save_model"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(model, name)
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"fk\.freeze"):
        model.trainable = False
    with pytest.raises(dataclasses.FrozenInstanceError, match=r"replace\(units"):
        layers.Dense(2).units = 3
    for function in (jnp.sin, jnp.mean, lambda t: jnp.dot(t, X)):
        with pytest.raises(fk.SymbolicValueError, match=r"fk\.ops"):
            function(x)


def test_threads_share_no_state():
    models = []

    def make_model():
        x = fk.Input((3,))
        models.append(fk.Model(x, layers.Dense(2)(layers.Dense(3)(x))))

    threads = [threading.Thread(target=make_model) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(models) == 4
    assert all(model == models[0] for model in models)


@pytest.mark.exhaustive
def test_equality_survives_pickle_in_another_process(tmp_path):
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2)(x)).build(KEY)
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    code = (
        "import pickle, jax, fkeras as fk; from fkeras import layers;"
        f"m = pickle.load(open({str(path)!r}, 'rb')); x = fk.Input((3,));"
        "n = fk.Model(x, layers.Dense(2)(x)).build(jax.random.key(0));"
        "assert m == n and hash(m) == hash(n); print('equal')"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert process.stdout.strip() == "equal", process.stderr
