"""Equal trainers over equal models share compiled programs across processes."""

import os
import subprocess
import sys

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
